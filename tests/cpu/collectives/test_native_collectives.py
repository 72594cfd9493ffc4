"""Collectives in machine code: as the interpreter does them, without Python, side by side with other work."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import xlakit as xla
from fuzz.collectives import judge
from fuzz.programs.devices.collective_bodies import spread_module
from fuzz.programs.devices.rendezvous import Spread

ADD = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
"""
LONG = "f32[100000]"


def module(body, *, replicas=4, partitions=1, more=""):
    head = f"HloModule m, replica_count={replicas}, num_partitions={partitions}\n"
    return xla.HloModule.from_text(f"{head}{ADD}{more}\nENTRY e {{\n{textwrap.dedent(body)}\n}}\n")


def compiled(body, **options):
    calls = options.pop("custom_calls", None)
    return xla.compile(module(body, **options), backend="cpu", custom_calls=calls)


def rows(count, *sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.standard_normal(sizes).astype(np.float32)] for _ in range(count)]


@pytest.mark.parametrize("number", range(12))
def test_generated_programs_agree_with_the_interpreter(number):
    program = spread_module(1, number)
    fault, in_python = judge(program)
    assert not fault
    assert not in_python


@pytest.mark.parametrize("devices", [5, 11])
@pytest.mark.parametrize("kind", ["bf16", "f16", "f8e5m2"])
@pytest.mark.parametrize("opcode", ["add", "multiply"])
def test_narrow_floats_are_rounded_once_for_the_group(kind, opcode, devices):
    function = f"f {{ a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n ROOT r = {kind}[] {opcode}(a, b) }}"
    body = f"""x = {kind}[{devices},33] parameter(0)
    a = {kind}[{devices},33] all-reduce(x), replica_groups={{}}, to_apply=f
    s = {kind}[1,33] reduce-scatter(x), replica_groups={{}}, dimensions={{0}}, to_apply=f
    ROOT r = ({kind}[{devices},33], {kind}[1,33]) tuple(a, s)"""
    program = module(body, replicas=devices, more=function)
    dtype = program.entry.parameters[0].shape.element_type.dtype
    arguments = [[a.astype(dtype)] for (a,) in rows(devices, devices, 33)]
    total = getattr(np, opcode).reduce([a.astype(np.float32) for (a,) in arguments]).astype(dtype)
    for backend in ("cpu", "interpreter"):
        executable = xla.compile(program, backend=backend)
        for number, (whole, part) in enumerate(executable.execute_replicated(arguments)):
            assert np.asarray(whole).tobytes() == total.tobytes()
            assert np.asarray(part).tobytes() == total[number].tobytes()


@pytest.mark.parametrize("devices", [2, 5, 11])
def test_the_order_of_a_sum_is_that_of_the_group(devices):
    executable = compiled(
        f"x = {LONG} parameter(0)\nROOT r = {LONG} all-reduce(x), replica_groups={{}}, to_apply=add", replicas=devices
    )
    assert not executable.host_instructions
    arguments = rows(devices, 100000)
    expected = arguments[0][0]
    for (other,) in arguments[1:]:
        expected = expected + other
    for _ in range(3):
        for result in executable.execute_replicated(arguments):
            np.testing.assert_array_equal(result, expected)


def test_a_loop_of_small_sums_needs_no_python():
    body = """
    b { p = (s32[], f32[3]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      v = f32[3] get-tuple-element(p), index=1
      one = s32[] constant(1)
      j = s32[] add(i, one)
      s = f32[3] all-reduce(v), replica_groups={{0,1},{2,3}}, to_apply=add
      half = f32[] constant(0.5)
      factors = f32[3] broadcast(half), dimensions={}
      w = f32[3] multiply(s, factors)
      ROOT t = (s32[], f32[3]) tuple(j, w)
    }
    c { p = (s32[], f32[3]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(500)
      ROOT q = pred[] compare(i, n), direction=LT
    }
    """
    executable = compiled(
        """
        x = f32[3] parameter(0)
        zero = s32[] constant(0)
        t = (s32[], f32[3]) tuple(zero, x)
        l = (s32[], f32[3]) while(t), condition=c, body=b
        ROOT r = f32[3] get-tuple-element(l), index=1
        """,
        more=body,
    )
    assert not executable.host_instructions
    arguments = rows(4, 3)
    results = executable.execute_replicated(arguments)
    for pair in ((0, 1), (2, 3)):
        mean = (arguments[pair[0]][0] + arguments[pair[1]][0]) * np.float32(0.5)
        for device in pair:
            np.testing.assert_array_equal(results[device], mean)


def test_a_start_does_not_wait():
    reached = threading.Event()

    def before(x, replica):
        if replica == 0:
            assert reached.wait(30)
        return x

    def between(x, replica):
        if replica == 1:
            reached.set()
        return x

    executable = compiled(
        """
        x = f32[4] parameter(0)
        id = u32[] replica-id()
        y = f32[4] custom-call(x, id), custom_call_target="before", custom_call_has_side_effect=true
        s = f32[4] all-reduce-start(y), replica_groups={}, to_apply=add
        z = f32[4] custom-call(x, id), custom_call_target="between", custom_call_has_side_effect=true
        d = f32[4] all-reduce-done(s)
        ROOT r = f32[4] subtract(d, z)
        """,
        replicas=2,
        custom_calls={"before": before, "between": between},
    )
    a, b = rows(2, 4)
    first, second = executable.execute_replicated([a, b])
    np.testing.assert_array_equal(first, (a[0] + b[0]) - a[0])
    np.testing.assert_array_equal(second, (a[0] + b[0]) - b[0])


