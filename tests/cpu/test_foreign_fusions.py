"""Fusions of another compiler: they have what those made here never have, and stay fusions where they say so."""

import numpy as np
import pytest
from evaluating import same

import xlakit as xla
from xlakit.cpu.entry.lowering import Lowering
from xlakit.errors import InternalError
from xlakit.execution.inputs import make_inputs

ADD = """add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
"""
# A custom fusion stays one. Each case: the fused computation, the operands' shapes, the result's shape.
CASES = {
    "results of different sizes": (
        "  p0 = f32[10] parameter(0)\n  p1 = f32[5] parameter(1)\n  n = f32[10] negate(p0)\n"
        "  e = f32[5] exponential(p1)\n  ROOT t = (f32[5], f32[10]) tuple(e, n)",
        ["f32[10]", "f32[5]"],
        "(f32[5], f32[10])",
    ),
    "an update beside its update": (
        "  p0 = f32[10] parameter(0)\n  p1 = f32[5] parameter(1)\n  p2 = s32[] parameter(2)\n"
        "  d = f32[10] dynamic-update-slice(p0, p1, p2)\n  ROOT t = (f32[5], f32[10]) tuple(p1, d)",
        ["f32[10]", "f32[5]", "s32[]"],
        "(f32[5], f32[10])",
    ),
    "a tuple as parameter": (
        "  p0 = (f32[4,4], f32[4,4]) parameter(0)\n  a = f32[4,4] get-tuple-element(p0), index=0\n"
        "  b = f32[4,4] get-tuple-element(p0), index=1\n"
        "  ROOT d = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        ["(f32[4,4], f32[4,4])"],
        "f32[4,4]",
    ),
    "a tuple that is not read before a product": (
        "  p0 = (s32[], s32[7], bf16[5,1,7]) parameter(0)\n  p1 = bf16[5,1,7] parameter(1)\n"
        "  ROOT d = bf16[5,7,5,7] dot(p1, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        ["(s32[], s32[7], bf16[5,1,7])", "bf16[5,1,7]"],
        "bf16[5,7,5,7]",
    ),
    "a tuple in the result": (
        "  p0 = f32[3] parameter(0)\n  n = f32[3] negate(p0)\n  u = (f32[3], f32[3]) tuple(p0, n)\n"
        "  ROOT t = (f32[3], (f32[3], f32[3])) tuple(n, u)",
        ["f32[3]"],
        "(f32[3], (f32[3], f32[3]))",
    ),
    "an array inside": (
        "  p0 = f32[3] parameter(0)\n  c = f32[3] constant({1,2,3})\n  ROOT s = f32[3] add(p0, c)",
        ["f32[3]"],
        "f32[3]",
    ),
    "a constant tuple inside": (
        "  p0 = f32[3] parameter(0)\n  c = (f32[3], (s32[], pred[2])) constant(({1,2,3}, (4, {1,0})))\n"
        "  e = f32[3] get-tuple-element(c), index=0\n  s = f32[3] add(p0, e)\n"
        "  f = (s32[], pred[2]) get-tuple-element(c), index=1\n  ROOT t = (f32[3], (s32[], pred[2])) tuple(s, f)",
        ["f32[3]"],
        "(f32[3], (s32[], pred[2]))",
    ),
    "a bitcast of a tiled array": (
        "  p0 = f32[3,5]{1,0:T(2,4)} parameter(0)\n  ROOT b = f32[15]{0} bitcast(p0)",
        ["f32[3,5]{1,0:T(2,4)}"],
        "f32[15]{0}",
    ),
    "a reduction beside a cube": (
        "  p0 = f32[6,40] parameter(0)\n  z = f32[] constant(0)\n  n = f32[6,40] negate(p0)\n"
        "  r = f32[6] reduce(n, z), dimensions={1}, to_apply=add\n  b = f32[240] bitcast(n)\n"
        "  ROOT t = (f32[6], f32[240], f32[6,40]) tuple(r, b, n)",
        ["f32[6,40]"],
        "(f32[6], f32[240], f32[6,40])",
    ),
    "floats of two precisions": (
        "  p0 = f32[3] parameter(0)\n  p1 = bf16[3] parameter(1)\n  c = bf16[3] convert(p0)\n"
        "  ROOT s = bf16[3] subtract(c, p1)",
        ["f32[3]", "bf16[3]"],
        "bf16[3]",
    ),
    "a sort and a scatter": (
        "  p0 = f32[6] parameter(0)\n  p1 = s32[2,1] parameter(1)\n  p2 = f32[2] parameter(2)\n"
        "  s = f32[6] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
        "  ROOT t = (f32[6], f32[3,2]) tuple(s, reshape(s))".replace("reshape(s)", "h").replace(
            "  ROOT t", "  h = f32[3,2] reshape(s)\n  ROOT t"
        ),
        ["f32[6]", "s32[2,1]", "f32[2]"],
        "(f32[6], f32[3,2])",
    ),
    # What a loop computes once for each result is needed at other places of it, too.
    "sums of other rows": (
        "  p0 = f32[6,40] parameter(0)\n  z = f32[] constant(0)\n"
        "  r = f32[6] reduce(p0, z), dimensions={1}, to_apply=add\n  v = f32[6] reverse(r), dimensions={0}\n"
        "  b = f32[6,40] broadcast(v), dimensions={0}\n  ROOT s = f32[6,40] subtract(p0, b)",
        ["f32[6,40]"],
        "f32[6,40]",
    ),
    "sums of other columns": (
        "  p0 = f32[40,6] parameter(0)\n  z = f32[] constant(0)\n"
        "  r = f32[6] reduce(p0, z), dimensions={0}, to_apply=add\n  v = f32[6] reverse(r), dimensions={0}\n"
        "  ROOT s = f32[6] subtract(r, v)",
        ["f32[40,6]"],
        "f32[6]",
    ),
    "sums of sums of columns": (
        "  p0 = f32[2,40,6] parameter(0)\n  z = f32[] constant(0)\n"
        "  r = f32[2,6] reduce(p0, z), dimensions={1}, to_apply=add\n  b = f32[2,40,6] broadcast(r), dimensions={0,2}\n"
        "  d = f32[2,40,6] subtract(p0, b)\n  ROOT s = f32[2,6] reduce(d, z), dimensions={1}, to_apply=add",
        ["f32[2,40,6]"],
        "f32[2,6]",
    ),
    "exponentials of a row and those from its end": (
        "  p0 = f32[6,40] parameter(0)\n  z = f32[] constant(0)\n  e = f32[6,40] exponential(p0)\n"
        "  r = f32[6] reduce(e, z), dimensions={1}, to_apply=add\n  b = f32[6,40] broadcast(r), dimensions={0}\n"
        "  v = f32[6,40] reverse(e), dimensions={1}\n  d = f32[6,40] divide(v, b)\n"
        "  ROOT s = f32[6,40] add(d, e)",
        ["f32[6,40]"],
        "f32[6,40]",
    ),
    "reductions over no elements": (
        "  p0 = f32[0,40] parameter(0)\n  p1 = f32[40,0] parameter(1)\n  z = f32[] constant(3)\n"
        "  r = f32[40] reduce(p0, z), dimensions={0}, to_apply=add\n"
        "  q = f32[40] reduce(p1, z), dimensions={1}, to_apply=add\n  ROOT s = f32[40] subtract(r, q)",
        ["f32[0,40]", "f32[40,0]"],
        "f32[40]",
    ),
    # An update is written into its operand while the kernel still reads that.
    "an update of what is computed": (
        "  p0 = f32[40] parameter(0)\n  p1 = f32[7] parameter(1)\n  p2 = s32[] parameter(2)\n"
        "  n = f32[40] negate(p0)\n  ROOT d = f32[40] dynamic-update-slice(n, p1, p2)",
        ["f32[40]", "f32[7]", "s32[]"],
        "f32[40]",
    ),
    "an update from its own operand": (
        "  p0 = f32[40] parameter(0)\n  p1 = s32[] parameter(1)\n  c = s32[] constant(1)\n  j = s32[] add(p1, c)\n"
        "  u = f32[30] dynamic-slice(p0, p1), dynamic_slice_sizes={30}\n"
        "  ROOT d = f32[40] dynamic-update-slice(p0, u, j)",
        ["f32[40]", "s32[]"],
        "f32[40]",
    ),
    "an update that stands on its head": (
        "  p0 = f32[40] parameter(0)\n  p1 = s32[] parameter(1)\n"
        "  u = f32[30] dynamic-slice(p0, p1), dynamic_slice_sizes={30}\n  v = f32[30] reverse(u), dimensions={0}\n"
        "  ROOT d = f32[40] dynamic-update-slice(p0, v, p1)",
        ["f32[40]", "s32[]"],
        "f32[40]",
    ),
    "starts in one vector": (
        "  p0 = f32[40,3] parameter(0)\n  p1 = s32[2] parameter(1)\n"
        "  ROOT d = f32[7,2] dynamic-slice(p0, p1), dynamic_slice_sizes={7,2}",
        ["f32[40,3]", "s32[2]"],
        "f32[7,2]",
    ),
    # Elements that most do not have, and elements between others.
    "windows over a border in lanes": (
        "  p0 = f32[3,40] parameter(0)\n  z = f32[] constant(0)\n  n = f32[3,40] negate(p0)\n"
        "  ROOT w = f32[3,40] reduce-window(n, z), window={size=1x3 pad=0_0x1_1}, to_apply=add",
        ["f32[3,40]"],
        "f32[3,40]",
    ),
    "a chain of borders of short arrays": (
        "  p0 = f32[3] parameter(0)\n  p1 = f32[2] parameter(1)\n"
        + "".join(
            f"  c{k} = f32[{5 + 3 * k}] concatenate({f'c{k - 1}' if k else 'p0'}, {'p0' if k else 'p1'}),"
            " dimensions={0}\n"
            f"  n{k} = f32[{5 + 3 * k}] reverse(c{k}), dimensions={{0}}\n"
            for k in range(8)
        )
        + "  ROOT s = f32[26] add(c7, n7)",
        ["f32[3]", "f32[2]"],
        "f32[26]",
    ),
    "pads between complex numbers": (
        "  p0 = c128[3,8] parameter(0)\n  z = c128[] constant((1, 2))\n"
        "  ROOT p = c128[3,15] pad(p0, z), padding=0_0x0_0_1",
        ["c128[3,8]"],
        "c128[3,15]",
    ),
    "pads between small integers": (
        "  p0 = s4[3,8] parameter(0)\n  z = s4[] constant(-3)\n  ROOT p = s4[3,15] pad(p0, z), padding=0_0x0_0_1",
        ["s4[3,8]"],
        "s4[3,15]",
    ),
    "pads between floats of two precisions": (
        "  p0 = f32[3,8] parameter(0)\n  z = bf16[] constant(2)\n  ROOT p = f32[3,15] pad(p0, z), padding=0_0x0_0_1",
        ["f32[3,8]"],
        "f32[3,15]",
    ),
    "a gather of no elements": (
        "  p0 = f32[0,4] parameter(0)\n  p1 = s32[6] parameter(1)\n  g = f32[6,4] gather(p0, p1), offset_dims={1},"
        " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,4}\n"
        "  ROOT n = f32[6,4] negate(g)",
        ["f32[0,4]", "s32[6]"],
        "f32[6,4]",
    ),
}


