"""``python -m fuzz.compile_time``: compiling a program takes time in proportion to its length.

Chains and trees of each family of operations (:mod:`fuzz.programs.composed.long`), and of families mixed at random, are
compiled at several lengths: in the entry, and in bodies, branches and conditions of loops, there also with all
thresholds at their least (``--forced``), so that small arrays are treated as large ones are. What is measured grows
like a power of the length; the exponent is 1 where the compiler is linear. Three counts are: how many calls the passes
and the code generator make, how many lines of LLVM IR they write, both of which are the same each time, and the
processor's time, which is what matters, but is only looked at beyond a floor. Each program is compiled in a process of
its own, with limits of time and memory; a short one runs, too, and must give what the interpreter gives. The exit
status is 1 where an exponent is above the limit, a step takes too long, a program is not compiled, or numbers differ.

With ``--quick``, half of the time is for glances: passes and code generation alone, of one length, without LLVM. These
are so many cases in a second that what doubles with each step is met whatever the seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fuzz.forced import least
from fuzz.modules import judge
from fuzz.programs.composed.long import MIXED, PATTERNS, long_module
from fuzz.programs.composed.places import ENTRY, PLACES
from fuzz.programs.composed.steps import FAMILIES
from fuzz.programs.draft import Program
from fuzz.support.numbered import command
from fuzz.support.tolerances import EXACT
from xlakit.cpu.codegen import generate, make_objects
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.options import Options, compiling
from xlakit.passes.pipeline import run_pipeline

_LENGTHS = (1, 16, 32, 64)
_SIZES = (1, 2, 3, 4, 8, 16)
# The number of steps of the short program whose results are compared with the interpreter's.
_SHORT = 5
# Exponents above this are a fault.
_LIMIT = 1.2
# Work that doubles with each step up to a bound is linear, but may still be slow, so more seconds of processor time for
# a step than this are a fault, too. The slowest family takes little more than half of it.
_SECONDS_FOR_STEP = 0.12
# For a measure that grows by less than this from the first length to the last one, no exponent is computed.
_FLOORS = {"calls": 20_000.0, "lines": 1_000.0, "seconds": 2.0}
# The limit of processor time of a case, and how many times as long on the wall clock the parent process waits for it,
# since other processes may occupy the processors.
_SECONDS = 60
_WAIT = 5
# Where a case grows too fast, it is measured again with programs that are this many times as long.
_LONGER = 16
_GIGABYTES = 8
_QUICK_SECONDS = 30
# The number of steps of a program in a glance, in the entry and in loops, and the limit of processor time for its code;
# most take a tenth of a second. Exponential work along the paths of a loop shows in time only with more steps.
_GLANCED = 16
_GLANCED_IN_LOOPS = 40
_GLANCE_SECONDS = 4
# Families whose every result element is computed from several elements. They are drawn first, since the code of a chain
# of them that is fused into one loop doubles with every step.
_SUMS = (
    "squares",
    "products",
    "newton-schulz",
    "polynomials",
    "batched-products",
    "projections",
    "norms",
    "reductions",
)
# The place where the chain may be hoisted out of the loop, and its result is larger than its operands.
_SPREAD = "spread"


class Case(NamedTuple):
    """Programs of several lengths: steps of a family in a pattern, on arrays of a size, in a place.

    forced: whether they are compiled with all thresholds at their least.
    """

    family: str
    pattern: str
    size: int
    seed: int
    place: str = ENTRY
    forced: bool = False

    def __str__(self) -> str:
        seed = f" --seed {self.seed}" if self.family == MIXED else ""
        place = f" --place {self.place}" + " --forced" * self.forced
        return f"--only {self.family} --pattern {self.pattern} --size {self.size}{place}{seed}"

    @property
    def options(self) -> Options:
        """The options that its programs are compiled with."""
        return least() if self.forced else Options()

    def module(self, length: int) -> HloModule:
        """The program of so many steps."""
        return long_module(self.family, self.pattern, length, self.size, self.seed, self.place)


def measured(case: Case, lengths: Sequence[int]) -> Iterator[dict[str, float]]:
    """The counts and the time of compiling the case's programs, one length after the other."""
    for length in lengths:
        module = case.module(length)
        start = time.process_time()
        text, parts = _compiled(module)
        seconds = time.process_time() - start
        calls = _calls(module)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield {
            "length": length,
            "lines": text.count("\n"),
            "calls": calls,
            "seconds": seconds,
            "bytes": sum(parts),
            "megabytes": peak,
        }


