"""``python -m fuzz.jax_processes``: arrays that span processes, on xlakit and on jaxlib's CPU.

JAX's ``multihost_utils``, arrays made of what processes have, programs on them, and checkpoints (where orbax is
installed), on 2 and 4 processes of 2 devices. Each process says what it has of each result, which must be the same on
both platforms, to the bit. Ends with 1 where something differs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzz.jax_tests import PLATFORMS
from fuzz.support import children
from fuzz.support.numbered import command

_SECONDS = 570.0
_FOUND = "found "


def run(platform: str, processes: int, devices: int) -> list[dict[str, str]]:
    """What each process has found, by the names of the checks."""
    command = [sys.executable, "-m", "fuzz.support.workers.jax_processes_worker"]
    coordinator = f"localhost:{children.free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        commands = [[*command, str(rank), str(processes), coordinator, folder] for rank in range(processes)]
        with children.processes(commands, Path(folder), PLATFORMS[platform], devices) as started:
            for process in started:
                process.wait(_SECONDS)
        texts = children.logs(Path(folder), processes)
    found = [dict(_result(line) for line in text.splitlines() if line.startswith(_FOUND)) for text in texts]
    for rank, (text, process) in enumerate(zip(texts, started, strict=True)):
        if process.returncode:
            found[rank]["end"] = f"ended with {process.returncode}: {text[-1000:]}"
    return found


def _result(line: str) -> tuple[str, str]:
    name, _, value = line.removeprefix(_FOUND).partition(": ")
    return name, value


def compare(processes: int, devices: int) -> int:
    """Run the checks on both platforms, and print how they compare; gives how many differ."""
    ours, theirs = run("as-cpu", processes, devices), run("cpu", processes, devices)
    names = list(dict.fromkeys(name for found in (*ours, *theirs) for name in found))
    wrong = 0
    for name in names:
        differ = [r for r, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.get(name) != b.get(name)]
        print(f"{processes} processes of {devices}: {name}: {f'DIFFERS in {differ}' if differ else 'same'}", flush=True)
        for rank in differ[:1]:
            print(f"  xlakit: {ours[rank].get(name)}\n  jaxlib: {theirs[rank].get(name)}")
        wrong += bool(differ)
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.jax_processes", __doc__)
    parser.add_argument("--processes", type=int, action="append", help="how many processes (2 and 4)")
    parser.add_argument("--devices", type=int, default=2, help="of each process (2)")
    options = parser.parse_args(arguments)
    wrong = sum(compare(processes, options.devices) for processes in options.processes or (2, 4))
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
