"""Writes the code of a collective into the entry function."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.kernels.shared.parallel import grain_of, is_parallel
from xlakit.cpu.llvm import I8, I64, PTR, Function, Value
from xlakit.cpu.runtime.context import CONTEXT, Status
from xlakit.cpu.runtime.devices.rendezvous import SITE
from xlakit.memory.steps import CollectiveStep

_FUNCTIONS = {
    "xlakit_collective": [PTR, PTR, PTR, PTR, I64, I64, I64],
    "xlakit_collective_start": [PTR, PTR, PTR],
    "xlakit_collective_done": [PTR, PTR, PTR, PTR, I64, I64, I64, I64],
}


def emit_collective(fn: Function, step: CollectiveStep, addresses: Sequence[Value]) -> None:
    """Write the step of a collective; the entry returns its status if the rendezvous fails.

    addresses: those of its operands and results and, for a start or done, of its arrival.
    """
    for name, parameters in _FUNCTIONS.items():
        fn.module.declare(name, I64, parameters)
    context, rendezvous = fn.parameters[2], step.rendezvous
    device = CONTEXT.load(fn, context, "ordinal")
    site = fn.at(fn.address(rendezvous.site), I8, device * SITE.size)
    # Other devices read the table until the rendezvous is complete, so no other step may reuse it.
    table = fn.table(addresses)
    if step.part == "start":
        fn.store(fn.call("xlakit_collective_start", I64, context, site, table), addresses[-1])
        return
    phase = rendezvous.phase
    grain = grain_of(phase) if is_parallel(phase) else max(1, phase.tasks)
    numbers = [fn.i64(number) for number in (phase.tasks, grain, rendezvous.number)]
    kernel = fn.address(phase.function)
    if step.part == "done":
        arrival = fn.load(I64, addresses[-1])
        status = fn.call("xlakit_collective_done", I64, context, site, table, kernel, *numbers, arrival)
    else:
        status = fn.call("xlakit_collective", I64, context, site, table, kernel, *numbers)
    if step.host >= 0:
        faulty = status.eq(Status.FAULTY)

        def ask() -> tuple[Value]:
            return (fn.call("xlakit_host_call", I64, context, fn.i64(step.host), table),)

        (status,) = fn.if_else(faulty, ask, lambda: (status,))
    fn.return_if(status.ne(0), status)
