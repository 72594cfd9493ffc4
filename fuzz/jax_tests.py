"""JAX's own tests on xlakit and on jaxlib's CPU: ``python -m fuzz.jax_tests --jax CHECKOUT [FILES]``.

CHECKOUT is one of JAX's repository, of the version that is installed. xlakit is JAX's platform ``cpu`` (``as-cpu``);
with ``--on xlakit`` it is a platform of its own. Each file runs in a process of its own, once for each platform, and at
most so many seconds; what has not run then counts as not run. Printed are the counts side by side, and then what xlakit
fails or skips and jaxlib's CPU does not, by cause. A test that ends its process has failed, and the others of its file
run in the next one.

With ``--keep FOLDER`` results stay: the next run does what is not done, and ``--seconds 0`` only reports. ``--again``
has those that failed run again. So the platforms may be run apart (``--only``), and jaxlib's once for ever. ``--after``
runs on jaxlib's CPU only the tests that failed, were skipped, or took ten seconds of processor time on xlakit, which
finds all that is reported: tests that pass on both and take five times as long on xlakit are named, too.

JAX's tests need absl-py. FILES are names in ``tests/`` without ``_test.py``, such as ``lax lax_control_flow``. ``-k``
chooses among the tests as pytest does. To JAX's tests all platforms are processors: none is skipped for being of
another kind. Ends with 1 where xlakit fails or skips what jaxlib's CPU passes, unless fuzz/support/jax_accepted.py says
why it may.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz.support.jax_accepted import reason
from fuzz.support.jax_results import read, write
from fuzz.support.numbered import command

FILES = (
    "lax", "lax_numpy", "lax_numpy_operators", "lax_numpy_indexing", "lax_numpy_reducers", "lax_control_flow",
    "lax_autodiff", "lax_vmap", "random", "fft", "linalg", "scipy_signal", "nn", "api", "dtypes", "array",
)  # fmt: skip
# For each platform what stands in the environment; the last is what the others are compared with.
PLATFORMS = {
    "as-cpu": {"JAX_PLATFORMS": "cpu", "XLAKIT_AS": "cpu"},
    "xlakit": {"JAX_PLATFORMS": "xlakit,cpu", "XLAKIT_AS": "", "JAX_TESTED_AS_CPU": "1"},
    "cpu": {"JAX_PLATFORMS": "cpu", "XLAKIT_AS": ""},
}
# A process may take this many times the time limit of a test until its first test begins.
_TIMES_TO_BEGIN = 10
_ROOT = Path(__file__).parents[1]
_TESTS_SHOWN = 3
# A test that takes more than so many seconds of processor time is compared with jaxlib's CPU, and named in the report
# if it takes so many times as long as there.
_SLOW_SECONDS, _SLOW_TIMES = 10, 5
# The exit statuses of pytest if it was interrupted, has failed itself, or was called in a wrong way.
_NOT_RUN = (2, 3, 4)
# The exit statuses of pytest if all tests passed, if some failed, and if there were none to run.
_ENDED = (0, 1, 5)
_HOW = {-signal.SIGKILL: "the process was ended: the test took too long, or too much memory"}


class DoesNotRunError(Exception):
    """Pytest does not get as far as a file's tests."""


@dataclass
class Results:
    """The results of the tests of one file on one platform: for each its outcome, and its message."""

    tests: dict[str, tuple[str, str]] = field(default_factory=dict)
    has_ended: bool = True

    def of(self, outcome: str) -> list[str]:
        """The tests with an outcome."""
        return [test for test, (found, _) in self.tests.items() if found == outcome]


@dataclass(frozen=True)
class Choice:
    """Which of a file's tests run, for how long, and where their results stay."""

    seconds: float = 600
    tests: str = ""
    cases: int = 1
    sample: int = 0
    seed: int = 0
    """Of the sample."""
    keep: Path | None = None
    again: bool = False
    seconds_each: float = math.inf
    """For one test; after that its process is ended, and the test has failed."""
    pytest_options: tuple[str, ...] = ("--noconftest",)
    names: tuple[str, ...] | None = None
    """The tests that run; None for all that ``tests`` and ``sample`` leave."""
    together: tuple[Path, ...] = ()
    """Files that run in one process, in place of that whose folder they are under; their tests have their names."""


def run_platforms(
    file: Path, platforms: Iterable[str], choice: Choice, *, after: bool = False, name: str = ""
) -> dict[str, Results]:
    """The results of a file on platforms; ``after`` one, the others run what did not pass there or was slow."""
    found: dict[str, Results] = {}
    for platform in platforms:
        if after and found:
            first = next(iter(found.values()))
            in_question = tuple(
                test
                for test, (outcome, text) in first.tests.items()
                if outcome != "passed" or _seconds(text) > _SLOW_SECONDS
            )
            if not in_question:
                continue
            found[platform] = run(file, platform, replace(choice, names=in_question), name)
        else:
            found[platform] = run(file, platform, choice, name)
    return found


