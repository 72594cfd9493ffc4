"""Custom calls of LAPACK in machine code, against the interpreter and against what defines the results."""

import ctypes
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla
from xlakit.cpu.host_steps import HostRun
from xlakit.cpu.kernels.shared import blas
from xlakit.data.layout import Layout

KINDS = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
SIZES = (0, 1, 2, 5, 33, 130)


@pytest.fixture(autouse=True)
def no_python(monkeypatch):
    """No step of a program may be done by Python."""

    def refuse(self, instruction, address):
        raise AssertionError(f"Python does {instruction.name}")

    monkeypatch.setattr(HostRun, "step", refuse)


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


def matrices(prefix, size):
    """Square, wide and tall matrices, three of each; of large ones a tall one has to do."""
    shapes = ((size, size), (size, size + 3), (size + 3, size))
    return [normal(prefix, 3, *sizes) for sizes in (shapes if size < 100 else shapes[2:])]


def like(array):
    return array.dtype, array.shape


def no_failure(info):
    assert not info.any()


@pytest.mark.parametrize("prefix", "sdcz")
def test_factorizations(prefix):
    calls = Calls()
    for size in SIZES:
        x = normal(prefix, 3, size, size)
        definite = (x @ adjoint(x) + size * np.eye(size)).astype(KINDS[prefix])
        for uplo in "LU":

            def is_factor(factor, info, uplo=uplo, definite=definite):
                no_failure(info)
                factor = np.tril(factor) if uplo == "L" else adjoint(np.triu(factor))
                close(factor @ adjoint(factor), definite, prefix)

            calls.add(prefix, "potrf", [definite], [like(x), (np.int32, (3,))], is_factor, uplo=ord(uplo))
        for a in matrices(prefix, size):
            least = min(a.shape[1:])
            calls.add(prefix, "getrf", [a], [like(a), (np.int32, (3, least)), (np.int32, (3,))])
            calls.add(prefix, "geqrf", [a], [like(a), (a.dtype, (3, least))])
            pivots = np.zeros((3, a.shape[-1]), np.int32)
            calls.add(prefix, "geqp3", [a, pivots], [like(a), like(pivots), (a.dtype, (3, least))])
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_products_of_reflections(prefix):
    calls, name = Calls(), "un" if prefix in "cz" else "or"
    for size in SIZES:
        for a in matrices(prefix, size):
            (rows, columns), least = a.shape[1:], min(a.shape[1:])
            reflections, tau = np.tril(a[..., :least], -1) / max(1, size), normal(prefix, 3, least) / 2
            if rows >= columns:
                calls.add(prefix, f"{name}gqr", [reflections, tau], [like(a)])
            for left, transpose in ((1, 0), (1, 1), (0, 0), (0, 1)):
                c = normal(prefix, 3, *((rows, 4) if left else (4, rows)))
                calls.add(prefix, f"{name}mqr", [reflections, tau, c], [like(c)], left=left, transpose=transpose)
    # No reflections change nothing.
    c, nothing, tau = normal(prefix, 2, 4, 3), normal(prefix, 2, 4, 0), normal(prefix, 2, 0)
    calls.add(prefix, f"{name}mqr", [nothing, tau, c], [like(c)], lambda q: close(q, c, prefix, 0), left=1, transpose=0)
    identity = np.broadcast_to(np.eye(4, 3), c.shape).astype(c.dtype)
    calls.add(prefix, f"{name}gqr", [c, tau], [like(c)], lambda q: close(q, identity, prefix, 0))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
