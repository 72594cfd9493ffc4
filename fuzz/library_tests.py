"""Libraries' own tests on xlakit and on jaxlib's CPU: ``python -m fuzz.library_tests --checkout DIR ...``.

Each DIR is a checkout of a library written with JAX, of the version that is installed (``python -m fuzz.libraries
--install`` makes an environment that has them all, and says which Python to call this with). What runs and is printed
is as for fuzz.jax_tests: each file in a process of its own, once for each platform; ``--keep FOLDER`` goes on where
the last run stopped. The smallest files come first, so that many are whole when the time is over. Last comes a table, a
line for each library: how many of its files ran whole and in part, and what their tests gave; ``--keep FOLDER
--seconds-file 0`` makes it of what is there.

``--share SECONDS`` takes a library's files in an order of chance (``--seed``), until so much time is over.
``--together`` runs all files of a library in one process, ``--sample`` of their tests, which spares the time that each
takes to begin; ``--seconds-file`` is then the library's.

``--after`` runs on jaxlib's CPU only the tests that failed, were skipped or were slow on xlakit.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fuzz.jax_tests import (
    Choice,
    DoesNotRunError,
    Results,
    add_common_options,
    platforms_of,
    report,
    run_platforms,
)
from fuzz.support.numbered import command


@dataclass(frozen=True)
class Library:
    """Where a library's tests are in its checkout."""

    name: str
    package: str
    """A folder that only this library's checkout has."""
    tests: str
    leave_out: tuple[str, ...] = ()
    """Parts of paths of files that need what is not installed, or that do not run on one processor."""


LIBRARIES: Final = (
    Library("chex", "chex", "chex/**/*_test.py", ("pmap",)),
    Library("optax", "optax", "optax/**/*_test.py"),
    Library("equinox", "equinox", "tests/test_*.py"),
    Library("lineax", "lineax", "tests/test_*.py"),
    Library("optimistix", "optimistix", "tests/test_*.py"),
    Library("diffrax", "diffrax", "test/test_*.py"),
    Library("jaxopt", "jaxopt", "tests/*_test.py"),
    Library("tinygp", "src/tinygp", "tests/**/test_*.py"),
    Library("distrax", "distrax", "distrax/**/*_test.py"),
    Library("haiku", "haiku", "haiku/**/*_test.py"),
    Library("flax", "flax", "tests/**/*_test.py"),
    Library("numpyro", "numpyro", "test/**/test_*.py", ("contrib/einstein", "test_example")),
    Library("ott", "src/ott", "tests/**/*_test.py"),
    Library("e3nn", "e3nn_jax", "tests/**/*_test.py"),
    Library("evosax", "evosax", "tests/**/test_*.py", ("test_rl", "test_vision", "test_examples")),
    Library("flowjax", "flowjax", "tests/**/test_*.py"),
    Library("interpax", "interpax", "tests/test_*.py"),
    Library("jaxlie", "jaxlie", "tests/test_*.py"),
    Library("jraph", "jraph", "jraph/**/*_test.py", ("ogb_examples",)),
    Library(
        "keras",
        "keras",
        "keras/src/**/*_test.py",
        ("export/", "litert", "tensorboard", "layers/preprocessing/", "backend/t", "tf_dataset"),
    ),
    Library("mctx", "mctx", "mctx/**/*_test.py"),
    Library("mjx", "mujoco/mjx", "mujoco/mjx/_src/*_test.py", ("render",)),
    Library("orthax", "orthax", "tests/test_*.py"),
    Library("quadax", "quadax", "tests/test_*.py"),
    Library("rlax", "rlax", "rlax/**/*_test.py"),
    # Several devices, progress bars, and times.
    Library("blackjax", "blackjax", "tests/**/test_*.py", ("multidevice", "progress_bar", "benchmarks")),
    Library("brax", "brax", "brax/**/*_test.py"),
    Library("distreqx", "distreqx", "tests/*.py"),
    Library("dm_pix", "dm_pix", "dm_pix/**/*_test.py"),
    Library("exponax", "exponax", "tests/test_*.py", ("test_viz",)),
    Library("flashbax", "flashbax", "flashbax/**/*_test.py"),
    Library("jax_md", "jax_md", "tests/*_test.py", ("uma", "tpu")),
    Library("jumanji", "jumanji", "jumanji/**/*_test.py", ("training/",)),
    Library("penzai", "penzai", "tests/**/*_test.py"),
    Library("quax", "src/quax", "tests/**/test_*.py"),
    Library("scico", "scico", "scico/test/**/test_*.py"),
    Library("asdex", "src/asdex", "tests/**/test_*.py"),
    Library("copulax", "copulax", "copulax/tests/test_*.py"),
    Library("folx", "folx", "test/test_*.py"),
    Library("jaxwavelets", "jaxwavelets", "jaxwavelets/tests/test_*.py"),
)


def library_of(checkout: Path) -> Library | None:
    """The library that a folder is a checkout of."""
    return next((library for library in LIBRARIES if (checkout / library.package / "__init__.py").exists()), None)


