"""The examples of the document "Operation semantics", from AfterAll to BroadcastInDim."""

import ml_dtypes
import numpy as np
import pytest
from helpers import build, close, evaluate, f32, floats, infer, ints, refused, replicated, s32, same

import xlakit as xla

# -- AfterAll -------------------------------------------------------------------------------------


def test_after_all_joins_tokens():
    def program(builder):
        tokens = [xla.create_token(builder) for _ in range(3)]
        return xla.after_all(tokens)

    assert infer(program).is_token


def test_after_all_takes_tokens_only():
    refused(lambda x: xla.after_all([x]), f32(2), match="token")


# -- AllGather ------------------------------------------------------------------------------------


def test_all_gather_joins_the_operands_of_all_replicas():
    results = replicated(lambda x: xla.all_gather(x, 0, 2), [[floats([1.0, 2.5])], [floats([3.0, 5.25])]])
    for result in results:
        same(result, floats([1.0, 2.5, 3.0, 5.25]))


def test_all_gather_works_within_groups_in_their_order():
    data = [[floats([10 * i, 10 * i + 1])] for i in range(4)]
    results = replicated(lambda x: xla.all_gather(x, 0, 2, replica_groups=[[2, 0], [1, 3]]), data)
    for i, group in enumerate([(2, 0), (1, 3), (2, 0), (1, 3)]):
        same(results[i], np.concatenate([data[j][0] for j in group]))


def test_all_gather_grows_its_dimension_by_the_shard_count():
    assert infer(lambda x: xla.all_gather(x, 1, 3), f32(4, 5)).dimensions == (4, 15)


def test_all_gather_only_meets_its_own_channel():
    def program(x):
        return xla.all_gather(x, 0, 2, channel_id=1), xla.all_gather(x * 10, 0, 2, channel_id=2)

    for first, second in replicated(program, [[floats([1])], [floats([2])]]):
        same(first, floats([1, 2]))
        same(second, floats([10, 20]))


def test_all_gather_has_rules():
    refused(lambda x: xla.all_gather(x, 2, 3), f32(4, 5))
    refused(lambda x: xla.all_gather(x, -1, 3), f32(4, 5))


# -- AllReduce and CrossReplicaSum ------------------------------------------------------------------


def test_all_reduce_adds_over_replicas():
    data = [[floats([1.0, 2.5])], [floats([3.0, 5.25])]]
    for result in replicated(lambda x: xla.all_reduce(x, xla.add), data):
        same(result, floats([4.0, 7.75]))


def test_all_reduce_works_within_groups():
    data = [[ints([1 << i])] for i in range(4)]
    results = replicated(lambda x: xla.all_reduce(x, xla.add, replica_groups=[[0, 2], [1, 3]]), data)
    same(tuple(results), (ints([5]), ints([10]), ints([5]), ints([10])))


def test_all_reduce_takes_a_computation_of_two_scalars():
    one_argument = build(xla.neg, f32())
    refused(lambda x: xla.all_reduce(x, one_argument), f32(2), match="2 are needed")
    refused(lambda x: xla.all_reduce(x, xla.lt), f32(2))


def test_replicas_that_reduce_unequally_often_wait_for_ever():
    # A loop whose length depends on the replica.
    def program(x):
        def condition(state):
            return xla.get_tuple_element(state, 0) > 0

        def body(state):
            i, value = xla.get_tuple_element(state, 0), xla.get_tuple_element(state, 1)
            return i - 1, xla.all_reduce(value, xla.add)

        return xla.while_(condition, body, xla.tuple_(x, xla.convert_element_type(x, xla.F32)))

    with pytest.raises(xla.DeadlockError):
        replicated(program, [[ints(1)], [ints(2)]])


# -- AllToAll -------------------------------------------------------------------------------------