def wrong_numbers(case: Case) -> str:
    """Describe the fault of the results of a short program of the case; "" if there is none."""
    module = case.module(_SHORT)
    if module.replica_count > 1:
        return ""
    rng = np.random.default_rng(case.seed)
    shapes = [p.shape.dimensions for p in module.entry.parameters]
    given = tuple(rng.uniform(-0.9, 0.9, sizes).astype(np.float32) for sizes in shapes)
    return judge(Program(case.family, module.to_text(), (given,), EXACT), rng)


def _target(module: HloModule) -> Target:
    return Target(Grid(module.replica_count, module.num_partitions))


def _compiled(module: HloModule) -> tuple[str, list[int]]:
    code = generate(run_pipeline(module), _target(module))
    make_objects(code)
    return code.text, [len(part) for part in code.objects]


def _calls(module: HloModule) -> int:
    """How many calls the passes and the code generator make."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        generate(run_pipeline(module), _target(module))
    finally:
        sys.setprofile(None)
    return count


def exponents(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The exponent of the growth of each measure with the length.

    It is computed in three ways, of which the lowest counts, since a measure that grows in jumps is steep at one place
    only: from the second last length to the last, with and without the amount of a program of one step subtracted, and
    as the slope of the straight line through the logarithms at all lengths.
    """
    found: dict[str, float] = {}
    first, *others = rows
    for name, floor in _FLOORS.items():
        more = [(row["length"] - first["length"], row[name] - first[name]) for row in others]
        if more[-1][1] < floor or len(more) < 2:
            continue
        points = [(math.log(length), math.log(max(value, floor / 20))) for length, value in more]
        (x0, y0), (x1, y1) = points[-2:]
        slope = float(np.polyfit([x for x, _ in points], [y for _, y in points], 1)[0])
        whole = math.log(rows[-1][name] / max(rows[-2][name], 1e-6)) / math.log(rows[-1]["length"] / rows[-2]["length"])
        found[name] = min((y1 - y0) / (x1 - x0), slope, whole)
    return found


class Finding(NamedTuple):
    """The measurements of a case, and its fault, if it has one."""

    case: Case
    rows: list[dict[str, float]]
    fault: str

    @property
    def worst(self) -> float:
        """The greatest exponent."""
        return max(exponents(self.rows).values(), default=0.0) if len(self.rows) > 2 else 0.0


def examine(case: Case, lengths: Sequence[int], limit: float) -> Finding:
    """Measure a case in a process of its own; if it is too slow or grows too fast, once more.

    Other processes may have disturbed its time. Repeated work that is bounded grows faster than linearly up to its
    bound, and linearly from there on: only longer programs tell it from unbounded work.
    """
    finding = _examined(case, lengths, limit)
    if finding.fault.startswith("seconds"):
        return _examined(case, lengths, limit)
    if "grow" in finding.fault:
        first, *others = lengths
        longer = _examined(case, (first, *(_LONGER * length for length in others)), limit, _LONGER * _SECONDS)
        only_time = longer.fault.startswith("seconds")
        return longer._replace(fault=longer.fault.partition("; ")[2]) if only_time else longer
    return finding


