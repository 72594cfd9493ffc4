"""The examples of the document "Operation semantics", from Call to CustomCall, convolutions apart."""

import numpy as np
import pytest
from helpers import build, evaluate, f32, floats, infer, ints, pred, refused, replicated, s32, same

import xlakit as xla

# -- Call -----------------------------------------------------------------------------------------


def test_call_invokes_a_computation():
    computation = build(lambda a, b: a * 10 + b, f32(2), f32(2), name="callee")
    same(
        evaluate(lambda x, y: xla.call(x.builder, computation, [x, y]), floats([1, 2]), floats([3, 4])),
        floats([13, 24]),
    )


def test_call_takes_arguments_of_any_types():
    computation = build(lambda a, b: (b, a), f32(2), s32(), name="swap")
    same(
        evaluate(lambda x, y: xla.call(x.builder, computation, [x, y]), floats([1, 2]), ints(5)),
        (ints(5), floats([1, 2])),
    )


# -- Clamp ----------------------------------------------------------------------------------------


def test_clamp_with_scalar_bounds():
    same(evaluate(xla.clamp, ints(0), ints([-1, 5, 9]), ints(6)), ints([0, 5, 6]))


def test_clamp_with_bounds_of_the_operands_shape():
    same(evaluate(xla.clamp, ints([0, 6, 0]), ints([-1, 5, 9]), ints([1, 7, 8])), ints([0, 6, 8]))


def test_clamp_is_min_of_max():
    values = np.arange(-5, 6, dtype=np.float32)
    for low, high in [(-2, 2), (3, -3)]:
        same(
            evaluate(xla.clamp, floats(low), values, floats(high)),
            np.minimum(np.maximum(values, np.float32(low)), np.float32(high)),
        )


# -- Collapse -------------------------------------------------------------------------------------

V = floats(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ]
)


def test_collapse_to_a_single_dimension():
    expected = [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]
    same(evaluate(lambda v: xla.collapse(v, (0, 1, 2)), V), floats(expected))


def test_collapse_the_two_lower_dimensions():
    # The document's results of {0, 1} and {1, 2} stand under each other's names; its rule says which is which.
    rows = [[10, 11, 12], [15, 16, 17], [20, 21, 22], [25, 26, 27], [30, 31, 32], [35, 36, 37], [40, 41, 42]]
    same(evaluate(lambda v: xla.collapse(v, (0, 1)), V), floats([*rows, [45, 46, 47]]))


def test_collapse_the_two_higher_dimensions():
    expected = [
        [10, 11, 12, 15, 16, 17],
        [20, 21, 22, 25, 26, 27],
        [30, 31, 32, 35, 36, 37],
        [40, 41, 42, 45, 46, 47],
    ]
    same(evaluate(lambda v: xla.collapse(v, (1, 2)), V), floats(expected))
    same(evaluate(lambda v: xla.collapse(v, (1,)), V), V)


@pytest.mark.parametrize("dimensions", [(1, 0), (0, 2)])
def test_collapse_takes_consecutive_dimensions_in_order(dimensions):
    refused(lambda v: xla.collapse(v, dimensions), f32(4, 2, 3), match="consecutive")


@pytest.mark.parametrize("dimensions", [(0, 3), (-1, 0), (0, 0)])
def test_collapse_takes_dimensions_that_exist_once(dimensions):
    refused(lambda v: xla.collapse(v, dimensions), f32(4, 2, 3))


# -- CollectivePermute ----------------------------------------------------------------------------


def test_collective_permute_sends_from_source_to_target():
    pairs = [(0, 1), (1, 2), (2, 0)]
    data = [[floats([i, 10 * i])] for i in range(3)]
    results = replicated(lambda x: xla.collective_permute(x, pairs), data)
    for source, target in pairs:
        same(results[target], data[source][0])


def test_collective_permute_gives_zeros_where_nothing_is_sent():
    results = replicated(lambda x: xla.collective_permute(x, [(0, 1)]), [[floats([i + 1, 5])] for i in range(3)])
    same(tuple(results), (floats([0, 0]), floats([1, 5]), floats([0, 0])))


# -- Concatenate ----------------------------------------------------------------------------------


def test_concatenate_vectors():
    same(
        evaluate(lambda a, b, c: xla.concat_in_dim([a, b, c], 0), ints([2, 3]), ints([4, 5]), ints([6, 7])),
        ints([2, 3, 4, 5, 6, 7]),
    )


