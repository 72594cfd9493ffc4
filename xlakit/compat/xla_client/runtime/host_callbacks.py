"""Host callbacks: Python functions that a running program calls through sends to the host and receives from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from xlakit.compat.xla_client.binding import incompatible
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, DeadlockError, XlakitError

if TYPE_CHECKING:
    from collections.abc import Generator

    from xlakit.execution.context import ExecutionContext

# The seconds that a thread waits for an operand before it checks whether the run is over.
_SECONDS = 0.05


@dataclass(frozen=True)
class HostCallback:
    """A function of the arrays that a program sends on some channels; its results are sent back on others."""

    function: Callable[..., Any]
    operands: Sequence[Shape]
    results: Sequence[Shape]
    sends: Sequence[int]
    receives: Sequence[int]

    def __post_init__(self) -> None:
        for shapes, channels, what in (
            (self.operands, self.sends, "operand_shapes and send_channel_ids"),
            (self.results, self.receives, "result_shapes and recv_channel_ids"),
        ):
            if len(shapes) != len(channels):
                raise ArgumentError(
                    f"{what} have {len(shapes)} and {len(channels)} entries", hint="give each array one channel"
                )

    def call(self, operands: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The results for operands. Raises ArgumentError where they are not those that were declared."""
        given = self.function(*operands)
        found = [
            np.asarray(r) for r in (given if isinstance(given, (list, tuple)) else [] if given is None else [given])
        ]
        wanted = [(shape.dimensions, shape.element_type.dtype) for shape in self.results]
        if [(result.shape, result.dtype) for result in found] != wanted:
            raise ArgumentError(
                f"a callback gives {[f'{r.dtype}{list(r.shape)}' for r in found]}, not {list(map(str, self.results))}",
                hint="give arrays of NumPy with the shapes and types of result_shapes",
            )
        return found


def checked(callbacks: Sequence[object]) -> tuple[HostCallback, ...]:
    """The callbacks of a program. Raises TypeError for what no client made."""
    for callback in callbacks:
        if not isinstance(callback, HostCallback):
            raise incompatible("compile", f"host_callbacks are callbacks of a client, not {type(callback).__name__}")
    return tuple(callback for callback in callbacks if isinstance(callback, HostCallback))


@contextmanager
def served(context: ExecutionContext, devices: Sequence[int], callbacks: Sequence[HostCallback]) -> Generator[None]:
    """Answer the callbacks of a run on these devices during the block, in a thread for each; raises what one raised."""
    over = threading.Event()
    errors: list[BaseException] = []
    with ExitStack() as threads:
        for device in devices:
            for callback in callbacks:
                serving = threading.Thread(
                    target=_serve, args=(context, device, callback, over, errors), name="host callback", daemon=True
                )
                serving.start()
                threads.callback(serving.join)
        threads.callback(over.set)
        try:
            yield
        except XlakitError:
            # What a callback raised has ended the program.
            if not errors:
                raise
    if errors:
        raise errors[0]


def _serve(
    context: ExecutionContext, device: int, callback: HostCallback, over: threading.Event, errors: list[BaseException]
) -> None:
    failed = False
    while (operands := _operands(context, device, callback, over)) is not None:
        results: list[np.ndarray[Any, Any]] = []
        if not failed:
            try:
                results = callback.call(operands)
            except BaseException as error:
                errors.append(error)
                failed = True
        if failed and callback.receives:
            # An array of the wrong shape makes the program fail, instead of waiting for the result.
            results = [np.zeros((0,) * (callback.results[0].rank + 1))]
        for channel, result in zip(callback.receives, results, strict=False):
            context.send_to_device(device, channel, result)


def _operands(
    context: ExecutionContext, device: int, callback: HostCallback, over: threading.Event
) -> list[Any] | None:
    """The operands that the program sends for one call; None when the run is over."""
    found: list[Any] = []
    for channel in callback.sends:
        while True:
            try:
                found.append(context.recv_from_device(device, channel, timeout=_SECONDS))
                break
            except DeadlockError:
                if over.is_set():
                    return None
                # No operand yet: the program has not begun, or is still computing it.
                time.sleep(1e-3)
    # A callback without operands has no send that would request a call.
    return found or None