def test_all_to_all_of_the_example():
    rows = np.arange(4 * 64, dtype=np.float32).reshape(4, 4, 16)
    results = replicated(lambda x: xla.all_to_all(x, 1, 0, 4), [[r] for r in rows])
    for i, result in enumerate(results):
        same(result, np.concatenate([r[:, 4 * i : 4 * i + 4] for r in rows], axis=0))
        assert result.shape == (16, 4)


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2), (2, 0), (2, 1)])
def test_all_to_all_splits_and_joins_any_dimensions(split, concat):
    data = np.arange(2 * 4 * 6 * 2, dtype=np.int32).reshape(2, 4, 6, 2)
    results = replicated(lambda x: xla.all_to_all(x, split, concat, 2), [[d] for d in data])
    for i, result in enumerate(results):
        same(result, np.concatenate([np.split(d, 2, axis=split)[i] for d in data], axis=concat))


def test_all_to_all_splits_into_as_many_blocks_as_a_group_has():
    with pytest.raises(xla.XlakitError):
        replicated(lambda x: xla.all_to_all(x, 0, 0, 2, [[0, 1, 2, 3]]), [[floats([1, 2, 3, 4])]] * 4)
    with pytest.raises(xla.XlakitError):
        replicated(lambda x: xla.all_to_all(x, 0, 0, 2), [[floats([1, 2, 3, 4])]] * 4)


def test_all_to_all_works_within_groups_in_their_order():
    groups = [[1, 2, 3], [4, 5, 0]]
    data = [ints([10 * i, 10 * i + 1, 10 * i + 2]) for i in range(6)]
    results = replicated(lambda x: xla.all_to_all(x, 0, 0, 3, groups), [[d] for d in data])
    for group in groups:
        for place, member in enumerate(group):
            same(results[member], ints([data[j][place] for j in group]))


def test_all_to_all_needs_a_divisible_dimension():
    refused(lambda x: xla.all_to_all(x, 1, 0, 3), f32(4, 16), match="16")


def test_all_to_all_takes_no_tuple():
    refused(lambda x: xla.all_to_all(xla.tuple_(x, x), 1, 0, 4), f32(4, 16))


@pytest.mark.parametrize(("split", "concat"), [(2, 0), (0, 2), (-1, 0)])
def test_all_to_all_dimensions_exist(split, concat):
    refused(lambda x: xla.all_to_all(x, split, concat, 4), f32(4, 16))


# -- BatchNormTraining, BatchNormInference, BatchNormGrad ---------------------------------------------


