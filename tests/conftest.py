"""Options of the tests, and the backend that their programs run on."""

import gc
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import zlib

import evaluating
import pytest

from xlakit import machine

# Where tests say what operations mean, whatever runs them.
_MEANINGS = ("tests/ops/", "tests/documents/test_operation_", "tests/documents/test_broadcasting.py")
# What the execution context sees of a program is the same on all backends.
_ON_BOTH = ("tests/interpreter/", "tests/ops/communication/", "tests/ops/test_custom_call.py")
# Without --backend, so many of those tests run on the compiled backend, too: one in this number.
_SHARE = 6


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write what the passes give into the golden files of tests/passes"
    )
    parser.addoption(
        "--backend",
        choices=("cpu", "interpreter"),
        help="what runs the programs of tests that do not choose; default: the interpreter, and for some cpu as well",
    )


def pytest_configure(config):
    # A shell that runs tests in the background has them ignore Ctrl-C, which some are about, and so do their children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The memory plan of every program that a test compiles is proved.
    os.environ.setdefault("XLAKIT_CHECK_MEMORY", "1")
    # The processes of one run share the processors: threads of OpenBLAS that wait for work would keep them busy.
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What jaxlib gives is compared, not how fast: LLVM's passes are half of the time that it takes to compile.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
    # Nothing that an earlier run has left behind; the processes of one run share it.
    if "XLAKIT_CACHE_DIR" not in os.environ:
        os.environ["XLAKIT_CACHE_DIR"] = config.own_cache = tempfile.mkdtemp(prefix="xlakit-tests-")


def pytest_unconfigure(config):
    if hasattr(config, "own_cache"):
        shutil.rmtree(config.own_cache, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect all tests without the garbage collector: modules and tests stay, and it takes a third of the time.

    Nor does it go through them later, which would take half a second each time that a test collects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc):
    name = metafunc.definition.nodeid
    if metafunc.definition.get_closest_marker("reference"):
        return
    if metafunc.config.getoption("--backend") is not None or "backend" not in metafunc.fixturenames:
        return
    chosen = name.startswith(_MEANINGS) and zlib.crc32(name.encode()) % _SHARE == 0
    if chosen or name.startswith(_ON_BOTH):
        metafunc.parametrize("backend", ["interpreter", "cpu"], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What a child process has written stands in the report of the test that it failed."""
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    for name in ("stdout", "stderr"):
        if isinstance(error, subprocess.SubprocessError) and (written := getattr(error, name, None)):
            text = written if isinstance(written, str) else written.decode(errors="replace")
            report.sections.append((f"{name} of the child process", text))
    return report


@pytest.fixture
def usual_machine(tmp_path, monkeypatch):
    """Two processors with caches of usual sizes, whatever this machine has: choices derive from the description."""
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"threads": 2, "caches": {"l1": 32 << 10, "l2": 512 << 10, "l3": 32 << 20}}))
    monkeypatch.setenv(machine.VARIABLE, str(path))


@pytest.fixture(autouse=True)
def backend(request, monkeypatch):
    """What runs the test's programs, where the test does not say it."""
    if request.node.get_closest_marker("reference"):
        return "interpreter"
    chosen = getattr(request, "param", None) or request.config.getoption("--backend") or "interpreter"
    monkeypatch.setattr(evaluating, "BACKEND", chosen)
    return chosen


@pytest.fixture
def not_joined(monkeypatch):
    """The test's process has joined no others; what it joins it leaves."""
    from xlakit.distributed import launch

    monkeypatch.setattr(launch, "_joined", None)


@pytest.fixture
def no_other_thread(monkeypatch):
    """A program that waits for the host sees no threads that earlier tests have left, any of which might come."""
    threads, earlier = threading.enumerate, set(threading.enumerate()) - {threading.current_thread()}
    monkeypatch.setattr(threading, "enumerate", lambda: [thread for thread in threads() if thread not in earlier])


@pytest.fixture
def no_python(monkeypatch):
    """Machine code makes every step of a program, none of them Python."""
    from xlakit.cpu.execution.host_steps import HostRun

    def refuse(self, instruction, address):
        raise AssertionError(f"Python does {instruction.name}")

    monkeypatch.setattr(HostRun, "step", refuse)


@pytest.fixture
def observed_here(monkeypatch):
    """What searches of reduce and bisect ask is observed in the process of the tests."""
    from tools.reduce.observing import ServerHere

    from xlakit.tools.oracles import pool

    monkeypatch.setattr(pool, "_Server", ServerHere)


@pytest.fixture
def no_chosen_width(monkeypatch):
    """The test chooses levels of instruction sets, some of which have no vectors of the width that a run may choose."""
    monkeypatch.delenv("XLAKIT_VECTOR_BYTES", raising=False)
