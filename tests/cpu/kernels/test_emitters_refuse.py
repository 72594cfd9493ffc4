"""A plan that would make code corrupt memory is refused while code is made."""

from dataclasses import replace

import pytest
from evaluating import f32

from xlakit.cpu.kernels.conv.convolution import emit_convolution, plan_convolution
from xlakit.cpu.kernels.conv.depthwise import emit_depthwise
from xlakit.cpu.kernels.conv.pad import emit_pad
from xlakit.cpu.kernels.dot.dot import emit_dot, plan_product
from xlakit.cpu.kernels.dot.few_rows import emit_few_rows
from xlakit.cpu.kernels.fft.four_step import FourStep
from xlakit.cpu.kernels.fft.groups import emit_groups
from xlakit.cpu.kernels.fft.plan import Axis, Storage
from xlakit.cpu.kernels.fft.rows import emit_long_rows
from xlakit.cpu.kernels.gemm.blocking import plan_gemm
from xlakit.cpu.kernels.gemm.check import check_blocking
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix, can_read_in_place
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.scan.prefix_sum import ScanPlan, emit_prefix_sum
from xlakit.cpu.kernels.scatter import scatter
from xlakit.cpu.kernels.scatter.plan import Sharing, plan_scatter
from xlakit.cpu.kernels.sort import sort, top_k
from xlakit.cpu.kernels.sort.plan import Method, plan_rows
from xlakit.cpu.llvm import F32, Module
from xlakit.data.primitive import PrimitiveType as P
from xlakit.errors import InternalError
from xlakit.formats.hlo_text.parser import parse_module
from xlakit.ops.convolution import Convolution
from xlakit.options import compiling
from xlakit.passes.analysis.sort_order import SortKey

UP = SortKey(0, P.F32)


def refused(emit, *arguments):
    """The module has no function of a kernel that was refused."""
    module = Module("refused")
    with pytest.raises(InternalError):
        emit(module, *arguments)
    return module


def product(rows, columns, depth, *, turned=False):
    right = Direction(((columns, depth if turned else 1),)), Direction(((depth, 1 if turned else columns),))
    left = Matrix(P.F32, Direction(((rows, depth),)), Direction(((depth, 1),)))
    return Product(left, Matrix(P.F32, *right), P.F32, Direction(((rows, columns),)), Direction(((columns, 1),)))


def test_products_by_other_means():
    vector = plan_product(product(8, 1, 16))
    assert vector.kernel == "matrix_vector"
    assert not refused(emit_dot, replace(vector, task_rows=0)).functions
    refused(emit_dot, replace(vector, task_rows=3))
    strided = replace(vector.product.lhs, along=Direction(((16, 2),)))
    refused(emit_dot, replace(vector, product=replace(vector.product, lhs=strided)))
    few = plan_product(product(2, 4096, 32))
    assert few.kernel == "few_rows"
    assert not refused(emit_few_rows, few.engine, product(2, 4096, 32, turned=True)).functions
    refused(emit_few_rows, few.engine, product(9, 4096, 32))


def blocked(**changes):
    """A product in several tasks and several blocks of k, with changes of the product, its engine or its blocking."""
    own = product(70, 90, 300)
    with compiling(knobs={"gemm.sliver_bytes": 1 << 10, "gemm.task_products": 1000, "gemm.most_columns": 64}):
        blocking = plan_gemm(own)
    assert min(blocking.row_tasks * blocking.column_tasks, blocking.k_blocks) > 1
    check_blocking(own, blocking)
    made = []
    for part in (own, blocking.engine, blocking):
        made.append(replace(part, **{name: changes.pop(name) for name in list(changes) if hasattr(part, name)}))
    return made[0], replace(made[2], engine=made[1])


