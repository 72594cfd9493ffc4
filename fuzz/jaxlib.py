"""``python -m fuzz.jaxlib``: programs of one operation each, run on jaxlib's CPU backend and on xlakit's interpreter.

Every program is made from a seed; both sides get the same HLO text and the same arguments, and the results are
compared within the tolerances of ``fuzz.support.tolerances``. Differences that are meant are those of
``fuzz.support.differences``. The exit status is 1 where anything else differs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.programs.draft import FAMILIES, Program
from fuzz.programs.plan import Entry, chosen
from fuzz.programs.values import Array
from fuzz.support.differences import DIFFERENCES, Mismatch, explanation
from fuzz.support.numbered import command
from fuzz.support.tolerances import Measure, mismatches
from fuzz.support.workers.jaxlib_worker import JaxlibWorker
from xlakit.data.text_table import aligned
from xlakit.errors import UnsupportedError, XlakitError
from xlakit.execution.options import ExecutionOptions
from xlakit.interpreter.executable import compile_module
from xlakit.ir.instruction import HloModule
from xlakit.tools.inputs import flatten

AGREED, INTENDED, FAILED, REJECTED = "agreed", "intended", "failed", "rejected"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one program."""

    opcode: str
    case: str
    status: str
    reproduce: str
    # The difference's name, jaxlib's reason for rejecting, or what failed.
    detail: str = ""
    text: str = ""


@dataclass(slots=True)
class Report:
    """All outcomes of a run."""

    outcomes: list[Outcome] = field(default_factory=list)

    def count(self, opcode: str, status: str) -> int:
        """How many programs of an opcode ended so."""
        return sum(1 for o in self.outcomes if o.opcode == opcode and o.status == status)

    def failures(self) -> list[Outcome]:
        """What went wrong."""
        return [o for o in self.outcomes if o.status == FAILED]

    def table(self) -> str:
        """One row for each opcode, and the totals."""
        opcodes = [opcode for opcode in sorted(FAMILIES) if any(o.opcode == opcode for o in self.outcomes)]
        statuses = (AGREED, INTENDED, FAILED, REJECTED)
        rows = [("operation", "programs", "agreed", "intended differences", "failures", "rejected by jaxlib")]
        counts = [(opcode, *(self.count(opcode, s) for s in statuses)) for opcode in opcodes]
        counts.append(("all", *(sum(int(row[i + 1]) for row in counts) for i in range(len(statuses)))))
        rows.extend((str(name), str(sum(numbers)), *map(str, numbers)) for name, *numbers in counts)  # pyright: ignore
        return aligned(rows)

    def notes(self) -> str:
        """The intended differences with their reasons, and why jaxlib rejected what it did."""
        lines: list[str] = []
        for name, difference in DIFFERENCES.items():
            count = sum(1 for o in self.outcomes if o.status == INTENDED and o.detail == name)
            if count:
                lines.append(f"intended difference '{name}' ({count} programs): {difference.reason}")
        reasons: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            if outcome.status == REJECTED:
                reasons.setdefault(f"{outcome.opcode}: {outcome.detail}", []).append(outcome.case)
        lines += [f"rejected ({len(cases)}): {reason}" for reason, cases in sorted(reasons.items())]
        return "\n".join(lines)


def run(entries: Sequence[Entry], *, progress: bool = False) -> Report:
    """Run programs on both sides and compare."""
    report = Report()
    worker = JaxlibWorker()
    start = time.monotonic()
    try:
        for done, entry in enumerate(entries):
            program = entry.make()
            # jaxlib works on the program in its own process while xlakit does here.
            worker.submit(program)
            actual = _run_xlakit(program, program.arguments)
            report.outcomes.append(_judge(entry, program, actual, worker))
            if progress and (done % 50 == 49 or done + 1 == len(entries)):
                seconds = time.monotonic() - start
                print(f"{done + 1}/{len(entries)} programs, {seconds:.0f} s: {entry.opcode}", file=sys.stderr)
    finally:
        worker.close()
    return report


def flat(results: Sequence[Any]) -> list[Array]:
    """The arrays in the results of all replicas."""
    return [leaf for result in results for leaf in flatten(result).values()]


def _run_xlakit(program: Program, arguments: tuple[tuple[Array, ...], ...]) -> list[Array] | Exception:
    try:
        module = HloModule.from_text(program.text)
        executable = compile_module(module, ExecutionOptions(num_replicas=len(arguments)))
        results = executable.execute_replicated(arguments)
        return flat(results)
    except Exception as error:  # any exception is a finding, with the program that caused it
        return error


