"""Arithmetic of arrays, and copies of them. The types of results are those of JAX 0.6.0 on jaxlib 0.6.0."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from xlakit.compat import xla_client as xc

TYPES = {
    **{name: np.dtype(name) for name in ("i1", "u1", "i4", "u4", "f2", "f4", "c8")},
    "b": np.dtype(bool),
    "bf": np.dtype(ml_dtypes.bfloat16),
}


DEVICES = 2


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("b + i1", "i1"), ("i1 + u1", "i2"), ("i1 + u4", "i4"), ("i4 + u4", "i4"), ("i4 * f2", "f2"), ("f2 + bf", "f4"),
        ("bf @ bf", "bf"), ("bf + i4", "bf"), ("f4 * c8", "c8"), ("i1 / i4", "f4"), ("f2 / i4", "f2"),
        ("i4 // 2", "i4"),
        ("i1 + 1", "i1"), ("1.5 + i4", "f4"), ("f2 * 2.0", "f2"), ("bf * 1j", "c8"), ("b + 1", "i4"), ("u1 << 1", "u1"),
        ("i4 < 2.5", "b1"), ("i4 == f4", "b1"), ("np.ones(3) + i4", "f4"), ("-f4", "f4"), ("~i4", "i4"),
        ("abs(c8)", "f4"),
        ("i1.sum()", "i4"), ("i1.max()", "i1"), ("f4.argmax()", "i4"), ("i4.mean()", "f4"), ("f4.cumsum()", "f4"),
        ("i4[1:]", "i4"), ("f4.round(1)", "f4"), ("divmod(i4, 2)[1]", "i4"), ("i4.astype(np.float64)", "f8"),
    ],
)  # fmt: skip
def test_types_and_values(client, expression, expected):
    arrays = {name: np.array([2, 1, 1]).astype(dtype) for name, dtype in TYPES.items()}
    here = {name: client.buffer_from_pyval(array, client.devices()[1]) for name, array in arrays.items()}
    found = eval(expression, {"np": np, **here})
    assert isinstance(found, xc.ArrayImpl)
    assert found.device is client.devices()[1]
    assert found.dtype == (ml_dtypes.bfloat16 if expected == "bf" else np.dtype(expected))
    wide = {name: array.astype(np.int64 if array.dtype.kind in "biu" else complex) for name, array in arrays.items()}
    if "<" not in expression and "~" not in expression:
        wanted = np.asarray(eval(expression, {"np": np, **wide}))
        np.testing.assert_allclose(np.asarray(found).astype(complex), wanted.astype(complex), rtol=1e-2)


def test_what_has_no_type(client):
    array = client.buffer_from_pyval(np.arange(3))
    for other in ("x", [1, 2, 3], None):
        with pytest.raises(TypeError):
            array + other
    assert array != "x"
    assert [float(x) for x in array] == [0, 1, 2]
    assert array.T.shape == (3,)


def test_copies_and_pickles(client):
    array = client.buffer_from_pyval(np.arange(3, dtype=np.float32), client.devices()[1])
    for made in (copy.copy(array), copy.deepcopy(array), array.copy(), pickle.loads(pickle.dumps(array))):
        assert isinstance(made, xc.ArrayImpl)
        array_again = np.asarray(made)
        np.testing.assert_array_equal(array_again, [0, 1, 2])
        assert made.unsafe_buffer_pointer() != array.unsafe_buffer_pointer()
    assert copy.deepcopy(array).device is client.devices()[1]
    array.delete()
    for use in (pickle.dumps, copy.deepcopy, lambda deleted: deleted + 1):
        with pytest.raises(RuntimeError, match="deleted"):
            use(array)
