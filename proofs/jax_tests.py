"""JAX's own tests on xlakit and on jaxlib's CPU: ``python -m proofs.jax_tests --jax CHECKOUT [FILES]``.

CHECKOUT is one of JAX's repository, of the version that is installed. Each file runs in a process of its own, once for
each platform, and at most so many seconds; what has not run then counts as not run. Printed are the counts side by
side, and then what xlakit fails and jaxlib's CPU does not, by cause.

JAX's tests need absl-py. FILES are names in ``tests/`` without ``_test.py``, such as ``lax lax_control_flow``. ``-k``
chooses among the tests as pytest does. To JAX's tests both platforms are processors: none is skipped for being of
another kind. Ends with 1 where xlakit fails what jaxlib's CPU passes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FILES = (
    "lax", "lax_numpy", "lax_numpy_operators", "lax_numpy_indexing", "lax_numpy_reducers", "lax_control_flow",
    "lax_autodiff", "lax_vmap", "random", "fft", "linalg", "scipy_signal", "nn", "api", "dtypes", "array",
)  # fmt: skip
PLATFORMS = {"xlakit": "xlakit,cpu", "cpu": "cpu"}
_ROOT = Path(__file__).parents[1]
_TESTS_SHOWN = 3
# What pytest ends with where it was interrupted, has failed itself, or was called in a wrong way.
_NOT_RUN = (2, 3, 4)


@dataclass
class Results:
    """What became of the tests of one file on one platform: for each its outcome, and what was said."""

    tests: dict[str, tuple[str, str]] = field(default_factory=dict)
    has_ended: bool = True

    def of(self, outcome: str) -> list[str]:
        """The tests with an outcome."""
        return [test for test, (found, _) in self.tests.items() if found == outcome]


def run(file: Path, platform: str, seconds: float, choice: str, cases: int, sample: int = 0) -> Results:
    """The results of a file on a platform."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results"
        environment = {
            **os.environ,
            "JAX_PLATFORMS": PLATFORMS[platform],
            "JAX_NUM_GENERATED_CASES": str(cases),
            "JAX_RESULTS": str(output),
            "JAX_SAMPLE": str(sample),
            "JAX_AS_CPU": "1",
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--noconftest",
            "-c",
            os.devnull,
            "--rootdir",
            str(file.parent),
        ]
        command += ["-p", "no:cacheprovider", "-p", "proofs.jax_results", "-n0" if _has_xdist() else "-q", str(file)]
        if choice:
            command += ["-k", choice]
        # In a folder of its own: JAX's sources beside its tests are not those that are installed.
        log = Path(folder) / "log"
        with log.open("w") as said:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
            try:
                has_ended = process.wait(seconds) >= 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                has_ended = False
        if process.returncode in _NOT_RUN:
            sys.exit(f"{file} does not run:\n" + "\n".join(log.read_text().splitlines()[-30:]))
        crashed = process.returncode not in (0, 1, 5, -9)
        return _read(output, crashed=crashed, has_ended=has_ended)


def _has_xdist() -> bool:
    from importlib.util import find_spec

    return find_spec("xdist") is not None


def _read(output: Path, *, crashed: bool, has_ended: bool) -> Results:
    results = Results(has_ended=has_ended)
    last = ""
    for line in output.read_text().splitlines() if output.exists() else ():
        test, outcome, text = json.loads(line)
        last = test
        # A test whose end fails has failed, whatever it was before.
        if outcome != "begun" or test not in results.tests:
            results.tests[test] = outcome, text
    if last and results.tests[last][0] == "begun":
        if crashed:
            results.tests[last] = "failed", "the process ended"
        else:
            del results.tests[last]
    return results


def _cause(text: str) -> str:
    """The first line that tells, without the numbers that differ from test to test."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if line != "AssertionError:"), "") if lines else ""
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", first)[:160]


def report(file: str, results: Mapping[str, Results]) -> int:
    """Print what one file gave; gives how many tests only xlakit fails."""
    cells: list[str] = []
    for found in results.values():
        counts = [len(found.of(outcome)) for outcome in ("passed", "failed", "skipped")]
        cells.append("{:>6} {:>6} {:>7}".format(*counts) + (" " if found.has_ended else "+"))
    print(f"{file:<24} {'  '.join(cells)}", flush=True)
    ours, theirs = results["xlakit"], results.get("cpu", Results())
    worse = [test for test in ours.of("failed") if theirs.tests.get(test, ("", ""))[0] != "failed"]
    causes: defaultdict[str, list[str]] = defaultdict(list)
    for test in worse:
        causes[_cause(ours.tests[test][1])].append(test)
    for cause, tests in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"    {len(tests):>4}  {cause}\n          {', '.join(tests[:_TESTS_SHOWN])}")
    skips = Counter(
        _cause(ours.tests[test][1])
        for test in ours.of("skipped")
        if theirs.tests.get(test, ("skipped", ""))[0] != "skipped"
    )
    for cause, count in skips.most_common():
        print(f"    {count:>4}  skipped on xlakit only: {cause}")
    return len(worse)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the files on both platforms."""
    parser = argparse.ArgumentParser(prog="python -m proofs.jax_tests", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", default=FILES, help="names in tests/ without _test.py")
    parser.add_argument("--jax", required=True, type=Path, help="a checkout of JAX's repository")
    parser.add_argument("--seconds", type=float, default=600, help="for each file on each platform")
    parser.add_argument("--cases", type=int, default=1, help="how many cases JAX makes of each of its tests")
    parser.add_argument("--sample", type=int, default=0, help="how many of a file's tests, chosen by chance; 0 for all")
    parser.add_argument("--only", choices=PLATFORMS, help="run on this platform alone")
    parser.add_argument("-k", dest="choice", default="", help="which tests, as pytest takes it")
    options = parser.parse_args(arguments)
    platforms = [options.only] if options.only else list(PLATFORMS)
    print(f"{'':<24} " + "  ".join(f"{name:<22}" for name in platforms))
    print(f"{'':<24} " + "  ".join(f"{'passed':>6} {'failed':>6} {'skipped':>7} " for _ in platforms))
    worse = 0
    for name in options.files:
        path = options.jax.resolve() / "tests" / f"{name}_test.py"
        if not path.exists():
            parser.error(f"there is no {path}")
        found = {p: run(path, p, options.seconds, options.choice, options.cases, options.sample) for p in platforms}
        if "xlakit" in found:
            worse += report(name, found)
        else:
            report(name, {"xlakit": Results(), **found})
    print("+ marks what was not done in time")
    return min(worse, 1)


if __name__ == "__main__":
    sys.exit(main())