@pytest.mark.parametrize("name", ["gesdd", "gesvd"])
def test_singular_values(prefix, name):
    calls = Calls()
    for size in SIZES:
        for a in matrices(prefix, size):
            (rows, columns), least = a.shape[1:], min(a.shape[1:])
            for mode in "ASN":

                def is_decomposition(kept, s, u, vt, info, a=a, least=least, mode=mode):
                    no_failure(info)
                    close(s, np.linalg.svd(a, compute_uv=False), prefix)
                    if mode == "N" or not a.size:
                        assert not u.any()
                        assert not vt.any()
                    else:
                        close((u[..., :least] * s[..., None, :]) @ vt[..., :least, :], a, prefix)

                u, vt = ((rows, rows), (columns, columns)) if mode == "A" else ((rows, least), (least, columns))
                vectors = [(a.dtype, (3, *dims)) for dims in (u, vt)]
                results = [like(a), (real_of(prefix), (3, least)), *vectors, (np.int32, (3,))]
                calls.add(prefix, name, [a], results, is_decomposition, mode=ord(mode))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_symmetric(prefix):
    calls, kind = Calls(), "he" if prefix in "cz" else "sy"
    for size in SIZES:
        x = normal(prefix, 3, size, size)
        a, real, info = x + adjoint(x), real_of(prefix), (np.int32, (3,))
        for uplo in "LU":
            # The other triangle is not read.
            given = np.where(np.tri(size, k=-1 if uplo == "U" else 0) == (uplo == "L"), a, np.nan).astype(a.dtype)
            for mode in "VN":

                def is_decomposition(vectors, values, info, a=a, mode=mode):
                    no_failure(info)
                    close(values, np.linalg.eigvalsh(a), prefix)
                    if mode == "V" and a.size:
                        close(a @ vectors, vectors * values[..., None, :], prefix)

                results = [like(a), (real, (3, size)), info]
                calls.add(prefix, f"{kind}evd", [given], results, is_decomposition, mode=ord(mode), uplo=ord(uplo))
            if size:
                vectors = [(real, (3, size)), (real, (3, size - 1)), (a.dtype, (3, size - 1))]
                calls.add(prefix, f"{kind}trd", [a], [like(a), *vectors, info], uplo=ord(uplo))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_eigenvalues(prefix):
    calls = Calls()
    for size in SIZES:
        a = normal(prefix, 3, size, size)
        values = [(a.dtype, (3, size))] * (1 if prefix in "cz" else 2)
        vectors = [(complex_of(prefix), a.shape)] * 2
        for left, right in ("VV", "NV", "VN", "NN"):

            def is_decomposition(*found, a=a, left=left, right=right):
                *parts, vl, vr, info = found
                no_failure(info)
                w = parts[0] if prefix in "cz" else parts[0] + 1j * parts[1]
                close(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(a)).astype(w.dtype), prefix)
                if right == "V":
                    close(a @ vr, vr * w[..., None, :], prefix)
                if left == "V":
                    close(adjoint(vl) @ a, w[..., :, None] * adjoint(vl), prefix)
                assert left == "V" or not vl.any()
                assert right == "V" or not vr.any()

            asked = {"compute_left": ord(left), "compute_right": ord(right)}
            calls.add(prefix, "geev", [a], [*values, *vectors, (np.int32, (3,))], is_decomposition, **asked)
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_schur_and_hessenberg(prefix):
    calls = Calls()
    for size in SIZES:
        a, info = normal(prefix, 3, size, size), (np.int32, (3,))
        if size:
            calls.add(prefix, "gehrd", [a], [like(a), (a.dtype, (3, size - 1)), info], low=1, high=size)
        values = [(a.dtype, (3, size))] * (1 if prefix in "cz" else 2)
        for mode in "VN":

            def is_schur_form(form, vectors, *rest, a=a, mode=mode):
                no_failure(rest[-1])
                if mode == "V":
                    close(vectors @ form @ adjoint(vectors), a, prefix)
                else:
                    assert not vectors.any()

            results = [like(a), like(a), *values, info, info]
            calls.add(prefix, "gees", [a], results, is_schur_form, mode=ord(mode), sort=ord("N"))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
