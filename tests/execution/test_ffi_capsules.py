"""Handlers and types of XLA's FFI as the capsules that libraries make; those of jaxlib are real ones."""

import ctypes

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops, S = xc.ops, xc.Shape


def capsule(address):
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return make(("PyCapsule_New", ctypes.pythonapi))(address, None, None)


def test_a_handler_of_jaxlib_runs():
    lapack = pytest.importorskip("jaxlib.cpu._lapack")
    lapack.initialize()
    handlers = {name: handler for name, handler in lapack.registrations().items() if name.endswith("_ffi")}
    for name, handler in handlers.items():
        xc.register_custom_call_target(f"capsule_{name}", handler, "cpu", api_version=1)
    assert {f"capsule_{name}" for name in handlers} <= set(xc.custom_call_targets("cpu"))
    matrix = np.float32([[4, 2, 1], [2, 5, 3], [1, 3, 6]])
    columns = S.array_shape(np.dtype(np.float32), (3, 3), (0, 1))
    builder = xc.XlaBuilder("capsules")
    ops.CustomCallWithLayout(
        builder,
        b"capsule_lapack_spotrf_ffi",
        operands=[ops.Constant(builder, matrix)],
        shape_with_layout=S.tuple_shape([columns, S.scalar_shape(np.dtype(np.int32))]),
        operand_shapes_with_layout=[columns],
        opaque=b"{uplo = 76 : ui8}",
        api_version=ops.CustomCallApiVersion.API_VERSION_TYPED_FFI,
    )
    factor, status = xc.make_cpu_client().compile(builder.build()).execute([])
    assert np.asarray(status) == 0
    np.testing.assert_allclose(np.tril(np.asarray(factor)), np.linalg.cholesky(matrix), rtol=1e-6)


def test_a_type_gets_a_number():
    number = ctypes.c_int64(0)
    xc.register_custom_type_id("compat_type", capsule(ctypes.addressof(number)))
    given = number.value
    assert given > 0
    xc.register_custom_type_id("compat_type", capsule(ctypes.addressof(number)), platform="cpu")
    assert number.value == given
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: The type_id argument .* must be a PyCapsule"):
        xc.register_custom_type_id("compat_type", 3)
