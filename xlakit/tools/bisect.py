"""``bisect_module``: finds the rewrite of the compiler's passes, or the part of code generation, that breaks a program.

The number of rewrites that the passes may make is the fuel. With fuel 0 the program is compiled without rewrites; with
unlimited fuel it fails. The least fuel with which it fails is found by binary search, first over the ends of passes,
then within one pass. If a program fails without any rewrite, parts of code generation are switched off one by one
(:data:`options.PLAIN`).

A wrong memory plan is looked for first, by its proof: rewrites that are right bring about the loops and updates for
which it lacks a copy, and would be named in its place.
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from xlakit.api import compile
from xlakit.arguments import converting
from xlakit.child_process import Limits
from xlakit.cpu.compiler import prepared
from xlakit.errors import ArgumentError, ExecutionError, XlakitError
from xlakit.ir.instruction import HloModule
from xlakit.memory.checker.faults import MemoryPlanError
from xlakit.options import PLAIN, compiling
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import run_pipeline
from xlakit.tools.compare import LeafComparison, Tolerance, compare
from xlakit.tools.diff.changed import changed_texts
from xlakit.tools.inspect import generated
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.oracles.oracle import Failure, Oracle, Report, Verdict, named_shapes, results_of
from xlakit.tools.oracles.pool import OraclePool
from xlakit.tools.oracles.server import load_file
from xlakit.tools.shards import on_devices

# The parts of code generation that are switched off one at a time; the rewrites are searched separately.
_PARTS = tuple(name for name in PLAIN if name != "rewrites")


@dataclass(frozen=True)
class Bisection:
    """The cause of a program's failure.

    pass_name, rule: of the rewrite; empty if the program fails without any. fuel: the number of rewrites up to and
    including it; rewrites: the number of all. before, after: the HLO of the computations that it changes.
    changes_meaning: whether the interpreter gives other results after it than before; None if unknown.
    parts: the entries of :data:`xlakit.options.PLAIN` each of which alone makes the program right.
    without: values of ``XLAKIT_DISABLE_PASSES``, the rule and the pass, that make the program right.
    is_split_wrong: whether the interpreter gives other results for the program that the partitioner makes than for the
    whole one; looked at where the program fails without any rewrite. memory_fault: what the proof of the memory plan
    says; empty where it is right, or there is none.
    """

    seen: str
    tries: int
    pass_name: str = ""
    pass_number: int = 0
    rule: str = ""
    fuel: int = 0
    rewrites: int = 0
    before: str = ""
    after: str = ""
    changes_meaning: bool | None = None
    parts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    is_split_wrong: bool = False
    memory_fault: str = ""

    @property
    def diff(self) -> str:
        """What the rewrite changes, as a unified difference."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), "before", "after", n=3
        )
        return "".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The report as a dict that JSON can hold."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __str__(self) -> str:
        """The report."""
        lines = [self._cause()]
        if self.rule:
            verdict = {
                True: "The interpreter gives other results after it than before: the rewrite is wrong.",
                False: "The interpreter gives the same results before and after it: "
                "the rewrite is right, and code generation fails on what it makes.",
                None: "",
            }[self.changes_meaning]
            lines += [verdict] * bool(verdict) + ["", self.diff.rstrip()]
        for name in self.without:
            lines.append(f"The program is right with XLAKIT_DISABLE_PASSES={name}.")
        for name in self.parts:
            lines.append(f"The program is right with XLAKIT_PLAIN={name} ({PLAIN[name]}).")
        return "\n".join(lines)

    def _cause(self) -> str:
        if self.memory_fault:
            return f"The rewrites are not at fault: {self.memory_fault}."
        if self.rule:
            return (
                f"Rewrite {self.fuel} of {self.rewrites} makes it fail: {self.rule}, in pass {self.pass_number}, "
                f"{self.pass_name} (XLAKIT_FUEL={self.fuel})."
            )
        if self.is_split_wrong:
            return (
                "It fails without any rewrite. The interpreter gives other results for what the partitioner makes of "
                "it than for the whole program: the partitioner is wrong."
            )
        if self.parts:
            return "It fails without any rewrite; parts of code generation that make it fail:"
        return (
            f"It fails without any rewrite, and whatever else is left out ({self.seen}): a kernel is wrong, or a pass "
            "that is needed (xlakit run FILE --against interpreter names the first instruction that differs), or the "
            "program makes roundings large (xlakit run FILE --shadow f64)."
        )


