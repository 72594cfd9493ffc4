"""``xlakit opt``: run passes, print what each changed, and list passes and rules."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from xlakit.errors import ArgumentError
from xlakit.formats.files import write_whole
from xlakit.ir.instruction import HloModule
from xlakit.passes.core.rules import RulePass
from xlakit.passes.pipeline import BETWEEN_PROCESSES, PASSES, PIPELINE, run_pipeline
from xlakit.passes.spmd import is_to_be_split, split_over
from xlakit.tools.shards import with_partitions


def optimize(
    module: HloModule,
    *,
    passes: Sequence[str] | None,
    disabled: Sequence[str],
    until: str | None,
    fuel: int | None,
    dump: str | None,
    diff: bool,
    text: Mapping[str, bool],
) -> list[str]:
    """Run passes on a module; gives the lines to print: the new program's, or with ``diff`` what each pass did.

    passes: their names; None for those of the compiler, which run on the program of one device. text: how programs are
    printed, as :meth:`HloModule.to_text` takes it.
    """
    module.verify()
    module = with_partitions(module)
    folder = None if dump is None else Path(dump)
    if folder is not None:
        if folder.is_file():
            raise ArgumentError(f"--dump {dump} is a file", hint="name a folder; it is made if there is none")
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "00-before.hlo", module, text)
    changes: list[str] = []

    def look(number: int, name: str, before: HloModule, after: HloModule) -> None:
        if folder is not None:
            _write(folder / f"{number:02}-{name}.hlo", after, text)
        if diff:
            changes.extend(_difference(f"{number:02}-{name}", before, after, text))

    # The other passes may rewrite what says that the program is for whole arrays, and how it is split.
    if passes is None and "partition" not in disabled and is_to_be_split(module, module.num_partitions):
        whole, module = module, split_over(module, module.num_partitions)
        look(0, "partition", whole, module)
    result = run_pipeline(module, passes, disabled, until, fuel, look if folder is not None or diff else None)
    result.verify()
    return changes if diff else [result.to_text(**text)]


def _write(path: Path, module: HloModule, text: Mapping[str, bool]) -> None:
    write_whole(path, module.to_text(**text))


def _difference(name: str, before: HloModule, after: HloModule, text: Mapping[str, bool]) -> Iterator[str]:
    if before is after:
        return
    yield from difflib.unified_diff(
        before.to_text(**text).splitlines(keepends=True),
        after.to_text(**text).splitlines(keepends=True),
        f"before {name}",
        f"after {name}",
    )


def listing() -> str:
    """The passes in the order in which they run, then the tables of rules with their laws."""
    lines = ["passes, in the order in which they run:", ""]
    for step in PIPELINE:
        lines.append(f"  {step.name:24}{step.summary}")
        lines += [f"    {name:36}{law}" for name, law in step.parts.items()]
    lines += ["", "and where a program spans processes:", ""]
    lines += [f"  {step.name:24}{step.summary}" for step in BETWEEN_PROCESSES]
    tables = [p for p in PASSES.values() if p not in PIPELINE and isinstance(p, RulePass)]
    lines += ["", "tables of rules, each a pass of its own, too:"]
    for table in tables:
        lines += ["", f"  {table.name}", *(f"    {rule.name:36}{rule.law}" for rule in table.rules.rules)]
    return "\n".join(lines)
