"""Which sums of products a loop may leave to one product after it, and that the results stay what they were."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.passes import PassContext
from xlakit.passes.pipeline import run_pipeline

PROGRAM = """
HloModule sums

body {{
  state = (s32[], {kind}[4,3], {kind}[{rounds},2,4], {kind}[{rounds},2,3]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  sum = {kind}[4,3] get-tuple-element(state), index=1
  x = {kind}[{rounds},2,4] get-tuple-element(state), index=2
  y = {kind}[{rounds},2,3] get-tuple-element(state), index=3
  zero = s32[] constant(0)
  step = s32[] constant({step})
  first = s32[] constant({first})
  next = s32[] add(i, step)
  place = s32[] {place}
  cut.x = {kind}[1,2,4] dynamic-slice(x, {place_x}, zero, zero), dynamic_slice_sizes={{1,2,4}}
  cut.y = {kind}[1,2,3] dynamic-slice(y, place, zero, zero), dynamic_slice_sizes={{1,2,3}}
  a = {kind}[2,4] reshape(cut.x)
  b = {kind}[2,3] reshape(cut.y)
  product = {kind}[4,3] dot(a, b), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  after = {kind}[4,3] add(sum, product)
  {more}
  ROOT result = (s32[], {kind}[4,3], {kind}[{rounds},2,4], {kind}[{rounds},2,3]) tuple(next, after, x, {last})
}}

condition {{
  state = (s32[], {kind}[4,3], {kind}[{rounds},2,4], {kind}[{rounds},2,3]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  end = s32[] constant({end})
  {tested}
  ROOT more = pred[] compare(i, end), direction=LT
}}

ENTRY main {{
  x = {kind}[{rounds},2,4] parameter(0)
  y = {kind}[{rounds},2,3] parameter(1)
  sum = {kind}[4,3] parameter(2)
  i = s32[] constant(0)
  start = (s32[], {kind}[4,3], {kind}[{rounds},2,4], {kind}[{rounds},2,3]) tuple(i, sum, x, y)
  loop = (s32[], {kind}[4,3], {kind}[{rounds},2,4], {kind}[{rounds},2,3]) while(start), condition=condition, body=body
  ROOT result = {read}
}}
"""
PLAIN = {
    "kind": "f64",
    "rounds": 6,
    "end": 6,
    "step": 1,
    "first": 0,
    "place": "add(i, first)",
    "place_x": "place",
    "more": "",
    "tested": "",
    "last": "y",
    "read": "{kind}[4,3] get-tuple-element(loop), index=1",
}
LEFT = {
    "counted upwards": {},
    "counted downwards": {"first": 5, "place": "subtract(first, i)"},
    "whole numbers": {"kind": "s16"},
    "complex numbers": {"kind": "c128"},
}
KEPT = {
    "rounded in each round": {"kind": "bf16"},
    "two kinds of places": {"place_x": "i"},
    "a place outside": {"first": 1},
    "every other place": {"step": 2, "end": 12},
    "fewer rounds than places": {"end": 5},
    "the same place": {"place": "multiply(first, i)"},
    "hardly a loop": {"rounds": 3, "end": 3},
    "a sum that is read before": {"more": "read = f64[4,3] negate(sum)"},
    "a sum that is read after": {"more": "read = f64[4,3] negate(after)"},
    "a product that is read": {"more": "read = f64[4,3] negate(product)"},
    "a sum that is read twice": {"more": "again = f64[4,3] get-tuple-element(state), index=1"},
    "a state that is read as a whole": {"more": "read = (s32[], f64[4,3], f64[6,2,4], f64[6,2,3]) copy(state)"},
    "factors that change": {"more": "twice = f64[6,2,3] add(y, y)", "last": "twice"},
    "a result that is read as a whole": {"read": "(s32[], f64[4,3], f64[6,2,4], f64[6,2,3]) copy(loop)"},
    "a sum that is tested": {"tested": "sum = f64[4,3] get-tuple-element(state), index=1"},
    "a state that is tested as a whole": {"tested": "read = (s32[], f64[4,3], f64[6,2,4], f64[6,2,3]) copy(state)"},
}


def programs(changes):
    parts = PLAIN | changes
    module = xla.HloModule.from_text(PROGRAM.format(**parts | {"read": parts["read"].format(**parts)}))
    context = PassContext(check=True)
    return module, run_pipeline(module, ["while-sums"], context=context), context.rewrites


@pytest.mark.parametrize("changes", LEFT.values(), ids=LEFT)
def test_a_sum_of_products_is_left_to_one_product(changes):
    module, after, rewrites = programs(changes)
    assert rewrites == 1
    rng = np.random.default_rng(3)
    shapes = module.entry.program_shape.parameters
    given = [rng.integers(-50, 50, s.dimensions).astype(s.element_type.dtype) for s in shapes]
    results = [xla.compile(m, backend=b)(*given) for m in (module, after) for b in ("interpreter", "cpu")]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("changes", KEPT.values(), ids=KEPT)
def test_other_sums_stay(changes):
    module, after, rewrites = programs(changes)
    assert rewrites == 0
    assert after is module
