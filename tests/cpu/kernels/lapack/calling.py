"""Calls of LAPACK in a program, and what is known of their results."""

import itertools

import numpy as np
from evaluating import build, shape_of

import xlakit as xla

KINDS = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}


def normal(prefix, *sizes):
    rng = np.random.default_rng(sum(sizes))
    x = rng.standard_normal(sizes)
    return (x + 1j * rng.standard_normal(sizes) if prefix in "cz" else x).astype(KINDS[prefix])


def real_of(prefix):
    return KINDS[prefix](0).real.dtype


def complex_of(prefix):
    return np.result_type(KINDS[prefix], np.complex64)


def adjoint(x):
    return x.conj().swapaxes(-1, -2)


def epsilon(prefix):
    return np.finfo(KINDS[prefix]).eps


def close(actual, expected, prefix, factor=4000):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if actual.size:
        size = max(1.0, np.nanmax(abs(expected)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=factor * epsilon(prefix) * size)


class Calls:
    """Calls of LAPACK that are compiled as one program."""

    def __init__(self):
        self._calls = []

    def add(self, prefix, name, operands, results, check=None, **attributes):
        """Have a routine called; results are dtypes and dimensions, and check looks at what machine code gives.

        Without a check it gives what the interpreter gives, which calls the same routine, up to roundings.
        """
        self._calls.append((prefix, name, operands, results, check, attributes))

    def build(self):
        """The program, and its arguments."""
        values = [value for _, _, operands, *_ in self._calls for value in operands]

        def program(*parameters):
            given = iter(parameters)
            for prefix, name, operands, results, _, attributes in self._calls:
                own = [next(given) for _ in operands]
                shapes = [xla.make_shape(np.dtype(dtype), dims) for dtype, dims in results]
                whole = xla.make_tuple_shape(shapes) if len(shapes) > 1 else shapes[0]
                config = "{" + ", ".join(f"{k} = {v} : ui8" for k, v in attributes.items()) + "}"
                call = xla.custom_call(own[0].builder, f"lapack_{prefix}{name}_ffi", own, whole, opaque=config)
                yield from (xla.get_tuple_element(call, n) for n in range(len(shapes))) if len(shapes) > 1 else [call]

        return build(lambda *parameters: list(program(*parameters)), *map(shape_of, values)), values

    def run(self):
        """Compile and run; operands stay as they were."""
        computation, values = self.build()
        before = [np.array(v) for v in values]
        executable = xla.compile(computation, backend="cpu")
        assert executable.host_instructions == ()
        actual = iter(executable(*values))
        for value, old in zip(values, before, strict=True):
            np.testing.assert_array_equal(value, old)
        is_compared = any(call[4] is None for call in self._calls)
        expected = iter(xla.compile(computation, backend="interpreter")(*values) if is_compared else ())
        for prefix, name, _, results, check, attributes in self._calls:
            found, wanted = (list(itertools.islice(each, len(results))) for each in (actual, expected))
            try:
                for value, (dtype, dims) in zip(found, results, strict=True):
                    assert (value.dtype, value.shape) == (dtype, dims)
                if check is not None:
                    check(*found)
                else:
                    for one, other in zip(found, wanted, strict=True):
                        close(one, other, prefix)
            except AssertionError as error:
                raise AssertionError(f"{prefix}{name} to {results} {attributes}: {error}") from None


def like(array):
    return array.dtype, array.shape


def no_failure(info):
    assert not info.any()


def product_of_reflections(packed, tau, first):
    """H(0) H(1) ..., each I - tau v v*, whose v is 1 in row `column + first` and packed below it."""
    size = packed.shape[-2]
    product = np.broadcast_to(np.eye(size), (*packed.shape[:-2], size, size)).astype(np.result_type(packed, np.float64))
    for column in range(tau.shape[-1]):
        row = column + first
        v = np.concatenate([np.zeros_like(packed[..., :row, 0]), np.ones_like(packed[..., :1, 0])], -1)
        v = np.concatenate([v, packed[..., row + 1 :, column]], -1)
        product = product - tau[..., column, None, None] * (product @ v[..., None]) * v.conj()[..., None, :]
    return product


def is_lu(a, prefix, factors, pivots, info):
    no_failure(info)
    least = min(a.shape[1:])
    order = np.tile(np.arange(a.shape[1]), (3, 1))
    for batch, row in np.ndindex(*pivots.shape):
        other = pivots[batch, row] - 1
        order[batch, [row, other]] = order[batch, [other, row]]
    lower = np.tril(factors[..., :least], -1) + np.eye(a.shape[1], least)
    # Partial pivoting bounds the multipliers, whichever of two nearly equal rows it takes.
    assert (abs(lower) <= np.sqrt(2) + 1e-3).all()
    close(lower.astype(a.dtype) @ np.triu(factors[..., :least, :]), np.take_along_axis(a, order[..., None], 1), prefix)


def is_qr(a, prefix, factors, *rest):
    """Q R is the matrix, whose columns stand in the order that pivots tell."""
    *pivots, tau = rest
    if pivots and tau.size:
        assert (np.sort(pivots[0]) == 1 + np.arange(a.shape[-1])).all()
        a = np.take_along_axis(a, pivots[0][:, None] - 1, 2)
        diagonal = abs(np.diagonal(factors, axis1=1, axis2=2))
        assert (diagonal[:, 1:] <= diagonal[:, :-1] * 1.001).all()
    close((product_of_reflections(factors, tau, 0) @ np.triu(factors)).astype(a.dtype), a, prefix)


def is_tridiagonal(a, prefix, uplo, factors, diagonal, beside, tau, info):
    """Q T Q* is the matrix; the upper form is the lower one counted from the end."""
    no_failure(info)
    if uplo == "U":
        factors, diagonal, beside, tau = factors[:, ::-1, ::-1], diagonal[:, ::-1], beside[:, ::-1], tau[:, ::-1]
        a = a[:, ::-1, ::-1]
    size = a.shape[-1]
    t = np.zeros(a.shape, np.result_type(a, np.float64))
    t[:, range(size), range(size)] = diagonal
    t[:, range(1, size), range(size - 1)] = t[:, range(size - 1), range(1, size)] = beside
    q = product_of_reflections(factors, tau, 1)
    close((q @ t @ adjoint(q)).astype(a.dtype), a, prefix)


def is_hessenberg(a, prefix, factors, tau, info):
    no_failure(info)
    q = product_of_reflections(factors, tau, 1)
    close((q @ np.triu(factors, -1) @ adjoint(q)).astype(a.dtype), a, prefix)
