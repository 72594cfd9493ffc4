"""The page of compare."""

import itertools
import operator

import ml_dtypes
import numpy as np
import pytest
from evaluating import evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ops.elementwise.compare import Compare

RELATIONS = {name: getattr(operator, name) for name in ("eq", "ne", "ge", "gt", "le", "lt")}
FLOATS = [xla.F64, xla.F32, xla.F16, xla.BF16, xla.F8E5M2, xla.F8E4M3FN, xla.F8E4M3, xla.F8E3M4, xla.F4E2M1FN]
FLOATS += [xla.F6E3M2FN, xla.F8E5M2FNUZ, xla.F8E4M3B11FNUZ, xla.F8E8M0FNU]


@pytest.mark.parametrize("name", RELATIONS)
def test_floats_compare_as_ieee_754_says(name):
    values = floats([-np.inf, -1, -0.0, 0, 1, np.inf, np.nan])
    a, b = (x.ravel() for x in np.meshgrid(values, values))
    same(evaluate(getattr(xla, name), a, b), RELATIONS[name](a, b))
    same(evaluate(lambda x, y: xla.compare(x, y, name), a, b), RELATIONS[name](a, b))
    same(evaluate(RELATIONS[name], a, b), RELATIONS[name](a, b))


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.hlo_name)
def test_total_order(kind):
    ordered = [-np.nan, -np.inf, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, np.inf, np.nan]
    if kind.name.endswith(("FN", "FNUZ", "FNU")):
        ordered = [v for v in ordered if np.isfinite(v)]
    if kind.name.endswith("FNUZ"):
        ordered = [np.nan, *(v for v in ordered if not (v == 0 and np.signbit(v)))]
    if kind is xla.F8E8M0FNU:
        ordered = [0.25, 0.5, 1, 2, np.nan]
    values = np.array(ordered).astype(kind.dtype)
    if (np.isnan(ordered[0]) and kind.bit_width >= 16) or kind is xla.F8E5M2:
        values[0], values[-1] = -abs(np.array(np.nan).astype(kind.dtype)), abs(np.array(np.nan).astype(kind.dtype))
    rank = np.arange(len(values))
    a, b = (x.ravel() for x in np.meshgrid(rank, rank))
    for name, relation in RELATIONS.items():
        function = getattr(xla, f"{name}_total_order")
        same(evaluate(function, values[a], values[b]), relation(a, b))


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64, ml_dtypes.int4, ml_dtypes.uint2, np.bool_])
def test_integers_and_pred(dtype):
    small = {"uint2": [0, 1, 2, 3], "int4": [-8, -1, 0, 7], "bool": [0, 1]}.get(np.dtype(dtype).name, [0, 1, 127])
    values = np.array(small, np.int8).astype(dtype)
    for name, relation in RELATIONS.items():
        pairs = list(itertools.product(range(len(small)), repeat=2))
        a, b = ([p[i] for p in pairs] for i in (0, 1))
        expected = np.array([relation(small[i], small[j]) for i, j in pairs])
        same(evaluate(getattr(xla, name), values[a], values[b]), expected)
        same(evaluate(getattr(xla, f"{name}_total_order"), values[a], values[b]), expected)


def test_complex_numbers_are_equal_or_not():
    a, b = np.array([1 + 1j, 1 + 1j, np.nan], np.complex64), np.array([1 + 1j, 1 - 1j, np.nan], np.complex64)
    same(evaluate(xla.eq, a, b), np.array([True, False, False]))
    same(evaluate(xla.ne, a, b), np.array([False, True, True]))
    refused("no order", xla.lt, xla.make_shape(xla.C64, (2,)), xla.make_shape(xla.C64, (2,)))


def test_shapes():
    assert infer(xla.lt, f32(2, 3), f32()) == "pred[2,3]"
    assert infer(lambda x, y: xla.ge(x, y, [0]), f32(2, 3), f32(2)) == "pred[2,3]"
    same(evaluate(lambda x: x > 1, ints([1, 2])), np.array([False, True]))
    refused("different element types", xla.eq, f32(2), s32(2))
    refused("unknown ComparisonDirection", lambda x: xla.compare(x, x, "SIDEWAYS"), f32())


@pytest.mark.parametrize(
    ("kind", "usual"),
    [(xla.F32, "FLOAT"), (xla.C64, "FLOAT"), (xla.S8, "SIGNED"), (xla.U8, "UNSIGNED"), (xla.PRED, "UNSIGNED")],
)
def test_the_type_that_the_elements_ask_for_is_not_said(kind, usual):
    given = Compare(direction=ComparisonDirection.EQ, type=ComparisonType[usual])
    assert given.canonical([xla.make_shape(kind, (2,))] * 2) == Compare(direction=ComparisonDirection.EQ)
    total = Compare(direction=ComparisonDirection.EQ, type=ComparisonType.TOTALORDER)
    assert total.canonical([f32(2), f32(2)]) == total


def test_other_types_stay_said_and_are_refused():
    text = """HloModule m
        ENTRY e {
          x = f32[2] parameter(0)
          ROOT c = pred[2] compare(x, x), direction=LT, type=SIGNED
        }"""
    module = xla.HloModule.from_text(text)
    assert "type=SIGNED" in module.to_text()
    assert xla.HloModule.from_proto(module.to_proto()).entry.root.op == module.entry.root.op
    with pytest.raises(xla.ShapeError, match="type SIGNED is not one that f32 is compared by"):
        module.verify()
    refused("type TOTALORDER is not one", lambda x: xla.compare(x, x, "LT", compare_type="TOTALORDER"), s32())
