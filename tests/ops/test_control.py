"""Call, While, Conditional, Fusion, Scan and asynchronous operations."""

import evaluating
import numpy as np
import pytest
from evaluating import build, evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ir.enums import TriState
from xlakit.ops.communication.asynchronous import AsyncDone, AsyncStart, AsyncUpdate

# -- call and fusion -------------------------------------------------------------------------------


def test_call_runs_a_computation():
    result = evaluate(lambda a, b: xla.call(a.builder, xla.sub, [a, b]), floats([5, 7]), floats([1, 2]))
    same(result, floats([4, 5]))


def test_call_checks_number_and_shapes_of_arguments():
    square = build(lambda x: x * x, f32(2))
    refused("takes 1 parameters, got 2", lambda a, b: xla.call(a.builder, square, [a, b]), f32(2), f32(2))
    refused(r"takes f32\[2\] as parameter 0", lambda a: xla.call(a.builder, square, [a]), f32(3))
    refused(r"takes f32\[2\] as parameter 0", lambda a: xla.call(a.builder, square, [a]), s32(2))


def test_a_composite_keeps_its_name_attributes_and_version():
    built = build(lambda x: xla.composite_call(x.builder, lambda y: y + 1.0, [x], "my.op", version=3), f32(2))
    root = built.computation.root
    assert root.op.is_composite
    assert dict(root.annotations.frontend_attributes) == {
        "composite.name": "my.op",
        "composite.attributes": "{}",
        "composite.version": "3",
    }
    same(evaluating.compiled(built)(floats([1, 2])), floats([2, 3]))
    with pytest.raises(xla.ArgumentError, match="needs a name"):
        build(lambda x: xla.composite_call(x.builder, lambda y: y, [x], ""), f32())


def test_fusion_runs_its_computation():
    result = evaluate(lambda x: xla.fusion(x.builder, lambda y: xla.exp(xla.neg(y)), [x], "loop"), floats([0.0]))
    same(result, floats([1]))


def test_calls_and_fusions_of_pointwise_computations_are_pointwise():
    inner = build(lambda a, b: xla.call(a.builder, lambda x, y: x + y, [a, b]), f32(), f32())
    assert inner.computation.is_pointwise
    fused = build(lambda a, b: xla.fusion(a.builder, inner, [a, b]), f32(), f32())
    assert fused.computation.is_pointwise
    same(evaluate(lambda x: xla.reduce(x, 0.0, fused, [0]), np.ones((50, 3), np.float32)), floats([50, 50, 50]))
    same(evaluate(lambda x: xla.map([x, x], fused), floats([1, 2])), floats([2, 4]))


# -- while -----------------------------------------------------------------------------------------


def test_while_checks_its_computations():
    refused("must give pred", lambda x: xla.while_(lambda v: v + 1, lambda v: v, x), s32())
    refused("must give pred", lambda x: xla.while_(lambda v: v < 0, lambda v: v, x), s32(2))
    widen = build(lambda x: xla.broadcast(x, [2]), s32())
    refused("body .* gives s32", lambda x: xla.while_(lambda v: v < 0, widen, x), s32())
    two = build(lambda a, b: a + b, s32(), s32())
    refused("takes 2 parameters", lambda x: xla.while_(lambda v: v < 0, two, x), s32())


def test_a_loop_has_the_effects_of_its_body():
    effect = build(lambda x: (xla.outfeed(x), x)[1], s32())
    assert effect.computation.has_side_effect
    looped = build(lambda x: (xla.while_(lambda v: v < 3, lambda v: (xla.outfeed(v), v + 1)[1], x), x)[1], s32())
    executable = evaluating.compiled(looped)
    executable(ints(1))
    assert [int(executable.execution_context.outfeed(0)) for _ in range(2)] == [1, 2]


# -- conditional -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("pred", "expected"), [(True, 3.0), (False, -2.0)])
def test_conditional_by_pred_runs_one_of_two(pred, expected):
    def choose(p, x):
        return xla.conditional(p, x, lambda v: v + 1.0, (x, x), lambda v: -xla.get_tuple_element(v, 0))

    same(evaluate(choose, np.bool_(pred), floats(2)), floats(expected))


