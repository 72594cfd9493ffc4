"""``python -m fuzz.faults``: faults injected into running programs, how each ended, and after how long.

Each ends within its time with the error that it should, which names the waiting devices, their instructions and what
they wait for; it leaves no thread, and the execution context works afterwards. The exit status is 1 where one does not.
"""

from __future__ import annotations

import faulthandler
import re
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fuzz.support.fault_bench import Bench, Case
from fuzz.support.fault_cases import CASES
from fuzz.support.numbered import command
from fuzz.support.peer_faults import PEER_CASES, has_jax, network_cases
from fuzz.support.rank_faults import RANK_CASES, mpiexec

# How much later than expected a run may end, since processors are shared.
_PATIENCE_SECONDS = 5.0
_HANG_SECONDS = 120.0
_BACKENDS = ("interpreter", "cpu")


@dataclass(frozen=True)
class Outcome:
    """How a fault ended. ``faults`` says what is not as it should be."""

    name: str
    backend: str
    end: str
    seconds: float
    faults: tuple[str, ...]


def inject(case: Case, backend: str, timeout: float) -> Outcome:
    """Inject one fault."""
    run, works = case.inject(Bench(backend, timeout))
    threads = set(threading.enumerate())
    error: BaseException | None = None
    start = time.monotonic()
    try:
        run()
    except BaseException as raised:  # Ctrl-C is one of the faults.
        error = raised
    seconds = time.monotonic() - start
    faults = [*_wrong_end(case, error), *_wrong_time(case, seconds, timeout), *_left_threads(threads)]
    try:
        if not works():
            faults.append("gives wrong results afterwards")
    except Exception as after:  # any error is a finding
        faults.append(f"does not work afterwards: {type(after).__name__}: {after}")
    end = "it went on" if error is None else f"{type(error).__name__}: {_said(error)}"
    return Outcome(case.name, backend, end, seconds, tuple(faults))


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " | ".join(line for line in lines if not line.startswith(("hint:", "operands:")))


def _wrong_end(case: Case, error: BaseException | None) -> list[str]:
    if error is None:
        return ["did not fail"]
    if not isinstance(error, case.error):
        return [f"should be {case.error.__name__}"]
    return [f"does not say {text!r}" for text in case.says if not re.search(text, str(error))]


def _wrong_time(case: Case, seconds: float, timeout: float) -> list[str]:
    least = timeout if case.waits else 0.0
    if seconds < least:
        return [f"gave up before {least:g} s"]
    return [f"took longer than {least + _PATIENCE_SECONDS:g} s"] if seconds > least + _PATIENCE_SECONDS else []


def _left_threads(before: set[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        time.sleep(0.005)
    return [f"left a thread: {thread.name}" for thread in left]


def table(outcomes: Sequence[Outcome], width: int) -> str:
    """The outcomes as a table, with what is wrong below each."""
    name = max(len(o.name) for o in outcomes)
    lines = [f"{'fault':{name}}  {'backend':11}  {'after':>8}  how it ended"]
    for outcome in outcomes:
        end = outcome.end if len(outcome.end) <= width else outcome.end[: width - 3] + "..."
        lines.append(f"{outcome.name:{name}}  {outcome.backend:11}  {outcome.seconds:6.2f} s  {end}")
        lines.extend(f"{'':{name}}  FAULT: {fault}" for fault in outcome.faults)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.faults", __doc__)
    parser.add_argument("--backend", choices=_BACKENDS, action="append", help="where to inject them (both)")
    parser.add_argument("--timeout", type=float, default=1.0, help="after how many seconds contexts give up (1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="the faults whose names have this text")
    parser.add_argument("--width", type=int, default=120, help="of the last column (120)")
    options = parser.parse_args(arguments)
    ranks = RANK_CASES.listed if mpiexec() else []
    if not ranks:
        print("no faults of several processes: mpiexec or mpi4py is not installed", file=sys.stderr)
    peers = PEER_CASES.listed if has_jax() else []
    networks = network_cases() if peers else []
    if not networks:
        print("no faults of networks: this needs JAX, pyzmq, iproute2 and the rights of root", file=sys.stderr)
    cases = [case for case in (*CASES.listed, *ranks, *peers, *networks) if options.only in case.name]
    if not cases:
        parser.error(f"no fault has '{options.only}' in its name")
    outcomes: list[Outcome] = []
    for case in cases:
        # JAX has machine code alone.
        backends = ("cpu",) if case in (*peers, *networks) else options.backend or _BACKENDS
        for backend in backends:
            faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr)
            outcomes.append(inject(case, backend, options.timeout))
    faulthandler.cancel_dump_traceback_later()
    print(table(outcomes, options.width))
    wrong = [o for o in outcomes if o.faults]
    print(f"{len(outcomes)} faults, {len(wrong)} did not end as they should")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
