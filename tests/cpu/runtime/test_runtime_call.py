"""Calls from Python: what fits goes straight to native code, all else to the fallback."""

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from native_programs import address

from xlakit.cpu.runtime import Context, runtime
from xlakit.cpu.runtime.call import execute, make_caller, nest, result_arrays
from xlakit.cpu.runtime.host import register_host, release_host, take_error
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.errors import ExecutionError, ResourceError

WORDS = Shape(PrimitiveType.S64, (3, 4))
TOKEN = Shape(PrimitiveType.TOKEN)
NOTHING = Shape(PrimitiveType.TUPLE, tuple_shapes=())


def tuple_of(*shapes):
    return Shape(PrimitiveType.TUPLE, tuple_shapes=shapes)


X = np.arange(12).reshape(3, 4)
Y = np.full((3, 4), 5)


class Fallback:
    """Notes how it is called."""

    def __init__(self):
        self.calls = []

    def __call__(self, *arguments):
        self.calls.append(arguments)
        return "fallback"


def adder(fallback, result=None):
    context = Context(address("add"))
    return make_caller(context, [WORDS, WORDS], result or tuple_of(WORDS, WORDS), fallback)


def test_arrays_that_fit():
    fallback = Fallback()
    total, difference = adder(fallback)(X, Y)
    np.testing.assert_array_equal(total, X + Y)
    np.testing.assert_array_equal(difference, X - Y)
    assert type(total) is np.ndarray
    assert total.ctypes.data % 64 == 0
    assert not fallback.calls


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (X,),
        (X, Y, Y),
        (X, Y.astype(np.int32)),
        (X, Y.astype(np.uint64)),
        (X, Y.astype(">i8")),
        (X, Y[::-1]),
        (X, Y.T.copy().T),
        (X, Y.reshape(4, 3)),
        (X, Y.reshape(12)),
        (X, Y.reshape(1, 3, 4)),
        (X, Y.view(Subclass)),
        (X, Y.tolist()),
        (X, 5),
        (None, Y),
        (X, np.frombuffer(bytes(97), np.int8)[1:].view(np.int64).reshape(3, 4)),
    ],
)
def test_what_does_not_fit_goes_to_the_fallback(arguments):
    fallback = Fallback()
    assert adder(fallback)(*arguments) == "fallback"
    ((given,),) = [fallback.calls]
    assert len(given) == len(arguments)
    assert all(a is b for a, b in zip(given, arguments, strict=True))


def test_what_the_fallback_raises():
    def fallback(*arguments):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        adder(fallback)(1, 2)
    with pytest.raises(TypeError, match="no keyword arguments"):
        adder(fallback)(X, y=Y)


def test_dimensions_of_size_1_and_read_only_arguments():
    shape = Shape(PrimitiveType.S64, (1, 12))
    call = make_caller(Context(address("add")), [shape, shape], tuple_of(shape, shape), Fallback())
    x = np.asfortranarray(np.arange(12).reshape(1, 12))
    x.flags.writeable = False
    np.testing.assert_array_equal(call(x, x)[0], 2 * x)


@pytest.mark.parametrize(
    ("result", "form"),
    [
        (tuple_of(WORDS, WORDS), "(aa)"),
        (tuple_of(tuple_of(WORDS), NOTHING, tuple_of(TOKEN, tuple_of(WORDS, TOKEN))), "((a)()(n(an)))"),
        (tuple_of(tuple_of(tuple_of(WORDS, WORDS))), "(((aa)))"),
    ],
)
def test_nested_results(result, form):
    def form_of(value):
        if isinstance(value, tuple):
            return "(" + "".join(map(form_of, value)) + ")"
        return "n" if value is None else "a"

    def leaves(value):
        return [x for part in value for x in leaves(part)] if isinstance(value, tuple) else [value]

    answer = adder(Fallback(), result)(X, Y)
    assert form_of(answer) == form
    total, difference = [leaf for leaf in leaves(answer) if leaf is not None]
    np.testing.assert_array_equal(total, X + Y)
    np.testing.assert_array_equal(difference, X - Y)
    assert form_of(nest(result, [X, Y])) == form


def test_the_way_through_python():
    results = result_arrays(tuple_of(WORDS, TOKEN, WORDS))
    assert execute(Context(address("add")), [X, Y], results) == 0
    np.testing.assert_array_equal(results[0], X + Y)
    np.testing.assert_array_equal(results[1], X - Y)


def test_a_shape_that_is_not_static_is_left_to_the_fallback():
    fallback = Fallback()
    dynamic = Shape(PrimitiveType.S64, (3,), dynamic_dimensions=(True,))
    assert make_caller(Context(0), [dynamic], WORDS, fallback) is fallback
    assert make_caller(Context(0), [WORDS], dynamic, fallback) is fallback
    assert make_caller(Context(0), [tuple_of(WORDS)], WORDS, fallback) is fallback


