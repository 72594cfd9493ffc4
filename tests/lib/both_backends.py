"""What the tests of the library share: a function of handles, run on both backends."""

import numpy as np
from evaluating import build

import xlakit as xla
from xlakit.ops.shared.numerics import to_double


def run(function, *arguments, exact=True):
    """The results of a function (a list of arrays where it gives several), the same from both backends.

    exact: whether they must be so in every bit but NaN's, instead of nearly.
    """
    computation = build(function, *(xla.make_shape(a.dtype, a.shape) for a in map(np.asarray, arguments)))
    found, meant = (xla.compile(computation, backend=backend)(*arguments) for backend in ("cpu", "interpreter"))
    is_tuple = isinstance(found, tuple)
    for a, b in zip(*((r if is_tuple else (r,)) for r in (found, meant)), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        left, right = plain(a), plain(b)
        if exact:
            np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=1e-5 if a.dtype.itemsize <= 4 else 1e-12, atol=1e-12)
        if left.dtype.kind == "f":
            known = ~np.isnan(left)
            np.testing.assert_array_equal(np.signbit(left)[known], np.signbit(right)[known])
    return [np.asarray(a) for a in found] if is_tuple else np.asarray(found)


def plain(array):
    """Short floats as F64, so that NumPy knows what NaN is; other arrays as they are."""
    return to_double(array) if xla.PrimitiveType.from_dtype(array.dtype).is_floating else array
