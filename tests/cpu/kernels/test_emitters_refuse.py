"""A plan that would make code corrupt memory is refused while code is made."""

from dataclasses import replace

import pytest
from evaluating import f32

from xlakit.cpu.kernels.conv.convolution import emit_convolution, plan_convolution
from xlakit.cpu.kernels.conv.depthwise import emit_depthwise
from xlakit.cpu.kernels.conv.pad import emit_pad
from xlakit.cpu.kernels.fft.axis import Axis, Storage
from xlakit.cpu.kernels.fft.four_step import FourStep
from xlakit.cpu.kernels.fft.groups import emit_groups
from xlakit.cpu.kernels.fft.rows import emit_long_rows
from xlakit.cpu.kernels.gemm.blas_tasks import emit_blas
from xlakit.cpu.kernels.gemm.dot import emit_dot, plan_product
from xlakit.cpu.kernels.gemm.few_rows import emit_few_rows
from xlakit.cpu.kernels.gemm.operands import Direction, Matrix
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
    assert vector.kind == "vector"
    assert not refused(emit_dot, replace(vector, task_rows=0)).functions
    refused(emit_dot, replace(vector, task_rows=3))
    strided = replace(vector.product.lhs, along=Direction(((16, 2),)))
    refused(emit_dot, replace(vector, product=replace(vector.product, lhs=strided)))
    few = plan_product(product(2, 4096, 32))
    assert few.kind == "few_rows"
    assert not refused(emit_few_rows, few.engine, product(2, 4096, 32, turned=True)).functions
    refused(emit_few_rows, few.engine, product(9, 4096, 32))
    refused(emit_blas, product(64, 64, 64), 0, 32)
    refused(emit_blas, replace(product(64, 64, 64), result=P.S32), 32, 32)


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
        (100, Method.RANKS, {"length": 1000}),
        (1000, Method.RADIX, {"scratch_bytes": 64}),
        (1000, Method.RADIX, {"records": ()}),
        (1 << 18, Method.PARALLEL_RADIX, {"tasks": 5}),
        (1 << 18, Method.PARALLEL_RADIX, {"scratch_bytes": 1 << 18}),
    ],
)
def test_sorts(length, method, change):
    plan = plan_rows((P.F32,), 2, length, 1, (UP,))
    assert plan.method is method
    assert not refused(sort.emit_sort, replace(plan, **change), None).functions


def test_sorts_that_read_what_they_have_overwritten():
    plan = plan_rows((P.F32, P.C128), 1, 1000, 1, (UP,))
    assert plan.method is Method.RADIX
    assert plan.in_place == (True, False)
    refused(sort.emit_sort, replace(plan, in_place=(True, True)), None)


def test_merges_of_chunks_that_are_no_pairs():
    plan = plan_rows((P.F32,), 1, 1 << 18, 1, None)
    assert plan.method is Method.PARALLEL_MERGE
    refused(sort.emit_sort, replace(plan, tasks=3), None)


@pytest.mark.parametrize("change", [{"k": 300}, {"scratch_bytes": 8}, {"tasks": 0}])
def test_first_elements(change):
    plan = top_k._plan(UP, f32(3, 200), 40, 1, (top_k.Column(P.F32, 0),))
    assert plan.method is top_k.Method.SORT
    assert not refused(top_k.emit_top_k, replace(plan, **change)).functions


def test_scatters():
    plan = plan_scatter(
        root_of(
            "x = f32[64,64] parameter(0) i = s32[900,1] parameter(1) u = f32[900,64] parameter(2) "
            "ROOT y = f32[64,64] scatter(x, i, u), to_apply=add, update_window_dims={1}, inserted_window_dims={0}, "
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