def test_conditional_takes_its_arguments_by_name():
    def choose(p, x):
        return xla.conditional(
            pred=p, true_operand=x, true_computation=lambda v: v, false_operand=x, false_computation=xla.neg
        )

    same(evaluate(choose, np.bool_(False), floats(2)), floats(-2))
    with pytest.raises(xla.ArgumentError, match="takes"):
        xla.conditional(1, 2)


def test_conditional_runs_only_the_branch_that_is_chosen():
    seen = []

    def choose(p, x):
        def branch(name):
            return lambda v: xla.custom_call(v.builder, name, [v], f32())

        return xla.conditional(p, x, branch("yes"), x, branch("no"))

    functions = {name: lambda x, name=name: (seen.append(name), x)[1] for name in ("yes", "no")}
    evaluating.compiled(build(choose, xla.make_shape(xla.PRED), f32()), custom_calls=functions)(False, 1.0)
    assert seen == ["no"]


def test_conditional_checks_branches():
    refused("pred or an s32", lambda i, x: xla.conditional(i, [xla.neg], [x]), f32(), f32())
    refused(
        "a pred chooses between 2", lambda p, x: xla.conditional(p, [xla.neg], [x]), xla.make_shape(xla.PRED), f32()
    )
    refused("all branches|gives", lambda i, x: xla.conditional(i, [xla.neg, lambda v: v < 0], [x, x]), s32(), f32())
    refused("one operand each", lambda i, x: xla.conditional(i, [xla.neg, xla.neg], [x]), s32(), f32())


def test_conditional_is_dynamic_where_a_branch_is():
    dynamic = f32(4, dynamic=(True,))
    fixed = build(lambda x: x, f32(4))

    def choose(p, x, y):
        return xla.conditional(p, x, lambda v: v, y, fixed)

    assert infer(choose, xla.make_shape(xla.PRED), dynamic, f32(4)) == "f32[<=4]"


# -- scan ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_reverse", [False, True])
def test_scan_of_a_sum(is_reverse):
    def total(x):
        return xla.scan(x, 0.0, lambda v, c: (v + c, v + c), 0, is_reverse=is_reverse)

    values = floats([1, 2, 3, 4])
    sums, last = evaluate(total, values)
    expected = np.cumsum(values[::-1])[::-1] if is_reverse else np.cumsum(values)
    same(sums, expected.astype(np.float32))
    same(last, floats(10))


def test_scan_along_an_inner_dimension_with_two_outputs():
    def step(row, carry):
        return xla.neg(row), row * 2.0, carry + row

    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    negative, double, total = evaluate(lambda x, c: xla.scan([x], [c], step, 1), matrix, np.zeros(2, np.float32))
    same(negative, -matrix)
    same(double, 2 * matrix)
    same(total, matrix.sum(axis=1))


def test_scan_without_inputs_needs_the_number_of_steps():
    def steps(c):
        return xla.scan([], [c], lambda carry: (carry, carry * 2.0), 0, scan_dimension_size=4)

    powers, last = evaluate(steps, floats(1))
    same(powers, floats([1, 2, 4, 8]))
    same(last, floats(16))
    refused("how many steps", lambda c: xla.scan([], [c], lambda carry: (carry, carry), 0), f32())


def test_scan_without_inputs_counts_what_its_computation_gives():
    def steps(*carries):
        return xla.scan([], carries, lambda first, *_: first, 0, scan_dimension_size=3)

    refused("needs an input or an output", steps, f32())
    refused("fewer than 2 carries", steps, f32(), f32())


def test_scan_of_nothing_gives_the_first_carry():
    rows, last = evaluate(lambda x: xla.scan(x, 7.0, lambda v, c: (v, c), 0), np.zeros((0, 2), np.float32)[:, 0])
    same(rows, np.zeros(0, np.float32))
    same(last, floats(7))


