"""Condition: a condition variable that is cheap to notify while no thread waits for it."""

from __future__ import annotations

import threading


class Condition(threading.Condition):
    """A :class:`threading.Condition` for state that changes often and is rarely waited for.

    lock: its lock. Hold it by ``with lock``, which is a call into C: ``with condition`` takes two frames of Python, and
    a signal handler that raises at the beginning of one leaves the lock as it is.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        super().__init__(self.lock)
        # A set of threads rather than their number: its changes are atomic, also where an interruption of the wait
        # left the lock free.
        self.waiting: set[int] = set()

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait until notified, and take the lock again; False where ``timeout`` seconds went by."""
        thread = threading.get_ident()
        self.waiting.add(thread)
        try:
            return super().wait(timeout)
        finally:
            self.waiting.discard(thread)
            # A signal handler may have raised before the part of the wait that takes the lock again.
            if not self.lock._is_owned():  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportPrivateUsage]
                self.lock.acquire()

    def notify_all(self) -> None:
        """Wake all threads that wait; the lock is held."""
        if self.waiting:
            super().notify_all()
