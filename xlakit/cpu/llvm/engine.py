"""From the text of a module to machine code: LLVM's own passes, and an object file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue

from xlakit import options, target
from xlakit.cpu.llvm.effort import Effort
from xlakit.machine_code.llvm import emitted, functions, lock, machine_of, parsed, set_up, text_of, triple
from xlakit.target import Processor

_STACK_BYTES = 8 << 20


class _Machine:
    """A target machine, and how LLVM's passes are tuned for it. It stays until the process ends."""

    def __init__(self, level: int, processor: Processor) -> None:
        set_up()
        with lock:
            self._make(level, processor)

    def _make(self, level: int, processor: Processor) -> None:
        llvm = functions()
        self.target = machine_of(processor.name, processor.text, level)
        self.triple = triple().encode()
        data = llvm.CreateTargetMachineData(self.target)
        self.data_layout = text_of(llvm.CopyStringRepOfTargetData, data).encode()
        llvm.DisposeTargetData(data)
        self._level = level
        self._tuning = llvm.CreatePipelineTuningOptions()
        llvm.PTOSetLoopVectorization(self._tuning, True)
        # Loops that gain from more have a hint; for all of them it would double the time to compile.
        llvm.PTOSetSLPVectorization(self._tuning, False)
        llvm.PTOSetLoopInterleaving(self._tuning, False)
        llvm.PTOSetLoopUnrolling(self._tuning, False)

    def run_level(self, module: int) -> None:
        """Improve a module with the passes of the level."""
        # These serve once: the inliner of LLVM's own pipelines gives its passes away as it runs.
        self.run_passes(lambda builder: functions().buildPerModuleDefaultPipeline(builder, self._level), module)

    def tidy(self, module: int, *, scalars: bool) -> None:
        """Improve a module with a few passes that are quick; with ``scalars``, variables of loops are in registers."""
        self.run_passes(lambda _: _tidy_passes(scalars=scalars), module)

    def run_passes(self, make_passes: Callable[[int], int], module: int) -> None:
        """Run passes on a module; ``make_passes`` gives them for a pass builder.

        The builder serves once, too: llvmlite adds callbacks to it each time that it runs passes, and never takes them
        away. They refer to what is gone by then, and each pass calls all of them for each function, so that a process
        that has compiled a thousand modules would take ten times as long for the next.
        """
        llvm = functions()
        builder = llvm.CreatePassBuilder(self.target, self._tuning)
        try:
            passes = make_passes(builder)
            try:
                llvm.RunNewModulePassManager(passes, module, builder)
            finally:
                llvm.DisposeNewModulePassManger(passes)
        finally:
            llvm.DisposePassBuilder(builder)


# Runs passes of a machine on a module.
_Improve = Callable[[_Machine, int], None]
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


def _module_at_effort(text: str, effort: Effort) -> AbstractContextManager[LlvmModule]:
    """:func:`optimized_module` with the LLVM passes of an effort."""
    return optimized_module(text, _levels(effort)[0], tidies=effort is Effort.TIDY and not options.is_plain("llvm"))


class LlvmModule:
    """A module of LLVM, while it is there: its address, and its text."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __str__(self) -> str:
        return text_of(functions().PrintModuleToString, self.address)

    @property
    def is_valid(self) -> bool:
        """Whether LLVM's verifier accepts it."""
        return not text_of(functions().VerifyModule, self.address)


@contextmanager
def optimized_module(text: str, level: int = _LEVELS[Effort.ALL][0], *, tidies: bool = False) -> Generator[LlvmModule]:
    """The LLVM module of an IR text after LLVM's own passes, while it is used; InternalError where the text is faulty.

    level: of passes that LLVM has put together. tidies: run a few that are quick in their place.
    """
    quick: list[_Improve] = [partial(_Machine.tidy, scalars=scalars) for scalars in (True, False)]
    for improve in quick if tidies else [_Machine.run_level]:
        with _improved(text, level, improve) as module:
            if module.is_valid:
                yield module
                return
    # LLVM's scalar replacement joins the vectors of which an array is made where that with the last place is stored,
    # though others may be computed after it. Without any passes that have it, the module is what it was.
    with _improved(text, 0, _Machine.run_level) as module:
        yield module


@contextmanager
def _improved(text: str, level: int, improve: _Improve) -> Generator[LlvmModule]:
    llvm = functions()
    with parsed(text) as module:
        with _machine(level) as machine:
            llvm.SetTarget(module, machine.triple)
            llvm.SetDataLayout(module, machine.data_layout)
            improve(machine, module)
        yield LlvmModule(module)


def _tidy_passes(*, scalars: bool) -> int:
    llvm = functions()
    passes = llvm.CreateNewModulePassManager()
    llvm.module_AddAlwaysInlinerPass(passes)
    llvm.module_AddSROAPass(passes)
    llvm.module_AddSimplifyCFGPass(passes)
    llvm.module_AddInstCombinePass(passes)
    if scalars:
        # Variables whose addresses were in tables of pointers, which are in registers now.
        llvm.module_AddSROAPass(passes)
    return passes


def emit_object(module: LlvmModule, level: int = 3) -> bytes:
    """The object file of an optimized module; level 0 takes least time, and gives code that takes most."""
    with _machine(level) as machine:
        return emitted(machine.target, module.address)


def emit_assembly(module: LlvmModule, level: int = 3) -> str:
    """The assembly text of an optimized module."""
    with _machine(level) as machine:
        return emitted(machine.target, module.address, is_object=False).decode()


def compile_objects(parts: Iterable[tuple[Effort, str]], threads: int) -> list[bytes]:
    """The object files of IR texts, in their order. Threads begin with the first texts while others are still made."""
    queue = _CompileQueue()
    helpers: list[threading.Thread] = []
    count = 0
    try:
        for count, (effort, text) in enumerate(parts, 1):
            queue.waiting.put((count - 1, effort, text))
            if 1 < count <= threads:
                # Where the system gives no more threads, or Python is about to end, those that there are do.
                with suppress(RuntimeError):
                    helpers.append(_started(queue.until_none))
        queue.waiting.put(None)
        queue.until_none()
    except BaseException:
        queue.give_up()
        raise
    finally:
        for helper in helpers:
            helper.join()
    if queue.failures:
        raise queue.failures[0]
    return [queue.objects[number] for number in range(count)]


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


class _CompileQueue:
    """Texts that threads compile."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[tuple[int, Effort, str] | None] = SimpleQueue()
        self.objects: dict[int, bytes] = {}
        self.failures: list[Exception] = []

    def until_none(self) -> None:
        """Compile what comes, up to a None.

        It is left for the other threads: how many there are is not known where Ctrl-C came while one was started.
        """
        while (job := self.waiting.get()) is not None:
            number, effort, text = job
            try:
                self.objects[number] = compiled(text, effort)
            except Exception as error:
                self.failures.append(error)
        self.waiting.put(None)

    def give_up(self) -> None:
        """Let all threads end after what they are at."""
        with suppress(Empty):
            while True:
                self.waiting.get_nowait()
        self.waiting.put(None)
