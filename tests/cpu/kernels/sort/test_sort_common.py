"""The functions of sorting that programs share: their names say all there is to know about them."""

import pytest

from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import PackRecords, SortNetworks, SortQuickly, UnpackRecords
from xlakit.cpu.kernels.sort.digits import ChunkPositions, CountDigits, MoveByDigit, SortByDigits
from xlakit.cpu.kernels.sort.plan import plan_rows
from xlakit.cpu.kernels.sort.record import make_layout
from xlakit.cpu.kernels.sort.sort import emit_sort
from xlakit.cpu.kernels.sort.top_k_common import CollectFirst, JoinFirst, KeepFirst
from xlakit.cpu.llvm import Module
from xlakit.data.primitive import PrimitiveType as P
from xlakit.passes.analysis.sort_order import NanOrder, Part, SortKey

KEY = SortKey(1, P.F32, Part.IMAG, descending=True, nan=NanOrder.LOW, zeros_equal=True)
INTEGER = SortKey(0, P.S32, descending=True)
RECORD = make_layout([KEY], [P.S8, P.C64], 1000, alone=False)


@pytest.mark.parametrize(
    "function",
    [
        CountDigits(64, 32),
        MoveByDigit(128, 64),
        SortByDigits(16, 32),
        SortQuickly.of(make_layout([INTEGER], [P.S32], 1000, alone=True), INTEGER, exceptions=False),
        SortNetworks(64, True, False),
        PackRecords.of(RECORD, KEY, 32, exceptions=False),
        UnpackRecords.of(RECORD, KEY, 0, exceptions=False),
        ChunkPositions(32),
        KeepFirst(SortKey(0, P.BF16), 64, 32, True),
        JoinFirst(SortKey(0, P.U8, descending=True, nan=NanOrder.HIGH), 64, 32, False),
        CollectFirst(SortKey(0, P.F8E4M3FN, descending=True, nan=NanOrder.LOW, zeros_equal=True), 64, 32, False),
    ],
    ids=lambda function: function.family,
)
def test_a_name_says_all(function):
    symbol = common.symbol_of(function)
    assert common_families.function_of(symbol) == function
    assert f"define void @{symbol}(" in common_families.text(symbol)


def test_a_key_is_the_one_of_its_record():
    function = PackRecords.of(RECORD, KEY, 32, exceptions=True)
    assert (function.record, function.offset, function.kind) == (64, RECORD.field(1, Part.IMAG).offset, P.F32)
    assert function.key == SortKey(0, P.F32, descending=True, nan=NanOrder.LOW, zeros_equal=True)


def test_sorts_by_digits_of_all_types_and_orders_have_one_function():
    f32, s32 = P.F32, P.S32
    orders = [
        ([f32, s32], [SortKey(0, f32, nan=NanOrder.HIGH, zeros_equal=True)]),
        ([f32, f32], [SortKey(1, f32, descending=True, nan=NanOrder.LOW), SortKey(0, f32, zeros_equal=True)]),
        ([P.S16, f32, P.F8E4M3FN], [SortKey(0, P.S16), SortKey(2, P.F8E4M3FN, nan=NanOrder.HIGH)]),
        ([s32, P.U32], [SortKey(0, s32), SortKey(1, P.U32, descending=True)]),
    ]
    imports: set[str] = set()
    for kinds, order in orders:
        module = Module("sort")
        plan = plan_rows(tuple(kinds), 1, 1000, 1, tuple(order))
        emit_sort(module, plan, lambda *_: pytest.fail("a comparator is called"))
        imports |= {name for name in module.declared if "sort_by_digits" in name or "sort_move" in name}
    assert len(imports) == 1
