"""The state of loops in compiled programs: computed where it stays, and never before its last reader."""

import numpy as np
import pytest
from evaluating import build, ints, s32, same

import xlakit as xla
from xlakit.options import compiling


def kept(x):
    """``x`` as a value of its own: kernels are not fused across it."""
    return xla.optimization_barrier(x)


def read_at_the_end(x):
    return kept(x * 2) * 5 + x


def read_in_between(x):
    first = kept(x * 2)
    return first * 5 + kept(first + x)


def read_by_two(x):
    first = kept(x * 2)
    second = kept(first * 3)
    return second + kept(x + 1) * first


@pytest.mark.parametrize("step", [read_at_the_end, read_in_between, read_by_two])
def test_a_value_in_the_place_of_another_does_not_overwrite_the_state(step):
    def program(x):
        def body(state):
            return xla.get_tuple_element(state, 0) + 1, step(xla.get_tuple_element(state, 1))

        start = (xla.constant(x.builder, 0), x)
        return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < 9, body, start), 1)

    x = ints([4, 2, 3, 1])
    built = build(program, s32(4))
    same(xla.compile(built, backend="cpu")(x), xla.compile(built, backend="interpreter")(x))


def test_a_collective_in_a_loop_does_not_overwrite_what_is_read_later():
    def program(x):
        def body(state):
            count, value = (xla.get_tuple_element(state, i) for i in range(2))
            return count + 1, xla.all_reduce(value, xla.add) * 5 + value

        start = (xla.constant(x.builder, 0), x)
        return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < 2, body, start), 1)

    executable = xla.compile(build(program, s32(2)), backend="cpu", num_replicas=2)
    first, second = executable.execute_replicated([[ints([1, 2])], [ints([10, 20])]])
    same(first, ints([661, 1322]))
    same(second, np.array([670, 1340], np.int32))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_value_that_begins_two_elements_stays_what_it_was_in_the_one(order):
    def program(x):
        def body(state):
            count, *pair, total = (xla.get_tuple_element(state, i) for i in range(4))
            changed, fixed = pair[order[0]], pair[order[1]]
            made = {order[0]: changed * 2, order[1]: fixed}
            return count + 1, made[0], made[1], total + fixed

        first = kept(x * 3)
        start = (xla.constant(x.builder, 0), first, first, x)
        loop = xla.while_(lambda s: xla.get_tuple_element(s, 0) < 20, body, start)
        return xla.get_tuple_element(loop, 1 + order[0]), xla.get_tuple_element(loop, 3)

    x = ints([4, 2, 3, 1])
    built = build(program, s32(4))
    same(xla.compile(built, backend="cpu")(x), xla.compile(built, backend="interpreter")(x))


@pytest.mark.parametrize("kind", [xla.F32, xla.F64, xla.S8, xla.S64, xla.PRED, xla.BF16, xla.C64])
def test_scalars_that_a_loop_selects_crosswise(kind):
    def program(a, b):
        def body(state):
            count, left, right = (xla.get_tuple_element(state, i) for i in range(3))
            stays = xla.eq(xla.rem(count, 3), 0)
            return count + 1, xla.select(stays, left, right), xla.select(stays, right, left)

        start = (xla.constant(a.builder, 0), a, b)
        end = xla.while_(lambda s: xla.get_tuple_element(s, 0) < 10, body, start)
        return xla.get_tuple_element(end, 1), xla.get_tuple_element(end, 2)

    scalar = xla.make_shape(kind, ())
    built = build(program, scalar, scalar)
    values = [np.array(number, kind.dtype) for number in (3, 0)]
    for got, expected in zip(
        xla.compile(built)(*values), xla.compile(built, backend="interpreter")(*values), strict=True
    ):
        same(got, expected)


def test_a_condition_that_updates_in_place_leaves_the_state_to_the_body():
    def program(x):
        def state_of(state):
            return xla.get_tuple_element(state, 0), xla.get_tuple_element(state, 1)

        def condition(state):
            count, values = state_of(state)
            updated = xla.dynamic_update_slice(values, kept(xla.broadcast(count, (1,)) + 7), [count])
            return xla.and_(count < 5, xla.reduce(updated, 0, xla.add, dimensions=[0]) < 1000)

        def body(state):
            count, values = state_of(state)
            return count + 1, values * 2

        start = (xla.constant(x.builder, 0), kept(x))
        return xla.get_tuple_element(xla.while_(condition, body, start), 1)

    x = ints([4, 2, 3, 1, 5])
    built = build(program, s32(5))
    same(xla.compile(built, backend="cpu")(x), xla.compile(built, backend="interpreter")(x))


