"""Where calls of LAPACK stand: in loops, on several devices and threads, in layouts, beside others."""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calling import Calls, normal
from evaluating import build, shape_of

import xlakit as xla
from xlakit.cpu.kernels.shared import blas
from xlakit.data.layout import Layout

pytestmark = pytest.mark.usefixtures("no_python")


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
        # Two where the library can, also where it has begun with one.
        set(2)
        for count in {1, get()}:
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
