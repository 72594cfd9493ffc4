"""Letters: what processes send each other.

A letter has a head: the token of the job, words, and a text. The token keeps out what belongs to another job. A value
follows as a body of its own; see :mod:`xlakit.distributed.packing`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

TOKEN_BYTES = 16
_WORDS = struct.Struct(f"={TOKEN_BYTES}s10q")
_LONGEST_TEXT = 4000


class Kind(IntEnum):
    """The kinds of letters."""

    # A value for a run.
    VALUE = 0
    # What is the state of a run there, and the answer.
    ASK = 1
    ANSWER = 2
    # A run has failed there.
    FAILED = 3
    # The process ends, and the answer, which says that all that was sent before has arrived.
    LEFT = 4
    FAREWELL = 5
    # The process waits for room to send a value, and how much of what it has sent is used.
    WAIT = 6
    CREDIT = 7


class Progress(IntEnum):
    """How far a run is in a process."""

    NOT_BEGUN = 0
    RUNNING = 1
    WAITING = 2
    OVER = 3


# A set of processes (by a number that all of them find for it), and the number of a run among those of the set.
RunKey = tuple[int, int]
# What a value is for, within its run.
Address = tuple[int, int, int, int]
NOWHERE: Address = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Letter:
    """The head of a letter.

    rank: who has sent it. program: the fingerprint of the program of the run; of an answer, the progress there. mark:
    the place in the program; of a credit, a number of bytes. text: the place, or the failure, in words.
    """

    kind: Kind
    rank: int
    run: RunKey = (0, 0)
    program: int = 0
    mark: int = 0
    address: Address = NOWHERE
    text: str = ""

    def packed(self, token: bytes) -> bytes:
        """The letter as bytes."""
        text = self.text.encode("utf-8", "replace")[:_LONGEST_TEXT]
        return _WORDS.pack(token, self.kind, self.rank, *self.run, self.program, self.mark, *self.address) + text

    @staticmethod
    def unpacked(data: bytes, token: bytes) -> Letter | None:
        """The inverse of :meth:`packed`; None for what is no letter of this job."""
        if len(data) < _WORDS.size or data[:TOKEN_BYTES] != token:
            return None
        _, kind, rank, a, b, program, mark, *address = _WORDS.unpack_from(data)
        text = data[_WORDS.size :].decode("utf-8", "replace")
        first, second, third, fourth = address
        return Letter(Kind(kind), rank, (a, b), program, mark, (first, second, third, fourth), text)