@converting
def bisect_module(
    module: HloModule,
    oracle: Oracle,
    *,
    jobs: int = 1,
    limits: Limits | None = None,
    load: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Bisection:
    """The rewrite, or the part of code generation, that makes a program fail.

    module: what fails. oracle, jobs, limits, load: as :func:`reduce_module` takes them; functions are not taken, since
    the compiler's switches are set in processes of their own; files are loaded in this process, too, since they may add
    passes. progress: called with a line on what is tried.

    Raises ArgumentError where the oracle's property does not hold of the module as given, UnsupportedError where a
    backend is not installed, VerificationError for a malformed module.
    """
    module.verify()
    for file in load:
        load_file(file)
    with OraclePool(oracle, jobs=jobs, limits=limits, files=load) as pool:
        first = pool.begin(module)
        if not first.holds:
            raise ArgumentError(
                f"the module as given does not {pool.claim}: {first.seen}",
                hint=first.hint,
            )
        return _Bisecting(module, pool, first, progress).result()


class _Bisecting:
    """A bisection under way."""

    def __init__(
        self, module: HloModule, pool: OraclePool, first: Verdict, progress: Callable[[str], None] | None
    ) -> None:
        self._module = module
        self._pool = pool
        self._first = first
        self._progress = progress
        self._tries = 1

    def result(self) -> Bisection:
        """What makes it fail."""
        memory_fault = _memory_fault(self._module)
        if memory_fault:
            parts = self._parts(["memory"])
            return Bisection(self._first.seen, self._tries, memory_fault=memory_fault, parts=parts)
        if self._fails({"XLAKIT_FUEL": "0"}):
            parts = self._parts()
            return Bisection(self._first.seen, self._tries, parts=parts, is_split_wrong=self._is_split_wrong())
        trace = _Trace(self._module)
        fuel = self._least_fuel(trace)
        before, after, rule = trace.around(fuel)
        texts = changed_texts(before.after, after.after)
        without = tuple(n for n in dict.fromkeys((rule, after.name)) if not self._fails({"XLAKIT_DISABLE_PASSES": n}))
        return Bisection(
            self._first.seen,
            self._tries,
            pass_name=after.name,
            pass_number=after.number,
            rule=rule,
            fuel=fuel,
            rewrites=trace.rewrites,
            before=texts[0],
            after=texts[1],
            changes_meaning=self._changes_meaning(before.after, after.after),
            parts=self._parts(),
            without=without,
        )

    def _fails(self, environment: dict[str, str]) -> bool:
        self._tries += 1
        if self._progress is not None:
            self._progress(" ".join(f"{name}={value}" for name, value in environment.items()))
        return self._pool.ask(self._module, environment).holds

    def _parts(self, names: Sequence[str] = _PARTS) -> tuple[str, ...]:
        return tuple(name for name in names if not self._fails({"XLAKIT_PLAIN": name}))

    def _least_fuel(self, trace: _Trace) -> int:
        """The least fuel with which it fails: with one less it does not."""
        # First among the ends of passes, where few are tried.
        ends = [0, *trace.ends]
        low, high = 0, len(ends) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fails({"XLAKIT_FUEL": str(ends[middle])}) else (middle, high)
        least, most = ends[low], ends[high]
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if self._fails({"XLAKIT_FUEL": str(middle)}) else (middle, most)
        return most

    def _changes_meaning(self, before: HloModule, after: HloModule) -> bool | None:
        """Whether the interpreter gives other results for one module than for the other; None if it does not run."""
        oracle = self._pool.oracle
        report = self._observed(_OtherMeaning(before.to_proto(), *_values_of(oracle)), after)
        if report.how != "ended" or isinstance(report.observed, Failure):
            return None
        return any(not leaf.agrees for leaf in report.observed)

    def _is_split_wrong(self) -> bool:
        """Whether the partitions that are made of the module differ from the whole of it, on the interpreter."""
        report = self._observed(_WholeMeaning(*_values_of(self._pool.oracle)), self._module)
        return report.observed is True

    def _observed(self, oracle: Oracle, module: HloModule) -> Report:
        """What another oracle observes."""
        asked, self._pool.oracle = self._pool.oracle, oracle
        try:
            return self._pool.report(module)
        finally:
            self._pool.oracle = asked


def _memory_fault(module: HloModule) -> str:
    """What the proof of the compiled module's memory plan says, where it fails."""
    try:
        with compiling(check_memory=True):
            generated(module).memory_plan()
    except MemoryPlanError as error:
        return error.rule
    except XlakitError:
        # It cannot be compiled, which is what fails, or runs on another backend.
        return ""
    return ""


def _values_of(oracle: Oracle) -> tuple[Arguments, Tolerance]:
    return getattr(oracle, "arguments", Arguments()), getattr(oracle, "tolerance", Tolerance())


@dataclass(frozen=True)
class _WholeMeaning(Oracle):
    """Whether the interpreter gives other results for the program of the partitions than for the whole one."""

    arguments: Arguments
    tolerance: Tolerance

    @property
    def claim(self) -> str:
        return "have partitions that differ from the whole"

    @property
    def options(self) -> str:
        return ""

    def observe(self, module: HloModule) -> bool:
        devices = on_devices(module)
        if devices.whole is None or devices.module.replica_count > 1:
            return False
        values = self.arguments.values(named_shapes(devices), devices.module.entry)
        expected = compile(devices.whole, backend="interpreter", seed=self.arguments.seed)(*values)
        try:
            actual = results_of(devices, values, "interpreter", self.arguments.seed)
        except ExecutionError:
            return True  # Devices that should have the same values have not.
        return any(not leaf.agrees for leaf in compare(actual, expected, self.tolerance))

    def judge(self, report: Report) -> Verdict:
        return Verdict(False, report.detail)


@dataclass(frozen=True)
class _OtherMeaning(Oracle):
    """Whether the interpreter gives other results for a module than for another one, which is a serialized proto."""

    other: bytes
    arguments: Arguments
    tolerance: Tolerance

    @property
    def claim(self) -> str:
        return "have another meaning"

    @property
    def options(self) -> str:
        return ""

    def observe(self, module: HloModule) -> list[LeafComparison]:
        modules = module, HloModule.from_proto(self.other)
        # Of a split program these are the programs of a device, which say how whole arrays are split.
        actual, expected = (
            results_of(
                own, self.arguments.values(named_shapes(own), own.module.entry), "interpreter", self.arguments.seed
            )
            for own in map(on_devices, modules)
        )
        return compare(actual, expected, self.tolerance)

    def judge(self, report: Report) -> Verdict:
        return Verdict(False, report.detail)


@dataclass(frozen=True)
class _Step:
    """A pass that has run: its number and name, the module after it, and its rewrites by rule."""

    number: int
    name: str
    after: HloModule
    rewrites: Counter[str]
    # The rewrites that took fuel, up to its end.
    spent: int


class _Trace:
    """The rewrites that the passes make of a module, numbered from 1."""

    def __init__(self, module: HloModule) -> None:
        # The very module that the passes get where the program runs: their rewrites are numbered alike.
        self._module = prepared(on_devices(module).module)
        self._steps = self._run(None)
        self.rewrites = self._steps[-1].spent if self._steps else 0
        # For each pass that made rewrites, the number of its last one.
        self.ends = sorted({step.spent for step in self._steps} - {0})

    def _run(self, fuel: int | None, until: int | None = None) -> list[_Step]:
        most = sys.maxsize if fuel is None else fuel
        context = PassContext(fuel=most)
        steps: list[_Step] = []

        def note(number: int, name: str, before: HloModule, after: HloModule) -> None:
            spent = most - (context.fuel or 0)
            steps.append(_Step(number, name, after, Counter(context.statistics[-1][1]), spent))

        run_pipeline(self._module, until=None if until is None else str(until), dump=note, context=context)
        return steps

    def around(self, number: int) -> tuple[_Step, _Step, str]:
        """The pass that makes a rewrite: its result without that rewrite and with it, and the name of the rule.

        Where the pass makes no other rewrite, the first is the result of the pass before it.
        """
        last = next(step for step in self._steps if step.spent >= number)
        with_it = next(step for step in self._run(number, last.number) if step.number == last.number)
        one_less = self._run(number - 1, last.number)
        before = one_less[-1] if one_less else _Step(0, "", self._module, Counter(), 0)
        fewer = before.rewrites if before.number == with_it.number else Counter[str]()
        rules = list((with_it.rewrites - fewer).keys())
        return before, with_it, rules[0] if rules else with_it.name