def test_what_a_start_was_given_is_not_changed_before_its_done():
    body = """
        x = f32[4] parameter(0)
        y = f32[4] add(x, x)
        s = f32[4] all-reduce-start(y), replica_groups={}, to_apply=add
        one = f32[1] constant({1})
        zero = s32[] constant(0)
        u = f32[4] dynamic-update-slice(y, one, zero)
        d = f32[4] all-reduce-done(s)
        ROOT r = (f32[4], f32[4]) tuple(d, u)
        """
    arguments = tuple(tuple(row) for row in rows(3, 4))
    text = module(body, replicas=3).to_text()
    assert judge(Spread(text, 3, 1, arguments), runs=20) == ("", 0)


def test_faulty_values_are_told_as_the_interpreter_tells_them():
    table = "s32[2] parameter"
    executable = compiled(
        f"""
        i = f32[4] parameter(0)
        o = f32[4] parameter(1)
        a = {table}(2)
        b = {table}(3)
        c = {table}(4)
        d = {table}(5)
        ROOT r = f32[4] ragged-all-to-all(i, o, a, b, c, d), replica_groups={{{{0,1}}}}
        """,
        replicas=2,
    )
    assert not executable.host_instructions
    data, sizes = np.arange(4, dtype=np.float32), np.array([1, 1], np.int32)
    starts, targets = np.array([0, 2], np.int32), np.array([1, 3], np.int32)
    good = [data, np.zeros(4, np.float32), starts, sizes, targets, sizes]
    results = executable.execute_replicated([good, [data + 10, *good[1:]]])
    np.testing.assert_array_equal(results[0], [0, 10, 0, 0])
    np.testing.assert_array_equal(results[1], [0, 0, 0, 12])
    with pytest.raises(xla.ExecutionError, match=r"sends rows (7\.\.8|9\.\.10) of 4"):
        executable.execute_replicated([good, [*good[:2], starts + 7, *good[3:]]])
    assert executable.execute_replicated([good, good])[0][1] == 0