def test_scan_checks_sizes_and_carries():
    refused("out of range", lambda x: xla.scan(x, 0.0, lambda v, c: (v, c), 1), f32(3))
    refused("along dimension 0", lambda x, y: xla.scan([x, y], [0.0], lambda v, w, c: (v, c), 0), f32(3), f32(4))
    refused("for the carry", lambda x: xla.scan(x, 0.0, lambda v, c: (v, v < c), 0), f32(3))
    built = build(lambda x: xla.scan(x, 0.0, lambda v, c: (v, c), 0, is_associative=True), f32(3))
    assert built.computation.root.op.is_associative is TriState.TRI_STATE_TRUE


def test_a_fusion_may_have_operands_that_it_does_not_take():
    text = """HloModule m
f {
  p = f32[] parameter(0)
  ROOT r = f32[] negate(p)
}
ENTRY main {
  x = f32[] parameter(0)
  y = f32[4] parameter(1)
  ROOT z = f32[] fusion(x, y), kind=kLoop, calls=f
}
"""
    same(evaluating.compiled(xla.HloModule.from_text(text))(floats(3), floats([1, 2, 3, 4])), floats(-3))


# -- asynchronous ----------------------------------------------------------------------------------


def test_async_start_update_done():
    def run(x):
        started = xla.async_start(x.builder, lambda v: v * v, [x], execution_thread="other")
        return xla.async_done(xla.async_update(started))

    same(evaluate(run, floats([2, 3])), floats([4, 9]))


def test_an_update_may_bring_the_last_argument():
    product = build(lambda a, b: a * b, f32(), f32()).computation
    number = xla.make_shape(xla.U32)

    def run(x, y):
        builder = x.builder
        first = xla.make_tuple_shape([xla.make_tuple_shape([f32()]), f32(), number])
        both = xla.make_tuple_shape([xla.make_tuple_shape([f32(), f32()]), f32(), number])
        started = builder.append(AsyncStart(calls=product), [x], first)
        return builder.append(AsyncDone(), [builder.append(AsyncUpdate(), [started, y], both)])

    same(evaluate(run, floats(3), floats(5)), floats(15))


def test_async_done_before_all_arguments_is_an_error():
    product = build(lambda a, b: a * b, f32(), f32()).computation

    def run(x):
        state = xla.make_tuple_shape([xla.make_tuple_shape([f32()]), f32(), xla.make_shape(xla.U32)])
        return x.builder.append(AsyncDone(), [x.builder.append(AsyncStart(calls=product), [x], state)])

    with pytest.raises(xla.VerificationError, match="not got all its arguments"):
        evaluate(run, floats(3))


def test_the_thread_of_async_start_is_that_of_its_computation():
    def run(x):
        return xla.async_done(xla.async_start(x.builder, lambda v: -v, [x], execution_thread="side"))

    start = build(run, f32()).computation.root.operands[0]
    assert start.op.calls.execution_thread == "side"


def test_the_result_of_an_asynchronous_operation_may_be_said_late():
    text = """HloModule m
f {
  p = f32[] parameter(0)
  ROOT r = (f32[], f32[]) tuple(p, p)
}
ENTRY main {
  x = f32[] parameter(0)
  s = ((f32[]), (), u32[]) async-start(x), calls=f
  u = ((f32[]), (f32[]), u32[]) async-update(s)
  ROOT d = (f32[], f32[]) async-done(u)
}
"""
    first, second = evaluating.compiled(xla.HloModule.from_text(text))(floats(3))
    same(first, floats(3))
    same(second, floats(3))
    with pytest.raises(xla.ShapeError, match="it declares the result"):
        xla.HloModule.from_text(text.replace("(), u32[]", "(f32[], f32[]), u32[]")).verify()


def test_async_copy():
    same(evaluate(lambda x: xla.copy_done(xla.copy_start(x)), floats([1, 2])), floats([1, 2]))
    refused("of copy-start", xla.copy_done, f32())
