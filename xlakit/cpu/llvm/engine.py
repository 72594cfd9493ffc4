"""From the text of a module to machine code: LLVM's own passes, an object file, and its functions' addresses."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from xlakit import options, target
from xlakit.cpu.llvm.effort import Effort
from xlakit.errors import InternalError
from xlakit.target import Processor

_STACK_BYTES = 8 << 20


def _target_machine(level: int, processor: Processor) -> Any:
    """LLVM's machine for a processor."""
    target.set_up()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=processor.name, features=processor.text, opt=level, reloc="pic", codemodel="small", jit=False
    )


class _Machine:
    """A target machine, and what makes LLVM's passes for it."""

    def __init__(self, level: int, processor: Processor) -> None:
        self.target = _target_machine(level, processor)
        self.data_layout = str(self.target.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=level)
        tuning.loop_vectorization = True
        # Loops that gain from more have a hint; for all of them it would double the time to compile.
        tuning.slp_vectorization = False
        tuning.loop_interleaving = False
        tuning.loop_unrolling = False
        # It serves for many modules: what running passes makes of it is not freed before the process ends.
        self._builder = llvm.create_pass_builder(self.target, tuning)

    def run_passes(self, module: Any, *, tidies: bool) -> None:
        """Improve a module with the passes of the level, or with a few that are quick."""
        # These serve once: the inliner of LLVM's own pipelines gives its passes away as it runs.
        passes = _tidy_passes() if tidies else self._builder.getModulePassManager()
        try:
            _native().run_passes(passes, module, self._builder)
        finally:
            # llvmlite frees no pass managers by itself: the method that does is hidden by that of another base class.
            NewPassManager._dispose(passes)  # pyright: ignore[reportPrivateUsage]
            passes.detach()


# Machines change while they are used, so each serves one compilation at a time.
_machines: dict[tuple[int, Processor], list[_Machine]] = {}


@contextmanager
def _machine(level: int) -> Generator[_Machine]:
    key = level, target.processor()
    free = _machines.setdefault(key, [])
    try:
        machine = free.pop()
    except IndexError:
        machine = _Machine(*key)
    try:
        yield machine
    finally:
        free.append(machine)


