"""What tuning has chosen for a program, and what was gained: a value, kept in the compile cache.

It is kept under the program's key, so it is known for the same program, options, compiler and machine. As long as it
is there, the program is compiled by it: what is chosen does not change from process to process.
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

# The name under which the width of vectors stands among the knobs of a program.
VECTOR_BYTES = "vector_bytes"
Choice = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Gain:
    """What was gained for a kernel, or for the whole program.

    name, opcode: of the instruction; of a program, the module's name and ``module``. location: the person's line, empty
    where it is not known. before, after: nanoseconds of one run. choice: the knobs that were set. same_bits: whether
    results of the timed run had the same bits as before; where sums are added in another order, they may not.
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
    """What tuning did.

    program: the whole program before and after; None where it could not be run by itself. kernels: those that were
    timed, the one that costs most first. compared: how many alternatives were timed. failed: those that could not be
    compiled, or gave other results, with reasons. left: kernels for which there was no time.
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
        """The fields, as JSON can hold them; times are in nanoseconds."""
        return asdict(self)

    def as_json(self) -> str:
        """The fields as JSON."""
        return json.dumps(self.as_dict(), indent=2)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was chosen. knobs: for the whole program, the width of vectors among them. kernels: for single kernels, by
    :func:`~xlakit.cpu.kernels.shared.fingerprint.kernel_digest`.
    """

    knobs: Choice = field(default_factory=dict[str, float])
    kernels: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    report: TuningReport = field(default_factory=TuningReport)

    def options(self, given: Options) -> Options:
        """Options with which a program is compiled as it was chosen."""
        return replace(with_knobs(given, self.knobs), kernels=dict(self.kernels))

    def entry(self) -> compile_cache.Entry:
        """What the compile cache keeps."""
        fields = {"knobs": dict(self.knobs), "kernels": {k: dict(c) for k, c in self.kernels.items()}}
        return compile_cache.Entry({**fields, "report": self.report.as_dict()}, {})

    @staticmethod
    def from_entry(entry: compile_cache.Entry) -> Tuning:
        """What an entry holds; raises FormatError where that is something else."""
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
    """Options with some knobs set; the width of vectors may be one of them."""
    rest = {name: number for name, number in knobs.items() if name != VECTOR_BYTES}
    width = int(knobs.get(VECTOR_BYTES, options.vector_bytes))
    return replace(options, knobs={**options.knobs, **rest}, vector_bytes=width)


def load(key: str) -> Tuning | None:
    """What is kept for the program of a key; None where nothing is."""
    entry = compile_cache.load(_key(key))
    if entry is None:
        return None
    try:
        return Tuning.from_entry(entry)
    except FormatError as error:
        compile_cache.discard(_key(key), error.rule)
        return None


def save(key: str, tuning: Tuning) -> None:
    """Keep what was chosen for the program of a key."""
    compile_cache.save(_key(key), tuning.entry())


def _key(key: str) -> str:
    return f"tuning-{key}"


def _choice(given: Mapping[str, Any]) -> Choice:
    return {str(name): float(number) if isinstance(number, float) else int(number) for name, number in given.items()}
