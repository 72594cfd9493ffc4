"""The linter: selects lints, runs them on a module, and collects their warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from xlakit.arguments import converting
from xlakit.errors import ArgumentError, Location, meant
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.tools.lint import devices, loops, movement, numbers
from xlakit.tools.lint.registry import LINTS, Lint
from xlakit.verifier.faults import Program

# Each of them registers its lints as it is imported.
_PAGES = (devices, loops, movement, numbers)


@dataclass(frozen=True, slots=True)
class LintWarning:
    """A warning: the lint's name, the finding, a hint, and the instruction.

    Its text is the warning with its notes. ``location`` is the line of the source that made the instruction (Python's,
    from the metadata), or None. ``instead`` is an instruction before it that has the same value,
    where that is the warning.
    """

    name: str
    message: str
    hint: str
    computation: Computation = field(repr=False)
    instruction: Instruction = field(repr=False)
    location: Location | None = None
    instead: Instruction | None = field(default=None, repr=False)

    @property
    def subject(self) -> str:
        """The instruction and its computation, in words."""
        return f"{self.instruction.opcode} '{self.instruction.name}' in computation {self.computation.name}"

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.message} [{self.name}]"]
        if self.location is not None:
            lines.append(f"  at: {self.location}")
        return "\n".join([*lines, f"  hint: {self.hint}"])


@converting
def lint(module: HloModule, *, enable: Collection[str] = (), disable: Collection[str] = ()) -> list[LintWarning]:
    """Warnings about legal, but probably unintended constructs of a module, in the order of its instructions.

    enable: names of lints that run beside those that run by default, or ``all``. disable: names of lints that do not
    run, or ``all``; a name in both runs. Raises ArgumentError for a name that no lint has. Nothing is run or changed.
    """
    program = Program(module)
    places = {(c, i): n for n, (c, i) in enumerate(program.instructions())}
    # Keyed by instruction, as a computation that two loops call is linted twice.
    warnings: dict[tuple[str, Instruction, str], tuple[int, LintWarning]] = {}
    for one in chosen(enable, disable):
        for computation, instruction, message, hint, instead in one.check(program):
            place = module.location_of(instruction)
            warning = LintWarning(one.name, message, hint, computation, instruction, place, instead)
            warnings[one.name, instruction, message] = places[computation, instruction], warning
    return [warning for _, warning in sorted(warnings.values(), key=lambda pair: pair[0])]


def chosen(enable: Collection[str] = (), disable: Collection[str] = ()) -> list[Lint]:
    """The lints that run; see :func:`lint`."""
    _check_names((*enable, *disable))

    def runs(one: Lint) -> bool:
        if one.name in enable:
            return True
        if one.name in disable or "all" in disable:
            return False
        return one.is_default or "all" in enable

    return [one for one in LINTS.values() if runs(one)]


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name != "all" and name not in LINTS:
            raise ArgumentError(
                f"there is no lint {name}", hint=meant(name, LINTS, f"known: {', '.join(sorted(LINTS))}")
            )


def table() -> str:
    """All lints as a table in Markdown, by name; the documents have it."""
    rows = [
        f"| `{one.name}` | {one.finds} | {'on' if one.is_default else 'off'} |"
        for one in sorted(LINTS.values(), key=lambda one: one.name)
    ]
    return "\n".join(["| name | finds | by default |", "|---|---|---|", *rows])