def _seconds(text: str) -> float:
    """The processor time of a test that passed; older files of results do not have it."""
    return float(text or 0)


def run(file: Path, platform: str, choice: Choice, name: str = "") -> Results:
    """The results of a file on a platform; they are kept under a name, or that of the file."""
    with _kept(choice, f"{name or file.stem.removesuffix('_test')}.{platform}") as output:
        end = time.monotonic() + choice.seconds
        while (left := end - time.monotonic()) > 0:
            before = len(_results(output).tests)
            status, log = _run_until_it_ends(file, platform, left, choice, output)
            if status in _NOT_RUN:
                raise DoesNotRunError(f"{file} does not run:\n{log}")
            how = "" if status in (*_ENDED, None) else _HOW.get(status, f"the process ended with {status}")
            found = _results(output, crashed=how)
            if how and not found.tests:
                raise DoesNotRunError(f"{file} does not run:\n{log}\n{how} before its first test")
            if not how or len(found.tests) == before:
                break
        return _results(output)


@contextmanager
def _kept(choice: Choice, name: str) -> Generator[Path]:
    """Where the results of a file on a platform are written."""
    with tempfile.TemporaryDirectory() as folder:
        output = (choice.keep or Path(folder)).resolve() / f"{name}.jsonl"
        output.parent.mkdir(parents=True, exist_ok=True)
        if choice.again:
            lines = read(output)
            output.write_text("")
            for test, (outcome, text) in lines.items():
                if outcome != "failed":
                    write(output, test, outcome, text)
        yield output


def _run_until_it_ends(
    file: Path, platform: str, seconds: float, choice: Choice, output: Path
) -> tuple[int | None, str]:
    """Run what is not done in a process; gives what it ends with, None if it has to be ended, and what it said last."""
    environment = {
        **os.environ,
        **PLATFORMS[platform],
        "JAX_NUM_GENERATED_CASES": str(choice.cases),
        "JAX_RESULTS": str(output),
        "JAX_SAMPLE": str(choice.sample),
        "JAX_SEED": str(choice.seed),
        "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-q", *choice.pytest_options, "-c", os.devnull]
    command += ["-p", "no:cacheprovider", "-p", "fuzz.support.jax_results", "-n0" if _has_xdist() else "-q"]
    if choice.together:
        # Files of one name in several folders are modules of their own, and one that cannot be imported ends no other.
        command += ["--rootdir", str(file), "--import-mode=importlib", "--continue-on-collection-errors"]
        command += map(str, choice.together)
        environment["JAX_TOGETHER"] = "1"
    else:
        command += ["--rootdir", str(file.parent), str(file)]
    if choice.tests:
        command += ["-k", choice.tests]
    # In a folder of its own: JAX's sources beside its tests are not those that are installed.
    with tempfile.TemporaryDirectory() as folder:
        log, names = Path(folder) / "log", Path(folder) / "names"
        if choice.names is not None:
            names.write_text(json.dumps(choice.names))
            environment["JAX_NAMES"] = str(names)
        with log.open("w") as said:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
            status = wait(process, seconds, choice.seconds_each, output)
        return status, "\n".join(log.read_text().splitlines()[-30:])


def wait(process: subprocess.Popen[bytes], seconds: float, seconds_each: float, output: Path) -> int | None:
    """What a process ends with; None where it took too long, and -SIGKILL where one of its tests did."""
    end = time.monotonic() + seconds
    # The size of the file of results changes when tests are found, when one begins, and when it ends. The time until
    # they are found is no test's: imports take minutes where the machine does much else.
    size, since = size_of(output), time.monotonic()
    limit = _TIMES_TO_BEGIN * seconds_each
    while (now := time.monotonic()) < end:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(end - now, 1))
        grown = size_of(output)
        if grown != size:
            size, since, limit = grown, now, seconds_each
        elif now - since > limit:
            break
    process.kill()
    process.wait()
    return None if now >= end else -signal.SIGKILL


def size_of(output: Path) -> int:
    """The bytes of a file of results; 0 if it is not there yet."""
    return output.stat().st_size if output.exists() else 0


def _has_xdist() -> bool:
    from importlib.util import find_spec

    return find_spec("xdist") is not None


def _results(output: Path, *, crashed: str = "") -> Results:
    """What a file says; where the process has crashed, it is written there which test did it, and how."""
    tests = read(output)
    _, found = tests.pop("", ("", ""))
    running = [test for test, (outcome, _) in tests.items() if outcome == "begun"]
    for test in running:
        del tests[test]
    if crashed and running:
        tests[running[-1]] = "failed", crashed
        write(output, running[-1], *tests[running[-1]])
    return Results(tests, has_ended=bool(found) and len(tests) >= int(found))


