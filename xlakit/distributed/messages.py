"""The messages between processes.

A message has a header: the token of the job, numbers, and a text. Messages with another token, of other jobs, are
ignored. The body is a value; see :mod:`xlakit.distributed.packing`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

TOKEN_BYTES = 16
_WORDS = struct.Struct(f"={TOKEN_BYTES}s10q")
_LONGEST_TEXT = 4000


class Kind(IntEnum):
    """The kinds of messages."""

    # A value for a run.
    VALUE = 0
    # Asks for the status of a run, and the answer.
    QUERY = 1
    STATUS = 2
    # A run has failed in the sender.
    FAILED = 3
    # The sender ends; and the acknowledgement, after which all earlier messages have arrived.
    LEAVE = 4
    LEAVE_ACK = 5
    # The sender waits for room to send a value; and the number of bytes from the receiver that the sender has used.
    CREDIT_REQUEST = 6
    CREDIT = 7
    # A message that measures the link, with a body of any size; and its answer.
    PROBE = 8
    PROBE_ANSWER = 9


# By number: a look-up, where the class would take two frames of Python for each message.
_KINDS: Final[Mapping[int, Kind]] = {kind.value: kind for kind in Kind}


class Progress(IntEnum):
    """The progress of a run in a process."""

    NOT_BEGUN = 0
    # The run computes, or an earlier program of the process does.
    RUNNING = 1
    # All of its devices there wait, some of them for other processes.
    WAITING = 2
    OVER = 3


# A run: a hash of its set of processes, and its number among the runs of that set.
RunKey = tuple[int, int]
# The destination of a value within its run.
Address = tuple[int, int, int, int]
NO_ADDRESS: Address = (0, 0, 0, 0)
NO_RUN: RunKey = (0, 0)


class Header(NamedTuple):
    """The header of a message.

    rank: the sender. program: the fingerprint of the program of the run, 0 if the sender does not know it. mark: for a
    value the location in the program; for a status the progress; for a credit the number of bytes; for a probe its
    number. address: for a status, the milliseconds since a process that the sender waits for computed. text: the
    location, the status or the error, in words.
    """

    kind: Kind
    rank: int
    run: RunKey = NO_RUN
    program: int = 0
    mark: int = 0
    address: Address = NO_ADDRESS
    text: str = ""

    def packed(self, token: bytes) -> bytes:
        """The header as bytes."""
        text = self.text.encode("utf-8", "replace")[:_LONGEST_TEXT]
        return _WORDS.pack(token, self.kind, self.rank, *self.run, self.program, self.mark, *self.address) + text

    @staticmethod
    def packed_value(
        token: bytes, rank: int, run: RunKey, program: int, mark: int, address: Address, text: bytes
    ) -> bytes:
        """The packed header of a value, whose text is encoded."""
        return _WORDS.pack(token, Kind.VALUE, rank, *run, program, mark, *address) + text[:_LONGEST_TEXT]

    @staticmethod
    def unpacked(data: bytes, token: bytes) -> Header | None:
        """The inverse of :meth:`packed`; None for data that is not a message of this job."""
        if len(data) < _WORDS.size or data[:TOKEN_BYTES] != token:
            return None
        _, kind, rank, a, b, program, mark, *address = _WORDS.unpack_from(data)
        text = data[_WORDS.size :].decode("utf-8", "replace")
        first, second, third, fourth = address
        return Header(_KINDS[kind], rank, (a, b), program, mark, (first, second, third, fourth), text)
