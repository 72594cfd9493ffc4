import ctypes
from itertools import count

import numpy as np
import pytest

from xlakit.cpu.llvm import F32, F64, I64, PTR, VOID, Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.math.narrow import from_f32, from_f64, storage, to_f32
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError
from xlakit.ops.shared import numerics

NARROW = [t for t in PrimitiveType if t.is_array and t.is_floating and t.bit_width <= 16]
_names = count()


def compiled(convert, kind, source, target):
    module = Module("narrow")
    fn = module.function("run", VOID, [PTR, PTR, I64], external=True)
    given, result, length = fn.parameters
    with fn.loop(0, length, independent=True) as loop:
        value = fn.load(source, fn.at(given, source, loop.index))
        fn.store(convert(fn, kind, value), fn.at(result, target, loop.index))
    fn.ret()
    library = Library(f"narrow.{next(_names)}", engine.make_object(module.text()), ["run"], {})
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library.address("run"))

    def call(x, dtype, library=library):
        out = np.empty(x.shape, dtype)
        run(x.ctypes.data, out.ctypes.data, x.size)
        return out

    return call


def word(kind):
    return np.dtype(f"u{kind.byte_width}")


def every_value(kind):
    return np.arange(1 << kind.bit_width).astype(word(kind)).view(kind.dtype)


def samples(kind):
    """Every number of a type, what is halfway between two, their neighbors, and random numbers, as doubles."""
    rng = np.random.default_rng(3)
    numbers = numerics.to_double(every_value(kind))
    numbers = np.unique(numbers[np.isfinite(numbers)])
    dense = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2]).astype(np.float32)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38], np.float32)
    near = [np.nextafter(dense, np.float32(s * np.inf)) for s in (1, -1)]
    low = np.arange(0, 1 << 24, 997, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        single = np.concatenate([dense, *near, bits, special, low])
        scaled = single * 2.0 ** rng.integers(-2, 3, single.size)
        return np.concatenate([single, scaled.astype(np.float32)])


def assert_same(got, expected):
    np.testing.assert_array_equal(got.view(word(numerics.element_type(expected))), numerics.raw_bits(expected))


@pytest.mark.parametrize("kind", NARROW)
def test_every_value_decodes(kind):
    values = every_value(kind)
    got = compiled(to_f32, kind, storage(kind), F32)(values.view(word(kind)), np.float32)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32)
    # f16's NaN become quiet in one place and not in the other; ours tell which NaN of several it was.
    several = (PrimitiveType.F16, PrimitiveType.F8E5M2, PrimitiveType.F8E4M3, PrimitiveType.F8E3M4)
    nan = np.isnan(expected) if kind in several else np.zeros(values.shape, bool)
    assert np.all(np.isnan(got[nan]))
    assert_same(got[~nan], expected[~nan])


@pytest.mark.parametrize("kind", NARROW)
def test_f32_encodes_as_the_interpreter_does(kind):
    values = samples(kind)
    assert_same(compiled(from_f32, kind, F32, storage(kind))(values, word(kind)), numerics.convert(values, kind))


@pytest.mark.parametrize("kind", NARROW)
def test_f32_encodes_as_casts_do(kind):
    values = samples(kind)
    values = values[~np.isnan(values)]
    if kind is PrimitiveType.F8E8M0FNU:
        # Releases of ml_dtypes differ in how they round what is nearest to the least number.
        values = values[(values <= 2.0**-127) | (values >= 1.5 * 2.0**-127)]
    with np.errstate(all="ignore"):
        expected = values.astype(kind.dtype)
    assert_same(compiled(from_f32, kind, F32, storage(kind))(values, word(kind)), expected)


@pytest.mark.parametrize("kind", NARROW)
def test_f64_is_rounded_once(kind):
    with np.errstate(all="ignore"):
        single = samples(kind).astype(np.float64)
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 1 << 64, 100_000, dtype=np.uint64).view(np.float64)
    values = np.concatenate([single, single * (1 + 2.0**-50), single * (1 - 2.0**-50), single * (1 + 2.0**-30), bits])
    got = compiled(from_f64, kind, F64, storage(kind))(values, word(kind))
    with np.errstate(all="ignore"):
        expected = numerics.convert(values, kind)
    nan = np.isnan(values)
    assert_same(got[~nan], expected[~nan])
    with np.errstate(all="ignore"):
        assert np.array_equal(np.isnan(got[nan].view(kind.dtype)), np.isnan(expected[nan]))


def test_wrong_storage_is_refused():
    fn = Module("m").function("f", VOID, [F64, F32])
    with pytest.raises(InternalError):
        to_f32(fn, PrimitiveType.BF16, fn.parameters[1])
    with pytest.raises(InternalError):
        from_f32(fn, PrimitiveType.BF16, fn.parameters[0])
    with pytest.raises(InternalError):
        from_f64(fn, PrimitiveType.BF16, fn.parameters[1])


def test_nothing_is_rounded_to_the_least_power_of_two():
    kind = PrimitiveType.F8E8M0FNU
    values = np.array([1, 1 + 2.0**-20, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5]) * 2.0**-127
    codes = [0, 1, 1, 1, 1, 1, 1, 2, 2]
    assert compiled(from_f32, kind, F32, storage(kind))(values.astype(np.float32), word(kind)).tolist() == codes
    assert compiled(from_f64, kind, F64, storage(kind))(values, word(kind)).tolist() == codes
    assert numerics.convert(values, kind).view(np.uint8).tolist() == codes