def _examined(case: Case, lengths: Sequence[int], limit: float, seconds: float = _SECONDS) -> Finding:
    command = [sys.executable, "-m", "fuzz.compile_time", "--measure", json.dumps([*case]), *map(str, lengths)]
    command += ["--seconds", str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT * seconds, check=False)
        late = f"not compiled in {seconds:g} s" if done.returncode == -signal.SIGXCPU else ""
        out, error = done.stdout, late or (done.stderr if done.returncode else "")
    except subprocess.TimeoutExpired as expired:
        out = (expired.stdout or b"").decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
        error = f"not compiled in {_WAIT * seconds:g} s"
    rows = [json.loads(line) for line in out.splitlines()]
    wrong = rows.pop()["wrong"] if rows and "wrong" in rows[-1] else ""
    if error or len(rows) < len(lengths):
        return Finding(case, rows, error.strip().splitlines()[-1] if error.strip() else "the process died")
    steep = [f"{name} grow with exponent {value:.2f}" for name, value in exponents(rows).items() if value > limit]
    return Finding(case, rows, "; ".join([*steep, *too_slow(rows), *([wrong] if wrong else [])]))


def too_slow(rows: Sequence[dict[str, float]]) -> list[str]:
    """A message if the steps of the longest program take too long; empty otherwise."""
    each = rows[-1]["seconds"] / rows[-1]["length"]
    return [f"seconds: {each:.2f} for each step"] if each > _SECONDS_FOR_STEP else []


def _measure(case: Case, lengths: Sequence[int], seconds: float) -> None:
    limit = _GIGABYTES << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # Ending at the limit of time leaves no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
    with compiling(case.options):
        for row in measured(case, lengths):
            print(json.dumps(row), flush=True)
        print(json.dumps({"wrong": wrong_numbers(case)}), flush=True)


def glances(chosen: Sequence[Case], seconds: float) -> tuple[list[Finding], int]:
    """The findings of glances at as many cases as there is time for, and the number of these cases."""
    end, done, findings = time.monotonic() + seconds, 0, list[Finding]()
    while done < len(chosen) and time.monotonic() < end:
        left = json.dumps([[*case] for case in chosen[done:]])
        command = [sys.executable, "-m", "fuzz.compile_time", "--glance", "--seconds", str(end - time.monotonic())]
        finished = subprocess.run(command, input=left, capture_output=True, text=True, check=False)
        count = finished.stdout.count("\n")
        done += count
        if finished.returncode == 0:
            break
        late = f"its code is not generated in {_GLANCE_SECONDS} s"
        said = finished.stderr.strip().splitlines()[-1:] or [f"the process died ({finished.returncode})"]
        fault = late if finished.returncode == -signal.SIGXCPU else said[0]
        findings.append(Finding(chosen[done], [], fault))
        done += 1
    return findings, done


