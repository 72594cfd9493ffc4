"""Fourier transforms of every kind, number of axes and precision."""

import numpy as np
import pytest
from evaluating import evaluate, infer, refused, same, shape

import xlakit as xla


def transform(kind, *lengths):
    return lambda x: xla.fft(x, kind, lengths)


def dft(x, axis, sign):
    """The definition: a matrix of roots of unity."""
    n = x.shape[axis]
    roots = np.exp(sign * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    return np.moveaxis(np.tensordot(roots, x, (1, axis)), 0, axis)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("kind", "tolerance"), [(np.complex64, 1e-6), (np.complex128, 1e-14)])
def test_complex_transforms_are_the_definition(axes, kind, tolerance):
    rng = np.random.default_rng(axes)
    x = (rng.standard_normal((2, 3, 4, 5)) + 1j * rng.standard_normal((2, 3, 4, 5))).astype(kind)
    forward, inverse = x.astype(np.complex128), x.astype(np.complex128)
    for axis in range(-axes, 0):
        forward = dft(forward, axis, -1)
        inverse = dft(inverse, axis, 1) / x.shape[axis]
    for name, expected in (("FFT", forward), ("IFFT", inverse)):
        result = evaluate(transform(name, *x.shape[-axes:]), x)
        assert result.dtype == kind
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("last", [1, 2, 5, 6])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_real_transforms_and_back(axes, last, kind):
    x = np.random.default_rng(last).standard_normal((2, 3, 4, last)).astype(kind)
    lengths = x.shape[-axes:]
    half = evaluate(transform("RFFT", *lengths), x)
    assert half.dtype == (np.complex64 if kind == np.float32 else np.complex128)
    np.testing.assert_allclose(half, np.fft.rfftn(x, axes=tuple(range(-axes, 0))), rtol=1e-5, atol=1e-5)
    back = evaluate(transform("IRFFT", *lengths), half)
    assert back.dtype == kind
    np.testing.assert_allclose(back, x, rtol=1e-5, atol=1e-5)


def test_irfft_ignores_the_imaginary_part_where_it_cannot_be():
    x = np.array([1 + 5j, 2 + 1j, 3 + 7j], np.complex64)
    same(evaluate(transform("IRFFT", 4), x), np.array([2, -1, 0, 0], np.float32))


def test_empty_arrays():
    same(evaluate(transform("FFT", 4), np.zeros((0, 4), np.complex64)), np.zeros((0, 4), np.complex64))
    same(evaluate(transform("RFFT", 0), np.zeros((2, 0), np.float32)), np.zeros((2, 0), np.complex64))
    same(evaluate(transform("IRFFT", 0), np.zeros((2, 0), np.complex64)), np.zeros((2, 0), np.float32))


def test_rules():
    c64, f32 = shape(xla.C64, 4, 6), shape(xla.F32, 4, 6)
    assert infer(transform("RFFT", 4, 6), f32) == "c64[4,4]"
    assert infer(transform("IRFFT", 4, 10), c64) == "f32[4,10]"
    assert infer(transform("IRFFT", 4, 11), c64) == "f32[4,11]"
    assert infer(transform("RFFT", 6), shape(xla.F64, 4, 6)) == "c128[4,4]"
    refused("1 to 3 lengths", transform("FFT"), c64)
    refused("1 to 3 lengths", transform("FFT", 1, 1, 1, 1), c64)
    refused("at least that rank", transform("FFT", 1, 4, 6), c64)
    refused("complex", transform("FFT", 6), f32)
    refused("complex", transform("IRFFT", 10), f32)
    refused("f32 or f64", transform("RFFT", 6), c64)
    refused("f32 or f64", transform("RFFT", 6), shape(xla.F16, 6))
    refused("innermost dimensions", transform("FFT", 5), c64)
    refused("innermost dimensions", transform("RFFT", 5), f32)
    refused("innermost dimensions", transform("IRFFT", 9), c64)
