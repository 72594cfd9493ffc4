"""JAX's own tests of several processes: ``python -m fuzz.jax_multiprocess --jax CHECKOUT``.

CHECKOUT is one of JAX's repository, of the version that is installed. Each file of ``tests/multiprocess`` runs on so
many processes (``--processes``) of so many devices, once with xlakit as JAX's platform ``cpu`` and once on jaxlib's
CPU. A test has passed where it has in all processes, and failed where it has in one, or where it has no outcome in one,
because that process ended, or was ended with the file's time. Printed are the counts side by side, and the tests that
fail or are skipped on xlakit alone, with what was said. Ends with 1 where there are such.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fuzz.jax_tests import PLATFORMS
from fuzz.support import children
from fuzz.support.children import free_port
from fuzz.support.numbered import command

# What absl's tests say of themselves.
_SAID = re.compile(r"^\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] (\S+)", re.MULTILINE)
_OUTCOMES = {"RUN": "failed", "OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
_WORST_FIRST = ("failed", "skipped", "passed")
_LINES_SHOWN = 12


class Outcomes:
    """The tests of a file on one platform: for each what became of it in all processes, and what they said."""

    def __init__(self, logs: Sequence[str]) -> None:
        self.logs = logs
        each = [dict(_outcomes(log)) for log in logs]
        names = sorted({name for found in each for name in found})
        self.tests = {
            name: min((found.get(name, "failed") for found in each), key=_WORST_FIRST.index) for name in names
        }

    def count(self) -> str:
        """How many have passed, failed and were skipped."""
        counts = Counter(self.tests.values())
        return "{:>6} {:>6} {:>7}".format(*(counts[outcome] for outcome in ("passed", "failed", "skipped")))

    def reason(self, test: str) -> str:
        """The last lines of the first process that says why a test failed."""
        for log in self.logs:
            found = re.search(
                rf"^(?:FAIL|ERROR): {re.escape(test.rpartition('.')[2])} .*?(?=^=====|\Z)", log, re.M | re.S
            )
            if found:
                return "\n".join(found[0].strip().splitlines()[-_LINES_SHOWN:])
        return "\n".join(self.logs[0].splitlines()[-_LINES_SHOWN:])


def _outcomes(log: str) -> list[tuple[str, str]]:
    return [(name, _OUTCOMES[said]) for said, name in _SAID.findall(log)]


def run(file: Path, platform: str, processes: int, devices: int, seconds: float) -> Outcomes:
    """Run a file of tests on several processes, for so many seconds at most."""
    command = [sys.executable, str(file), f"--num_processes={processes}", "--heartbeat_timeout=60"]
    command += ["--initialization_timeout=120", "--shutdown_timeout=60"]
    command.append(f"--multiprocess_test_controller_address=localhost:{free_port()}")
    commands = [[*command, f"--multiprocess_test_worker_id={number}"] for number in range(processes)]
    with tempfile.TemporaryDirectory() as folder:
        with children.processes(commands, Path(folder), PLATFORMS[platform], devices) as started:
            _await(started, seconds)
        return Outcomes(children.logs(Path(folder), processes))


def _await(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return


def report(title: str, found: Mapping[str, Outcomes]) -> int:
    """Print what one file gave; gives how many tests fail or are skipped on the first platform alone."""
    print(f"{title:<28} {'   '.join(outcomes.count() for outcomes in found.values())}", flush=True)
    first, *others = found.values()
    if not first.tests:
        print("".join(f"    {line}\n" for line in first.reason("").splitlines()))
    worse = [
        test
        for test, outcome in first.tests.items()
        if outcome != "passed" and any(other.tests.get(test) == "passed" for other in others)
    ]
    for test in worse:
        print(f"  {first.tests[test]}: {test}")
        print("".join(f"    {line}\n" for line in first.reason(test).splitlines()))
    return len(worse)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.jax_multiprocess", __doc__)
    parser.add_argument("files", nargs="*", help="names in tests/multiprocess/ without _test.py; all of them")
    parser.add_argument("--jax", required=True, type=Path, help="a checkout of JAX's repository")
    parser.add_argument("--processes", type=int, action="append", help="how many processes (2 and 4)")
    parser.add_argument("--devices", type=int, default=2, help="of each process (2)")
    parser.add_argument("--seconds", type=float, default=300, help="for each file on each platform (300)")
    parser.add_argument("--only", choices=PLATFORMS, action="append", help="run on these platforms alone")
    options = parser.parse_args(arguments)
    folder = options.jax.resolve() / "tests" / "multiprocess"
    names = options.files or sorted(path.name.removesuffix("_test.py") for path in folder.glob("*_test.py"))
    platforms = options.only or ["as-cpu", "cpu"]
    print(f"{'':<28} " + "   ".join(f"{name:<21}" for name in platforms))
    print(f"{'':<28} " + "   ".join(f"{'passed':>6} {'failed':>6} {'skipped':>7}" for _ in platforms))
    worse = 0
    for processes in options.processes or (2, 4):
        for name in names:
            path = folder / f"{name}_test.py"
            if not path.exists():
                parser.error(f"there is no {path}")
            found = {p: run(path, p, processes, options.devices, options.seconds) for p in platforms}
            worse += report(f"{name}, {processes} processes", found)
    return min(worse, 1)


if __name__ == "__main__":
    sys.exit(main())
