"""The code of a device that meets others at a collective."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.entry.parallel import grain_of, is_parallel
from xlakit.cpu.llvm import I8, I64, PTR, Function, Value
from xlakit.cpu.runtime.context import CONTEXT, Status
from xlakit.cpu.runtime.meeting import SITE
from xlakit.memory.steps import MeetStep

_FUNCTIONS = {
    "xlakit_meet": [PTR, PTR, PTR, PTR, I64, I64, I64],
    "xlakit_post": [PTR, PTR, PTR],
    "xlakit_await": [PTR, PTR, PTR, PTR, I64, I64, I64, I64],
}


def emit_meet(fn: Function, step: MeetStep, addresses: Sequence[Value]) -> None:
    """Write a step into an entry, which returns where the meeting fails.

    addresses: of its operands, results and visit.
    """
    for name, parameters in _FUNCTIONS.items():
        fn.module.declare(name, I64, parameters)
    context, meeting = fn.parameters[2], step.meeting
    device = CONTEXT.load(fn, context, "ordinal")
    site = fn.at(fn.address(meeting.site), I8, device * SITE.size)
    # Others read it until the meeting is complete: no other step may use it.
    table = fn.alloca(PTR, max(1, len(addresses)))
    for number, address in enumerate(addresses):
        fn.store(address, fn.at(table, PTR, number))
    if step.half == "post":
        fn.store(fn.call("xlakit_post", I64, context, site, table), addresses[-1])
        return
    phase = meeting.phase
    grain = grain_of(phase) if is_parallel(phase) else max(1, phase.tasks)
    numbers = [fn.i64(number) for number in (phase.tasks, grain, meeting.number)]
    kernel = fn.address(phase.function)
    if step.half == "await":
        visit = fn.load(I64, addresses[-1])
        status = fn.call("xlakit_await", I64, context, site, table, kernel, *numbers, visit)
    else:
        status = fn.call("xlakit_meet", I64, context, site, table, kernel, *numbers)
    if step.host >= 0:
        faulty = status.eq(Status.FAULTY)

        def ask() -> tuple[Value]:
            return (fn.call("xlakit_host_call", I64, context, fn.i64(step.host), table),)

        (status,) = fn.if_else(faulty, ask, lambda: (status,))
    fn.return_if(status.ne(0), status)
