"""Fourier transforms in machine code, against SciPy in extended precision."""

import numpy as np
import pytest
import scipy.fft
from evaluating import build, shape_of

import xlakit as xla
from xlakit.cpu.kernels.fft import points as fft_points
from xlakit.cpu.kernels.fft.plan import convolution_length, four_step_factors, is_smooth, radices
from xlakit.options import compiling

FORMS = ("FFT", "IFFT", "RFFT", "IRFFT")


def operand(form, sizes, kind):
    rng = np.random.default_rng(sum(sizes))
    part = np.empty((), kind).real.dtype
    if form == "RFFT":
        return rng.standard_normal(sizes).astype(part)
    if form == "IRFFT":
        sizes = (*sizes[:-1], sizes[-1] // 2 + 1)
    return (rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)).astype(kind)


def reference(form, x, lengths):
    axes = tuple(range(-len(lengths), 0))
    wide = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    if form == "IRFFT":
        return scipy.fft.irfftn(wide, s=lengths, axes=axes)
    return getattr(scipy.fft, form.lower() + "n")(wide, axes=axes)


def transformed(form, x, lengths):
    executable = xla.compile(build(lambda a: xla.fft(a, form, lengths), shape_of(x)), backend="cpu")
    assert not executable.host_instructions
    return np.asarray(executable(x))


def check(form, sizes, rank, kind=np.complex64):
    x, lengths = operand(form, sizes, kind), sizes[-rank:]
    actual, expected = transformed(form, x, lengths), reference(form, x, lengths)
    assert actual.shape == expected.shape
    error = np.sqrt(np.mean(np.abs(actual - expected) ** 2) / np.mean(np.abs(expected) ** 2))
    assert error < 4 * np.finfo(actual.dtype).eps


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [1, 2, 3, 6, 8, 15, 16, 31, 62, 74, 101, 120, 128, 243])
def test_groups_of_rows(form, length):
    check(form, (11, length), 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(1024,), (2, 2205), (5, 2048), (1009,), (2018,), (32768,), (2, 19683)])
def test_long_rows(form, sizes):
    check(form, sizes, 1)


def test_a_row_that_needs_two_tables_of_roots():
    check("FFT", (1 << 17,), 1)
    check("IRFFT", (1 << 17,), 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("sizes", "rank"), [((3, 5, 6), 2), ((16, 24), 2), ((2, 4, 5, 7), 3), ((12, 1), 2), ((1, 12), 2), ((37, 9), 2)]
)
def test_several_dimensions(form, sizes, rank):
    check(form, sizes, rank)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(9, 30), (3, 97), (1, 1000), (5, 4096), (64, 32)])
def test_double_precision(form, sizes):
    check(form, sizes, 1, np.complex128)
    check(form, sizes, 2, np.complex128)


def test_rows_do_not_disturb_each_other():
    x = operand("RFFT", (16, 64), np.complex64)
    x[3] = np.nan
    x[5] *= 1e30
    actual = transformed("RFFT", x, (64,))
    assert np.isnan(actual[3]).all()
    others = np.arange(16) != 3
    expected = reference("RFFT", x[others], (64,))
    size = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(actual[others] - expected) <= 1e-6 * size).all()


def test_the_ends_of_a_real_spectrum_are_taken_as_real():
    for length in (8, 9, 2048):
        x = operand("IRFFT", (3, length), np.complex64)
        plain = x.copy()
        plain[:, 0] = plain[:, 0].real
        if length % 2 == 0:
            plain[:, -1] = plain[:, -1].real
        np.testing.assert_array_equal(transformed("IRFFT", x, (length,)), transformed("IRFFT", plain, (length,)))


def test_plans():
    assert np.prod(radices(2 * 3 * 5 * 7 * 11)) == 2310
    assert radices(32) == (8, 4)
    assert is_smooth(31 * 64)
    assert not is_smooth(37)
    assert four_step_factors(1009, 8) is None
    assert four_step_factors(1024, 8) == (32, 32)
    assert is_smooth(convolution_length(1009))
    assert convolution_length(1009) >= 2017


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("sizes", "rank"), [((1009,), 1), ((3, 97), 1), ((6, 1009), 1), ((2, 2018), 1), ((1009, 3), 2), ((2, 997, 6), 2)]
)
def test_large_primes_without_tables(form, sizes, rank):
    with compiling(knobs={fft_points.LONGEST_CHIRP.name: 64}):
        check(form, sizes, rank)


def test_a_large_prime():
    check("FFT", (131_101,), 1)
