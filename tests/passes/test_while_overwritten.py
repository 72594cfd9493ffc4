"""Which initial values of loops are left out, because all iterations together overwrite them unread."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes import PassContext
from xlakit.passes.pipeline import run_pipeline

PROGRAM = """
HloModule stacks

body {{
  state = ({count}[], f32[{rows},3], f32[3]) parameter(0)
  i = {count}[] get-tuple-element(state), index=0
  stack = f32[{rows},3] get-tuple-element(state), index=1
  x = f32[3] get-tuple-element(state), index=2
  zero = {count}[] constant(0)
  step = {count}[] constant({step})
  last = {count}[] constant({last})
  next = {count}[] add(i, step)
  place = {count}[] {place}
  y = f32[3] add(x, {added})
  piece = f32[{piece},3] broadcast(y), dimensions={{1}}
  after = f32[{rows},3] dynamic-update-slice(stack, piece, place, zero)
  {more}
  ROOT result = ({count}[], f32[{rows},3], f32[3]) tuple(next, {given}, y)
}}

condition {{
  state = ({count}[], f32[{rows},3], f32[3]) parameter(0)
  i = {count}[] get-tuple-element(state), index=0
  end = {count}[] constant({end})
  {tested}
  ROOT more = pred[] compare(i, end), direction=LT
}}

ENTRY main {{
  x = f32[3] parameter(0)
  i = {count}[] constant({first})
  c = f32[] constant(7)
  given = f32[{rows},3] parameter(1)
  stack = f32[{rows},3] broadcast(c), dimensions={{}}
  start = ({count}[], f32[{rows},3], f32[3]) tuple(i, {start}, x)
  loop = ({count}[], f32[{rows},3], f32[3]) while(start), condition=condition, body=body
  ROOT stacked = f32[{rows},3] get-tuple-element(loop), index=1
}}
"""
PLAIN = {
    "count": "s32",
    "rows": 6,
    "first": 0,
    "step": 1,
    "end": 6,
    "last": 5,
    "place": "add(i, zero)",
    "piece": 1,
    "added": "x",
    "more": "",
    "given": "after",
    "tested": "",
    "start": "stack",
}
BEFORE = "cut = f32[1,3] dynamic-slice(stack, zero, zero), dynamic_slice_sizes={1,3}  row = f32[3] reshape(cut)"


def changed(**changes):
    module = xla.HloModule.from_text(PROGRAM.format(**PLAIN | changes))
    context = PassContext()
    return module, run_pipeline(module, ["while-overwritten"], context=context), context.rewrites


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"place": "subtract(last, i)"},
        {"first": 3, "end": 9, "last": 3, "place": "subtract(i, last)"},
        {"count": "u8", "rows": 250, "end": 250, "last": 249, "place": "subtract(last, i)"},
        {"piece": 2, "step": 2},
        {"piece": 2, "end": 3, "place": "add(i, i)", "rows": 6, "more": "", "left": True},
    ],
)
def test_stacks_begin_unwritten(changes):
    changes = dict(changes)
    is_left = changes.pop("left", False)
    module, after, rewrites = changed(**changes)
    # A sum of two counters is not followed, though it would do.
    assert rewrites == (0 if is_left else 1)
    assert ("xlakit.Unwritten" in after.to_text()) is not is_left
    check(module)


@pytest.mark.parametrize(
    "changes",
    [
        {"end": 5},
        {"first": 1},
        {"rows": 7},
        {"step": 2},
        {"piece": 2},
        {"place": "add(zero, zero)"},
        {"place": "add(i, last)"},
        {"place": "multiply(i, i)"},
        {"count": "u8", "rows": 300, "end": 200, "place": "add(i, last)"},
        {"more": BEFORE},
        {"more": f"{BEFORE}  other = f32[6,3] broadcast(row), dimensions={{1}}", "given": "other"},
        {"given": "stack"},
        {"start": "given"},
        {"tested": "stack = f32[6,3] get-tuple-element(state), index=1"},
    ],
)
def test_what_is_read_or_kept_stays(changes):
    module, after, rewrites = changed(**changes)
    assert not rewrites
    assert after is module


def test_the_sanitizer_shows_what_is_not_overwritten():
    text = 'HloModule m  ENTRY main { ROOT x = f32[3] custom-call(), custom_call_target="xlakit.Unwritten" }'
    with compiling(sanitize=True):
        assert np.isnan(xla.compile(xla.HloModule.from_text(text), backend="cpu")()).all()


def check(module):
    """Compiled as usual and for the sanitizer, which fills unwritten arrays with NaN, against the interpreter."""
    x = np.arange(3, dtype=np.float32)
    given = np.full(module.entry.parameters[1].shape.dimensions, 5, np.float32)
    expected = xla.compile(module, backend="interpreter")(x, given)
    for sanitize in (False, True):
        with compiling(sanitize=sanitize):
            np.testing.assert_array_equal(xla.compile(module, backend="cpu", cache=False)(x, given), expected)