@pytest.mark.parametrize(("kind", "computed"), [("kCustom", False), ("kCustom", True), ("kLoop", False)])
@pytest.mark.parametrize("case", CASES)
def test_machine_code_gives_what_the_interpreter_gives(case, kind, computed):
    """``computed``: operands of floats are values of the program, which a kernel may overwrite."""
    body, operands, result = CASES[case]
    names = [f"a{n}" for n in range(len(operands))]
    lines = [f"  {name} = {shape} parameter({n})" for n, (name, shape) in enumerate(zip(names, operands, strict=True))]
    for n, shape in enumerate(operands):
        if computed and shape.startswith("f32[") and "{" not in shape:
            names[n] = f"n{n}"
            lines.append(f"  n{n} = {shape} negate(a{n})")
    text = (
        f"HloModule m\n{ADD}fused {{\n{body}\n}}\nENTRY e {{\n" + "\n".join(lines) + "\n"
        f"  ROOT f = {result} fusion({', '.join(names)}), kind={kind}, calls=fused\n}}\n"
    )
    module = xla.HloModule.from_text(text)
    given = make_inputs(module.entry.program_shape, 1)
    with np.errstate(all="ignore"):
        actual, expected = (xla.compile(module, backend=b)(*given) for b in ("cpu", "interpreter"))
    for a, e in zip(leaves(actual), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), e.astype(wide), rtol=1e-5, atol=1e-4)