def test_concatenate_matrices():
    a, b = ints([[1, 2], [3, 4], [5, 6]]), ints([[7, 8]])
    same(evaluate(lambda a, b: xla.concat_in_dim([a, b], 0), a, b), ints([[1, 2], [3, 4], [5, 6], [7, 8]]))


def test_concatenate_dimension_sizes_add():
    assert infer(lambda a, b: xla.concat_in_dim([a, b], 1), f32(2, 3), f32(2, 5)).dimensions == (2, 8)


def test_concatenate_has_rules():
    refused(lambda a, b: xla.concat_in_dim([a, b], 0), f32(3, 2), f32(1, 3), match="dimension 1")
    refused(lambda a, b: xla.concat_in_dim([a, b], 0), f32(3), f32(1, 3), match="rank")
    refused(lambda a, b: xla.concat_in_dim([a, b], 0), f32(3), s32(3))
    refused(lambda a: xla.concat_in_dim([a], 1), f32(3))
    refused(lambda a, b: xla.concat_in_dim([a, b], 0), f32(), f32())
    with pytest.raises(xla.XlakitError):
        build(lambda a: xla.concat_in_dim([], 0), f32())


# -- Conditional ----------------------------------------------------------------------------------


def test_conditional_operands_may_have_different_types():
    def program(p, x, y):
        return xla.conditional(p, x, lambda v: v, y, lambda v: xla.convert_element_type(v, xla.F32))

    same(evaluate(program, np.bool_(False), floats(10), ints(3)), floats(3))


@pytest.mark.parametrize(("index", "expected"), [(0, 11), (1, 20), (2, -30), (3, -30), (-1, -30), (99, -30)])
def test_conditional_on_an_index_takes_the_last_branch_when_out_of_range(index, expected):
    branches = [lambda v: v + 1, lambda v: v, lambda v: -v]

    def program(i, a, b, c):
        return xla.conditional(i, branches, [a, b, c])

    same(evaluate(program, ints(index), floats(10), floats(20), floats(30)), floats(expected))


def test_conditional_takes_the_documents_names():
    def program(p, i, x):
        by_pred = xla.conditional(
            pred=p, true_operand=x, true_computation=xla.neg, false_operand=x, false_computation=xla.exp
        )
        by_index = xla.conditional(branch_index=i, branch_computations=[xla.exp, xla.neg], branch_operands=[x, x])
        return by_pred, by_index

    same(evaluate(program, np.bool_(True), ints(1), floats(5)), (floats(-5), floats(-5)))


def test_conditional_has_rules():
    same_branch = lambda v: v  # noqa: E731
    refused(lambda p, x: xla.conditional(p, x, same_branch, x, same_branch), pred(2), f32())
    refused(lambda p, x: xla.conditional(p, x, same_branch, x, same_branch), f32(), f32())
    refused(lambda p, x, y: xla.conditional(p, x, same_branch, y, same_branch), pred(), f32(), s32())
    takes_s32 = build(lambda v: v, s32())
    refused(lambda p, x: xla.conditional(p, x, takes_s32, x, takes_s32), pred(), f32())
    takes_two = build(lambda a, b: a + b, f32(), f32())
    refused(lambda p, x: xla.conditional(p, x, takes_two, x, takes_two), pred(), f32())


def test_conditional_on_an_index_has_rules():
    same_branch = lambda v: v  # noqa: E731
    refused(lambda i, x: xla.conditional(i, [same_branch] * 2, [x, x]), s32(1), f32())
    refused(lambda i, x, y: xla.conditional(i, [same_branch] * 2, [x, y]), s32(), f32(), f32(1))


# -- ConvertElementType ---------------------------------------------------------------------------


def test_convert_of_the_example():
    same(evaluate(lambda a: xla.convert_element_type(a, xla.F32), ints([0, 1, 2])), floats([0.0, 1.0, 2.0]))


def test_convert_keeps_the_dimensions():
    assert infer(lambda a: xla.convert_element_type(a, xla.BF16), s32(2, 3)).dimensions == (2, 3)
    assert infer(lambda a: xla.convert_element_type(a, xla.BF16), s32(2, 3)).element_type is xla.BF16


def test_convert_takes_no_tuples():
    refused(lambda a: xla.convert_element_type(xla.tuple_(a, a), xla.F32), s32(2))
    refused(lambda a: xla.convert_element_type(a, xla.TUPLE), s32(2))
