import json
from dataclasses import replace

import numpy as np
import pytest
from cpu.kernels.product_running import run

import xlakit as xla
from xlakit import machine
from xlakit.cpu.kernels.gemm.blocking import plan_gemm, task_count
from xlakit.cpu.kernels.gemm.driver import emit_gemm
from xlakit.cpu.kernels.gemm.engine import choose_engine
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix, rounded_up
from xlakit.cpu.kernels.gemm.packed_once import emit_packing, packing_phase
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.shared.shuffles import transposed
from xlakit.cpu.llvm import F32, I64, PTR, VOID, Module, vector
from xlakit.data.primitive import PrimitiveType as P
from xlakit.errors import InternalError
from xlakit.options import compiling


def product(rows, columns, depth, **changes):
    left = Matrix(P.F32, Direction(((rows, depth),)), Direction(((depth, 1),)), **changes.pop("lhs", {}))
    right = Matrix(P.F32, Direction(((columns, 1),)), Direction(((depth, columns),)), **changes.pop("rhs", {}))
    return Product(left, right, P.F32, Direction(((rows, columns),)), Direction(((columns, 1),)), **changes)


def computed(what, arrays, sizes):
    module = Module("gemm")
    cut = plan_gemm(what)
    out = np.full(sizes, np.nan, np.float32)
    run(module, [(emit_gemm(module, what, cut), task_count(what, cut))], [*arrays, out])
    return out


def operands(rows, columns, depth):
    random = np.random.default_rng(0)
    return random.standard_normal((rows, depth), np.float32), random.standard_normal((depth, columns), np.float32)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("in_slivers", [False, True])
