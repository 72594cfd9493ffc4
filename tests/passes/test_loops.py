"""Loops: how often they run, and that fuel stops a pass at any rewrite with the same results."""

from pathlib import Path

import numpy as np
import pytest
from evaluating import same

import xlakit as xla
from xlakit.passes import PassContext
from xlakit.passes.analysis.loops import loop_of, trip_count
from xlakit.passes.loops.invariants import invariant_instructions
from xlakit.passes.pipeline import run_pipeline

GOLDEN = Path(__file__).parent / "golden"
TESTS = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


def counting(kind, first, operation, step, direction, bound, *, turned=False):
    sides = "bound, i" if turned else "i, bound"
    return xla.HloModule.from_text(f"""HloModule counting
body {{
  state = ({kind}[], s32[]) parameter(0)
  i = {kind}[] get-tuple-element(state), index=0
  count = s32[] get-tuple-element(state), index=1
  step = {kind}[] constant({step})
  one = s32[] constant(1)
  next = {kind}[] {operation}(i, step)
  more = s32[] add(count, one)
  ROOT result = ({kind}[], s32[]) tuple(next, more)
}}
condition {{
  state = ({kind}[], s32[]) parameter(0)
  i = {kind}[] get-tuple-element(state), index=0
  bound = {kind}[] constant({bound})
  ROOT test = pred[] compare({sides}), direction={direction}
}}
ENTRY main {{
  first = {kind}[] constant({first})
  zero = s32[] constant(0)
  start = ({kind}[], s32[]) tuple(first, zero)
  ROOT loop = ({kind}[], s32[]) while(start), condition=condition, body=body
}}""")


def rounds(dtype, first, operation, step, direction, bound, *, turned=False):
    """How often it runs, with the wrapping of the type; None for more than any that does not wrap."""
    i, step, bound = (np.asarray(x, dtype) for x in (first, step, bound))
    for count in range(600):
        if not TESTS[direction](*((bound, i) if turned else (i, bound))):
            return count
        i = (i + step if operation == "add" else i - step).astype(dtype)
    return None


@pytest.mark.parametrize("direction", TESTS)
@pytest.mark.parametrize(("kind", "dtype"), [("s8", np.int8), ("u8", np.uint8)])
def test_the_trip_count_is_how_often_a_loop_runs(kind, dtype, direction):
    rng, limits = np.random.default_rng(list(TESTS).index(direction)), np.iinfo(dtype)
    for i in range(24):
        # Numbers near zero, those near the ends, and any.
        drawn = [
            rng.integers(max(limits.min, -3), 4, 3),
            rng.choice([limits.min, limits.min + 1, limits.max - 1, limits.max], 3),
            rng.integers(limits.min, limits.max, 3, endpoint=True),
        ]
        first, step, bound = np.choose(rng.integers(0, 3, 3), drawn).tolist()
        operation, turned = ("add", "subtract")[i % 2], bool(i // 2 % 2)
        module = counting(kind, first, operation, step, direction, bound, turned=turned)
        found = trip_count(loop_of(module.entry.root))
        if found is not None:
            assert found == rounds(dtype, first, operation, step, direction, bound, turned=turned)


@pytest.mark.parametrize(
    ("first", "operation", "step", "direction", "bound", "expected"),
    [
        (0, "add", 1, "LT", 10, 10),
        (0, "add", 3, "LE", 9, 4),
        (10, "subtract", 1, "GT", 0, 10),
        (10, "add", -2, "GE", 0, 6),
        (0, "add", 2, "NE", 10, 5),
        (4, "add", 1, "EQ", 4, 1),
        (5, "add", 1, "LT", 5, 0),
        (0, "add", 0, "LT", 1, None),
        (0, "add", 3, "NE", 10, None),
        (120, "add", 10, "LT", 127, None),
    ],
)
def test_usual_loops_are_counted(first, operation, step, direction, bound, expected):
    module = counting("s8", first, operation, step, direction, bound)
    assert trip_count(loop_of(module.entry.root)) == expected


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ("i.next = s32[] add(i, one)", "i.next = s32[] add(n, one)"),
        ("n.next = s32[] copy(n)", "n.next = s32[] add(n, one)"),
    ],
    ids=["a step from another element", "a bound that moves"],
)
def test_other_loops_are_not_counted(change, by):
    text = """HloModule m
        body {
          s = (s32[], s32[]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          n = s32[] get-tuple-element(s), index=1
          one = s32[] constant(1)
          i.next = s32[] add(i, one)
          n.next = s32[] copy(n)
          ROOT t = (s32[], s32[]) tuple(i.next, NEXT)
        }
        condition {
          s = (s32[], s32[]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          n = s32[] get-tuple-element(s), index=1
          ROOT less = pred[] compare(i, n), direction=LT
        }
        ENTRY e {
          zero = s32[] constant(0)
          five = s32[] constant(5)
          start = (s32[], s32[]) tuple(zero, five)
          ROOT loop = (s32[], s32[]) while(start), body=body, condition=condition
        }"""
    counted = xla.HloModule.from_text(text.replace("NEXT", "n"))
    assert trip_count(loop_of(counted.entry.root)) == 5
    module = xla.HloModule.from_text(text.replace("NEXT", "n.next" if "n.next" in by else "n").replace(change, by))
    assert trip_count(loop_of(module.entry.root)) is None