def test_solves(prefix):
    calls = Calls()
    for size in SIZES:
        a = (normal(prefix, 3, size, size) / max(1, size) + 2 * np.eye(size)).astype(KINDS[prefix])
        for side, uplo, form, diag in ("LLNN", "RLNU", "LUTN", "RUCU", "LLCN"):
            b = normal(prefix, 3, *((size, 4) if side == "L" else (4, size)))
            letters = {"side": side, "uplo": uplo, "trans_x": form, "diag": diag}
            calls.add(prefix, "trsm", [a, b], [like(b)], **{k: ord(v) for k, v in letters.items()})
        if size:
            diagonals = [normal(prefix, 3, size), 4 + normal(prefix, 3, size), normal(prefix, 3, size + 1)[:, :size]]
            operands = [*diagonals, normal(prefix, 3, size, 2)]
            calls.add(prefix, "gtsv", operands, [*map(like, operands), (np.int32, (3,))])
    calls.run()


@pytest.mark.parametrize("batch", [(), (1,), (0,), (2, 2)])
def test_batches(batch):
    calls, size = Calls(), 5
    x = normal("d", *batch, size, size)
    definite, info, vector = x @ adjoint(x) + np.eye(size), (np.int32, batch), (x.dtype, (*batch, size))
    vectors = np.dtype(np.complex128), x.shape
    calls.add("d", "potrf", [definite], [like(x), info], uplo=ord("L"))
    calls.add("d", "getrf", [x], [like(x), (np.int32, (*batch, size)), info])
    calls.add("d", "geqrf", [x], [like(x), vector])
    calls.add("d", "orgqr", [x, x[..., 0]], [like(x)])
    calls.add("d", "ormqr", [x, x[..., 0], x], [like(x)], left=1, transpose=0)
    calls.add("d", "syevd", [definite], [like(x), vector, info], mode=ord("N"), uplo=ord("L"))
    calls.add("d", "gesdd", [x], [like(x), vector, like(x), like(x), info], lambda *r: no_failure(r[-1]), mode=ord("A"))
    asked = {"compute_left": ord("V"), "compute_right": ord("V")}
    calls.add("d", "geev", [x], [vector, vector, vectors, vectors, info], lambda *r: no_failure(r[-1]), **asked)
    calls.add("d", "trsm", [definite, x], [like(x)], side=ord("L"), uplo=ord("L"), trans_x=ord("N"), diag=ord("N"))
    calls.run()


def test_columns_of_a_pivoted_qr_that_stay_in_front():
    calls, a = Calls(), normal("d", 6, 4)
    calls.add("d", "geqp3", [a, np.array([0, 0, 1, 0], np.int32)], [like(a), (np.int32, (4,)), (a.dtype, (4,))])
    computation, values = calls.build()
    qr, found, _ = xla.compile(computation, backend="cpu")(*values)
    assert found[0] == 3
    r = np.triu(qr[:4])
    close(r.T @ r, a[:, found - 1].T @ a[:, found - 1], "d")


# -- inputs that have no result ------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", "sdcz")
def test_info_of_singular_and_indefinite_matrices(prefix):
    calls = Calls()

    def infos(*expected):
        return lambda *results: np.testing.assert_array_equal(results[-1], expected)

    for size in (1, 2, 5, 33):
        a = normal(prefix, 3, size, size)
        a = (a @ adjoint(a) + np.eye(size)).astype(KINDS[prefix])
        a[1] = 0
        a[2] -= 3 * np.eye(size) * abs(a[2]).max()
        calls.add(prefix, "potrf", [a], [like(a), (np.int32, (3,))], infos(0, 1, 1), uplo=ord("L"))
        calls.add(prefix, "getrf", [a], [like(a), (np.int32, (3, size)), (np.int32, (3,))], infos(0, 1, 0))
        singular = [np.zeros((3, size), a.dtype)] * 3
        results = [*map(like, (*singular, a)), (np.int32, (3,))]
        calls.add(prefix, "gtsv", [*singular, a], results, infos(1, 1, 1))
    calls.run()


