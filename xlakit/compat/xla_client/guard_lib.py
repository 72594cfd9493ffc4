"""Guards of transfers: levels that are kept for code that sets them. xlakit's devices share the host's memory."""

from __future__ import annotations

import threading

from xlakit.compat.xla_client.binding import TypedAttributes, no_constructor
from xlakit.compat.xla_client.enums import GarbageCollectionGuardLevel, TransferGuardLevel


class GuardState(TypedAttributes):
    """The levels, of all threads or of one; None where nothing is set."""

    __slots__ = (
        *("device_to_device", "device_to_host", "explicit_device_get", "explicit_device_put", "garbage_collect_array"),
        "host_to_device",
    )

    host_to_device: TransferGuardLevel | None
    device_to_device: TransferGuardLevel | None
    device_to_host: TransferGuardLevel | None
    explicit_device_put: bool
    explicit_device_get: bool
    garbage_collect_array: GarbageCollectionGuardLevel | None

    __init__ = no_constructor


def _unset() -> GuardState:
    made = GuardState.__new__(GuardState)
    made.host_to_device = made.device_to_device = made.device_to_host = made.garbage_collect_array = None
    made.explicit_device_put = made.explicit_device_get = False
    return made


_global = _unset()
_local = threading.local()


def global_state() -> GuardState:
    """The levels of all threads."""
    return _global


def thread_local_state() -> GuardState:
    """The levels of this thread."""
    found = getattr(_local, "state", None)
    if found is None:
        found = _local.state = _unset()
    return found


__all__ = [
    "GarbageCollectionGuardLevel",
    "GuardState",
    "TransferGuardLevel",
    "global_state",
    "thread_local_state",
]
