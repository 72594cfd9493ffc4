"""Async pairs: the done of each start, and the synchronous operation that does the work of both.

    start = (f32[4], f32[8]) all-gather-start(x)
    done = f32[8] all-gather-done(start)                       the whole operation: all-gather(x)

Between an async-start and its done there may be updates, each of which takes the value of the one before it.
"""

from __future__ import annotations

from typing import Final

from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ir.traits import Done
from xlakit.ops.communication.asynchronous import AsyncDone, AsyncStart, AsyncUpdate, CopyDone, CopyStart
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collective_pairs import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
    CollectivePermuteDone,
    CollectivePermuteStart,
)
from xlakit.ops.communication.collectives import AllGather, AllReduce
from xlakit.ops.communication.transfer import Recv, RecvDone, Send, SendDone
from xlakit.ops.data import Copy

# The done of each start: all operations with the trait Start, and those with the trait Done.
DONES: Final[dict[type[Op], type[Op]]] = {
    AllGatherStart: AllGatherDone,
    AllReduceStart: AllReduceDone,
    CollectivePermuteStart: CollectivePermuteDone,
    AsyncStart: AsyncDone,
    CopyStart: CopyDone,
    Send: SendDone,
    Recv: RecvDone,
}
STARTS: Final = {done: start for start, done in DONES.items()}
# The synchronous operation of each start; for an async-start that is a call of its computation.
WHOLES: Final[dict[type[Op], type[Op]]] = {
    AllGatherStart: AllGather,
    AllReduceStart: AllReduce,
    CollectivePermuteStart: CollectivePermute,
    CopyStart: Copy,
}
# The value of these starts is a tuple (operands, result, contexts...); that of an all-reduce-start is the result.
TUPLE_STARTS: Final = (AllGatherStart, CollectivePermuteStart, AsyncStart)


def chain_of(done: Instruction) -> list[Instruction]:
    """The chain before a done: updates without further arguments, the last one first, then the value they update.

    The last element is the start, unless the chain begins with another instruction (a parameter, say) or has an update
    with further arguments: then it is that instruction.
    """
    chain = [done.operands[0]]
    while isinstance(chain[-1].op, AsyncUpdate) and len(chain[-1].operands) == 1:
        chain.append(chain[-1].operands[0])
    return chain


def async_pairs(computation: Computation) -> dict[Instruction, Instruction]:
    """The done of each start whose value has no other users, if both are in the computation."""
    dones = [i for i in computation.instructions if isinstance(i.op, Done)]
    if not dones:
        return {}
    uses = use_counts(computation.instructions, computation.root)
    found: dict[Instruction, Instruction] = {}
    for done in dones:
        chain = chain_of(done)
        if isinstance(chain[-1].op, STARTS[type(done.op)]) and all(uses[link] == 1 for link in chain):
            found[chain[-1]] = done
    return found
