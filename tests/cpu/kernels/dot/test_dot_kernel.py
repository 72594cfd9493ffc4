import ctypes

import numpy as np
import pytest
from cpu.kernels.product_running import close, dirty, random_array, run

import xlakit as xla
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.dot.dot import emit_dot, plan_dot
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.llvm import Module
from xlakit.errors import InternalError
from xlakit.ops.dot import Dot
from xlakit.ops.shared.contraction import contract
from xlakit.options import compiling
from xlakit.target import vector_bytes

P = xla.PrimitiveType
NN = Dot(lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
NT = Dot(lhs_contracting_dims=(1,), rhs_contracting_dims=(1,))
TN = Dot(lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
TT = Dot(lhs_contracting_dims=(0,), rhs_contracting_dims=(1,))


def check(op, lhs, rhs, kinds=(P.F32, P.F32, P.F32), kernel=None):
    left, right = xla.make_shape(kinds[0], lhs), xla.make_shape(kinds[1], rhs)
    result = op.result_shape([left, right], None).with_element_type(kinds[2])
    plan = plan_dot(op, left, right, result)
    assert kernel in (None, plan.kernel)
    a, b, out = random_array(kinds[0], lhs), random_array(kinds[1], rhs, 1), dirty(result)
    module = Module("dot")
    run(module, [(emit_dot(module, plan), plan.tasks)], [a, b, out])
    batch = op.lhs_batch_dims, op.rhs_batch_dims
    close(out, contract(a, b, batch, (op.lhs_contracting_dims, op.rhs_contracting_dims), kinds[2]))


@pytest.mark.parametrize("op", [NN, NT, TN, TT])
def test_transposed_operands(op):
    lhs = (130, 200) if op in (NN, NT) else (200, 130)
    rhs = (200, 110) if op in (NN, TN) else (110, 200)
    for kind in (P.F32, P.F64, P.C64, P.C128):
        check(op, lhs, rhs, (kind,) * 3, kernel="gemm")


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 17, 33), (13, 37, 1000), (6, 16, 0), (0, 4, 3), (4, 0, 3), (5, 1, 9)])
def test_odd_sizes(sizes):
    m, n, k = sizes
    check(NN, (m, k), (k, n))
    check(TT, (k, m), (n, k))


def test_batches_and_several_contracting_dimensions():
    op = Dot(lhs_batch_dims=(0, 2), rhs_batch_dims=(2, 0), lhs_contracting_dims=(1, 4), rhs_contracting_dims=(3, 1))
    check(op, (2, 7, 3, 5, 11), (3, 11, 2, 7, 6, 4))
    batched = Dot(lhs_batch_dims=(0,), rhs_batch_dims=(0,), lhs_contracting_dims=(2,), rhs_contracting_dims=(1,))
    check(batched, (50, 3, 3), (50, 3, 3))
    check(batched, (50, 8, 8), (50, 8, 8))


@pytest.mark.parametrize("kind", [P.F32, P.BF16, P.S8, P.S64, P.PRED])
def test_vectors(kind):
    kinds = (kind,) * 3
    inner = Dot(lhs_contracting_dims=(0,), rhs_contracting_dims=(0,))
    check(inner, (1000,), (1000,), kinds, kernel="matrix_vector")
    check(NN, (37, 100), (100,), kinds, kernel="matrix_vector")
    check(NN, (6, 47), (47,), kinds, kernel="matrix_vector")
    check(NT, (1, 100), (37, 100), kinds, kernel="matrix_vector")
    check(inner, (100,), (100, 37), kinds, kernel="gemm")
    check(NN, (3, 130), (130, 1001), kinds, kernel="few_rows")


def test_rows_that_fill_no_whole_vectors_are_not_summed_one_by_one():
    left, right, result = (xla.make_shape(P.F32, sizes) for sizes in ((8, 92), (92,), (8,)))
    module = Module("dot")
    emit_dot(module, plan_dot(NN, left, right, result))
    assert "llvm.fmuladd.v" in module.text()
    assert "llvm.fmuladd.f32" not in module.text()


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (1, (P.C64,) * 3),
        (2, (P.C64,) * 3),
        (2, (P.C128,) * 3),
        (2, (P.F32, P.C64, P.C64)),
        (1, (P.C64, P.F32, P.C64)),
    ],
    ids=str,
)
def test_a_few_complex_rows(rows, kinds):
    check(NN, (rows, 130), (130, 1001), kinds, kernel="few_rows")
    check(TN, (21, rows), (21, 5000), kinds, kernel="few_rows")
    batched = Dot(lhs_batch_dims=(0,), rhs_batch_dims=(0,), lhs_contracting_dims=(2,), rhs_contracting_dims=(1,))
    check(batched, (3, rows, 70), (3, 70, 1000), kinds, kernel="few_rows")