def test_an_element_under_another_name_is_read_before_the_next_state_overwrites_it():
    """A branch that gives its arguments back stays a call: its results are the loop's state under other names."""

    def program(a, b):
        def body(state):
            count, left, right = (xla.get_tuple_element(state, i) for i in range(3))
            given = (left, right, count)

            def exchanged(s):
                x, y = (xla.get_tuple_element(s, i) for i in range(2))
                stays = xla.broadcast(xla.gt(xla.rem(xla.get_tuple_element(s, 2), 3), 0), (9,))
                return xla.tuple_(xla.select(stays, x, y), xla.select(stays, y, x))

            def as_it_was(s):
                x, y, count = (xla.get_tuple_element(s, i) for i in range(3))
                return xla.tuple_(*_as_it_is(count, x, y))

            made = xla.conditional(xla.gt(count, 0), given, exchanged, given, as_it_was)
            return count + 1, xla.get_tuple_element(made, 0), xla.get_tuple_element(made, 1)

        start = (xla.constant(a.builder, 0), a, b)
        end = xla.while_(lambda s: xla.get_tuple_element(s, 0) < 7, body, start)
        return xla.get_tuple_element(end, 1), xla.get_tuple_element(end, 2)

    built = build(program, s32(9), s32(9))
    values = ints(range(9)), ints(range(20, 29))
    for got, expected in zip(
        xla.compile(built)(*values), xla.compile(built, backend="interpreter")(*values), strict=True
    ):
        same(got, expected)


def _as_it_is(count, *values):
    """The values, from branches that rules see only late to be the same: what is around them stays a call."""
    test = xla.gt(xla.rem(count, 4), 1)
    found = xla.conditional(test, values, lambda s: s, values, lambda s: s)
    return tuple(xla.get_tuple_element(found, i) for i in range(len(values)))


def _repeated(step, *values):
    """``step`` of a counter and a state, five times, on both backends."""

    def program(*given):
        def body(state):
            count, *inside = (xla.get_tuple_element(state, i) for i in range(len(given) + 1))
            return count + 1, *step(count, *inside)

        start = (xla.constant(given[0].builder, 0), *given)
        end = xla.while_(lambda s: xla.get_tuple_element(s, 0) < 5, body, start)
        return tuple(xla.get_tuple_element(end, i + 1) for i in range(len(given)))

    built = build(program, *(s32(*v.shape) for v in values))
    for got, expected in zip(
        xla.compile(built)(*values), xla.compile(built, backend="interpreter")(*values), strict=True
    ):
        same(got, expected)


def test_what_a_call_gives_twice_is_not_overwritten_where_the_one_ends():
    def step(count, a, b):
        def twice(s):
            x, y, _ = (xla.get_tuple_element(s, i) for i in range(3))
            made = x * 2 - y
            return xla.tuple_(made, made)

        def as_it_was(s):
            x, y, count = (xla.get_tuple_element(s, i) for i in range(3))
            return xla.tuple_(*_as_it_is(count, x, y))

        given = (a, b, count)
        found = xla.conditional(xla.gt(count, 2), given, twice, given, as_it_was)
        return tuple(xla.get_tuple_element(found, i) for i in range(2))

    _repeated(step, ints([4, 2, 3, 1]), ints([1, 5, 2, 7]))


def test_a_state_that_a_call_reads_in_two_kernels_is_not_overwritten_by_the_first(monkeypatch):
    monkeypatch.setenv("XLAKIT_DISABLE_PASSES", "inline-calls,unroll-loops")

    def step(_, x, y):
        def called(x):
            return xla.tuple_(x + 1, xla.slice(x, [0], [3], [1]))

        found = xla.call(x.builder, called, [x])
        return xla.get_tuple_element(found, 0), y + xla.get_tuple_element(found, 1)

    _repeated(step, ints([4, 2, 3, 1, 9]), ints([1, 5, 2]))


def test_small_constants_of_a_loop_are_part_of_its_code():
    text = """HloModule traces
    add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
    body {
      state = (s32[], f32[2,2], f32[]) parameter(0)
      n = s32[] get-tuple-element(state), index=0
      one = s32[] constant(1)
      next = s32[] add(n, one)
      x = f32[2,2] get-tuple-element(state), index=1
      sum = f32[] get-tuple-element(state), index=2
      mask = pred[2,2] constant({{1, 0}, {0, 1}})
      zero = f32[] constant(0)
      zeros = f32[2,2] broadcast(zero), dimensions={}
      diagonal = f32[2,2] select(mask, x, zeros)
      trace = f32[] reduce(diagonal, zero), dimensions={0,1}, to_apply=add
      more = f32[] add(sum, trace)
      y = f32[2,2] transpose(x), dimensions={1,0}
      ROOT after = (s32[], f32[2,2], f32[]) tuple(next, y, more)
    }
    condition {
      state = (s32[], f32[2,2], f32[]) parameter(0)
      n = s32[] get-tuple-element(state), index=0
      end = s32[] constant(70)
      ROOT goes_on = pred[] compare(n, end), direction=LT
    }
    ENTRY e {
      x = f32[2,2] parameter(0)
      n = s32[] constant(0)
      zero = f32[] constant(0)
      start = (s32[], f32[2,2], f32[]) tuple(n, x, zero)
      end = (s32[], f32[2,2], f32[]) while(start), condition=condition, body=body
      ROOT sum = f32[] get-tuple-element(end), index=2
    }"""
    module = xla.HloModule.from_text(text)
    folded = xla.compile(module)
    with compiling(plain="inline"):
        plain = xla.compile(module)
    x = np.float32([[1, 2], [3, 4]])
    assert folded(x) == plain(x) == 350
    mask = 'c"\\01\\00\\00\\01"'
    assert mask in folded.llvm_ir(optimized=False)
    assert mask not in plain.llvm_ir(optimized=False)
