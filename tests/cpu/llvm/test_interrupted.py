"""An exception in the middle of compiling, such as Ctrl-C, leaves LLVM's memory in order."""

import signal
import subprocess
import sys

import pytest

import xlakit
from xlakit.cpu.llvm import engine

# What is left of it is collected as garbage, in any order: LLVM's module must be gone by then. A fault ends the child.
INTERRUPTED = """
import gc
import numpy as np
import xlakit as xla
from xlakit.cpu.llvm import engine

module = xla.HloModule.from_text("ENTRY e { x = f32[8] parameter(0) ROOT r = f32[8] negate(x) }")
whole = engine._Machine.run_passes

def interrupted(self, *arguments, **options):
    whole(self, *arguments, **options)
    raise KeyboardInterrupt

for _ in range(10):
    engine._Machine.run_passes = interrupted
    try:
        xla.compile(module, cache=False)
    except KeyboardInterrupt as error:
        error.cycle = error
    gc.collect()
    engine._Machine.run_passes = whole
    assert (xla.compile(module, cache=False)(np.ones(8, np.float32)) == -1).all()
print("fine")
"""


def test_an_exception_while_llvm_is_at_work():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_threads_end_that_were_being_started(monkeypatch):
    parts = [(engine.Effort.CODE, f"define i64 @f{n}(i64 %x) {{\n  ret i64 %x\n}}\n") for n in range(4)]
    start = engine._started
    begun = []

    def interrupted(work):
        begun.append(start(work))
        if len(begun) == 2:
            raise KeyboardInterrupt
        return begun[-1]

    monkeypatch.setattr(engine, "_started", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.compile_objects(parts, 3)
    for thread in begun:
        thread.join(60)
        assert not thread.is_alive()
    assert len(engine.compile_objects(parts, 1)) == len(parts)


def test_the_exception_of_a_signal_handler_is_not_a_fault_of_the_compiler(monkeypatch):
    def handler(number, frame):
        raise TimeoutError(number)

    def interrupted(*_, **__):
        signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(engine._Machine, "run_passes", interrupted)
    module = xlakit.HloModule.from_text("ENTRY e { x = f32[8] parameter(0) ROOT r = f32[8] negate(x) }")
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeoutError):
            xlakit.compile(module, cache=False)
    finally:
        signal.signal(signal.SIGALRM, before)
