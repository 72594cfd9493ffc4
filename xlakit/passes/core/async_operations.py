"""The synchronous operations that async pairs (a start and its done) stand for."""

from __future__ import annotations

import dataclasses

from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.communication.async_pairs import WHOLES
from xlakit.ops.communication.asynchronous import AsyncStart
from xlakit.ops.control import Call
from xlakit.passes.core.framework import PassContext, with_callees


def has_whole(start: Instruction) -> bool:
    """Whether one synchronous operation can replace this start and its done.

    A start of a computation qualifies only if its operands are all arguments of that computation.
    """
    if isinstance(start.op, AsyncStart):
        return len(start.operands) == len(start.op.calls.parameters)
    return type(start.op) in WHOLES


def whole_of(start: Instruction, context: PassContext) -> Op:
    """The synchronous operation which, applied to the operands of a start, gives the result of its done.

    async-start(x, f) -> call(x, f), copy-start(x) -> copy(x), all-gather-start(x) -> all-gather(x)
    """
    if isinstance(start.op, AsyncStart):
        callee = start.op.calls
        return Call(to_apply=callee if callee.execution_thread == "main" else _on_main_thread(callee, context))
    whole = WHOLES[type(start.op)]
    return whole(**{field.name: getattr(start.op, field.name) for field in dataclasses.fields(whole)})


def _on_main_thread(callee: Computation, context: PassContext) -> Computation:
    """A copy on the main thread of a computation of another thread, with all computations that it calls there.

    Computations that it starts asynchronously keep their threads.
    """
    reached, stack = {callee}, [callee]
    while stack:
        for caller in stack.pop().calling_instructions:
            if not isinstance(caller.op, AsyncStart):
                fresh = [c for c in caller.op.called_computations if c not in reached]
                reached.update(fresh)
                stack += fresh
    copies: dict[Computation, Computation] = {}
    for old in HloModule(callee.name, callee).computations:
        new = with_callees(old, copies) if old in reached else old
        if old in reached and (new is not old or old.execution_thread != "main"):
            new = dataclasses.replace(new, name=context.computation_name(old.name), execution_thread="main")
        copies[old] = new
    return copies[callee]