def batch_norm_case(feature_index, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [2, 3, 4]
    sizes.insert(feature_index, 5)
    x, dy = rng.normal(1, 2, (2, *sizes)).astype(np.float32)
    gamma, beta, mean, variance = rng.uniform(0.5, 2, (4, 5)).astype(np.float32)
    return x, dy, gamma, beta, mean, variance


def features_last(array, feature_index):
    """As [i, j, k, l] in double precision: the document's letters."""
    return np.moveaxis(array.astype(np.float64), feature_index, -1)


EPSILON = 0.01


@pytest.mark.parametrize("feature_index", range(4))
def test_batch_norm_training_is_the_formula(feature_index):
    x, _, gamma, beta, _, _ = batch_norm_case(feature_index)
    xl = features_last(x, feature_index)
    m, w, h, features = xl.shape
    mu, sigma2, y = np.zeros(features), np.zeros(features), np.zeros_like(xl)
    for l in range(features):  # noqa: E741
        mu[l] = sum(xl[i, j, k, l] for i, j, k in np.ndindex(m, w, h)) / (m * w * h)
        sigma2[l] = sum((xl[i, j, k, l] - mu[l]) ** 2 for i, j, k in np.ndindex(m, w, h)) / (m * w * h)
        y[..., l] = gamma[l] * (xl[..., l] - mu[l]) / np.sqrt(sigma2[l] + EPSILON) + beta[l]
    output, batch_mean, batch_var = evaluate(
        lambda x, g, b: xla.batch_norm_training(x, g, b, EPSILON, feature_index), x, gamma, beta
    )
    close(features_last(output, feature_index), y)
    close(batch_mean, mu)
    close(batch_var, sigma2)


@pytest.mark.parametrize("feature_index", range(4))
def test_batch_norm_inference_uses_the_statistics_that_it_is_given(feature_index):
    x, _, gamma, beta, mean, variance = batch_norm_case(feature_index)
    y = gamma * (features_last(x, feature_index) - mean) / np.sqrt(variance.astype(np.float64) + EPSILON) + beta
    output = evaluate(
        lambda *args: xla.batch_norm_inference(*args, EPSILON, feature_index), x, gamma, beta, mean, variance
    )
    close(features_last(output, feature_index), y)
    assert output.shape == x.shape


def test_batch_norm_inference_with_the_batch_statistics_is_training():
    x, _, gamma, beta, _, _ = batch_norm_case(1)

    def program(x, g, b):
        training = xla.batch_norm_training(x, g, b, EPSILON, 1)
        mean, variance = xla.get_tuple_element(training, 1), xla.get_tuple_element(training, 2)
        return xla.get_tuple_element(training, 0), xla.batch_norm_inference(x, g, b, mean, variance, EPSILON, 1)

    training, inference = evaluate(program, x, gamma, beta)
    close(training, inference)


@pytest.mark.parametrize("feature_index", range(4))
def test_batch_norm_grad_is_the_formula(feature_index):
    x, dy, gamma, _, mean, variance = batch_norm_case(feature_index)
    xl, dyl = features_last(x, feature_index), features_last(dy, feature_index)
    m, w, h, features = xl.shape
    dx, dgamma, dbeta = np.zeros_like(xl), np.zeros(features), np.zeros(features)
    for l in range(features):  # noqa: E741
        centered, root = xl[..., l] - mean[l], np.sqrt(variance[l] + EPSILON)
        c = np.sum(dyl[..., l] * centered / (variance[l] + EPSILON)) / (m * w * h)
        d = np.sum(dyl[..., l]) / (m * w * h)
        dx[..., l] = gamma[l] / root * (dyl[..., l] - d - c * centered)
        dgamma[l] = np.sum(dyl[..., l] * centered / root)
        dbeta[l] = np.sum(dyl[..., l])
    grad_operand, grad_scale, grad_offset = evaluate(
        lambda *args: xla.batch_norm_grad(*args, EPSILON, feature_index), x, gamma, mean, variance, dy
    )
    close(features_last(grad_operand, feature_index), dx, rtol=1e-4, atol=1e-5)
    close(grad_scale, dgamma, rtol=1e-4, atol=1e-5)
    close(grad_offset, dbeta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("feature_index", [-1, 2])
def test_batch_norm_needs_a_feature_dimension(feature_index):
    refused(lambda x, g, b: xla.batch_norm_training(x, g, b, 0.1, feature_index), f32(2, 3), f32(3), f32(3))
    refused(lambda *a: xla.batch_norm_inference(*a, 0.1, feature_index), f32(2, 3), f32(3), f32(3), f32(3), f32(3))
    refused(lambda *a: xla.batch_norm_grad(*a, 0.1, feature_index), f32(2, 3), f32(3), f32(3), f32(3), f32(2, 3))


def test_batch_norm_takes_vectors_of_the_feature_size():
    refused(lambda x, g, b: xla.batch_norm_training(x, g, b, 0.1, 1), f32(2, 3), f32(4), f32(3))
    refused(lambda x, g, b: xla.batch_norm_training(x, g, b, 0.1, 1), f32(2, 3), f32(3), f32(1, 3))
    refused(lambda *a: xla.batch_norm_inference(*a, 0.1, 1), f32(2, 3), f32(3), f32(3), f32(3), f32(2))
    refused(lambda *a: xla.batch_norm_grad(*a, 0.1, 1), f32(2, 3), f32(3), f32(3), f32(3), f32(3, 2))


def test_batch_norm_takes_floats():
    refused(lambda x, g, b: xla.batch_norm_training(x, g, b, 0.1, 1), s32(2, 3), s32(3), s32(3))


# -- BitcastConvertType ---------------------------------------------------------------------------


def test_bitcast_convert_keeps_the_bits():
    same(evaluate(lambda x: xla.bitcast_convert_type(x, xla.F32), ints([0x3F800000, -0x80000000])), floats([1.0, -0.0]))


def test_bitcast_convert_to_a_narrower_type_adds_a_minor_dimension():
    assert (
        infer(lambda x: xla.bitcast_convert_type(x, xla.F16), f32(10))
        == xla.make_shape(xla.F16, (10, 2)).without_layout()
    )
    assert infer(lambda x: xla.bitcast_convert_type(x, xla.F16), f32()).dimensions == (2,)
    assert infer(lambda x: xla.bitcast_convert_type(x, xla.S8), s32(3)).dimensions == (3, 4)
    same(
        evaluate(lambda x: xla.bitcast_convert_type(x, xla.S8), ints([0x04030201])),
        np.array([[1, 2, 3, 4]], dtype=np.int8),
    )


def test_bitcast_convert_to_a_wider_type_takes_the_last_dimension_away():
    halves = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float16)
    same(evaluate(lambda x: xla.bitcast_convert_type(x, xla.F32), halves), halves.view(np.float32)[:, 0])
    assert infer(lambda x: xla.bitcast_convert_type(x, xla.F32), xla.make_shape(xla.F16, (10, 2))).dimensions == (10,)


def test_bitcast_convert_of_bf16_is_the_upper_half_of_f32():
    value = np.array([1.5], dtype=ml_dtypes.bfloat16)
    same(evaluate(lambda x: xla.bitcast_convert_type(x, xla.U16), value), np.array([0x3FC0], dtype=np.uint16))


def test_bitcast_convert_takes_no_tuple():
    refused(lambda x: xla.bitcast_convert_type(xla.tuple_(x, x), xla.F32), f32(2))
    refused(lambda x: xla.bitcast_convert_type(x, xla.TUPLE), f32(2))


# -- Broadcast ------------------------------------------------------------------------------------


def test_broadcast_of_a_scalar():
    same(evaluate(lambda x: xla.broadcast(x, (2, 3)), floats(2.0)), np.full((2, 3), 2.0, np.float32))


def test_broadcast_adds_dimensions_on_the_left():
    operand = np.arange(6, dtype=np.float32).reshape(2, 3)
    output = evaluate(lambda x: xla.broadcast(x, (4, 5)), operand)
    assert output.shape == (4, 5, 2, 3)
    for i in np.ndindex(4, 5):
        for j in np.ndindex(2, 3):
            assert output[(*i, *j)] == operand[j]


def test_broadcast_sizes_are_not_negative():
    refused(lambda x: xla.broadcast(x, (2, -1)), f32(3), match="negative")


# -- BroadcastInDim -------------------------------------------------------------------------------


def test_broadcast_in_dim_puts_dimensions_anywhere():
    vector = floats([1, 2])
    same(evaluate(lambda x: xla.broadcast_in_dim(x, (2, 3), (0,)), vector), floats([[1, 1, 1], [2, 2, 2]]))
    same(evaluate(lambda x: xla.broadcast_in_dim(x, (3, 2), (1,)), vector), floats([[1, 2], [1, 2], [1, 2]]))


def test_broadcast_in_dim_stretches_dimensions_of_size_1():
    column = floats([[1], [2]])
    same(evaluate(lambda x: xla.broadcast_in_dim(x, (2, 3), (0, 1)), column), floats([[1, 1, 1], [2, 2, 2]]))
    assert infer(lambda x: xla.broadcast_in_dim(x, (4, 2, 3), (1, 2)), f32(2, 1)).dimensions == (4, 2, 3)


def test_broadcast_in_dim_sizes_must_be_1_or_equal():
    refused(lambda x: xla.broadcast_in_dim(x, (3, 4), (0,)), f32(2), match="size 2")


def test_broadcast_in_dim_needs_an_entry_for_each_dimension():
    refused(lambda x: xla.broadcast_in_dim(x, (2, 3), (0, 1)), f32(2))
    refused(lambda x: xla.broadcast_in_dim(x, (2, 3), (2,)), f32(2), match="out of range")
    refused(lambda x: xla.broadcast_in_dim(x, (2, 2), (1, 0)), f32(2, 2), match="increasing")
