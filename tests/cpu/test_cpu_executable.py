"""Compiled programs as they run: many threads, forks, signals, host steps in loops; what they tell of themselves."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from evaluating import build, f32, floats, s32, same

import xlakit as xla
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime import runtime_symbols
from xlakit.options import compiling


def loop_for_ever(x):
    return xla.while_(lambda v: v < 1, lambda v: xla.min(v + 1, 0), x)


def softmax(x):
    weights = xla.exp(x - xla.broadcast_in_dim(xla.reduce(x, -np.inf, xla.max, [1]), [300, 400], [0]))
    return weights / xla.broadcast_in_dim(xla.reduce(weights, 0.0, xla.add, [1]), [300, 400], [0])


def test_one_executable_runs_on_many_threads_at_once():
    executable = xla.compile(build(softmax, f32(300, 400)))
    values = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    inputs = [values * scale for scale in range(8)]
    expected = [executable(x) for x in inputs]

    def work(number):
        return all(np.array_equal(executable(inputs[number % 8]), expected[number % 8]) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))


def test_the_memory_limit_is_for_values_that_are_in_memory(monkeypatch):
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "100K")
    x = np.arange(200, dtype=np.float32) % 2

    def table(x):
        return xla.broadcast(x, [200]) * xla.broadcast_in_dim(x, [200, 200], [0])

    # The second time it may come from the compile cache.
    for _ in range(2):
        summed = xla.compile(build(lambda x: xla.reduce_all(table(x), 0.0, xla.add), f32(200)), backend="cpu")
        assert summed(x) == 10_000
    with pytest.raises(xla.ResourceError, match=r"needs 160,000 bytes, the limit is 102,400") as caught:
        xla.compile(build(table, f32(200)), backend="cpu")
    assert caught.value.location.file.endswith("test_cpu_executable.py")
    # What plain code stores is too large.
    with compiling(plain="fusion"), pytest.raises(xla.ResourceError, match="needs 160,000 bytes"):
        xla.compile(build(lambda x: xla.reduce_all(table(x), 0.0, xla.add), f32(200)), backend="cpu")


def test_the_memory_limit_is_for_what_is_in_memory_together(monkeypatch):
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "400K")
    x = f32(200, 200)

    def tables(x):
        return [xla.sort(x * float(n), dimension=0) for n in range(1, 5)]

    def combined(x):
        a, b, c, d = tables(x)
        return a * b + c * d

    with pytest.raises(xla.ResourceError, match=r"^tuple .*: needs 640,000 bytes, the limit is 409,600"):
        xla.compile(build(lambda x: tuple(tables(x)), x), backend="cpu")
    with pytest.raises(xla.ResourceError, match=r"on the way to its results needs [\d,]+ bytes"):
        xla.compile(build(combined, x), backend="cpu")


def test_the_number_of_threads_does_not_change_results():
    executable = xla.compile(build(lambda x: xla.reduce_all(xla.exp(x), 0.0, xla.add), f32(700, 900)))
    x = np.random.default_rng(0).standard_normal((700, 900)).astype(np.float32)
    results = set()
    for count in (1, 2, 3, 8):
        with xla.threads(count):
            assert xla.thread_count() == count
            results.add(float(executable(x)))
    assert len(results) == 1
    for wrong in (0, -1, 1000):
        with pytest.raises(xla.ArgumentError, match="number must be from 1"), xla.threads(wrong):
            pass
    with pytest.raises(xla.ArgumentError, match="count must be an integer"), xla.threads("two"):
        pass


def run_script(text, **options):
    code = "import numpy as np\nimport xlakit as xla\nfrom evaluating import build, f32, s32\n" + textwrap.dedent(text)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("devices", [1, 2])
def test_ctrl_c_ends_a_native_loop_within_a_second(devices):
    child = run_script(
        f"""
        loop = xla.compile(
            build(lambda x: xla.while_(lambda v: v < 1, lambda v: xla.min(v + 1, 0), x), s32()), num_replicas={devices}
        )
        add = xla.compile(build(lambda x: x + 1, s32()))
        print("running", flush=True)
        try:
            loop(0)
        except KeyboardInterrupt:
            print("interrupted", int(add(1)), flush=True)
        """
    )
    assert child.stdout.readline() == "running\n"
    time.sleep(0.3)
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted 2\n"
    assert time.monotonic() - start < 10
    out, errors = child.communicate(timeout=10)
    assert (out, errors, child.returncode) == ("", "", 0)


def test_a_child_after_fork_runs_programs_of_its_parent():
    child = run_script(
        """
        import os
        executable = xla.compile(build(lambda x: xla.reduce_all(xla.exp(x), 0.0, xla.add), f32(1000, 1000)))
        x = np.zeros((1000, 1000), np.float32)
        assert executable(x) == 1e6
        for _ in range(3):
            process = os.fork()
            if not process:
                good = executable(x) == 1e6 and xla.compile(build(lambda x: x + 1, s32()))(1) == 2
                os._exit(0 if good else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
            assert executable(x) == 1e6
        print("good")
        """
    )
    out, errors = child.communicate(timeout=100)
    assert (out, errors) == ("good\n", "")


def test_a_loop_on_one_device_ends_when_another_device_fails():
    def fails(x):
        time.sleep(0.1)
        raise ValueError("enough")

    def program(x):
        return xla.conditional(
            xla.eq(xla.replica_id(x.builder), 0),
            x,
            lambda v: xla.custom_call(v.builder, "fails", [v], s32()),
            x,
            loop_for_ever,
        )

    executable = xla.compile(build(program, s32()), num_replicas=3, custom_calls={"fails": fails})
    for _ in range(3):
        with pytest.raises(xla.ExecutionError, match="enough") as caught:
            executable(0)
        assert "raised on device 0 (replica 0)" in caught.value.__notes__


def test_python_is_called_from_a_native_loop():
    seen = []

    def body(x):
        return xla.custom_call(x.builder, "tell", [x], s32()) + 1

    executable = xla.compile(
        build(lambda x: xla.while_(lambda v: v < 50, body, x), s32()),
        custom_calls={"tell": lambda x: seen.append(int(x)) or x},
    )
    assert executable(40) == 50
    assert seen == list(range(40, 50))


def test_a_custom_call_may_run_the_same_program():
    programs = []

    def down(x):
        return x if x <= 0 else programs[0](x - 1) + np.int32(1)

    def program(x):
        first = xla.custom_call(x.builder, "down", [x], s32())
        return first + xla.custom_call(x.builder, "same", [x], s32())

    functions = {"down": down, "same": lambda x: x * 0}
    programs.append(xla.compile(build(program, s32()), custom_calls=functions))
    assert programs[0](5) == 5


def test_random_numbers_are_those_of_the_interpreter():
    def draw(b):
        low, high = (xla.constant(b, float(v)) for v in (0, 1))
        return xla.rng_uniform(low, high, f32(5)), xla.rng_get_and_update_state(b, 3)

    for devices in (1, 2):
        compiled, reference = (
            xla.compile(build(draw), backend=backend, seed=7, num_replicas=devices)
            for backend in ("cpu", "interpreter")
        )
        for _ in range(3):
            for ours, theirs in zip(compiled(), reference(), strict=True):
                same(ours, theirs)


def test_executables_of_both_backends_meet_in_a_world():
    execution_context = xla.ExecutionContext(timeout=20)
    send = build(lambda x: (xla.send(x * 2.0, 1), x)[1], f32(2))
    recv = build(lambda x: xla.recv(x.builder, f32(2), 1) + x, f32(2))
    for backends in (("cpu", "interpreter"), ("interpreter", "cpu"), ("cpu", "cpu")):
        first, second = (
            xla.compile(p, backend=b, execution_context=execution_context)
            for p, b in zip((send, recv), backends, strict=True)
        )
        _, result = xla.run_together((first, [floats([1, 2])]), (second, [floats([10, 20])]))
        assert result.tolist() == [12, 24]
    with pytest.raises(xla.ArgumentError, match="an executable"):
        xla.run_together((lambda x: x, [1]))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_what_an_executable_is(backend):
    module = build(lambda x: x + 1.0, f32(2)).to_module()
    executable = xla.compile(module, backend=backend, num_replicas=2, num_partitions=3)
    assert isinstance(executable, xla.Executable)
    assert (executable.num_replicas, executable.num_partitions, executable.num_devices) == (2, 3, 6)
    assert executable.module is module
    assert isinstance(executable.execution_context, xla.ExecutionContext)
    assert "f32[2]" in repr(executable)


def test_wrong_options_are_refused():
    module = build(lambda x: x, f32(2)).to_module()
    with pytest.raises(xla.UnsupportedError, match="no backend 'gpu'"):
        xla.compile(module, backend="gpu")
    with pytest.raises(xla.ArgumentError, match="cannot compile"):
        xla.compile("text")
    for options in ({"seed": -1}, {"seed": "a"}, {"num_replicas": 1.5}, {"num_replicas": 0}, {"cache": "maybe"}):
        with pytest.raises(xla.ArgumentError):
            xla.compile(module, **options)


@pytest.mark.parametrize(
    "program",
    [
        build(lambda x: xla.custom_call(x.builder, "f", [x], f32()), f32()),
        build(lambda x: x + 1.0, f32()),
        build(loop_for_ever, s32()),
    ],
    ids=["custom-call", "element-by-element", "loop"],
)
def test_executables_are_freed_with_their_last_reference(program):
    import gc
    import weakref

    executable = xla.compile(program, custom_calls={"f": abs})
    if "while" not in executable.as_text():
        executable(-1.0)
        executable(np.float32(-1))
    gone = weakref.ref(executable)
    gc.disable()
    try:
        del executable
        assert gone() is None
    finally:
        gc.enable()


def test_a_call_whose_executable_is_gone_says_so():
    call = xla.compile(build(lambda x: x + 1.0, f32())).direct_call
    assert call(np.float32(1)[...]) == 2
    with pytest.raises(xla.ExecutionError, match="executable is gone"):
        call(1.0)


# -- what is shown of a program --------------------------------------------------------------------


@pytest.fixture(scope="module")
def layer():
    def program(x, w):
        return xla.tanh(xla.dot(x, w)) * 2.0

    return xla.compile(build(program, f32(8, 16), f32(16, 4)))


def test_the_optimized_program_as_text(layer):
    text = layer.as_text()
    assert "fusion(" in text
    assert xla.HloModule.from_text(text).program_shape.result.dimensions == (8, 4)


def test_llvm_ir_and_assembly(layer):
    raw, optimized = layer.llvm_ir(optimized=False), layer.llvm_ir()
    assert "define" in raw
    assert "target triple" in optimized
    assert "xlakit_entry" in layer.assembly()


def test_the_cost_is_counted(layer):
    cost = layer.cost_analysis()
    assert cost["flops"] == 2 * 8 * 16 * 4 + 8 * 4
    assert cost["transcendentals"] == 8 * 4
    assert cost["bytes accessed"] >= 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_loops_cost_as_often_as_they_run():
    def cost(turns):
        def body(state):
            count, x = (xla.get_tuple_element(state, i) for i in range(2))
            return count + 1, xla.tanh(x) + 1.0

        def program(x):
            start = (xla.constant(x.builder, 0), x)
            return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < turns, body, start), 1)

        return xla.compile(build(program, f32(1000))).cost_analysis()

    assert cost(100)["transcendentals"] == 100 * 1000
    assert cost(300)["transcendentals"] == 300 * 1000


def test_memory_and_what_holds_it():
    def program(x, y):
        return xla.dot(xla.dot(x, y), xla.dot(y, x))

    executable = xla.compile(build(program, f32(200, 200), f32(200, 200)))
    memory = executable.memory_analysis()
    size = 200 * 200 * 4
    assert memory.argument_size_in_bytes == 2 * size
    assert memory.output_size_in_bytes == size
    assert 2 * size <= memory.temp_size_in_bytes
    assert memory.alias_size_in_bytes == 0
    assert memory.generated_code_size_in_bytes > 0
    assert memory.peak_memory_in_bytes == 3 * size + memory.temp_size_in_bytes
    assert [h.bytes for h in memory.holders[:2]] == [size, size]
    assert [h.opcode for h in memory.holders[:2]] == ["dot", "dot"]
    assert all(h.location.file.endswith("test_cpu_executable.py") for h in memory.holders[:2])
    assert "test_cpu_executable.py" in str(memory)


def test_what_is_shown_of_a_program_from_the_cache_is_the_same():
    built = build(lambda x: xla.exp(x) + 1.0, f32(33))
    first, second = (xla.compile(built) for _ in range(2))
    assert first.as_text() == second.as_text()
    assert first.llvm_ir() == second.llvm_ir()
    assert first.memory_analysis() == second.memory_analysis()


def test_nothing_is_left_of_threads():
    before = threading.active_count()
    executable = xla.compile(build(lambda x: xla.all_reduce(x, xla.add), s32()), num_replicas=4)
    assert [int(r) for r in executable(1)] == [4] * 4
    assert threading.active_count() == before


def test_a_loop_reads_what_it_does_not_change_where_it_is():
    module = xla.HloModule.from_text("""HloModule m
        body { p = (s32[], f32[4], f32[1000,4], f32[1000,4]) parameter(0)
          i = s32[] get-tuple-element(p), index=0  x = f32[4] get-tuple-element(p), index=1
          a = f32[1000,4] get-tuple-element(p), index=2  b = f32[1000,4] get-tuple-element(p), index=3
          one = s32[] constant(1)  zero = s32[] constant(0)  j = s32[] add(i, one)
          u = f32[1,4] dynamic-slice(a, i, zero), dynamic_slice_sizes={1,4}
          v = f32[1,4] dynamic-slice(b, i, zero), dynamic_slice_sizes={1,4}
          w = f32[1,4] subtract(u, v)  y = f32[4] reshape(w)  z = f32[4] add(x, y)
          ROOT r = (s32[], f32[4], f32[1000,4], f32[1000,4]) tuple(j, z, a, b) }
        cond { p = (s32[], f32[4], f32[1000,4], f32[1000,4]) parameter(0)
          i = s32[] get-tuple-element(p), index=0  n = s32[] constant(1000)
          ROOT c = pred[] compare(i, n), direction=LT }
        ENTRY e { a = f32[1000,4] parameter(0)  x = f32[4] parameter(1)  zero = s32[] constant(0)
          b = f32[1000,4] negate(a)
          t = (s32[], f32[4], f32[1000,4], f32[1000,4]) tuple(zero, x, a, b)
          loop = (s32[], f32[4], f32[1000,4], f32[1000,4]) while(t), condition=cond, body=body
          s = f32[4] get-tuple-element(loop), index=1
          c = f32[1000,4] get-tuple-element(loop), index=2  d = f32[1000,4] exponential(b)
          ROOT r = (f32[4], f32[1000,4], f32[1000,4]) tuple(s, c, d) }""")
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((1000, 4), np.float32), np.zeros(4, np.float32)
    executable = xla.compile(module)
    total, same, other = executable(a, x)
    np.testing.assert_allclose(total, 2 * a.sum(0), rtol=1e-4)
    np.testing.assert_array_equal(same, a)
    np.testing.assert_allclose(other, np.exp(-a), rtol=1e-6)
    # The negated matrix alone; neither of them is copied for the loop.
    assert executable.memory_analysis().temp_size_in_bytes < 20_000


def test_numbers_and_lists_become_arrays_on_the_short_way(monkeypatch):
    text = "HloModule m ENTRY e { x = f32[] parameter(0) y = s32[2] parameter(1) ROOT t = (f32[], s32[2]) tuple(x, y) }"
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    monkeypatch.setattr(executable, "_slow_call", None)
    for x in (2.5, np.float32(2.5), np.array(2.5, np.float32), xla.Literal.from_value(2.5, xla.PrimitiveType.F32)):
        for y in ([1, 2], (1, 2), np.array([1, 2], np.int32), np.array([1, 9, 2], np.int32)[::2].tolist()):
            made = executable(x, y)
            assert made[0] == 2.5 and made[1].tolist() == [1, 2]
    monkeypatch.undo()
    # What fits in no way is told on the other one, as are arrays that lie in another way.
    assert executable(2.5, np.array([1, 9, 2], np.int32)[::2])[1].tolist() == [1, 2]
    for wrong in ([1, 2, 3], [1.5, 2.5], np.array([1, 2], np.int64), "two", None):
        with pytest.raises(xla.ArgumentError, match=r"s32\[2\]"):
            executable(2.5, wrong)


def test_a_program_is_linked_with_what_it_imports_alone(monkeypatch):
    """All symbols of the runtime took a quarter of the time in which a kept program is loaded."""
    given = []
    link = Library.__init__

    def linked(self, name, objects, functions, symbols, **options):
        given.append(set(symbols))
        link(self, name, objects, functions, symbols, **options)

    monkeypatch.setattr(Library, "__init__", linked)
    module = xla.HloModule.from_text("HloModule m\nENTRY e {\n a = f32[5] parameter(0)\n ROOT r = f32[5] add(a, a)\n}")
    program = xla.compile(module, backend="cpu", cache=False)
    program(np.ones(5, np.float32))
    assert given[-1] <= set(program._program.imports)
    assert len(given[-1]) < len(runtime_symbols())
