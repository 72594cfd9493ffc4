"""The queue of calls that run while Python goes on (native/queue.py): whether it is used, and its end."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING, Any, Final

from xlakit.cpu.runtime.processors import processor_count
from xlakit.jax.native.records import Mode
from xlakit.settings import asynchronous

if TYPE_CHECKING:
    from xlakit.jax.native.library import Native

# How long the end of the process waits for calls, and then for calls that are to end early.
_EXIT_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.001


def open_queue(native: Native) -> None:
    """Let calls enter the queue, as the settings say. Raises ArgumentError for an invalid one."""
    native.set_queue_mode(_mode())
    # Once for each plugin; a client that is made later has the same queue.
    atexit.unregister(close_queue)
    atexit.register(close_queue, native)


def close_queue(native: Native) -> None:
    """Have all later calls run at once, and wait for those in the queue; what takes too long is interrupted.

    What runs at the exit after this, such as the saving of a model, finds the results.
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
