"""The functions of sorting that programs share: their names say all there is to know about them."""

import pytest

from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.kernels.sort.common import (
    ChunkPositions,
    CountDigits,
    MoveByDigit,
    PackRecords,
    SortByDigits,
    SortNetworks,
    SortQuickly,
    UnpackRecords,
)
from xlakit.cpu.kernels.sort.record import make_layout
from xlakit.cpu.kernels.sort.top_k_common import CollectFirst, JoinFirst, KeepFirst
from xlakit.cpu.llvm import I32, I64
from xlakit.data.primitive import PrimitiveType as P
from xlakit.passes.analysis.sort_order import NanOrder, Part, SortKey

KEY = SortKey(1, P.F32, Part.IMAG, descending=True, nan=NanOrder.LOW, zeros_equal=True)
INTEGER = SortKey(0, P.S32, descending=True)
RECORD = make_layout([KEY], [P.S8, P.C64], 1000, alone=False)


@pytest.mark.parametrize(
    "function",
    [
        CountDigits.of(RECORD, KEY, exceptions=True, counter=I32),
        MoveByDigit.of(RECORD, KEY, exceptions=False, counter=I64),
        SortByDigits.of(RECORD, KEY, exceptions=True, counter=I32),
        SortQuickly.of(make_layout([INTEGER], [P.S32], 1000, alone=True), INTEGER, exceptions=False, counter=I32),
        SortNetworks(64, True, False),
        PackRecords.of(RECORD, KEY, 32, exceptions=False, counter=I32),
        UnpackRecords.of(RECORD, KEY, 0, exceptions=False, counter=I32),
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
    function = CountDigits.of(RECORD, KEY, exceptions=True, counter=I32)
    assert (function.record, function.offset, function.kind) == (64, RECORD.field(1, Part.IMAG).offset, P.F32)
    assert function.key == SortKey(0, P.F32, descending=True, nan=NanOrder.LOW, zeros_equal=True)


def test_functions_of_keys_without_exceptions_are_the_same_for_all_rows():
    record = make_layout([INTEGER], [P.S32, P.F32], 1000, alone=False)
    one, other = (MoveByDigit.of(record, INTEGER, exceptions=e, counter=I32) for e in (True, False))
    assert one == other