@pytest.mark.parametrize("kind", [P.C64, P.C128])
def test_a_complex_matrix_times_a_few_vectors(kind):
    kinds = (kind,) * 3
    batched = Dot(lhs_batch_dims=(1,), rhs_batch_dims=(1,), lhs_contracting_dims=(2,), rhs_contracting_dims=(0,))
    with compiling(vector_bytes=64):
        check(NN, (37, 100), (100,), kinds, kernel="matrix_vector")
        check(NT, (1, 1001), (370, 1001), kinds, kernel="matrix_vector")
        check(NN, (45, 70), (70, 1), kinds, kernel="matrix_vector")
        check(batched, (20, 3, 90), (90, 3), kinds, kernel="matrix_vector")
        check(NT, (2, 70), (37, 70), kinds, kernel="matrix_vector")
        check(NN, (300, 70), (70, 2), kinds, kernel="matrix_vector")


def test_a_few_rows_whose_sums_are_more_than_fit_the_cache():
    with compiling(knobs={"gemm_few_rows.most_rows": 9, "gemm_few_rows.sums_bytes": 128, "dot.streamed": 1}):
        check(NN, (9, 20), (20, 150), (P.F64,) * 3, kernel="few_rows")


# A type has the code of another one with as many lanes; those of 8 bytes have room for two vectors in 32 bytes.
@pytest.mark.parametrize(
    ("kind", "vectors"), [(P.F32, 2), (P.F32, 3), (P.F32, 7), (P.F16, 3), (P.F64, 3), (P.F64, 2), (P.S64, 2)]
)
def test_a_few_vectors(kind, vectors):
    kinds = (kind,) * 3
    batched = Dot(lhs_batch_dims=(0,), rhs_batch_dims=(0,), lhs_contracting_dims=(2,), rhs_contracting_dims=(1,))
    few = "matrix_vector" if 2 * vectors <= vector_bytes() // max(4, kind.byte_width) else None
    knobs = {"dot.streamed": 1, "dot.vector_task": 64, "matrix_vector.least_steps": 1}
    with compiling(knobs=knobs):
        check(NN, (37, 131), (131, vectors), kinds, kernel=few)
        check(NT, (17, 64), (vectors, 64), kinds, kernel=few)
        check(TT, (77, vectors), (19, 77), kinds, kernel=few)
        check(batched, (3, 21, 90), (3, 90, vectors), kinds, kernel=few)


@pytest.mark.parametrize(("number", "kind"), [*enumerate(k for k in P if k.is_array)])
def test_every_element_type(number, kind):
    # Operands are packed by one emitter, on either side: each product has one whose rows and one whose columns lie
    # together. Kinds that are alike stand beside each other, and have both.
    op, lhs, rhs = ((NN, (33, 72), (72, 40)), (TT, (37, 13), (21, 37)))[number % 2]
    check(op, lhs, rhs, (kind,) * 3)


@pytest.mark.parametrize(
    "kinds",
    [
        (P.S8, P.S8, P.S32),
        (P.U8, P.S8, P.S32),
        (P.U16, P.U16, P.U32),
        (P.S32, P.S8, P.S64),
        (P.PRED, P.PRED, P.S32),
        (P.S4, P.U4, P.S8),
        (P.BF16, P.BF16, P.F32),
        (P.F32, P.BF16, P.F32),
        (P.S8, P.F32, P.F32),
        (P.F32, P.F32, P.S32),
        (P.F64, P.F64, P.BF16),
        (P.F32, P.C64, P.C64),
        (P.C64, P.F32, P.F32),
        (P.F8E4M3FN, P.F8E5M2, P.BF16),
    ],
)
def test_mixed_element_types(kinds):
    check(NN, (13, 700), (700, 21), kinds)


def test_an_infinity_and_nan_pass_through():
    a = np.array([[np.inf, 1], [np.nan, 1], [1, 2]], np.float32)
    b = np.eye(2, dtype=np.float32)
    out = np.zeros((3, 2), np.float32)
    shape = xla.make_shape(P.F32, (3, 2)), xla.make_shape(P.F32, (2, 2))
    plan = plan_dot(NN, *shape, shape[0])
    module = Module("dot")
    run(module, [(emit_dot(module, plan), plan.tasks)], [a, b, out])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, a @ b)


def test_dynamic_shapes_are_refused():
    dynamic = xla.make_shape(P.F32, (4, 4), dynamic_dimensions=(True, False))
    with pytest.raises(DeclinedError, match="dynamic"):
        plan_dot(NN, dynamic, xla.make_shape(P.F32, (4, 4)), dynamic)


def test_blas_tells_its_threads():
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(blas.resolve("xlakit_blas_get_threads"))
    set_threads = ctypes.CFUNCTYPE(None, ctypes.c_int)(blas.resolve("xlakit_blas_set_threads"))
    before = threads()
    set_threads(1)
    assert threads() == 1
    set_threads(before)
    assert threads() == before
    assert blas.resolve("memcpy") is None
    with pytest.raises(InternalError, match="no routine"):
        blas.address("no_such_routine")


@pytest.mark.parametrize(("kind", "width"), [(P.F32, 16), (P.F64, 8), (P.BF16, 16), (P.F32, 5)])
@pytest.mark.parametrize("rows", [1, 7, 33])
def test_columns_in_slivers(kind, width, rows):
    # What lies as packing would leave it is read as it lies.
    check(Dot(lhs_contracting_dims=(1,), rhs_contracting_dims=(1,)), (rows, 300), (6, 300, width), (kind,) * 3)
