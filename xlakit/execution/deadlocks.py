"""Waits of devices, which of them are deadlocks, and the error that lists them.

The functions look at the waits of one moment; the execution context calls them with its lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, cast

from xlakit.dataclass import dataclass
from xlakit.errors import DeadlockError
from xlakit.execution.run import Participant, Run
from xlakit.execution.wait_graph import WaitGraph

if TYPE_CHECKING:
    from xlakit.ir.instruction import Instruction

TIMEOUT_HINT = "ExecutionContext(timeout=), or the environment variable XLAKIT_TIMEOUT, says how many seconds to wait"


@dataclass(slots=True, eq=False)
class Wait:
    """Why a device waits: for ``what``, until ``ready``."""

    device: Participant
    instruction: Instruction
    what: Callable[[], str]
    ready: Callable[[], bool]
    # The numbers of the devices that must all arrive; None where any other device of the run could end the wait.
    absent: Callable[[], Sequence[int]] | None = None
    # Whether a thread outside of the program could bring it.
    from_outside: bool = False
    # Tries a fallback when nothing else can end the wait; gives whether it did.
    fallback: Callable[[], bool] | None = None
    # Whether another program that runs in this execution context could bring it.
    from_programs: bool = False
    # Sleeps for at most so many seconds without the lock, for a wait that native code or another process ends.
    sleep: Callable[[float], None] | None = None
    # Whether the device waits in its queue for its turn, which comes when the execution before it ends or fails.
    for_queue: bool = False
    since: float = 0.0

    def __str__(self) -> str:
        instruction = self.instruction
        location = self.device.program.module.location_of(instruction)
        where = f" at {location}" if location else ""
        program = f" of {self.device.program.module.name}" if self.device.run.shares_context else ""
        return f"{self.device}{program} waits in {instruction.opcode} '{instruction.name}'{where} for {self.what()}"


def stuck_runs(waits: Mapping[Participant, Wait], active: Set[object]) -> dict[Run, list[Wait]]:
    """The runs all of whose active devices wait, with their waits."""
    stuck: dict[Run, list[Wait]] = {}
    for run in sorted({wait.device.run for wait in waits.values()}, key=lambda run: run.number):
        running = [device for device in run.devices if device in active]
        waits_of_run = [waits[device] for device in running if device in waits]
        if run.failure is None and len(waits_of_run) == len(running) and not any(wait.ready() for wait in waits_of_run):
            stuck[run] = waits_of_run
    return stuck


def graph_of_waits(stuck: Mapping[Run, list[Wait]], late: Set[Run], *, nothing_runs: bool) -> WaitGraph[object]:
    """The wait-for graph of the stuck runs, with a node for everything outside of each run, and one for all queues.

    late: runs that have waited for the host for longer than the timeout. nothing_runs: whether neither a device nor a
    thread of the host can go on.
    """
    outside = {run: ("outside of", run) for run in stuck}
    queues = "queues"
    graph = WaitGraph[object](
        [queues, *(node for run, node in outside.items() if not nothing_runs and run not in late)]
    )
    for run, waits in stuck.items():
        numbered = {device.index: device for device in run.devices}
        for wait in waits:
            absent = list(wait.absent()) if wait.absent is not None else []
            if wait.for_queue:
                graph.add(wait.device, [queues])
            elif absent:
                # Members in other processes are represented by the outside node.
                graph.add(wait.device, [numbered.get(n, outside[run]) for n in absent], needs_all=True)
            else:
                others: list[object] = [w.device for w in waits if w is not wait]
                if wait.from_programs:
                    others += [w.device for other in stuck if other is not run for w in stuck[other]]
                graph.add(wait.device, [*others, *([outside[run]] if wait.from_outside else [])])
    return graph


def deadlock_error(
    run: Run, stuck: Mapping[Run, list[Wait]], graph: WaitGraph[object], active: Set[object], *, is_late: bool
) -> DeadlockError:
    """The error with which a run fails: every stuck device with its wait, the cycle if there is one, and a hint."""
    dead = set(graph.deadlocked())
    is_total = all(wait.device in dead for waits in stuck.values() for wait in waits)
    rule = "all devices wait and none can go on:" if is_total else "devices wait that cannot go on any more:"
    rule += "".join(f"\n  {line}" for other, waits in stuck.items() for line in _waits_of(other, waits, active))
    cycle = graph.cycle()
    if len(cycle) > 1:
        rule += "\n  a cycle: " + " -> ".join(map(_device_name, [*cycle, cycle[0]]))
    dead_waits = [wait for wait in stuck[run] if wait.device in dead]
    return DeadlockError(rule, hint=TIMEOUT_HINT if is_late else _hint(dead_waits))


def _device_name(node: object) -> str:
    device = cast("Participant", node)
    return f"{device} of {device.program.module.name}" if device.run.shares_context else f"{device}"


def _waits_of(run: Run, waits: list[Wait], active: Set[object]) -> list[str]:
    """A line for each device of a run that waits, and one for those that have ended."""
    ended = [str(device) for device in run.devices if device not in active]
    lines = list(map(str, waits))
    if ended:
        program = f" of {run.program.module.name}" if run.shares_context else ""
        lines.append(f"{', '.join(ended)}{program} {'has' if len(ended) == 1 else 'have'} ended")
    return lines


def _hint(waits: list[Wait]) -> str:
    opcodes = {wait.instruction.opcode for wait in waits}
    if "infeed" in opcodes:
        return "call execution_context.infeed(device, value) before the program runs, or from another thread"
    if "outfeed" in opcodes:
        return (
            "call execution_context.outfeed(device) from another thread, "
            "or allow more with ExecutionContext(queue_items=, queue_bytes=)"
        )
    if "send-done" in opcodes:
        return "a send is over when its recv has begun: run the program that receives at the same time (run_together)"
    return "every device of a group must reach the collective, and every recv needs a send"
