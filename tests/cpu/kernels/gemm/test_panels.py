"""The left operand in panels: the rows of a micro-tile together, one step of k after the other."""

import ctypes

import numpy as np
import pytest

from xlakit import machine
from xlakit.cpu.kernels.gemm.blocking import plan_gemm
from xlakit.cpu.kernels.gemm.engine import choose_engine
from xlakit.cpu.kernels.gemm.operands import ACROSS, ALONG, SINGLE
from xlakit.cpu.kernels.gemm.panels import PackPanels, form_of_panels
from xlakit.cpu.kernels.gemm.product import make_product
from xlakit.cpu.kernels.shared import common, common_code
from xlakit.data.primitive import PrimitiveType as P
from xlakit.machine import Machine
from xlakit.options import compiling

GUARD = -77.0


def packed(engine, form, matrix, runs, kc, stride, apart):
    """What the function writes of a matrix of (row, k) in memory order ``apart`` per row and ``stride`` per step."""
    rows, height = matrix["rows"], engine.mr
    padded = -(-rows // height) * height
    memory = matrix["memory"]
    sources = np.array(
        [memory.ctypes.data + min(r, rows - 1) * apart * memory.itemsize for r in range(padded)], np.uint64
    )
    distances = np.array([[0, n] for n in runs], np.int64).reshape(-1)[1:].copy()
    length = len(runs) * kc + 3
    out = np.full(padded * length + 64, GUARD, memory.dtype)
    kind = P.F32 if memory.dtype == np.float32 else P.F64
    address = common_code.resolve(common.symbol_of(PackPanels(engine, kind, kind, form)))
    word = ctypes.c_int64
    code = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[word] * 4, ctypes.c_void_p, word)(address)
    code(sources.ctypes.data, distances.ctypes.data, len(runs), kc, stride, rows, out.ctypes.data, length)
    return out, length


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize("form", [ALONG, ACROSS, SINGLE])
@pytest.mark.parametrize("rows", [1, 5, 12, 31])
def test_panels_have_all_steps_and_nothing_else_is_written(form, kind, rows, width):
    kc, runs = 19, (0, 40)
    with compiling(vector_bytes=width):
        engine = choose_engine(kind, kind, kind)
        rng = np.random.default_rng(0)
        dtype = kind.dtype
        if form == ALONG:
            memory, stride, apart = rng.random((rows, 64)).astype(dtype), 1, 64
            whole = memory
        else:
            # Rows are adjacent; the last row ends the array.
            memory, stride, apart = rng.random((64, rows)).astype(dtype), rows, 1
            whole = memory.T
        shifts = [n * stride for n in runs]
        out, length = packed(engine, form, {"rows": rows, "memory": memory}, shifts, kc, stride, apart)
    padded = -(-rows // engine.mr) * engine.mr
    expected = np.full(out.shape, GUARD, dtype)
    panels = expected[: padded * length].reshape(-1, length, engine.mr)
    for row in range(padded):
        steps = np.concatenate([whole[min(row, rows - 1), n : n + kc] for n in runs])
        panels[row // engine.mr, : len(steps), row % engine.mr] = steps
    np.testing.assert_array_equal(out, expected)


def test_rows_are_read_at_once_where_panels_of_them_are_adjacent():
    def product(dims):
        columns = [(640, (1, 1))]
        return make_product((P.F32, P.F32, P.F32), [], dims, columns, [(500, (4096, 640))])

    adjacent, apart = product([(600, (1, 640))]), product([(50, (64, 640 * 12)), (12, (1, 640))])
    engine = plan_gemm(adjacent).engine
    assert form_of_panels(adjacent.lhs, engine, begins_with_panels=True) == ACROSS
    assert form_of_panels(apart.lhs, engine, begins_with_panels=False) == SINGLE


def test_a_left_operand_whose_lanes_take_one_step_is_packed_in_panels():
    rows, along = [(600, (4096, 640))], [(1024, (1, 640))]
    floats = plan_gemm(make_product((P.F32, P.F32, P.F32), [], rows, [(640, (1, 1))], along))
    assert floats.packs == (True, True)
    assert floats.in_panels and floats.left_step == floats.engine.mr
    complex = plan_gemm(make_product((P.C64, P.C64, P.C64), [], rows, [(640, (1, 1))], along))
    assert complex.packs[0] and not complex.in_panels and complex.left_step == 1


def square(kinds, n):
    return make_product(kinds, [], [(n, (n, n))], [(n, (1, 1))], [(n, (1, n))])


def on(monkeypatch, threads, l1, l2):
    """Plan for a machine with these threads, and caches of so many KiB."""
    made = Machine(threads, l1 << 10, l2 << 10, 256 << 20)
    monkeypatch.setattr(machine, "current", lambda: made)


@pytest.mark.parametrize(("threads", "tasks"), [(1, 1), (2, 2)])
def test_a_small_product_is_shared_by_two_threads(threads, tasks, monkeypatch):
    """Tasks of four slivers left the product of 128 columns to one thread."""
    on(monkeypatch, threads, 32, 1024)
    with compiling(vector_bytes=64):
        blocking = plan_gemm(square((P.F32, P.F32, P.F32), 128))
    assert blocking.row_tasks * blocking.column_tasks == tasks


def test_tasks_have_more_columns_where_their_sums_stay_in_the_second_level_cache(monkeypatch):
    """A left operand of 2048 columns was packed four times."""
    floats, bytes = (P.F32, P.F32, P.F32), (P.S8, P.S8, P.S32)
    with compiling(vector_bytes=64):
        on(monkeypatch, 1, 48, 2048)
        assert plan_gemm(square(floats, 2048)).column_tasks == 1
        assert plan_gemm(square(bytes, 1024)).column_tasks == 1
        on(monkeypatch, 1, 32, 256)
        assert plan_gemm(square(floats, 2048)).column_tasks > 3


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("columns", [1, 64, 100, 128, 256, 1000])
def test_the_sums_of_a_tile_fit_registers_beside_what_a_step_reads(columns, width):
    registers = 32 if width == 64 else 16
    for rows in (2, 5, 9, 64, 1000):
        product = make_product((P.F32,) * 3, [], [(rows, (70, columns))], [(columns, (1, 1))], [(70, (1, columns))])
        with compiling(vector_bytes=width):
            engine = plan_gemm(product).engine
        assert engine.mr * engine.vectors + engine.vectors + 1 <= registers


def test_tiles_of_few_columns_are_wider_where_nothing_is_left_over():
    def vectors(columns):
        product = make_product((P.F32,) * 3, [], [(4000, (70, columns))], [(columns, (1, 1))], [(70, (1, columns))])
        return plan_gemm(product).engine.vectors

    with compiling(vector_bytes=64):
        assert [vectors(columns) for columns in (16, 32, 48, 64, 80, 256, 1024)] == [1, 2, 3, 4, 3, 4, 3]


@pytest.mark.parametrize("kind", [P.F32, P.F64])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_parts_of_a_product_add_in_the_order_of_the_whole(kind, width):
    def steps(rows, columns):
        sides = [[(rows, (2000, columns))], [(columns, (1, 1))], [(2000, (1, columns))]]
        return plan_gemm(make_product((kind,) * 3, [], *sides)).kc

    with compiling(vector_bytes=width):
        assert len({steps(rows, columns) for rows in (16, 100, 1000) for columns in (128, 256, 300, 1000)}) == 1
