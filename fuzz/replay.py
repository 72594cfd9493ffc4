"""``python -m fuzz.replay``: shows how a change of the compiler changes its code for a corpus of programs.

The same programs are compiled by the package of a commit and by that of the working tree, and compared stage by stage:
HLO after passes, memory, LLVM IR before LLVM's passes, assembly. What only moves code changes nothing here. The
corpus is the benchmark's rows at their small sizes, the programs of ``examples/hlo/``, generated modules, and loops and
branches as people write them::

    python -m fuzz.replay                            the working tree against the last commit
    python -m fuzz.replay --against v0.3 --count 200
    python -m fuzz.replay --show while_12            one program's stages as a diff

The exit status is 1 where something differs.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import export
from benchmarks.workloads import WORKLOADS
from fuzz.programs.composed.carried import carried_program
from fuzz.programs.composed.modules import module as generated
from fuzz.support.numbered import command
from xlakit.ir.instruction import HloModule

_ROOT = Path(__file__).parents[1]
_RECORDER = Path(__file__).parent / "support" / "recorder.py"
# The stages of compilation in their order: a change of the compiler acts in the first stage that differs.
STAGES = ("error", "hlo", "memory", "llvm", "assembly")
# Lines of a diff that are shown of each program.
_SHOWN = 30
# The digests in names of functions that kernels share; each is of the plan of the function, names of fields included.
_DIGEST = re.compile(r"(?<=\.)[0-9a-f]{16}\b")
_DEFINE = re.compile(r"^define [^@]*@([^(]+)\(.*?^}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first stage of a program that differs, which functions of the LLVM IR do, and all texts before and after."""

    program: str
    stage: str
    functions: tuple[str, ...]
    before: dict[str, str]
    after: dict[str, str]

    def __str__(self) -> str:
        functions = f": {', '.join(self.functions)}" if self.functions else ""
        return f"{self.program}: {self.stage}{functions}"

    def diff(self, stage: str) -> list[str]:
        """The lines of a stage that differ, with those around them."""
        texts = (side.get(stage, "").splitlines() for side in (self.before, self.after))
        return list(difflib.unified_diff(*texts, f"{stage} before", f"{stage} after", lineterm="", n=2))


def corpus(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """The programs: a name that a file can have, and HLO text; ``count`` of those that are generated."""
    for path in sorted((_ROOT / "examples" / "hlo").glob("*.hlo")):
        yield path.stem, path.read_text()
    for workload in WORKLOADS:
        proto = export(workload, workload.program(quick=True))
        yield workload.name, HloModule.from_proto(proto).to_text()
    for number in range(count):
        if number % 2:
            yield f"carried_{seed}_{number}", carried_program(seed, number).module.to_text()
        else:
            yield f"module_{seed}_{number}", generated(seed, number).text


def differences(before: Path, after: Path) -> Iterator[Difference]:
    """Where two folders of records differ."""
    for path in sorted(after.glob("*.json")):
        found = compare(path.stem, json.loads((before / path.name).read_text()), json.loads(path.read_text()))
        if found is not None:
            yield found


def compare(program: str, before: dict[str, str], after: dict[str, str]) -> Difference | None:
    """What differs in a program's stages; None if nothing does. Digests count by the order in which they appear."""
    before, after = ({s: _numbered(text) for s, text in side.items()} for side in (before, after))
    stage = next((s for s in STAGES if before.get(s) != after.get(s)), None)
    if stage is None:
        return None
    old, new = (_functions(side.get("llvm", "")) for side in (before, after))
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return Difference(program, stage, tuple(changed), before, after)


def _numbered(text: str) -> str:
    """A text whose digests are numbered, since renaming a field of a plan changes the digest and not the code."""
    numbers: dict[str, str] = {}
    return _DIGEST.sub(lambda found: numbers.setdefault(found[0], f"digest{len(numbers)}"), text)


def _functions(llvm: str) -> dict[str, str]:
    return {found.group(1): found.group() for found in _DEFINE.finditer(llvm)}


def _recorded(tree: Path, programs: Path, records: Path) -> None:
    records.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "-P", str(_RECORDER), str(programs), str(records)], env=environment, check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.replay", __doc__)
    parser.add_argument("--against", default="HEAD", metavar="COMMIT", help="what the tree is compared with (HEAD)")
    parser.add_argument("--count", type=int, default=60, help="how many generated programs (60)")
    parser.add_argument("--seed", type=int, default=0, help="what they are made from (0)")
    parser.add_argument("--show", metavar="PROGRAM", help="one program, with the diff of every stage")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name)
        programs, tree = folder / "programs", folder / "tree"
        programs.mkdir()
        for program, text in corpus(options.seed, options.count):
            if options.show in (None, program):
                (programs / f"{program}.hlo").write_text(text)
        count = len(list(programs.iterdir()))
        subprocess.run(["git", "worktree", "add", "--detach", "-q", tree, options.against], cwd=_ROOT, check=True)
        try:
            _recorded(tree, programs, folder / "before")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=_ROOT, check=True)
        _recorded(_ROOT, programs, folder / "after")
        found = list(differences(folder / "before", folder / "after"))
    for difference in found:
        print(difference)
        stages = STAGES if options.show else [difference.stage]
        lines = [line for stage in stages for line in difference.diff(stage)]
        print("\n".join(f"    {line}" for line in (lines if options.show else lines[:_SHOWN])))
    print(f"{count} programs, {len(found)} differ")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
