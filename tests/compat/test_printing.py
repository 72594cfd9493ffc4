"""HloPrintOptions: what jaxlib 0.6.0 prints with each of them."""

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops = xc.ops
Options = xc._xla.HloPrintOptions


@pytest.fixture(scope="module")
def module():
    def scalars(name, function, count=2):
        inner = xc.XlaBuilder(name)
        function(*[ops.Parameter(inner, i, xc.Shape("f32[]")) for i in range(count)])
        return inner.build()

    c = xc.XlaBuilder("print_options")
    c.set_op_metadata(xc.OpMetadata('t"y', "n, (m)", "f.py", 7))
    x = ops.Parameter(c, 0, xc.Shape("f32[2,3]"), "x")
    zero = ops.Constant(c, np.float32(0))
    total = ops.Reduce(c, [x], [zero], scalars("print_add", ops.Add), [1])
    call = ops.CustomCall(c, b"foo", [x], xc.Shape("f32[2]{0}"), b"opaque, {(")
    chosen = ops.Conditional(
        ops.Constant(c, np.bool_(True)), zero, scalars("neg", ops.Neg, 1), zero, scalars("abs", ops.Abs, 1)
    )
    ops.Tuple(c, [x, zero, total, call, chosen, x, ops.Sort(c, [total])])
    return c.build().as_hlo_module()


def lines_of(module, **changes):
    options = Options()
    for name, value in changes.items():
        setattr(options, name, value)
    return module.to_string(options).split("\n")


CALL = '  %custom-call.8 = f32[2]{0} custom-call(%x.1), custom_call_target="foo"'
REDUCE = "  %reduce.7 = f32[2]{0} reduce(%x.1, %constant.2)"
META = r', metadata={op_type="t\"y" op_name="n, (m)" source_file="f.py" source_line=7}'


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, REDUCE + ", dimensions={1}, to_apply=%print_add.3" + META),
        ({}, CALL + META + ', backend_config="opaque, {("'),
        ({"print_backend_config": False}, CALL + META),
        ({"print_ids": False}, REDUCE.replace(".7", "").replace(".1", "").replace(".2", "")
         + ", dimensions={1}, to_apply=%print_add" + META),
        ({"print_ids": False}, "%(p: f32[], p: f32[]) -> pred[] {"),
        ({"print_operand_names": False, "print_metadata": False}, "  ROOT %add.6 = f32[] add(, )"),
        ({"print_operand_shape": True}, "  ROOT %add.6 = f32[] add(f32[] %parameter.4, f32[] %parameter.5)"),
        ({"print_result_shape": False}, "  %constant.2 = constant(0)" + META),
        ({"print_extra_attributes": False}, REDUCE + ", to_apply=%print_add.3" + META),
        ({"include_layout_in_shapes": False}, "  %x.1 = f32[2,3] parameter(0)" + META),
        ({"canonicalize_instruction_names": True}, "  ROOT tmp_2 = f32[] add(tmp_0, tmp_1)"),
        ({"print_percent": False}, "  ROOT add.6 = f32[] add(parameter.4, parameter.5)"),
        ({"print_program_shape": False}, "%print_add.3 {"),
        ({"is_in_nested_computation": True}, "(parameter.4: f32[], parameter.5: f32[]) -> f32[] {"),
        ({"indent_amount": 2}, "      ROOT %add.6 = f32[] add(%parameter.4, %parameter.5)"),
    ],
)  # fmt: skip
def test_a_line(module, changes, line):
    assert line in lines_of(module, **changes)


def test_operands_are_cut_and_counted(module):
    (line,) = [line for line in lines_of(module, compact_operands=True) if "ROOT %tuple" in line]
    assert "tuple(%x.1, %constant.2, %reduce.7, %custom-call.8, ...(+3))" in line
    (line,) = [line for line in lines_of(module, print_percent=False) if "ROOT tuple" in line]
    assert "conditional.16, /*index=5*/x.1, sort.21)" in line


def test_canonical_text_has_the_computations_that_are_called(module):
    text = module.to_string(Options.canonical())
    assert (
        "true_computation=\n  {\n    tmp_0 = f32[] parameter(0)\n    ROOT tmp_1 = f32[] negate(f32[] tmp_0)\n"
        "  }, false_computation=\n  {\n    tmp_0 = f32[] parameter(0)\n    ROOT tmp_1 = f32[] abs(f32[] tmp_0)\n  }\n"
    ) in text
    assert "/*index=5*/tmp" not in text
    assert module.to_string(Options.fingerprint()).startswith("HloModule , entry_computation_layout=")


def test_values_have_types():
    with pytest.raises(TypeError, match="print_ids is of type bool"):
        Options().print_ids = 3


def test_fingerprints_have_the_values_of_integers():
    builder = xc.XlaBuilder("values")
    numbers = np.arange(12)
    ops.Tuple(builder, [ops.Constant(builder, numbers.astype(kind)) for kind in (np.int8, np.uint32, np.float32)])
    made = builder.build().get_hlo_module()
    values = "constant({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})"
    assert not Options.fingerprint().print_large_constants
    text = made.to_string(Options.fingerprint())
    assert (text.count(values), text.count("f32[12]{0} constant({...})")) == (2, 1)
    assert values not in made.to_string(Options.canonical())


def _constant(shape, values):
    return xc._xla.hlo_module_from_text(f"HloModule m\n\nENTRY e {{\n  ROOT c = {shape} constant({values})\n}}\n")


@pytest.mark.parametrize(
    ("shape", "values", "shown"),
    [
        ("f32[2]", "{1.5, 2.5}", "{...}"),
        ("f32[2]", "{-0, 0}", "0"),
        ("c64[]", "(1, 0)", "1"),
        ("s32[0]", "{}", "0"),
        ("s32[2]", "{5, 1}", "{5, 1}"),
        ("pred[2]", "{1, 0}", "{...}"),
        ("f16[12]", "{1,1,1,1,1,1,1,1,1,1,1,1}", "1"),
    ],
)
def test_fingerprints_have_of_constants_what_programs_differ_by(shape, values, shown):
    options = Options.fingerprint()
    options.print_large_constants = True
    assert f"constant({shown})\n" in _constant(shape, values).to_string(options)


def test_tuples_are_large_constants():
    module = _constant("(s32[], pred[2])", "(7, {1, 0})")
    assert "constant({...})" in module.to_string()
    assert "constant(( 7, {1, 0} ))" in module.to_string(Options.short_parsable())


def test_short_text_has_the_metadata_that_is_asked_for(module):
    options = Options.short_parsable()
    options.print_metadata = True
    assert 'op_type="t\\"y"' in module.to_string(options)
