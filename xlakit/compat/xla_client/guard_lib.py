"""Guards of transfers: levels that are kept for code that sets them. xlakit's devices share the host's memory."""

from __future__ import annotations

import threading

from xlakit.compat.xla_client.enums import GarbageCollectionGuardLevel, TransferGuardLevel


class GuardState:
    """The levels, of all threads or of one; None where nothing is set."""

    def __init__(self) -> None:
        self.host_to_device: TransferGuardLevel | None = None
        self.device_to_device: TransferGuardLevel | None = None
        self.device_to_host: TransferGuardLevel | None = None
        self.explicit_device_put = False
        self.explicit_device_get = False
        self.garbage_collect_array: GarbageCollectionGuardLevel | None = None


_global = GuardState()
_local = threading.local()


def global_state() -> GuardState:
    """The levels of all threads."""
    return _global


def thread_local_state() -> GuardState:
    """The levels of this thread."""
    found = getattr(_local, "state", None)
    if found is None:
        found = _local.state = GuardState()
    return found


__all__ = [
    "GarbageCollectionGuardLevel",
    "GuardState",
    "TransferGuardLevel",
    "global_state",
    "thread_local_state",
]
