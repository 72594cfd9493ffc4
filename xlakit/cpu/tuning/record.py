"""The choices of tuning for a program, and their gains, as stored in the compile cache.

They are stored under the program's key, so they apply to the same program, options, compiler and machine. While the
entry exists, every process compiles the program with the same choices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

from xlakit import compile_cache
from xlakit.data.text_table import duration
from xlakit.dataclass import dataclass
from xlakit.errors import FormatError
from xlakit.options import Options

# The name of the vector width among the knobs of a program.
VECTOR_BYTES = "vector_bytes"
Choice = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain for a kernel, or for the whole program.

    name, opcode: of the instruction; for a program, the module's name and ``module``. location: the user's source line,
    empty if it is not known. before, after: nanoseconds of one run. choice: the knobs that were set. same_bits: whether
    the results of the timed run have the same bits as before; they may not if sums are added in another order.
    """

    name: str
    opcode: str
    location: str
    before: float
    after: float
    choice: Choice = field(default_factory=dict[str, float])
    same_bits: bool = True

    def __str__(self) -> str:
        times = f"{duration(self.before):>10} -> {duration(self.after):>10}  {self.after / self.before:5.2f}"
        knobs = ", ".join(f"{name}={number:g}" for name, number in self.choice.items())
        knobs = knobs or ("with the kernels below" if self.opcode == "module" else "as it was")
        bits = "" if self.same_bits else "; sums in another order"
        where = f"  ({self.location})" if self.location else ""
        return f"{times}  {self.opcode} '{self.name}'{where}: {knobs}{bits}"


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The results of a tuning run.

    program: the gain of the whole program; None if it could not be run by itself. kernels: those that were timed, the
    most expensive first. compared: the number of timed alternatives. failed: alternatives that could not be compiled,
    or gave other results, with reasons. left: the number of kernels for which there was no time.
    """

    program: Gain | None = None
    kernels: tuple[Gain, ...] = ()
    compared: int = 0
    failed: tuple[str, ...] = ()
    left: int = 0

    def __str__(self) -> str:
        if not (self.compared or self.failed or self.left):
            return "nothing was timed: no kernel takes long enough, or has alternatives"
        won = sum(bool(kernel.choice) for kernel in self.kernels)
        lines = [f"{self.compared} alternatives timed; {won} of {len(self.kernels)} kernels became faster"]
        if self.program is not None:
            lines.append(str(self.program))
        lines += map(str, self.kernels)
        lines += [f"not taken: {why}" for why in self.failed]
        if self.left:
            lines.append(f"{self.left} kernels were left for want of time")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The fields, in a form for JSON; times are in nanoseconds."""
        return asdict(self)

    def as_json(self) -> str:
        """The fields as JSON."""
        return json.dumps(self.as_dict(), indent=2)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The choices for a program.

    knobs: for the whole program, the vector width among them. kernels: for single kernels, keyed by
    :func:`~xlakit.cpu.kernels.shared.fingerprint.kernel_digest`.
    """

    knobs: Choice = field(default_factory=dict[str, float])
    kernels: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    report: TuningReport = field(default_factory=TuningReport)

    def options(self, given: Options) -> Options:
        """The options with which the program is compiled as chosen."""
        return replace(with_knobs(given, self.knobs), kernels=dict(self.kernels))

    def entry(self) -> compile_cache.Entry:
        """The entry for the compile cache."""
        fields = {"knobs": dict(self.knobs), "kernels": {k: dict(c) for k, c in self.kernels.items()}}
        return compile_cache.Entry({**fields, "report": self.report.as_dict()}, {})

    @staticmethod
    def from_entry(entry: compile_cache.Entry) -> Tuning:
        """The choices in an entry; raises FormatError if it has other contents."""
        try:
            fields = entry.fields
            report = fields["report"]
            program = None if report["program"] is None else Gain(**report["program"])
            kernels = tuple(Gain(**kernel) for kernel in report["kernels"])
            made = TuningReport(
                program, kernels, int(report["compared"]), tuple(map(str, report["failed"])), int(report["left"])
            )
            chosen = {str(name): _choice(choice) for name, choice in fields["kernels"].items()}
            return Tuning(_choice(fields["knobs"]), chosen, made)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"it holds no choices: {error!r}") from None


def with_knobs(options: Options, knobs: Choice) -> Options:
    """The options with some knobs set; the vector width may be one of them."""
    rest = {name: number for name, number in knobs.items() if name != VECTOR_BYTES}
    width = int(knobs.get(VECTOR_BYTES, options.vector_bytes))
    return replace(options, knobs={**options.knobs, **rest}, vector_bytes=width)


def load(key: str) -> Tuning | None:
    """The stored choices for the program of a key; None if there are none."""
    entry = compile_cache.load(_key(key))
    if entry is None:
        return None
    try:
        return Tuning.from_entry(entry)
    except FormatError as error:
        compile_cache.discard(_key(key), error.rule)
        return None


def save(key: str, tuning: Tuning) -> None:
    """Store the choices for the program of a key."""
    compile_cache.save(_key(key), tuning.entry())


def _key(key: str) -> str:
    return f"tuning-{key}"


def _choice(given: Mapping[str, Any]) -> Choice:
    return {str(name): float(number) if isinstance(number, float) else int(number) for name, number in given.items()}