LOOPS = sorted(p for name in ("while-*", "unroll-*", "conditional-*", "expand") for p in GOLDEN.glob(f"{name}/*.hlo"))


@pytest.mark.parametrize("path", LOOPS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_fuel_may_end_anywhere(path):
    module = xla.HloModule.from_text(path.read_text(encoding="utf-8").partition("\n// after\n")[0])
    rng = np.random.default_rng(1)
    arguments = [
        rng.integers(0, 2, s.dimensions).astype(s.element_type.dtype) for s in module.entry.program_shape.parameters
    ]
    expected = xla.compile(module, backend="interpreter")(*arguments)
    context = PassContext()
    run_pipeline(module, [path.parent.name], context=context)
    for fuel in range(context.rewrites):
        less = run_pipeline(module, [path.parent.name], context=PassContext(fuel=fuel, check=True))
        same(xla.compile(less, backend="interpreter")(*arguments), expected)


def test_invariant_values_that_are_used_twice_are_looked_at_once():
    """Each value is the product of the one before it and of its mirror image: 2^60 paths lead to the first."""
    steps = "".join(
        f"""
          r{n} = f32[2048] reverse(x{n}), dimensions={{0}}
          x{n + 1} = f32[2048] multiply(x{n}, r{n})"""
        for n in range(60)
    )
    module = xla.HloModule.from_text(f"""HloModule m
        body {{
          s = (s32[], f32[], f32[2048]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          one = s32[] constant(1)
          next = s32[] add(i, one)
          u = f32[] get-tuple-element(s), index=1
          carried = f32[2048] get-tuple-element(s), index=2
          x0 = f32[2048] broadcast(u), dimensions={{}}{steps}
          new = f32[2048] add(carried, x60)
          ROOT t = (s32[], f32[], f32[2048]) tuple(next, u, new)
        }}
        condition {{
          s = (s32[], f32[], f32[2048]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          n = s32[] constant(3)
          ROOT less = pred[] compare(i, n), direction=LT
        }}
        ENTRY e {{
          zero = s32[] constant(0)
          u = f32[] parameter(0)
          x = f32[2048] parameter(1)
          start = (s32[], f32[], f32[2048]) tuple(zero, u, x)
          loop = (s32[], f32[], f32[2048]) while(start), body=body, condition=condition
          ROOT r = f32[2048] get-tuple-element(loop), index=2
        }}""")
    loop = next(loop for i in module.entry.instructions if (loop := loop_of(i)) is not None)
    assert invariant_instructions(loop) == []