def test_the_path_through_python_can_be_asked_for():
    class Spanning(xla.ExecutionContext):
        spans_processes = True

    body = "x = f32[4] parameter(0)\nROOT r = f32[4] all-reduce(x), replica_groups={}, to_apply=add"
    through_python = xla.compile(module(body), backend="cpu", execution_context=Spanning())
    native = xla.compile(module(body), backend="cpu")
    assert [i.opcode for i in through_python.host_instructions] == ["all-reduce"]
    assert not native.host_instructions
    arguments = rows(4, 4)
    for a, b in zip(through_python.execute_replicated(arguments), native.execute_replicated(arguments), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_program_from_the_cache_meets_as_it_did(tmp_path, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    body = "x = f32[5] parameter(0)\nROOT r = f32[5] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=add"
    arguments = rows(4, 5)
    first = compiled(body).execute_replicated(arguments)
    second = compiled(body).execute_replicated(arguments)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[3], arguments[1][0] + arguments[3][0])


DIVERGING = """
    x = f32[2] parameter(0)
    id = u32[] replica-id()
    zero = u32[] constant(0)
    first = pred[] compare(id, zero), direction=EQ
    ROOT r = f32[2] conditional(first, x, x), true_computation=meets, false_computation=passes
    """
BRANCHES = """
meets { p = f32[2] parameter(0)
  ROOT %who_waits = f32[2] all-reduce(p), replica_groups={}, to_apply=add }
passes { ROOT p = f32[2] parameter(0) }
"""


def test_a_run_that_fails_leaves_the_executable_as_it_was():
    waits = compiled(DIVERGING, more=BRANCHES, replicas=3)
    works = compiled("x = f32[2] parameter(0)\nROOT r = f32[2] all-reduce(x), replica_groups={}, to_apply=add")
    assert not waits.host_instructions
    for _ in range(3):
        with pytest.raises(xla.DeadlockError, match="replica 0 waits in all-reduce 'who_waits'") as caught:
            waits.execute_replicated(rows(3, 2))
        assert "for replica 1; replica 2" in str(caught.value)
        assert len(works.execute_replicated(rows(4, 2))) == 4


def test_devices_stop_where_they_wait_when_one_fails():
    def fails(x):
        time.sleep(0.1)
        raise ValueError("enough")

    branches = """
        meets { p = f32[2] parameter(0)
          ROOT a = f32[2] all-reduce(p), replica_groups={}, to_apply=add }
        passes { p = f32[2] parameter(0)
          ROOT c = f32[2] custom-call(p), custom_call_target="fails", custom_call_has_side_effect=true }
        """
    executable = compiled(DIVERGING, more=branches, replicas=3, custom_calls={"fails": fails})
    for _ in range(2):
        with pytest.raises(xla.ExecutionError, match="enough"):
            executable.execute_replicated(rows(3, 2))


def run_script(text):
    root = Path(__file__).parents[3]
    head = f"import numpy as np\nimport xlakit as xla\nfrom test_native_collectives import *\n{textwrap.dedent(text)}"
    path = os.pathsep.join([str(Path(__file__).parent), str(root)])
    return subprocess.Popen(
        [sys.executable, "-c", head],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_a_loop_that_never_meets_the_others():
    child = run_script(
        '''
        more = """
        again { p = f32[2] parameter(0)
          ROOT t = f32[2] add(p, p) }
        always { p = f32[2] parameter(0)
          ROOT t = pred[] constant(true) }
        meets { p = f32[2] parameter(0)
          ROOT a = f32[2] all-reduce(p), replica_groups={}, to_apply=add }
        passes { p = f32[2] parameter(0)
          ROOT l = f32[2] while(p), condition=always, body=again }
        """
        waits = compiled(DIVERGING, more=more, replicas=2)
        works = compiled("x = f32[2] parameter(0)\\nROOT r = f32[2] negate(x)", replicas=2)
        print("running", flush=True)
        try:
            waits.execute_replicated(rows(2, 2))
        except KeyboardInterrupt:
            print("interrupted", len(works.execute_replicated(rows(2, 2))), flush=True)
        '''
    )
    assert child.stdout.readline() == "running\n"
    time.sleep(0.4)
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted 2\n"
    assert time.monotonic() - start < 5
    out, errors = child.communicate(timeout=20)
    assert (out, errors, child.returncode) == ("", "", 0)


def test_a_child_after_fork_has_devices_of_its_own_and_threads_are_used_again():
    child = run_script(
        """
        import os
        body = "x = f32[2] parameter(0)\\nROOT r = f32[2] all-reduce(x), replica_groups={}, to_apply=add"
        executable = compiled(body)
        good = rows(4, 2)
        expected = executable.execute_replicated(good)
        for _ in range(2):
            process = os.fork()
            if not process:
                same = np.array_equal(executable.execute_replicated(good), expected)
                os._exit(0 if same else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        # How many threads it takes is learned from the first calls.
        for _ in range(20):
            executable.execute_replicated(good)
        threads = len(os.listdir("/proc/self/task"))
        for _ in range(200):
            executable.execute_replicated(good)
        assert len(os.listdir("/proc/self/task")) == threads
        print("good")
        """
    )
    out, errors = child.communicate(timeout=100)
    assert (out, errors) == ("good\n", "")


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_devices_in_turn_and_on_several_threads_give_the_same(threads):
    body = f"x = {LONG} parameter(0)\ns = {LONG} all-reduce(x), replica_groups={{{{0,3}},{{1,2,4}}}}, to_apply=add\n"
    body += (
        f"g = {LONG} collective-permute(s), source_target_pairs={{{{0,4}},{{1,0}},{{4,2}}}}\nROOT r = {LONG} add(g, s)"
    )
    executable = compiled(body, replicas=5)
    arguments = rows(5, 100000)
    (a, b, c, d, e) = (row[0] for row in arguments)
    sums = [a + d, b + c + e, b + c + e, a + d, b + c + e]
    expected = [sums[1] + sums[0], sums[1], sums[4] + sums[2], sums[3], sums[0] + sums[4]]
    # It learns from the first calls how many threads it takes.
    for _ in range(8):
        with xla.threads(threads):
            for result, right in zip(executable.execute_replicated(arguments), expected, strict=True):
                np.testing.assert_array_equal(result, right)


def test_several_runs_of_one_program_do_not_meet_each_other():
    executable = compiled(
        f"x = {LONG} parameter(0)\nROOT r = {LONG} all-reduce(x), replica_groups={{}}, to_apply=add", replicas=3
    )
    inputs = [rows(3, 100000, seed=seed) for seed in range(4)]
    expected = [executable.execute_replicated(given)[0] for given in inputs]
    wrong = []

    def work(number):
        for _ in range(5):
            made = executable.execute_replicated(inputs[number])
            wrong.extend(number for result in made if not np.array_equal(result, expected[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_threads_claim_devices_that_do_not_meet_one_after_the_other():
    """The first device waits until all others have ended, on the other thread."""
    others, ended, calls = threading.Event(), [], []

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
    def meet(result, operands):
        device = result[0] = operands[0][0]
        if len(calls) < 2:
            # The first calls are on one thread, and take long enough for two.
            time.sleep(2e-4)
        elif device == 0:
            ended.append("all others" if others.wait(10) else "not all others")
        else:
            ended.append(device)
            if len(ended) == 3:
                others.set()

    executable = compiled(
        'x = s32[] parameter(0)\nROOT r = s32[] custom-call(x), custom_call_target="native.meet"',
        custom_calls={"native.meet": meet},
    )
    for _ in range(3):
        calls.append(executable.execute_replicated([[np.int32(n)] for n in range(4)]))
    assert calls == [[0, 1, 2, 3]] * 3
    assert ended == [1, 2, 3, "all others"]
