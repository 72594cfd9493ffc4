"""Settings and shutdown of the queue of asynchronous calls (native/queue.py)."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING, Any, Final

from xlakit.cpu.runtime.processors import processor_count
from xlakit.jax.native.records import Mode
from xlakit.settings import asynchronous

if TYPE_CHECKING:
    from xlakit.jax.native.library import Native

# The time, in seconds, for which the exit of the process waits for calls, and then for interrupted calls.
_EXIT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.001


def open_queue(native: Native) -> None:
    """Let calls enter the queue, as the settings say. Raises ArgumentError for an invalid one."""
    native.set_queue_mode(_mode())
    # Registered once, as a client that is made later uses the same queue.
    atexit.unregister(close_queue)
    atexit.register(close_queue, native)


def close_queue(native: Native) -> None:
    """Make all later calls synchronous, and wait for those in the queue; calls that take too long are interrupted.

    Exit handlers that run after this one, such as the saving of a model, find the results computed.
    """
    native.set_queue_mode(Mode.OFF)
    try:
        is_empty = _await_empty(native)
    except KeyboardInterrupt:
        native.cancel_queue()
        raise
    if not is_empty:
        native.cancel_queue()
        _await_empty(native)


def _await_empty(native: Native) -> bool:
    deadline = time.monotonic() + _EXIT_SECONDS
    while native.queue_weight() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return not native.queue_weight()


def _mode() -> Mode:
    asked = asynchronous()
    if asked is None:
        from jax._src import xla_bridge

        bridge: Any = xla_bridge
        if processor_count() < 2 or not bridge._CPU_ENABLE_ASYNC_DISPATCH.value:
            return Mode.OFF
        return Mode.LEARNED
    return Mode.ON if asked else Mode.OFF