def files_of(library: Library, checkout: Path) -> list[Path]:
    """Its files of tests."""
    found = sorted(checkout.glob(library.tests))
    return [file for file in found if not any(part in str(file.relative_to(checkout)) for part in library.leave_out)]


@dataclass(frozen=True)
class Share:
    """How much of a library runs: its files in an order of chance, until the time is over."""

    seconds: float = 0
    seed: int = 0
    together: bool = False
    """Whether they run in one process."""

    def files(self, library: Library, checkout: Path) -> Iterator[Path]:
        """The files to run; without a time all, the smallest first."""
        files = files_of(library, checkout)
        end = float("inf")
        if self.seconds:
            random.Random(self.seed).shuffle(files)
            end = time.monotonic() + self.seconds
        else:
            files.sort(key=lambda file: file.stat().st_size)
        return (file for file in files if time.monotonic() < end)


def run_library(
    checkout: Path, platforms: Iterable[str], choice: Choice, share: Share, *, after: bool
) -> tuple[str, int]:
    """Run a library's tests; gives its line of the table, and how many tests only xlakit fails or skips."""
    library = library_of(checkout)
    assert library is not None
    total: dict[str, Results] = {platform: Results() for platform in platforms}
    whole: set[str] = set()
    begun: set[str] = set()
    worse = 0
    for name, file, chosen in _runs(library, checkout, choice, share):
        try:
            found = run_platforms(file, total, chosen, after=after, name=name)
        except DoesNotRunError as error:
            print(f"{name}: does not run: {_last_line(str(error))}", flush=True)
            continue
        if not any(results.tests for results in found.values()):
            if choice.seconds and not all(results.has_ended for results in found.values()):
                print(f"{name}: no test ran in its time", flush=True)
            continue
        first = next(iter(found.values()))
        files = {test.partition("::")[0] for test in first.tests} if chosen.together else {name}
        begun |= files
        whole |= files if first.has_ended else set()
        worse += report(name, found)
        for platform, results in found.items():
            total[platform].tests.update({f"{name}::{test}": ended for test, ended in results.tests.items()})
    counts = f"{len(whole)} of {len(files_of(library, checkout))} | {len(begun - whole)}"
    return f"| {library.name} | {counts} | {_counts(total)} |", worse


def _runs(library: Library, checkout: Path, choice: Choice, share: Share) -> Iterator[tuple[str, Path, Choice]]:
    """What runs in a process each: a name for its results, where it is, and what is chosen of it."""
    files = share.files(library, checkout)
    if share.together:
        yield library.name, checkout, replace(choice, together=tuple(files))
        return
    for file in files:
        yield f"{library.name}/{file.relative_to(checkout).with_suffix('')}", file, choice


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E ")]
    return (lines or text.splitlines())[-1]


def _counts(total: Mapping[str, Results]) -> str:
    """How many tests passed, failed, failed on the second platform, too, were skipped, and skipped there, too."""
    first, *others = total.values()
    counts = [len(first.of("passed"))]
    for outcome in ("failed", "skipped"):
        tests = first.of(outcome)
        counts.append(len(tests))
        counts += [sum(_is_alike(outcome, other, test) for test in tests) for other in others]
    return " | ".join(map(str, counts))


def _is_alike(outcome: str, there: Results, test: str) -> bool:
    """Whether a test ended there as badly as here."""
    return there.tests.get(test, ("", ""))[0] in (outcome, "failed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the libraries' tests on both platforms."""
    parser = command("fuzz.library_tests", __doc__)
    parser.add_argument("--checkout", nargs="+", required=True, type=Path, help="checkouts of libraries")
    parser.add_argument("--seconds", type=float, default=0, help="for all; what is not begun then is left; 0 for all")
    parser.add_argument("--seconds-file", type=float, default=600, help="for each file on each platform")
    parser.add_argument("--seconds-test", type=float, default=120, help="for each test")
    parser.add_argument(
        "--share", type=float, default=0, help="seconds for each library, its files by chance; 0 for all"
    )
    parser.add_argument("--together", action="store_true", help="a library's files in one process")
    add_common_options(parser)
    options = parser.parse_args(arguments)
    platforms = platforms_of(options)
    common = Choice(options.seconds_file, options.choice, 1, options.sample, options.seed, options.keep)
    common = replace(common, again=options.again, seconds_each=options.seconds_test, pytest_options=())
    checkouts = [checkout.resolve() for checkout in options.checkout]
    for checkout in checkouts:
        if library_of(checkout) is None:
            parser.error(f"{checkout} is a checkout of none of {', '.join(library.name for library in LIBRARIES)}")
    share = Share(options.share, options.seed, options.together)
    end = time.monotonic() + (options.seconds or float("inf"))
    lines: list[str] = []
    worse = 0
    for checkout in checkouts:
        if time.monotonic() > end:
            print(f"{checkout} is left out: the time is over")
            continue
        line, failed = run_library(checkout, platforms, common, share, after=options.after)
        lines.append(line)
        worse += failed
    print("\n".join(lines))
    return min(worse, 1)


if __name__ == "__main__":
    sys.exit(main())
