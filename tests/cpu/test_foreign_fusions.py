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
}


@pytest.mark.parametrize("kind", ["kCustom", "kLoop"])
@pytest.mark.parametrize("case", CASES)
def test_machine_code_gives_what_the_interpreter_gives(case, kind):
    body, operands, result = CASES[case]
    names = [f"a{n}" for n in range(len(operands))]
    lines = [f"  {name} = {shape} parameter({n})" for n, (name, shape) in enumerate(zip(names, operands, strict=True))]
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
        np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=1e-5, atol=1e-4)


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