@pytest.mark.parametrize("prefix", "sdcz")
@pytest.mark.parametrize("size", [2, 33, 70])
def test_calls_end_with_what_is_not_finite(prefix, size):
    calls = Calls()
    for bad in (np.nan, np.inf):
        a = normal(prefix, 3, size, size)
        a[1, size // 2, size // 3] = bad
        a[2] = bad
        info, real = (np.int32, (3,)), (real_of(prefix), (3, size))
        vectors, values = (complex_of(prefix), a.shape), [(a.dtype, (3, size))] * (1 if prefix in "cz" else 2)

        def is_nan(*found):
            """Routines that would not end are not called."""
            assert found[-1].tolist() == [0, 1, 1]
            floats = [f for f in found if f.dtype != np.int32]
            assert all(np.isnan(f[1:]).all() and np.isfinite(f[:1]).all() for f in floats)

        asked = {"compute_left": ord("V"), "compute_right": ord("V")}
        calls.add(prefix, "geev", [a], [*values, vectors, vectors, info], is_nan, **asked)
        asked = {"mode": ord("V"), "sort": ord("N")}
        calls.add(prefix, "gees", [a], [like(a), like(a), *values, info, info], is_nan, **asked)

        def of_first(*found):
            """The first matrix knows nothing of the others."""
            assert all(np.isfinite(f[:1]).all() for f in found)

        sy = "he" if prefix in "cz" else "sy"
        short = (a.dtype, (3, size - 1))
        for name, results, attributes in (
            ("getrf", [like(a), (np.int32, (3, size)), info], {}),
            ("potrf", [like(a), info], {"uplo": ord("L")}),
            ("geqrf", [like(a), (a.dtype, (3, size))], {}),
            ("gesdd", [like(a), real, like(a), like(a), info], {"mode": ord("A")}),
            ("gesvd", [like(a), real, like(a), like(a), info], {"mode": ord("A")}),
            (f"{sy}evd", [like(a), real, info], {"mode": ord("V"), "uplo": ord("L")}),
            (f"{sy}trd", [like(a), real, (real[0], (3, size - 1)), short, info], {"uplo": ord("L")}),
            ("gehrd", [like(a), short, info], {"low": 1, "high": size}),
        ):
            calls.add(prefix, name, [a], results, of_first, **attributes)
    computation, operands = calls.build()
    executable = xla.compile(computation, backend="cpu")
    for one, other in zip(executable(*operands), executable(*operands), strict=True):
        np.testing.assert_array_equal(one, other)
    calls.run()


# -- where calls stand ---------------------------------------------------------------------------------


def eigenvalues(x):
    shape = x.shape
    *batch, size, _ = shape.dimensions
    kind = shape.element_type
    results = [
        xla.make_shape(kind, shape.dimensions),
        xla.make_shape(kind, (*batch, size)),
        xla.make_shape(xla.S32, batch),
    ]
    return xla.custom_call(
        x.builder, "lapack_dsyevd_ffi", [x], xla.make_tuple_shape(results), opaque="{mode = 86 : ui8, uplo = 76 : ui8}"
    )


def test_in_a_loop():
    def loop(a):
        def body(state):
            count, matrix = (xla.get_tuple_element(state, i) for i in range(2))
            return count + 1, xla.get_tuple_element(eigenvalues(matrix), 0) + matrix

        start = (xla.constant(a.builder, 0), a)
        return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < 20, body, start), 1)

    x = normal("d", 2, 6, 6)
    computation = build(loop, shape_of(x))
    executable = xla.compile(computation, backend="cpu")
    assert executable.host_instructions == ()
    np.testing.assert_allclose(executable(x), xla.compile(computation, backend="interpreter")(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [5, 150])
def test_on_several_devices_at_once_and_on_any_number_of_threads(size):
    x = normal("d", 8, 5, size, size)
    computation = build(eigenvalues, shape_of(x[0]))
    alone = xla.compile(computation, backend="cpu")
    with xla.threads(1):
        expected = [[np.asarray(v) for v in alone(row)] for row in x]
    many = xla.compile(computation, backend="cpu", num_replicas=8)
    for _ in range(3):
        for found, wanted in zip(many.execute_replicated([[row] for row in x]), expected, strict=True):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_programs_that_run_at_once_leave_the_library_s_threads_as_they_were():
    get, set = (
        ctypes.CFUNCTYPE(kind, *arguments)(blas.resolve(f"{blas.PREFIX}{name}_threads"))
        for name, kind, arguments in (("get", ctypes.c_int, ()), ("set", None, (ctypes.c_int,)))
    )
    x = normal("d", 40, 40)
    program = xla.compile(build(eigenvalues, shape_of(x)), backend="cpu")
    before = get()
    try:
        for count in {1, before}:
            set(count)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: program(x), range(40)))
            assert get() == count
        # The child of a process in which programs may be running has its own.
        if hasattr(os, "fork"):
            child = os.fork()
            if not child:
                program(x)
                os._exit(get() != count)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        set(before)


