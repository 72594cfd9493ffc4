"""Machine code is freed with its last owner, and what LLVM keeps of it, too."""

import gc
import threading
import weakref

import numpy as np
import pytest
from growth import left_behind, needs_proc

import xlakit as xla
from xlakit.cpu.llvm import engine, linking
from xlakit.cpu.llvm.library import Library
from xlakit.machine_code import elf, llvm

ARGUMENT = np.arange(4, dtype=np.float32)
OBJECT = "define i64 @f(i64 %x) {{\n  %y = add i64 %x, {}\n  ret i64 %y\n}}\n"


def program(number):
    text = f"HloModule m\nENTRY e {{\n  p = f32[4] parameter(0)\n  c = f32[] constant({number})\n"
    text += "  b = f32[4] broadcast(c), dimensions={}\n  ROOT r = f32[4] add(p, b)\n}\n"
    return xla.compile(xla.HloModule.from_text(text))


def library(number):
    return Library(f"freed{number}", engine.compiled(OBJECT.format(number), engine.Effort.CODE), ["f"], {})


@pytest.fixture
def jits(monkeypatch):
    """The JITs that are made, as weak references; LLVM links all there is, as it does what no image can be made of."""
    made = []
    monkeypatch.setattr(elf, "image_of", lambda objects: None)
    # Nor are object files to be left where images are looked for.
    monkeypatch.setenv("XLAKIT_CACHE", "off")

    class Watched(linking._Jit):
        def __init__(self):
            super().__init__()
            made.append(weakref.ref(self))

    monkeypatch.setattr(linking, "_Jit", Watched)
    monkeypatch.setattr(linking, "_newest", [])
    return made


def there(jits):
    gc.collect()
    return [jit for jit in (reference() for reference in jits) if jit is not None and not jit.engine.closed]


def test_a_jit_goes_with_the_last_of_its_libraries(jits):
    size = linking._LIBRARIES_OF_A_JIT
    held = [library(number) for number in range(2 * size + 1)]
    assert len(there(jits)) == 3
    del held[: size - 1]
    assert len(there(jits)) == 3
    del held[0]
    assert len(there(jits)) == 2
    del held[:]
    # The newest one takes more.
    (newest,) = there(jits)
    assert newest.alive == 0
    library(99)
    assert there(jits) == [newest]


def test_what_stays_runs_on_when_others_have_gone(jits):
    count = 3 * linking._LIBRARIES_OF_A_JIT
    held = {number: program(number) for number in range(count)}
    for number in range(count):
        if number % 10:
            del held[number]
    gc.collect()
    for number, executable in held.items():
        np.testing.assert_array_equal(executable(ARGUMENT), ARGUMENT + number)
    held.clear()
    assert len(there(jits)) <= 1


def test_code_that_is_given_up_while_the_lock_is_held_is_freed_afterwards(jits):
    held = [library(number) for number in range(linking._LIBRARIES_OF_A_JIT)]
    with llvm.lock:
        held.clear()
        gc.collect()
        assert len(there(jits)) == 1
    library(0)
    assert len(there(jits)) == 1
    assert not linking._released


def test_threads_compile_and_drop_programs_at_once(jits):
    def work(first):
        for number in range(first, first + 20):
            if not np.array_equal(program(number)(ARGUMENT), ARGUMENT + number):
                wrong.append(number)

    wrong = []
    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(there(jits)) <= 1


LOOP = """HloModule loop
cond {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(300000)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4] cosine(x)
  ROOT t = (s32[], f32[4]) tuple(j, y)
}
ENTRY e {
  p = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, p)
  w = (s32[], f32[4]) while(t), condition=cond, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""


def test_programs_that_are_dropped_while_they_run_run_to_their_end(jits):
    with xla.Client(devices=2) as client:
        given = [client.buffer_from_host(ARGUMENT, device) for device in client.devices()]
        coming = []
        for _ in range(4):
            for device, buffer in zip(client.devices(), given, strict=True):
                loaded = client.compile(xla.HloModule.from_text(LOOP), device_assignment=[device], cache=False)
                coming.append(loaded.execute([buffer]))
            del loaded
            # What would be freed is overwritten by what comes.
            [library(number) for number in range(linking._LIBRARIES_OF_A_JIT)]
            gc.collect()
        for result in coming:
            np.testing.assert_allclose(result, 0.7390851, rtol=1e-6)
        del coming
    assert len(there(jits)) <= 1


@needs_proc
def test_programs_that_are_dropped_leave_next_to_nothing():
    # It was 18,000 bytes and more, each time. Memory goes when malloc sees fit, so it may be more once.
    assert any(left_behind("xlakit", 100) < 8000 for _ in range(4))