def _judge(entry: Entry, program: Program, actual: list[Array] | Exception, worker: JaxlibWorker) -> Outcome:
    def outcome(status: str, detail: str = "") -> Outcome:
        text = program.text if status == FAILED else ""
        return Outcome(entry.opcode, program.case, status, f"python -m fuzz.jaxlib {entry}", detail, text)

    try:
        results = worker.result()
    except UnsupportedError as error:
        return outcome(REJECTED, error.rule)
    expected = flat(results)
    if isinstance(actual, Exception):
        kind = "" if isinstance(actual, XlakitError) else f"{type(actual).__name__}: "
        return outcome(FAILED, f"{kind}{actual}")
    try:
        fault = fault_of(program, actual, expected)
        if fault is None:
            return outcome(AGREED)
        named = _explanation(program, actual, expected, worker)
    except Exception as error:  # a result so wrong that it cannot even be compared
        return outcome(FAILED, f"comparison: {type(error).__name__}: {error}")
    return outcome(FAILED, fault) if named is None else outcome(INTENDED, named)


def _explanation(program: Program, actual: list[Array], expected: list[Array], worker: JaxlibWorker) -> str | None:
    def rerun(arguments: tuple[tuple[Array, ...], ...]) -> list[Array]:
        again = _run_xlakit(program, arguments)
        return actual if isinstance(again, Exception) else again

    def reference(other: Program) -> list[Array]:
        worker.submit(other)
        return flat(worker.result())

    def agree(left: list[Array], right: list[Array]) -> bool:
        return fault_of(program, left, right) is None

    return explanation(Mismatch(program, actual, expected, rerun, reference, agree))


def fault_of(program: Program, actual: list[Array], expected: list[Array]) -> str | None:
    """The first difference that is too large, in words."""
    if len(actual) != len(expected):
        return f"{len(actual)} arrays instead of {len(expected)}"
    terms: list[Array] | None = None
    if program.tolerance.measure is Measure.TERMS:
        terms = terms_of(program)
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"leaf {number} is {mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
        wrong = mismatches(mine, theirs, program.tolerance, terms[number] if terms else None)
        if np.any(wrong):
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"leaf {number} differs in {np.count_nonzero(wrong)} of {wrong.size} elements; first at {list(where)}: "
                f"{mine[where]!s} instead of {theirs[where]!s}{_operands_at(program, where)}"
            )
    return None


def terms_of(program: Program) -> list[Array]:
    """The sums of the absolute values of the terms: the same program on absolute values."""
    arguments = tuple(tuple(_magnitude(a) for a in values) for values in program.arguments)
    result = _run_xlakit(program, arguments)
    if isinstance(result, Exception):
        raise result
    return [np.abs(leaf) for leaf in result]


def _magnitude(array: Array) -> Array:
    if array.dtype.kind in "iub" or array.dtype.name.startswith(("int", "uint")):
        return array
    return np.abs(array).astype(array.dtype)


def _operands_at(program: Program, where: tuple[int, ...]) -> str:
    """The arguments' elements at an index, where all arguments have it: enough for element-wise operations."""
    values = program.arguments[0]
    shape = values[0].shape if values else ()
    if any(a.shape != shape for a in values) or len(where) != len(shape) or not values:
        return ""
    try:
        return f" for {', '.join(str(a[where]) for a in values)}"
    except IndexError:
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.jaxlib", __doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many programs, at least (2000)")
    parser.add_argument("--seed", type=int, default=0, help="what the programs are made from (0)")
    parser.add_argument("--only", default="", metavar="OPCODE", help="the programs of one operation")
    parser.add_argument("--number", type=int, help="one program, by its number; with --only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome there")
    options = parser.parse_args(arguments)
    entries = chosen(parser, options)
    if options.number is not None:
        print(entries[0].make().text)
    report = run(entries, progress=True)
    for failure in report.failures():
        print(f"\nFAILED {failure.opcode} ({failure.case})\n{failure.detail}\n{failure.reproduce}\n{failure.text}")
    print(report.table())
    print(report.notes())
    if options.json:
        details: Any = [asdict(o) for o in report.outcomes]
        options.json.write_text(json.dumps(details, indent=1), encoding="utf-8")
    return 1 if report.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