def test_two_calls_that_differ_in_their_attributes_alone():
    x = normal("d", 4, 4)

    def both(a):
        b, results = (
            a.builder,
            (xla.make_shape(xla.F64, (4, 4)), xla.make_shape(xla.F64, (4,)), xla.make_shape(xla.S32, ())),
        )
        calls = [
            xla.custom_call(
                b,
                "lapack_dsyevd_ffi",
                [a],
                xla.make_tuple_shape(results),
                opaque=f"{{mode = 86 : ui8, uplo = {ord(u)} : ui8}}",
            )
            for u in "LU"
        ]
        return tuple(xla.get_tuple_element(c, 1) for c in calls)

    low, high = xla.compile(build(both, shape_of(x)), backend="cpu")(x)
    np.testing.assert_allclose(low, np.linalg.eigvalsh(x, "L"))
    np.testing.assert_allclose(high, np.linalg.eigvalsh(x, "U"))


def test_matrices_in_other_layouts():
    x = normal("d", 2, 5, 3)
    for layout in (Layout((2, 1, 0)), Layout((1, 2, 0)), Layout((0, 2, 1))):
        result = xla.make_shape(xla.F64, (2, 5, 3), layout=layout)
        whole = xla.make_tuple_shape([result, xla.make_shape(xla.F64, (2, 3)).with_default_layout()])
        computation = build(
            lambda a, whole=whole, given=(result,): xla.custom_call(
                a.builder, "lapack_dgeqrf_ffi", [a], whole, operand_shapes_with_layout=list(given)
            ),
            shape_of(x),
        )
        executable = xla.compile(computation, backend="cpu")
        assert executable.host_instructions == ()
        for actual, expected in zip(executable(x), xla.compile(computation, backend="interpreter")(x), strict=True):
            np.testing.assert_allclose(actual, expected, atol=1e-13)


def test_a_function_of_one_s_own_takes_the_place_of_lapack(monkeypatch):
    monkeypatch.undo()
    x = normal("d", 3, 3)
    computation = build(eigenvalues, shape_of(x))

    def own(a):
        return a, np.full(3, 7.0), np.int32(0)

    for calls, expected in ((None, None), ({"lapack_dsyevd_ffi": own}, 7.0), (None, None)):
        executable = xla.compile(computation, backend="cpu", custom_calls=calls)
        assert len(executable.host_instructions) == (calls is not None)
        wanted = np.linalg.eigvalsh(x) if expected is None else np.full(3, expected)
        np.testing.assert_allclose(executable(x)[1], wanted)


@pytest.mark.parametrize(
    "results",
    [
        [(np.float64, (4, 4)), (np.int32, (3,)), (np.int32, ())],
        [(np.float64, (4, 4)), (np.int64, (4,)), (np.int32, ())],
        [(np.float64, (4, 5)), (np.int32, (4,)), (np.int32, ())],
        [(np.float32, (4, 4)), (np.int32, (4,)), (np.int32, ())],
    ],
)
def test_arrays_that_a_routine_would_not_keep_to_are_left_to_python(monkeypatch, results):
    monkeypatch.undo()
    calls = Calls()
    calls.add("d", "getrf", [normal("d", 4, 4)], results)
    executable = xla.compile(calls.build()[0], backend="cpu")
    assert len(executable.host_instructions) == 1