class _Native:
    """The functions of llvmlite's library that take long, without the lock that llvmlite holds while it calls one.

    LLVM lets several threads work as long as they share no context, and every module here has its own.
    """

    def __init__(self) -> None:
        # llvmlite keeps the path of its library in a private attribute.
        library = ctypes.CDLL(llvm.ffi.lib._name)  # pyright: ignore[reportPrivateUsage]
        pointer = ctypes.c_void_p
        self.run_passes = library.LLVMPY_RunNewModulePassManager
        self.run_passes.argtypes, self.run_passes.restype = [pointer, pointer, pointer], None
        self.emit = library.LLVMPY_TargetMachineEmitToMemory
        self.emit.argtypes = [pointer, pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        self.emit.restype = pointer
        self.start_of = library.LLVMPY_GetBufferStart
        self.start_of.argtypes, self.start_of.restype = [pointer], pointer
        self.size_of = library.LLVMPY_GetBufferSize
        self.size_of.argtypes, self.size_of.restype = [pointer], ctypes.c_size_t
        self.dispose = library.LLVMPY_DisposeMemoryBuffer
        self.dispose.argtypes, self.dispose.restype = [pointer], None


_native = cache(_Native)


# The levels of LLVM's passes, and of its code generation. More passes than those of level 1 take longer for the same.
_LEVELS = {Effort.ALL: (1, 3), Effort.TIDY: (0, 3), Effort.CODE: (0, 3), Effort.LITTLE: (0, 0)}


def compiled(text: str, effort: Effort) -> bytes:
    """The object file of an IR text."""
    with _module_at_effort(text, effort) as module:
        return emit_object(module, _levels(effort)[1])


def make_object(text: str, level: int = _LEVELS[Effort.ALL][0]) -> bytes:
    """The object file of an IR text, after LLVM's own passes of a level."""
    with optimized_module(text, level) as module:
        return emit_object(module)


def optimized_text(text: str, effort: Effort) -> str:
    """The IR text after LLVM's own passes."""
    with _module_at_effort(text, effort) as module:
        return str(module)


def assembly(text: str, effort: Effort) -> str:
    """The assembly text of an IR text."""
    with _module_at_effort(text, effort) as module:
        return emit_assembly(module, _levels(effort)[1])


def _levels(effort: Effort) -> tuple[int, int]:
    return _LEVELS[Effort.LITTLE if options.is_plain("llvm") else effort]


def _module_at_effort(text: str, effort: Effort) -> AbstractContextManager[Any]:
    """:func:`optimized_module` with the LLVM passes of an effort."""
    return optimized_module(text, _levels(effort)[0], tidies=effort is Effort.TIDY and not options.is_plain("llvm"))


# LLVM's contexts that have a module. A module is freed before its context; what an exception leaves behind, of Ctrl-C
# for one, Python's garbage collector would free in any order.
_contexts: dict[int, Any] = {}


@contextmanager
def optimized_module(text: str, level: int = _LEVELS[Effort.ALL][0], *, tidies: bool = False) -> Generator[Any]:
    """The LLVM module of an IR text after LLVM's own passes, while it is used; InternalError where the text is faulty.

    level: of passes that LLVM has put together. tidies: run a few that are quick in their place.
    """
    context = llvm.create_context()
    _contexts[id(context)] = context
    module = None
    try:
        with _machine(level) as machine:
            try:
                module = llvm.parse_assembly(text, context)
            except RuntimeError as error:
                raise InternalError(f"the compiler wrote faulty LLVM IR: {error}") from None
            module.triple = machine.target.triple
            module.data_layout = machine.data_layout
            machine.run_passes(module, tidies=tidies)
        yield module
    finally:
        if module is not None:
            module.close()
        del _contexts[id(context)]


def _tidy_passes() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    return passes


def emit_object(module: Any, level: int = 3) -> bytes:
    """The object file of an optimized module; level 0 takes least time, and gives code that takes most."""
    native = _native()
    message = ctypes.c_char_p()
    with _machine(level) as machine:
        buffer = native.emit(machine.target, module, 1, ctypes.byref(message))
    if not buffer:
        raise InternalError(f"LLVM made no machine code: {(message.value or b'').decode(errors='replace')}")
    try:
        return ctypes.string_at(native.start_of(buffer), native.size_of(buffer))
    finally:
        native.dispose(buffer)


def emit_assembly(module: Any, level: int = 3) -> str:
    """The assembly text of an optimized module."""
    with _machine(level) as machine:
        return machine.target.emit_assembly(module)


def compile_objects(parts: Iterable[tuple[Effort, str]], threads: int) -> list[bytes]:
    """The object files of IR texts, in their order. Threads begin with the first texts while others are still made."""
    work = _Work()
    helpers: list[threading.Thread] = []
    count = 0
    try:
        for count, (effort, text) in enumerate(parts, 1):
            work.waiting.put((count - 1, effort, text))
            if 1 < count <= threads:
                # Where the system gives no more threads, or Python is about to end, those that there are do.
                with suppress(RuntimeError):
                    helpers.append(_started(work.until_none))
        work.waiting.put(None)
        work.until_none()
    except BaseException:
        work.give_up()
        raise
    finally:
        for helper in helpers:
            helper.join()
    if work.failures:
        raise work.failures[0]
    return [work.made[number] for number in range(count)]


def _started(work: Callable[[], None]) -> threading.Thread:
    """A thread with as much room as LLVM may take, which some systems give to the first thread only."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        # It compiles with the options of the thread that it helps.
        thread = threading.Thread(target=copy_context().run, args=(work,), name="xlakit-compile", daemon=True)
        thread.start()
        return thread
    finally:
        threading.stack_size(before)


class _Work:
    """Texts that threads compile."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[tuple[int, Effort, str] | None] = SimpleQueue()
        self.made: dict[int, bytes] = {}
        self.failures: list[Exception] = []

    def until_none(self) -> None:
        """Compile what comes, up to a None.

        It is left for the other threads: how many there are is not known where Ctrl-C came while one was started.
        """
        while (job := self.waiting.get()) is not None:
            number, effort, text = job
            try:
                self.made[number] = compiled(text, effort)
            except Exception as error:
                self.failures.append(error)
        self.waiting.put(None)

    def give_up(self) -> None:
        """Let all threads end after what they are at."""
        with suppress(Empty):
            while True:
                self.waiting.get_nowait()
        self.waiting.put(None)


class LinkedObjects:
    """Object files in memory, linked by LLVM. They stay as long as this object does."""

    def __init__(
        self, name: str, objects: Sequence[bytes], functions: Sequence[str], symbols: Mapping[str, int], *, stays: bool
    ) -> None:
        """As :class:`xlakit.cpu.llvm.library.Library` takes them."""
        target.set_up()
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        builder.add_current_process()
        for symbol, address in symbols.items():
            builder.import_symbol(symbol, address)
        for function in functions:
            builder.export_symbol(function)
        with target.lock:
            jit = _lasting_jit() if stays else _next_jit()
            try:
                tracker = builder.link(jit.engine, name)
            except RuntimeError as error:
                raise InternalError(f"machine code of {name} cannot be linked: {error}") from None
            jit.alive += 1
        self._addresses = {function: int(tracker[function]) for function in functions}
        # When the process ends, code may still run, and what would free it is half taken down.
        weakref.finalize(self, _release, jit, tracker).atexit = False
        _free_released()

    def address(self, function: str) -> int:
        """Where a function starts."""
        return self._addresses[function]


# -- freeing machine code --------------------------------------------------------------------------
#
# LLVM frees the code of a library that is given up, and keeps what it knows of its symbols, some kilobytes, until the
# whole JIT goes. So a JIT takes so many libraries and then no more, and goes with the last of them:
#
#     linked         0 .. 16        16             16                16
#     alive          0 .. 16        16 .. 1        0                 -
#                    the next one   takes none     closed            gone
#
# Making a JIT takes as long as linking a few programs, and a library that stays keeps what 15 others leave behind.
_LIBRARIES_OF_A_JIT = 16


class _Jit:
    """An LLJIT, how many libraries it has linked, and how many of them are there."""

    def __init__(self) -> None:
        machine = _target_machine(3, target.host())
        self.engine: Any = llvm.create_lljit_compiler(machine, use_jit_link=True)
        self.linked = 0
        self.alive = 0


_lasting_jit = cache(_Jit)
_newest: list[_Jit] = []
# Libraries to be freed. The garbage collector may release one at any point, where its thread may hold the lock.
_released: deque[tuple[_Jit, Any]] = deque()


def _next_jit() -> _Jit:
    """The JIT for the next library; the lock is held."""
    if not _newest or _newest[0].linked == _LIBRARIES_OF_A_JIT:
        _newest[:] = [_Jit()]
    _newest[0].linked += 1
    return _newest[0]


def _release(jit: _Jit, tracker: Any) -> None:
    _released.append((jit, tracker))
    _free_released()


def _free_released() -> None:
    """Free what has been given up; where another library is being linked, that is done after it."""
    while _released and target.lock.acquire(blocking=False):
        try:
            while _released:
                jit, tracker = _released.popleft()
                tracker.close()
                jit.alive -= 1
                if not jit.alive and jit.linked == _LIBRARIES_OF_A_JIT:
                    jit.engine.close()
        finally:
            target.lock.release()