def test_types_of_ml_dtypes():
    shape = Shape(PrimitiveType.BF16, (2, 3))
    call = make_caller(Context(address("status")), [shape], shape, Fallback())
    assert call(np.zeros((2, 3), ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


def status_caller():
    return make_caller(Context(address("status")), [WORDS], tuple_of(WORDS, WORDS), Fallback())


@pytest.mark.parametrize(
    ("status", "error"), [(1, ExecutionError), (2, ExecutionError), (3, ResourceError), (77, ExecutionError)]
)
def test_statuses(status, error):
    with pytest.raises(error):
        status_caller()(np.full((3, 4), status))


def test_context():
    words = Shape(PrimitiveType.S64, (4,))
    context = Context(address("context"), arena_bytes=5_000_000, ordinal=3)
    call = make_caller(context, [], words, Fallback())
    state = context.random.value
    first, second = call(), call()
    assert first[0] % 64 == 0
    assert first[0] == second[0] != 0
    assert first[1] == 3
    assert (first[2], first[3], second[2]) == (state, 0, state + 5)
    context.random.value = 2**128 - 3
    last, after = call(), call()
    assert last.tolist()[2:] == [-3, -1]
    assert after.tolist()[2:] == [2, 0]
    assert make_caller(Context(address("context")), [], words, Fallback())()[0] == 0


def test_an_arena_that_is_too_large():
    call = make_caller(Context(address("context"), arena_bytes=1 << 46), [], WORDS, Fallback())
    with pytest.raises(ResourceError, match="not enough memory"):
        call()


def test_a_result_that_is_too_large():
    huge = Shape(PrimitiveType.S8, (1 << 46,))
    with pytest.raises(MemoryError):
        make_caller(Context(address("status")), [WORDS], tuple_of(WORDS, huge), Fallback())(X)


def test_no_leaks():
    call, status = adder(Fallback()), status_caller()
    bad = np.full((3, 4), 20)

    def calls():
        call(X, Y), call(1, 2)
        with pytest.raises(ExecutionError):
            status(bad)

    for _ in range(10):
        calls()
    gc.collect()
    held = runtime().call("xlakit_memory_held")
    references = [sys.getrefcount(x) for x in (X, X.dtype, None, np.ndarray)]
    for _ in range(1000):
        calls()
    gc.collect()
    after = [sys.getrefcount(x) for x in (X, X.dtype, None, np.ndarray)]
    changes = [b - a for a, b in zip(references, after, strict=True)]
    assert max(map(abs, changes)) < 50, changes
    assert runtime().call("xlakit_memory_held") <= held + 1000


def test_a_cycle_through_the_fallback_is_collected():
    class Executable:
        def __init__(self):
            self.call = adder(self.slow)

        def slow(self, *arguments):
            return None

    executable = Executable()
    executable.call(X, Y)
    gone = weakref.ref(executable)
    del executable
    gc.collect()
    assert gone() is None


def test_calls_from_many_threads():
    call, failures = adder(Fallback()), []

    def work(seed):
        x = np.full((3, 4), seed)
        for _ in range(2000):
            total, difference = call(x, Y)
            if not ((total == seed + 5).all() and (difference == seed - 5).all()):
                failures.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def host_caller(function):
    key = register_host(function)
    return key, make_caller(Context(address("host"), host=key), [], WORDS, Fallback())


def test_host_calls():
    import ctypes

    def fill(step, buffers):
        place = ctypes.c_void_p.from_address(buffers).value
        (ctypes.c_int64 * 12).from_address(place)[:] = [step * i for i in range(12)]

    key, call = host_caller(fill)
    np.testing.assert_array_equal(call(), 7 * X)
    release_host(key)


def test_what_a_host_call_raises():
    def fail(step, buffers):
        raise KeyError(f"step {step}")

    key, call = host_caller(fail)
    for _ in range(3):
        with pytest.raises(KeyError, match="step 7"):
            call()
    assert take_error() is None
    release_host(key)
    with pytest.raises(KeyError):
        call()


def test_the_interrupt_flag():
    context = Context(address("spin"))
    call = make_caller(context, [], WORDS, Fallback())

    def stop():
        time.sleep(0.05)
        context.interrupt = True

    threading.Thread(target=stop).start()
    with pytest.raises(ExecutionError, match="interrupted"):
        call()
    with pytest.raises(ExecutionError, match="interrupted"):
        call()
    context.interrupt = False


@pytest.mark.parametrize("way", ["call", "python"])
def test_control_c(way):
    code = f"""
from native_programs import address
from xlakit.cpu.runtime import Context
from xlakit.cpu.runtime.call import execute, make_caller
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
context = Context(address("spin"))
shape = Shape(PrimitiveType.S64, (2,))
call = make_caller(context, [], shape, None)
if "{way}" == "python":
    call = lambda: execute(context, [], [])
try:
    print("ready", flush=True)
    call()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    start = time.perf_counter()
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=30)
    assert (out, errors) == ("interrupted\n", "")
    assert child.returncode == 0
    # Without the signal it would run for ever; a loaded machine takes its time to end a process.
    assert time.perf_counter() - start < 10


def test_a_build_that_native_code_does_not_know():
    code = """
import numpy as np
from native_programs import address
from xlakit.cpu.runtime import Context, numpy_api
numpy_api.TYPE = 0
from xlakit.cpu.runtime.call import allocate_array, execute, make_caller
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
shape = Shape(PrimitiveType.S64, (3, 4))
context, x = Context(address("add")), np.arange(12)
assert make_caller(context, [shape, shape], shape, print) is print
results = [allocate_array((3, 4), x.dtype) for _ in range(2)]
assert execute(context, [x, x], results) == 0
assert (results[0].ravel() == 2 * x).all()
print("good")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("good\n", "")
