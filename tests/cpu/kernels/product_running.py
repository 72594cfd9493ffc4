"""Runs the task functions of products and convolutions on arrays, in two shares."""

import ctypes

import numpy as np

import xlakit as xla
from xlakit.cpu.kernels.shared import blas, common_code, scratch
from xlakit.cpu.llvm import engine
from xlakit.cpu.llvm.library import Library
from xlakit.ops.shared.numerics import to_double

_held: dict[int, np.ndarray] = {}
_libraries: list[Library] = []


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
def _acquire(size):
    memory = np.full(size + 64, 255, np.uint8)
    address = -(-memory.ctypes.data // 64) * 64
    _held[address] = memory
    return address


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _release(address):
    del _held[address]


def run(module, stages, arrays):
    """Compile a module and run (function, tasks) one after another on a table of arrays."""
    for function, _ in stages:
        function.linkage = ""
    text = module.text()
    found = {name: blas.resolve(name) or common_code.resolve(name) for name in module._declarations}
    symbols = {name: address for name, address in found.items() if address is not None}
    symbols[scratch.ACQUIRE] = ctypes.cast(_acquire, ctypes.c_void_p).value
    symbols[scratch.RELEASE] = ctypes.cast(_release, ctypes.c_void_p).value
    data = engine.make_object(text)
    library = Library(f"products{len(_libraries)}", data, [f.name for f, _ in stages], symbols)
    _libraries.append(library)
    table = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    for function, tasks in stages:
        code = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address(function.name))
        share = tasks // 3
        code(table, share, tasks)
        code(table, 0, share)
    assert not _held


def dirty(shape):
    """An array of a shape whose elements are all wrong."""
    count = int(np.prod(shape.dimensions))
    dtype = shape.element_type.dtype
    memory = np.full(max(1, count) * dtype.itemsize, 0xFF, np.uint8)
    return memory.view(dtype)[:count].reshape(shape.dimensions)


def random_array(kind, sizes, seed=0):
    """Elements of moderate size, integers of any."""
    random = np.random.default_rng(seed)
    if kind.is_complex:
        return (random.standard_normal(sizes) + 1j * random.standard_normal(sizes)).astype(kind.dtype)
    if kind is xla.PRED:
        return random.integers(0, 5, sizes) == 0
    if kind.is_integral:
        low, high = (
            (-(1 << (kind.bit_width - 1)), 1 << (kind.bit_width - 1)) if kind.is_signed else (0, 1 << kind.bit_width)
        )
        wide = random.integers(low, high, sizes, dtype=np.uint64 if kind is xla.PrimitiveType.U64 else np.int64)
        return wide.astype(np.int8 if kind.bit_width < 8 else kind.dtype).astype(kind.dtype)
    if kind is xla.PrimitiveType.F8E8M0FNU:
        return (2.0 ** random.integers(-3, 4, sizes)).astype(np.float32).astype(kind.dtype)
    return random.standard_normal(sizes).astype(kind.dtype)


# Parts of the largest result by which sums in another order may differ, or which one rounding makes.
_TOLERANCES = {"F64": 1e-13, "C128": 1e-13, "F32": 4e-6, "C64": 4e-6, "BF16": 2e-2, "F16": 2e-3}


def close(actual, expected):
    """The same results, up to the order of floating point sums."""
    assert actual.shape == expected.shape
    kind = xla.PrimitiveType.from_dtype(actual.dtype)
    if kind.is_complex:
        left, right = actual, expected
    elif kind.is_floating:
        left, right = to_double(actual), to_double(expected)
    else:
        np.testing.assert_array_equal(actual.astype(object), expected.astype(object))
        return
    tolerance = _TOLERANCES.get(kind.name, 0.6) * max(
        1.0, float(np.max(np.abs(right), initial=0, where=np.isfinite(right)))
    )
    np.testing.assert_allclose(left, right, rtol=0, atol=tolerance)
