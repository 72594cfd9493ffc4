"""Benches: where faults are injected, what a fault is, and what happens to the host meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import xlakit as xla

S32 = xla.make_shape(xla.S32)
_SIGNAL_SECONDS = 0.15

# What goes wrong, and what works afterwards.
Injection = tuple[Callable[[], object], Callable[[], bool]]


@dataclass
class Bench:
    """Where faults are injected: a backend, and contexts that give up after ``timeout`` seconds."""

    backend: str
    timeout: float

    def execution_context(self, **options: Any) -> xla.ExecutionContext:
        return xla.ExecutionContext(timeout=self.timeout, **options)

    def compile(self, function: Callable[..., Any], *shapes: xla.Shape, name: str = "program", **options: Any) -> Any:
        """An executable of a function of a builder and parameters."""
        builder = xla.XlaBuilder(name)
        result = function(builder, *(xla.parameter(builder, i, shape) for i, shape in enumerate(shapes)))
        options.setdefault("execution_context", self.execution_context())
        return xla.compile(builder.build(result), backend=self.backend, **options)


@dataclass(frozen=True)
class Case:
    """A fault with its expected end: the error, what it says, and whether that takes the time limit."""

    name: str
    inject: Callable[[Bench], Injection]
    error: type[BaseException]
    says: tuple[str, ...] = ()
    waits: bool = False


@dataclass
class Cases:
    """A list of cases, which functions enter."""

    listed: list[Case] = field(default_factory=list)

    def case(
        self, name: str, error: type[BaseException], *says: str, waits: bool = False
    ) -> Callable[[Callable[[Bench], Injection]], Callable[[Bench], Injection]]:
        def enter(inject: Callable[[Bench], Injection]) -> Callable[[Bench], Injection]:
            self.listed.append(Case(name, inject, error, says, waits))
            return inject

        return enter


CASES = Cases()


@contextmanager
def idle_thread() -> Generator[None]:
    """A thread of the host that could feed a device or send to it, and never does."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="idle")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def beside_idle_thread(run: Callable[[], object]) -> Callable[[], object]:
    """``run`` beside such a thread."""

    def idle() -> object:
        with idle_thread():
            return run()

    return idle


def interrupted_soon(run: Callable[[], object]) -> Callable[[], object]:
    """Ctrl-C shortly after ``run`` has begun."""

    def interrupted() -> object:
        timer = threading.Timer(_SIGNAL_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            # It is no deadlock while another thread may still feed the program.
            with idle_thread():
                return run()
        finally:
            timer.join()

    return interrupted