def leaves(value):
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [np.asarray(value)]


def test_a_constant_tuple_is_the_result():
    text = "HloModule m\nENTRY e {\n  ROOT c = (f32[2], (s32[], pred[2])) constant(({1,2}, (3, {1,0})))\n}\n"
    result = xla.compile(xla.HloModule.from_text(text), backend="cpu")()
    same(result, (np.float32([1, 2]), (np.int32(3), np.array([True, False]))))


def test_a_variadic_reduction_that_is_a_fusion_is_not_made_again():
    # Its two arrays come from one instruction, so neither is a root of its own.
    text = """HloModule m
larger {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  m = f32[] maximum(a, b)
  n = s32[] maximum(i, j)
  ROOT t = (f32[], s32[]) tuple(m, n)
}
ENTRY e {
  x = f32[3000,10] parameter(0)
  i = s32[3000,10] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  high = f32[] constant(3)
  one = s32[] constant(1)
  r = (f32[3000], s32[3000]) reduce(x, i, low, zero), dimensions={1}, to_apply=larger
  s = (f32[3000], s32[3000]) reduce(x, i, high, one), dimensions={1}, to_apply=larger
  a = s32[3000] get-tuple-element(r), index=1
  b = s32[3000] get-tuple-element(s), index=1
  ROOT c = s32[3000] add(a, b)
}
"""
    module = xla.HloModule.from_text(text)
    given = make_inputs(module.entry.program_shape, 1)
    same(xla.compile(module, backend="cpu")(*given), xla.compile(module, backend="interpreter")(*given))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (IndexError("out of range"), "compiling doubled ended in IndexError: out of range"),
        (RecursionError("too deep"), "compiling doubled ended in RecursionError: too deep"),
        # The program was well formed.
        (xla.ShapeError("f32 is not bf16", operation="add"), "compiling doubled broke a rule: add: f32 is not bf16"),
        (InternalError("no such loop"), "no such loop"),
    ],
)
def test_a_fault_of_the_compiler_says_so_and_how_to_go_on(monkeypatch, error, words):
    def fails(self):
        raise error

    monkeypatch.setattr(Lowering, "lower", fails)
    text = "HloModule doubled\nENTRY e {\n  x = f32[3] parameter(0)\n  ROOT y = f32[3] add(x, x)\n}\n"
    with pytest.raises(InternalError, match=words) as caught:
        xla.compile(xla.HloModule.from_text(text), cache=False)
    assert "report it" in caught.value.hint
    assert "--backend interpreter" in caught.value.hint


def test_what_is_not_supported_is_no_fault(monkeypatch):
    def fails(self):
        raise xla.UnsupportedError("not yet")

    monkeypatch.setattr(Lowering, "lower", fails)
    text = "HloModule doubled\nENTRY e {\n  x = f32[3] parameter(0)\n  ROOT y = f32[3] add(x, x)\n}\n"
    with pytest.raises(xla.UnsupportedError, match="not yet"):
        xla.compile(xla.HloModule.from_text(text), cache=False)