FAR = Matrix(P.F32, Direction(((90, 2),)), Direction(((300, 180),)))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"vectors": 0}, "tiles have rows and columns"),
        ({"task_columns": 33, "column_tasks": 3}, "tasks' columns are whole slivers"),
        ({"column_tasks": 1}, "tasks have all columns"),
        ({"row_tasks": 1, "task_rows": 69}, "tasks have all rows"),
        ({"mc": 1}, "blocks of rows are whole tiles"),
        ({"mc": 0}, "blocks of rows are whole tiles"),
        ({"lhs": replace(product(70, 90, 300).lhs, kind=P.BF16), "packs": (False, True)}, "a left operand that is not"),
        ({"group": 2, "packs": (False, True), "kc": 300, "k_blocks": 1}, "a left operand that is not packed"),
        ({"rhs": FAR, "packs": (True, False)}, "a right operand that is not packed"),
        ({"lhs": product(69, 90, 300).lhs}, "rows are those of the result"),
        ({"columns": Direction(((91, 1),))}, "columns are those of the result"),
        ({"rhs": product(70, 90, 299).rhs}, "operands have the same runs of k"),
        ({"batches": (Direction(((2, 0),)), Direction(()), Direction(()))}, "batches are those of the result"),
        ({"k_blocks": 1}, "blocks have all steps of k"),
        ({"runs": 2}, "blocks of several runs have whole runs"),
    ],
)
def test_each_rule_of_the_blocks_of_a_product(changes, rule):
    with pytest.raises(InternalError, match=rule):
        check_blocking(*blocked(**changes))


def test_what_is_read_in_place():
    """Slivers of whole registers of the type that is computed in."""
    own, blocking = blocked()
    engine, rhs = blocking.engine, own.rhs
    slivers = replace(rhs, across=Direction(((2, 99), (engine.nr, 1))))
    assert can_read_in_place(engine, rhs)
    assert can_read_in_place(engine, slivers)
    assert can_read_in_place(engine, replace(rhs, across=Direction(((1, 7),))))
    for other in ({"group": 2}, {"parts": 2}):
        assert not can_read_in_place(replace(engine, **other), rhs)
    for across in (
        ((90, 2),),
        ((2, 99), (engine.nr, 2)),
        ((2, 99), (engine.nr // 2, 1)),
        ((1, 9), (2, 99), (engine.nr, 1)),
    ):
        assert not can_read_in_place(engine, replace(rhs, across=Direction(across)))
    assert not can_read_in_place(engine, replace(rhs, kind=P.C64))
    assert not can_read_in_place(engine, replace(slivers, kind=P.BF16))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"columns": Direction(((4095, 1),))}, "there are columns"),
        ({"rhs": replace(product(2, 4096, 32).rhs, along=Direction(((31, 4096),)))}, "as many steps of k"),
        ({"group": 2}, "one by one"),
    ],
)
def test_each_rule_of_few_rows(changes, rule):
    plan = plan_product(product(2, 4096, 32))
    engine = replace(plan.engine, group=changes.pop("group", 1))
    with pytest.raises(InternalError, match=rule):
        emit_few_rows(Module("refused"), engine, replace(plan.product, **changes))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"rhs": replace(product(8, 1, 16).rhs, across=Direction(((0, 1),)))}, "there are vectors"),
        ({"rhs": replace(product(8, 1, 16).rhs, along=Direction(((15, 1),)))}, "as long as a row"),
        ({"rhs": replace(product(8, 1, 16).rhs, along=Direction(((2, 8), (8, 1))))}, "as long as a row"),
        ({"batches": (Direction(((2, 0),)), Direction(()), Direction(()))}, "batches are those of the result"),
        ({"group": 2}, "one by one"),
        ({"parts": 2}, "one by one"),
    ],
)
def test_each_rule_of_vectors(changes, rule):
    plan = plan_product(product(8, 1, 16))
    engine = replace(plan.engine, **{k: changes.pop(k) for k in ("group", "parts") if k in changes})
    with pytest.raises(InternalError, match=rule):
        emit_dot(Module("refused"), replace(plan, engine=engine, product=replace(plan.product, **changes)))


ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"


def root_of(text):
    return parse_module(f"HloModule m\n{ADD}\nENTRY e {{ {text} }}").entry.root


