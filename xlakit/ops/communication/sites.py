"""Sites: the collectives of a program at which devices meet.

Passes make copies of a collective (a body of which one loop is unrolled, a function that is inlined twice), and devices
in different branches may meet in different copies of it. So a site is not one instruction but, as in XLA, all
collectives on one channel, or without one; but of these only those of one operation on arrays of the same shapes.
"""

from __future__ import annotations

import hashlib

from xlakit.ir.instruction import Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.shared.fingerprint import operation_fingerprint


def is_collective(instruction: Instruction) -> bool:
    """Whether devices meet at an instruction."""
    return isinstance(instruction.op, (Collective, Permuting))


def site_of(instruction: Instruction) -> str:
    """The name of a collective's site, the same in all processes. The channel is an attribute of the operation."""
    return hashlib.sha256(repr(operation_fingerprint(instruction)).encode()).hexdigest()[:24]
