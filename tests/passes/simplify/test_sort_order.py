"""Comparators that order by keys are recognized however they are written, others are not."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.builder.xla_builder import trace
from xlakit.passes.analysis.sort_order import NanOrder, Part, SortKey, recognize_order


def order(comparator, *kinds):
    return recognize_order(trace(comparator, [xla.make_shape(k, ()) for k in kinds for _ in range(2)]).computation)


def number(x, value):
    return xla.constant(x.builder, np.float32(value))


def nan_to(x, value):
    return xla.select(xla.eq(x, x), x, number(x, value))


HIGH, LOW = NanOrder.HIGH, NanOrder.LOW


@pytest.mark.parametrize(
    ("comparator", "key"),
    [
        (xla.lt_total_order, SortKey(0, xla.F32)),
        (xla.gt_total_order, SortKey(0, xla.F32, descending=True)),
        (lambda a, b: xla.lt_total_order(b, a), SortKey(0, xla.F32, descending=True)),
        (lambda a, b: xla.lt_total_order(-a, -b), SortKey(0, xla.F32, descending=True)),
        (xla.lt, SortKey(0, xla.F32, nan=HIGH, zeros_equal=True)),
        (xla.ge, SortKey(0, xla.F32, descending=True, nan=LOW, zeros_equal=True)),
        (lambda a, b: xla.lt_total_order(nan_to(a, np.nan), nan_to(b, np.nan)), SortKey(0, xla.F32, nan=HIGH)),
        (
            lambda a, b: xla.lt_total_order(nan_to(-a, np.nan), nan_to(-b, np.nan)),
            SortKey(0, xla.F32, descending=True, nan=LOW),
        ),
        (lambda a, b: xla.lt_total_order(nan_to(a, 5), nan_to(b, 5)), None),
        (lambda a, b: xla.lt_total_order(nan_to(a, 0), nan_to(b, 0)), None),
        (lambda a, b: xla.lt(a, a), None),
        (lambda a, b: xla.lt(a, b + 1), None),
        (lambda a, b: xla.lt(xla.abs(a), xla.abs(b)), None),
        (xla.eq, None),
    ],
)
def test_one_key(comparator, key):
    assert order(comparator, xla.F32) == (None if key is None else (key,))


def test_integers_and_converted_floats():
    assert order(xla.lt, xla.S8) == (SortKey(0, xla.S8),)
    assert order(lambda a, b: xla.lt(xla.not_(a), xla.not_(b)), xla.U32) == (SortKey(0, xla.U32, descending=True),)
    assert order(lambda a, b: xla.lt(-a, -b), xla.S32) is None  # the least integer is its own negative

    def widened(a, b):
        return xla.lt_total_order(*(xla.convert_element_type(x, xla.F32) for x in (a, b)))

    assert order(widened, xla.BF16) == (SortKey(0, xla.BF16),)
    assert order(widened, xla.F64) is None


@pytest.mark.parametrize(
    "combine",
    [
        lambda before, equal, different, rest: xla.or_(before, xla.and_(equal, rest)),
        lambda before, equal, different, rest: xla.or_(xla.and_(rest, equal), before),
        lambda before, equal, different, rest: xla.select(equal, rest, before),
        lambda before, equal, different, rest: xla.select(different, before, rest),
    ],
)
def test_several_keys(combine):
    def by_two(a, b, c, d):
        return combine(xla.gt(c, d), xla.eq(c, d), xla.ne(c, d), xla.lt_total_order(a, b))

    assert order(by_two, xla.F32, xla.S32) == (SortKey(1, xla.S32, descending=True), SortKey(0, xla.F32))

    def by_others(a, b, c, d):
        return combine(xla.gt(c, d), xla.eq(a, b), xla.ne(a, b), xla.lt(a, b))

    assert order(by_others, xla.S32, xla.S32) is None


def test_parts_of_complex_numbers():
    def by_parts(a, b):
        first, second = ((xla.real(x), xla.imag(x)) for x in (a, b))
        before, equal = xla.lt_total_order(first[0], second[0]), xla.eq_total_order(first[0], second[0])
        return xla.or_(before, xla.and_(equal, xla.lt_total_order(first[1], second[1])))

    assert order(by_parts, xla.C64) == (SortKey(0, xla.F32, Part.REAL), SortKey(0, xla.F32, Part.IMAG))
