"""The thread pool: every task runs once, from any caller and on any number of threads."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from native_programs import run_job

from xlakit.cpu.runtime.processors import container_quota, default_threads, processor_count
from xlakit.cpu.threads import thread_count, threads
from xlakit.errors import ArgumentError


def counted(tasks, grain, times=1):
    counters = np.zeros(tasks + 1, np.int64)
    run_job("counts", counters, tasks, grain, times)
    assert (counters[1:] == times).all()
    return counters[0]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("tasks", "grain"), [(0, 1), (1, 1), (2, 1), (7, 2), (100, 1), (1000, 33), (5000, 10**12), (64, 0)]
)
def test_every_task_runs_once(count, tasks, grain):
    with threads(count):
        calls = counted(tasks, grain, times=20) / 20
    chunks = -(-tasks // max(grain, 1))
    assert calls == (chunks if count > 1 else min(chunks, 1))


def test_ranges_begin_at_multiples_of_grain():
    with threads(4):
        assert counted(103, 10) == 11


def test_many_jobs_in_a_row():
    with threads(4):
        counted(64, 1, times=5000)


def test_jobs_inside_of_jobs_run_serially():
    counters = np.zeros((50, 11), np.int64)
    with threads(3):
        run_job("nests", counters, 50, 1)
    # The job inside is one call with all ten tasks.
    assert (counters == 1).all()


def test_callers_at_the_same_time():
    failures = []

    def call():
        try:
            with threads(3):
                for _ in range(200):
                    counted(100, 3)
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_scopes_nest_and_belong_to_their_thread():
    default = thread_count()
    seen = []
    with threads(3):
        with threads(1):
            assert thread_count() == 1
        assert thread_count() == 3
        other = threading.Thread(target=lambda: seen.append(thread_count()))
        other.start()
        other.join()
    assert thread_count() == default == seen[0]


@pytest.mark.parametrize("count", [0, -1, 257, True])
def test_odd_numbers_of_threads(count):
    with pytest.raises(ArgumentError, match=r"from 1 to 256|must be an integer"), threads(count):
        pass


def native_threads():
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_threads_do_not_pile_up():
    with threads(5):
        counted(100, 1)
        before = native_threads()
        for _ in range(50):
            counted(100, 1)
        # Threads of earlier tests may end meanwhile.
        assert native_threads() <= before


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork():
    code = """
import os, numpy as np
from native_programs import run_job
from xlakit.cpu.threads import threads
def job():
    counters = np.zeros(101, np.int64)
    run_job("counts", counters, 100, 1, 50)
    return (counters[1:] == 50).all()
with threads(3):
    assert job()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            good = job() and len(os.listdir("/proc/self/task")) == 3
            os._exit(0 if good else 1)
        assert job()
        assert os.waitpid(child, 0)[1] == 0
print("good")
"""
    done = run_python(code)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


def test_exit_with_workers_and_with_a_thread_that_still_calls():
    code = """
import threading, numpy as np
from native_programs import run_job
from xlakit.cpu.threads import threads
counters = np.zeros(101, np.int64)
def forever():
    with threads(3):
        while True:
            run_job("counts", counters, 100, 1, 1000)
with threads(4):
    run_job("counts", counters, 100, 1, 10)
threading.Thread(target=forever, daemon=True).start()
while counters[0] < 100000:
    pass
"""
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_by_environment():
    code = "from xlakit.cpu.threads import thread_count; print(thread_count())"
    assert run_python(code, XLAKIT_THREADS="1").stdout == "1\n"
    assert int(run_python(code, XLAKIT_THREADS="1000").stdout) == processor_count()
    assert "XLAKIT_THREADS is 'many', not a positive number" in run_python(code, XLAKIT_THREADS="many").stderr


def test_default_threads(monkeypatch):
    monkeypatch.setenv("XLAKIT_THREADS", "3")
    assert default_threads(8) == 3
    assert default_threads(2) == 2
    monkeypatch.delenv("XLAKIT_THREADS")
    assert default_threads(8) == 8


def files(root, **contents):
    for name, text in contents.items():
        path = root / name.replace("__", "/").replace("max", "cpu.max")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_quota_of_control_groups_version_2(tmp_path):
    assert container_quota(tmp_path) is None
    files(tmp_path, proc__self__cgroup="0::/a/b\n", sys__fs__cgroup__a__b__max="max 100000\n")
    assert container_quota(tmp_path) is None
    files(tmp_path, sys__fs__cgroup__a__max="150000 100000\n")
    assert container_quota(tmp_path) == 1.5
    files(tmp_path, sys__fs__cgroup__max="50000 100000\n")
    assert container_quota(tmp_path) == 0.5
    assert processor_count(tmp_path) == 1


def test_quota_of_control_groups_version_1(tmp_path):
    files(tmp_path, proc__self__cgroup="4:memory:/x\n3:cpu,cpuacct:/docker/abc\n0::/\n")
    # Inside of a container only the outermost directory is to be seen.
    folder = tmp_path / "sys/fs/cgroup/cpu"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert container_quota(tmp_path) is None
    (folder / "cpu.cfs_quota_us").write_text("300000\n")
    assert container_quota(tmp_path) == 3.0