def _cause(text: str) -> str:
    """The first line that tells, without the numbers that differ from test to test."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = next((line for line in lines if line != "AssertionError:"), "") if lines else ""
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", first)[:160]


def report(file: str, results: Mapping[str, Results]) -> int:
    """Print what one file gave, on xlakit and on ``cpu``; gives how many tests only xlakit fails or skips."""
    cells: list[str] = []
    for found in results.values():
        counts = [len(found.of(outcome)) for outcome in ("passed", "failed", "skipped")]
        cells.append("{:>6} {:>6} {:>7}".format(*counts) + (" " if found.has_ended else "+"))
    print(f"{file:<24} {'  '.join(cells)}", flush=True)
    theirs = results.get("cpu", Results())
    ours = next((found for platform, found in results.items() if platform != "cpu"), Results())
    worse: list[str] = []
    causes: defaultdict[str, list[str]] = defaultdict(list)
    for outcome in ("failed", "skipped"):
        for test in ours.of(outcome):
            # What did not run there yet may fail there, too, but is not skipped by this alone.
            if theirs.tests.get(test, ("" if outcome == "failed" else outcome, ""))[0] not in (outcome, "failed"):
                accepted = reason(file, test)
                cause = f"accepted: {accepted}" if accepted else _cause(ours.tests[test][1])
                causes[cause if outcome == "failed" else f"skipped: {cause}"].append(test)
                worse += [] if accepted else [test]
    for cause, tests in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"    {len(tests):>4}  {cause}\n          {', '.join(tests[:_TESTS_SHOWN])}")
    for test in ours.of("passed"):
        outcome, text = theirs.tests.get(test, ("", ""))
        taken, there = _seconds(ours.tests[test][1]), _seconds(text)
        if outcome == "passed" and text and taken > max(_SLOW_SECONDS, _SLOW_TIMES * there):
            print(f"          slower: {taken:.1f} s of processor time, {there:.1f} s on jaxlib's CPU\n          {test}")
    return len(worse)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which tests run on which platforms, and where results are kept."""
    parser.add_argument("--sample", type=int, default=0, help="how many of a file's tests, chosen by chance; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="of what is chosen by chance")
    parser.add_argument(
        "--after", action="store_true", help="on jaxlib's CPU only tests that did not pass on xlakit or were slow"
    )
    parser.add_argument("-k", dest="choice", default="", help="which tests, as pytest takes it")
    add_platform_options(parser)


def add_platform_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say on which platforms something runs, and where results are kept."""
    parser.add_argument("--keep", type=Path, help="a folder for results, where the next run goes on")
    parser.add_argument("--again", action="store_true", help="have those that failed run again")
    parser.add_argument(
        "--on", choices=[name for name in PLATFORMS if name != "cpu"], default="as-cpu", help="xlakit as"
    )
    parser.add_argument("--only", choices=PLATFORMS, help="run on this platform alone")


def platforms_of(options: argparse.Namespace) -> list[str]:
    """The platforms that the options say; the last is what the others are compared with."""
    return [options.only] if options.only else [options.on, "cpu"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the files on both platforms."""
    parser = command("fuzz.jax_tests", __doc__)
    parser.add_argument("files", nargs="*", default=FILES, help="names in tests/ without _test.py")
    parser.add_argument("--jax", required=True, type=Path, help="a checkout of JAX's repository")
    parser.add_argument("--seconds", type=float, default=600, help="for each file on each platform")
    parser.add_argument("--cases", type=int, default=1, help="how many cases JAX makes of each of its tests")
    add_common_options(parser)
    options = parser.parse_args(arguments)
    platforms = platforms_of(options)
    choice = Choice(options.seconds, options.choice, options.cases, options.sample, options.seed, options.keep)
    choice = replace(choice, again=options.again)
    print(f"{'':<24} " + "  ".join(f"{name:<22}" for name in platforms))
    print(f"{'':<24} " + "  ".join(f"{'passed':>6} {'failed':>6} {'skipped':>7} " for _ in platforms))
    worse = 0
    for name in options.files:
        path = options.jax.resolve() / "tests" / f"{name}_test.py"
        if not path.exists():
            parser.error(f"there is no {path}")
        try:
            found = run_platforms(path, platforms, choice, after=options.after)
        except DoesNotRunError as error:
            print(error, flush=True)
            worse += 1
        else:
            worse += report(name, found)
    print("+ marks what is not done yet")
    return min(worse, 1)


if __name__ == "__main__":
    sys.exit(main())
