"""Writes down what the compiler makes of programs, for fuzz.replay: ``python recorder.py PROGRAMS RECORDS``.

It runs on the package of any revision, as ``PYTHONPATH`` says, so it imports nothing else of this repository, and
asks a compiled program only for what executables have long been able to say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import xlakit


def record(text: str) -> dict[str, str]:
    """What is made of a module, stage by stage: HLO after passes, memory, LLVM IR before LLVM's passes, assembly."""
    executable = xlakit.compile(xlakit.HloModule.from_text(text), backend="cpu", cache=False)
    return {
        "hlo": executable.as_text(),
        "memory": str(executable.memory_analysis()),
        "llvm": executable.llvm_ir(optimized=False),
        "assembly": executable.assembly(),
    }


def main(programs: Path, records: Path) -> None:
    """Record each program of a folder; one that does not compile is recorded as its error."""
    for path in sorted(programs.glob("*.hlo")):
        try:
            stages = record(path.read_text())
        except xlakit.XlakitError as error:
            stages = {"error": str(error)}
        (records / f"{path.stem}.json").write_text(json.dumps(stages))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
