"""Which results depend on the order of sums, or on where a constant is computed."""

from __future__ import annotations

import pytest

import xlakit
from xlakit.passes.analysis.roundings import inexact_results, largest_epsilon

SUM = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }"
MOST = "most { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }"

FOLD = "x = f32[4] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[] reduce(x, z), dimensions={0}"

POLYNOMIAL = (
    "x = f32[4] parameter(0)\n y = f32[4] reverse(x), dimensions={0}\n p = f32[4] multiply(x, y)\n"
    " c = f32[] constant(1)\n k = f32[4] broadcast(c), dimensions={}\n"
)


def entry(body: str, *computations: str) -> xlakit.HloModule:
    return xlakit.HloModule.from_text("\n".join(["HloModule m", *computations, "ENTRY e {", body, "}"]))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = f32[4] parameter(0)\n ROOT r = f32[4] tanh(x)", [False]),
        (f"{FOLD}, to_apply=sum", [True]),
        (f"{POLYNOMIAL} ROOT r = f32[4] add(p, k)", [True]),
        (f"{POLYNOMIAL} ROOT r = f32[4] add(x, p)", [False]),
        (f"{POLYNOMIAL} e = f32[4] exponential(x)\n ROOT r = f32[4] add(e, k)", [True]),
        (f"{POLYNOMIAL} e = f32[4] exponential(x)\n ROOT r = f32[4] add(e, x)", [False]),
        (f"{POLYNOMIAL} ROOT r = f32[4] subtract(k, p)", [False]),
        (f"{FOLD}, to_apply=most", [False]),
        (
            "x = f32[2,2] parameter(0)\n y = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            " z = f32[2,2] negate(y)\n n = f32[2,2] negate(x)\n ROOT r = (f32[2,2], f32[2,2]) tuple(n, z)",
            [False, True],
        ),
        (
            "x = s32[2,2] parameter(0)\n"
            " ROOT y = s32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            [False],
        ),
    ],
)
def test_results(body: str, expected: list[bool]):
    assert inexact_results(entry(body, SUM, MOST)) == expected


def test_what_is_carried_becomes_inexact_in_a_later_iteration():
    state = "(s32[], f32[2,2], f32[2,2], f32[2,2])"
    body = f"""body {{
      p = {state} parameter(0)
      i = s32[] get-tuple-element(p), index=0
      x = f32[2,2] get-tuple-element(p), index=1
      y = f32[2,2] get-tuple-element(p), index=2
      z = f32[2,2] get-tuple-element(p), index=3
      one = s32[] constant(1)
      next = s32[] add(i, one)
      d = f32[2,2] dot(z, z), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT r = {state} tuple(next, d, x, z)
    }}"""
    condition = f"""condition {{
      p = {state} parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(3)
      ROOT r = pred[] compare(i, n), direction=LT
    }}"""
    program = f"""i = s32[] parameter(0)
      x = f32[2,2] parameter(1)
      t = {state} tuple(i, x, x, x)
      ROOT r = {state} while(t), condition=condition, body=body"""
    assert inexact_results(entry(program, body, condition)) == [False, True, True, False]


def test_functions_of_constants_may_be_folded():
    module = entry("x = f32[4] constant({1, 2, 3, 4})\n y = f32[4] tanh(x)\n ROOT r = f32[4] negate(y)")
    assert inexact_results(module) == [False]
    assert inexact_results(module, folds=True) == [True]


def test_epsilon_is_that_of_the_narrowest_type():
    module = entry("x = f32[4] parameter(0)\n h = f16[4] convert(x)\n ROOT r = f64[4] convert(h)")
    assert largest_epsilon(module) == 2.0**-10