def convolution():
    root = root_of(
        "x = f32[1,6,6,4] parameter(0) k = f32[3,3,4,4] parameter(1) "
        "ROOT y = f32[1,6,6,4] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    )
    return plan_convolution(root.op_as(Convolution), *(o.shape for o in root.operands), root.shape)


def test_convolutions():
    plan = convolution()
    assert plan.padded is not None
    refused(emit_pad, replace(plan.padded, first=4), 3, "pad")
    refused(emit_pad, replace(plan.padded, groups=3), 3, "pad")
    with pytest.raises(InternalError, match="only lines of elements have groups"):
        emit_pad(Module("refused"), replace(plan.padded, groups=2, holes=(0, 1, 0, 0)), 3, "pad")
    refused(emit_pad, replace(plan.padded, low=(-1, 0, 0, 0)), 3, "pad")
    assert not refused(emit_depthwise, plan.geometry, plan.geometry.phases[0], "lanes").functions
    (whole, cut), *_ = plan.products
    assert whole.lines is not None
    for wrong in ({"steps": 4}, {"low": 1}, {"chunk": 0}):
        refused(emit_convolution, replace(plan, products=((replace(whole, lines=replace(whole.lines, **wrong)), cut),)))
    refused(emit_convolution, replace(plan, padded=None, products=((whole, replace(cut, mc=cut.mc + 1)),)))


def test_transforms():
    refused(FourStep, F32, 37, 64)
    rows = Axis(F32, Storage(0), Storage(1), 4, 64, 1, False)
    refused(emit_groups, replace(rows, length=0))
    refused(emit_groups, replace(rows, reads_real=True, inner=3))
    refused(emit_long_rows, replace(rows, length=1), 0)


def test_scans():
    add = parse_module(f"HloModule m\nENTRY {ADD}").entry
    plan = ScanPlan(add, (P.F32,), 4, 100, 1, False)
    assert not refused(emit_prefix_sum, replace(plan, length=0)).functions
    refused(emit_prefix_sum, replace(plan, kinds=(P.F32, P.F32)))


@pytest.mark.parametrize(
    ("length", "method", "change"),
    [
        (80, Method.RANKS, {"length": 1000}),
        (1000, Method.RADIX, {"scratch_bytes": 64}),
        (1000, Method.RADIX, {"records": ()}),
        (1000, Method.RADIX, {"method": Method.QUICK}),
        (1 << 18, Method.PARALLEL_RADIX, {"tasks": 5}),
        (1 << 18, Method.PARALLEL_RADIX, {"scratch_bytes": 1 << 18}),
    ],
)
def test_sorts(length, method, change):
    with compiling(vector_bytes=32):
        plan = plan_rows((P.F32,), 2, length, 1, (UP,))
        assert plan.method is method
        assert not refused(sort.emit_sort, replace(plan, **change), None).functions


def test_sorts_that_read_what_they_have_overwritten():
    plan = plan_rows((P.F32, P.C128), 1, 1000, 1, (UP,))
    assert plan.method is Method.RADIX
    assert plan.in_place == (True, False)
    refused(sort.emit_sort, replace(plan, in_place=(True, True)), None)


@pytest.mark.parametrize("change", [{"k": 300}, {"scratch_bytes": 8}, {"tasks": 0}])
def test_first_elements(change):
    plan = top_k._plan(UP, f32(3, 200), 40, 1, (top_k.Column(P.F32, 0),))
    assert plan.method is top_k.Method.RADIX_SELECT
    assert not refused(top_k.emit_top_k, replace(plan, **change)).functions


def test_scatters():
    plan = plan_scatter(
        root_of(
            "x = f32[64,512] parameter(0) i = s32[900,1] parameter(1) u = f32[900,512] parameter(2) "
            "ROOT y = f32[64,512] scatter(x, i, u), to_apply=add, update_window_dims={1}, inserted_window_dims={0}, "
            "scatter_dims_to_operand_dims={0}, index_vector_dim=1"
        )
    )
    assert plan.sharing is Sharing.TARGETS
    scatter.check_plan(plan)
    for change in ({"tasks": 3}, {"components": ()}, {"sharing": Sharing.ALONE}):
        with pytest.raises(InternalError, match="breaks the rule"):
            scatter.check_plan(replace(plan, **change))
    with pytest.raises(InternalError, match="each task has updates"):
        scatter.check_plan(replace(plan, sharing=Sharing.UPDATES, tasks=901))