def _glance(seconds: float) -> None:
    """Generate code for the cases on standard input; a line for each that is done."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end = time.monotonic() + seconds
    for values in json.loads(sys.stdin.read()):
        if time.monotonic() > end:
            break
        most = math.ceil(time.process_time()) + _GLANCE_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        case = Case(*values)
        module = case.module(_GLANCED if case.place == ENTRY else _GLANCED_IN_LOOPS)
        with compiling(case.options):
            generate(run_pipeline(module), _target(module))
        print(case, flush=True)


def cases(options: argparse.Namespace) -> list[Case]:
    """The cases that the options ask for."""
    families = [options.only] if options.only else [*FAMILIES, MIXED]
    patterns = [options.pattern] if options.pattern else [*PATTERNS]
    sizes = [options.size] if options.size else [*_SIZES]
    places = [options.place] if options.place else [ENTRY]
    found = [
        Case(family, pattern, size, options.seed, place, options.forced)
        for family, pattern, size, place in itertools.product(families, patterns, sizes, places)
    ]
    inside: list[Case] = []
    if not options.place:
        # Everything in each place would take ten times as long: one pattern and one size stand for all.
        rng = np.random.default_rng([options.seed, 2])
        for family, place in itertools.product(families, [p for p in PLACES if p != ENTRY]):
            pattern, size = (list[Any](every)[int(rng.integers(len(every)))] for every in (patterns, sizes))
            forced = options.forced or place == _SPREAD or bool(rng.integers(2))
            inside.append(Case(family, pattern, size, options.seed, place, forced))
    return _drawn(found, inside, options.seed) if options.quick else [*found, *inside]


def _drawn(found: Sequence[Case], inside: Sequence[Case], seed: int) -> list[Case]:
    """Cases of all kinds in turn, each of a kind in an order drawn by the seed, as long as there are any."""
    rng = np.random.default_rng(seed)
    order = [found[int(k)]._replace(seed=seed + int(k)) for k in rng.permutation(len(found))]
    sums = [c for c in order if c.family in _SUMS and (c.pattern, c.size) in (("chain", 2), ("chain", 3))]
    loops = [inside[int(k)]._replace(seed=seed + int(k)) for k in rng.permutation(len(inside))]
    spread = [c for c in loops if c.place == _SPREAD]
    kinds = sums, [c for c in order if c not in sums], spread, [c for c in loops if c not in spread]
    return [case for turn in itertools.zip_longest(*kinds) for case in turn if case is not None]


def _print_row(finding: Finding) -> None:
    case, rows = finding.case, finding.rows
    last = rows[-1] if rows else {}
    where = case.place + " forced" * case.forced
    cells = [f"{case.family:18} {case.pattern:9} {where:17} {case.size:4}"]
    cells += [f"{last.get(name, math.nan):9.0f}" for name in ("calls", "lines", "megabytes")]
    cells += [f"{last.get('seconds', math.nan):7.2f}"]
    found = exponents(rows) if len(rows) > 2 else {}
    cells += [f"{found[name]:8.2f}" if name in found else "       -" for name in _FLOORS]
    print(" ".join(cells), flush=True)
    if finding.fault:
        print(f"FAILED python -m fuzz.compile_time {case}: {finding.fault}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.compile_time", __doc__)
    parser.add_argument(
        "--only", metavar="FAMILY", choices=[*FAMILIES, MIXED], help=f"one family of steps, or '{MIXED}'"
    )
    parser.add_argument("--pattern", choices=[*PATTERNS], help="one pattern")
    parser.add_argument("--size", type=int, help="one size of the dimensions")
    parser.add_argument("--place", choices=[*PLACES], help="one place")
    parser.add_argument("--forced", action="store_true", help="all thresholds at their least")
    parser.add_argument("--seed", type=int, default=0, help="what mixed chains are made from (0)")
    parser.add_argument("--quick", action="store_true", help="as many cases as there is time for, drawn by the seed")
    parser.add_argument("--seconds", type=float, default=_QUICK_SECONDS, help=f"that time ({_QUICK_SECONDS})")
    parser.add_argument("--limit", type=float, default=_LIMIT, help=f"the greatest exponent ({_LIMIT})")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--glance", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("lengths", type=int, nargs="*", help=f"how many steps ({' '.join(map(str, _LENGTHS))})")
    options = parser.parse_args(arguments)
    lengths = options.lengths or list(_LENGTHS)
    if options.measure:
        _measure(Case(*json.loads(options.measure)), lengths, options.seconds)
        return 0
    if options.glance:
        _glance(options.seconds)
        return 0
    chosen, start, findings = cases(options), time.monotonic(), list[Finding]()
    if options.quick:
        findings, glanced = glances(chosen, options.seconds / 2)
        print(f"{glanced} cases of {_GLANCED} steps, in loops of {_GLANCED_IN_LOOPS}")
        for finding in findings:
            print(f"FAILED python -m fuzz.compile_time {finding.case}: {finding.fault}", flush=True)
    counts = "    calls     lines        MB seconds    calls    lines  seconds"
    print(f"{'family':18} {'pattern':9} {'place':17} size {counts}")
    for case in chosen:
        if options.quick and time.monotonic() - start > options.seconds:
            break
        findings.append(examine(case, lengths, options.limit))
        _print_row(findings[-1])
    failures = sum(bool(f.fault) for f in findings)
    worst = max((f.worst for f in findings), default=0.0)
    print(f"{len(findings)} cases with seed {options.seed}, {failures} failures, greatest exponent {worst:.2f}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