def test_results_do_not_depend_on_shares(in_slivers, once):
    """Tasks may end within a sliver, where a register ends; the last one has a sliver of another width then."""
    a, b = operands(200, 150, 700)
    what = product(200, 150, 700)
    whole = plan_gemm(what)
    engine = whole.engine
    columns = rounded_up(75, engine.nr) if in_slivers else (75 // engine.nr) * engine.nr + engine.lanes
    cut = replace(whole, task_rows=72, row_tasks=3, task_columns=columns, column_tasks=-(-150 // columns))
    cut = replace(cut, ahead=once, packs_once=once)
    assert len(set(cut.partial_columns(what))) == 2
    tasks = task_count(what, cut)
    module = Module("gemm")
    stages = [(emit_packing(module, what, cut), packing_phase("packing", what, cut).tasks)] if once else []
    fn = emit_gemm(module, what, cut)
    packed = np.zeros(cut.packed_once_bytes(what), np.uint8)
    out, other = np.zeros((200, 150), np.float32), np.zeros((200, 150), np.float32)
    run(module, [*stages, (fn, tasks)], [a, b, out, packed])
    run(module, [*stages, (fn, 1), (fn, tasks)], [a, b, other, packed])
    np.testing.assert_array_equal(out, other)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, atol=1e-3)


@pytest.mark.usefixtures("usual_machine")
@pytest.mark.parametrize("rows", [64, 96, 256, 1024])
@pytest.mark.parametrize("columns", [256, 512, 800, 1024, 1500, 2048, 5000])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_threads_multiply_as_much_as_each_other(rows, columns, wide, width):
    """Of 1024 columns, one of two threads had all but 16."""
    with compiling(vector_bytes=width):
        cut = plan_gemm(product(rows, columns, 512), wide=wide)
    shares = [0, 0]
    for column in range(0, columns, cut.task_columns):
        for row in range(0, rows, cut.task_rows):
            part = min(cut.task_rows, rows - row) * min(cut.task_columns, columns - column)
            shares[shares.index(min(shares))] += part
    assert max(shares) < 1.2 * rows * columns / 2


def test_tasks_are_more_where_packing_again_is_cheap(tmp_path, monkeypatch):
    def tasks(copied):
        rates = {"copy_bytes_per_nanosecond_one_thread": copied}
        path = tmp_path / f"machine_{copied}.json"
        caches = {"l1": 32 << 10, "l2": 512 << 10, "l3": 32 << 20}
        path.write_text(json.dumps({"threads": 2, "caches": caches, "measured": rates}))
        monkeypatch.setenv(machine.VARIABLE, str(path))
        what = product(1024, 1024, 1024)
        return task_count(what, plan_gemm(what))

    # Equal shares where memory is slow; else a thread that others disturb leaves some of its tasks to the other one.
    assert tasks(1.0) == 2
    assert tasks(16.0) >= 4


@pytest.mark.usefixtures("usual_machine")
@pytest.mark.parametrize("slivers", [2, 5])
def test_what_is_read_across_its_lines_stays_near(slivers):
    features = slivers * choose_engine(P.F32, P.F32, P.F32).nr - 3
    # The gradient of a convolution's kernel: rows are features, k goes over images, their lines and columns.
    along = Direction(((20, 12 * features), (10, features)))
    window = Matrix(P.F32, Direction(((3, 12 * features), (3 * features, 1))), along, in_place=True)
    cotangent = Matrix(P.F32, Direction(((features, 1),)), Direction(((20, 10 * features), (10, features))))
    rows = 9 * features
    result = Direction(((rows, features),)), Direction(((features, 1),))
    what = Product(window, cotangent, P.F32, *result)
    cut = plan_gemm(what)
    # For each step a line of the windows, and a row of a sliver, which together take less than the cache of 32 KiB.
    assert not cut.packs[0]
    assert 32 < cut.runs * cut.kc <= (32 << 10) // (64 + 4 * cut.engine.nr)
    random = np.random.default_rng(1)
    image = random.integers(-3, 4, (22, 12, features)).astype(np.float32)
    other = random.integers(-3, 4, (20, 10, features)).astype(np.float32)
    shifted = [image[y : y + 20, x : x + 10] for y in range(3) for x in range(3)]
    expected = np.concatenate([np.einsum("yxi,yxo->io", part, other) for part in shifted])
    np.testing.assert_array_equal(computed(what, [image, other], (rows, features)), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda cut: {"task_columns": 75 + (75 % cut.engine.lanes == 0), "column_tasks": 2},
        lambda cut: {"task_columns": cut.engine.nr, "column_tasks": 1},
        lambda cut: {"task_rows": 100, "row_tasks": 3},
        lambda cut: {"mc": 4 * cut.engine.mr + 1, "engine": replace(cut.engine, mr=2 * cut.engine.mr)},
        lambda cut: {"k_blocks": cut.k_blocks + 1},
        lambda cut: {"kc": 0},
        lambda cut: {"packs": (True, False)},
    ],
    ids=["slivers", "columns", "rows", "tiles", "blocks of k", "steps of k", "not packed"],
)
def test_a_cut_that_would_corrupt_memory_is_refused(change):
    depth = 700
    left = Matrix(P.F32, Direction(((200, depth),)), Direction(((depth, 1),)))
    right = Matrix(P.F32, Direction(((150, depth),)), Direction(((depth, 1),)))
    what = Product(left, right, P.F32, Direction(((200, 150),)), Direction(((150, 1),)))
    cut = plan_gemm(what)
    module = Module("gemm")
    with pytest.raises(InternalError, match="breaks the rule"):
        emit_gemm(module, what, replace(cut, **change(cut)))


def test_squares_are_turned():
    module = Module("turn")
    fn = module.function("turn", VOID, [PTR, I64, I64])
    square = vector(F32, 8)
    source, target = (fn.load(PTR, fn.at(fn.parameters[0], PTR, n)) for n in range(2))
    rows = [fn.load(square, fn.at(source, F32, 8 * i)) for i in range(8)]
    for i, row in enumerate(transposed(fn, rows)):
        fn.store(row, fn.at(target, F32, 8 * i))
    fn.ret()
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    out = np.zeros_like(a)
    run(module, [(fn, 1)], [a, out])
    np.testing.assert_array_equal(out, a.T)


@pytest.mark.parametrize("tile", [{"gemm.tile_vectors": 3}, {"gemm.tile_rows": 5}, {"gemm.tile_rows": 14}])
def test_wide_products_with_tiles_of_any_shape(tile):
    text = """HloModule product
ENTRY e {
  a = f32[256,512] parameter(0)
  b = f32[512,1024] parameter(1)
  d = f32[256,1024] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[256,1024] tanh(d)
}"""
    a, b = np.random.default_rng(3).integers(-4, 5, (2, 512, 1024)).astype(np.float32)
    a = a[:256, :512].copy()
    bare = text.replace("  ROOT r = f32[256,1024] tanh(d)\n", "").replace("  d =", "  ROOT d =")
    for program, expected in ((text, np.tanh(a @ b)), (bare, a @ b)):
        with compiling(knobs=tile):
            compiled = xla.compile(xla.HloModule.from_text(program), backend="cpu")
        np.testing.assert_allclose(compiled(a, b), expected, rtol=1e-6)
