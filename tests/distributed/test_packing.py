"""Values become bytes and values again."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.distributed.packing import pack, packed_size, unpack
from xlakit.ir.operation import TOKEN

VALUES = [
    np.float32(3.5) * np.ones(()),
    np.arange(6, dtype=np.int8).reshape(2, 3)[:, ::2],
    np.zeros((0, 3), np.complex128),
    np.array([True, False, True]),
    np.array([1, -2, 3], ml_dtypes.int4),
    np.array([0.5, np.nan], ml_dtypes.bfloat16),
    TOKEN,
    (),
    (np.ones(3), (TOKEN, np.zeros((), np.uint16)), ()),
]


def same(a, b):
    if isinstance(b, tuple):
        return isinstance(a, tuple) and len(a) == len(b) and all(map(same, a, b))
    if b is TOKEN:
        return a is TOKEN
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_comes_back(value):
    data = pack([value])
    assert len(data) == packed_size(value)
    assert len(data) % 8 == 0
    assert same(unpack(data, 1)[0], value)


def test_several_values_lie_one_behind_the_other():
    assert same(tuple(unpack(pack(VALUES), len(VALUES))), tuple(VALUES))


@pytest.mark.parametrize("kind", [k for k in xla.PrimitiveType if k.is_array])
def test_every_type_comes_back(kind):
    array = np.zeros(5, kind.dtype)
    assert same(unpack(pack([array]), 1)[0], array)
