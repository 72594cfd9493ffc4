"""Batch normalization: every feature dimension and type, rounding, and the gradient by differences."""

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, infer, refused, same, shape

import xlakit as xla

EPSILON = 1e-3


def case(kind, feature_index, sizes=(3, 4, 5)):
    rng = np.random.default_rng(feature_index)
    count = sizes[feature_index]
    x = rng.standard_normal(sizes).astype(kind)
    return x, *((rng.random(count) + 0.5).astype(kind) for _ in range(4)), rng.standard_normal(sizes).astype(kind)


def column(v, feature_index):
    return v.astype(np.float64).reshape([-1 if d == feature_index else 1 for d in range(3)])


@pytest.mark.reference
@pytest.mark.reference
@pytest.mark.parametrize("feature_index", [0, 1, 2])
@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_everything_is_computed_in_double_precision_and_rounded_once(kind, feature_index):
    x, scale, offset, mean, variance, _ = case(kind, feature_index)
    epsilon = float(np.float32(EPSILON))
    others = tuple(d for d in range(3) if d != feature_index)

    def normalized(m, v):
        shifted = column(scale, feature_index) * (x.astype(np.float64) - m)
        return (shifted / np.sqrt(v + epsilon) + column(offset, feature_index)).astype(kind)

    given = evaluate(lambda *a: xla.batch_norm_inference(*a, EPSILON, feature_index), x, scale, offset, mean, variance)
    same(given, normalized(column(mean, feature_index), column(variance, feature_index)))
    results = evaluate(lambda *a: xla.batch_norm_training(*a, EPSILON, feature_index), x, scale, offset)
    own_mean = x.astype(np.float64).mean(others, keepdims=True)
    own_variance = ((x - own_mean) ** 2).mean(others, keepdims=True)
    for result, expected in zip(
        results, (normalized(own_mean, own_variance), own_mean.reshape(-1), own_variance.reshape(-1)), strict=True
    ):
        assert result.dtype == kind
        np.testing.assert_allclose(
            result.astype(np.float64), expected.astype(np.float64), rtol=float(ml_dtypes.finfo(kind).eps)
        )


@pytest.mark.parametrize("feature_index", [0, 1, 2])
def test_the_gradient_is_that_of_training(feature_index):
    x, scale, offset, _, _, grad = case(np.float64, feature_index)

    def loss(x, scale, offset):
        output, _, _ = evaluate(lambda *a: xla.batch_norm_training(*a, EPSILON, feature_index), x, scale, offset)
        return float((output * grad).sum())

    _, mean, variance = evaluate(lambda *a: xla.batch_norm_training(*a, EPSILON, feature_index), x, scale, offset)
    gradients = evaluate(lambda *a: xla.batch_norm_grad(*a, EPSILON, feature_index), x, scale, mean, variance, grad)
    inputs = [x, scale, offset]
    rng = np.random.default_rng(0)
    for i, gradient in enumerate(gradients):
        direction = rng.standard_normal(inputs[i].shape)
        ahead, behind = ([*inputs[:i], inputs[i] + s * 1e-5 * direction, *inputs[i + 1 :]] for s in (1, -1))
        slope = (loss(*ahead) - loss(*behind)) / 2e-5
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6)


def test_statistics_may_be_of_another_precision():
    x = shape(xla.BF16, 2, 3)
    f32 = shape(xla.F32, 3)
    assert infer(lambda *a: xla.batch_norm_training(*a, 0.1, 1), x, f32, f32) == "(bf16[2,3], bf16[3], bf16[3])"
    assert infer(lambda *a: xla.batch_norm_inference(*a, 0.1, 1), x, f32, f32, f32, f32) == "bf16[2,3]"
    assert infer(lambda *a: xla.batch_norm_grad(*a, 0.1, 1), x, f32, f32, f32, x) == "(bf16[2,3], bf16[3], bf16[3])"


def test_no_elements():
    empty, vector = np.zeros((0, 3), np.float32), np.ones(3, np.float32)
    output, mean, variance = evaluate(lambda *a: xla.batch_norm_training(*a, 0.1, 1), empty, vector, vector)
    assert output.shape == (0, 3)
    assert np.isnan(mean).all()
    assert np.isnan(variance).all()


def test_rules():
    x, f = shape(xla.F32, 2, 3), shape(xla.F32, 3)
    refused("feature_index 2", lambda *a: xla.batch_norm_training(*a, 0.1, 2), x, f, f)
    refused("feature_index -1", lambda *a: xla.batch_norm_training(*a, 0.1, -1), x, f, f)
    refused("scale has 2", lambda *a: xla.batch_norm_training(*a, 0.1, 1), x, shape(xla.F32, 2), f)
    refused("variance must be", lambda *a: xla.batch_norm_inference(*a, 0.1, 1), x, f, f, f, x)
    refused("rank 1 or more", lambda *a: xla.batch_norm_training(*a, 0.1, 0), shape(xla.F32), f, f)
    refused("floating-point", lambda *a: xla.batch_norm_training(*a, 0.1, 1), shape(xla.S32, 2, 3), f, f)
    refused("grad_output", lambda *a: xla.batch_norm_grad(*a, 0.1, 1), x, f, f, f, shape(xla.F32, 2, 4))
    refused("grad_output", lambda *a: xla.batch_norm_grad(*a, 0.1, 1), x, f, f, f, shape(xla.F32, 6))
