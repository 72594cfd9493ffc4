"""``python -m fuzz.levels``: tests and nets at the levels of the instruction set below the machine's own.

They have other code for the same programs: narrower vectors, no FMA, no conversions of F16 (:mod:`xlakit.target`). By
default a sample of the kernels' tests runs at each of them; two levels whose vectors are alike share it, and ``--seed``
says which has which part. ``--all`` runs all tests of kernels, loops, elementary functions and scalars, and
``--seconds`` the nets ``idioms``, ``compiled`` and ``forced`` for so long at each level. The test suite runs the code
of the highest level, with what a machine has beyond it, such as AMX; ``--level`` takes that, too, and ``native``::

    python -m fuzz.levels
    python -m fuzz.levels --all --seconds 60 --level x86-64-v2

The exit status is 1 where something failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fuzz.nets import chosen, run
from fuzz.support.numbered import command
from xlakit.target import levels

_TESTS = Path(__file__).parents[1] / "tests" / "cpu"
# Of each family of kernels one file; and what numbers are stored as.
_SAMPLE = (
    "kernels/dot/test_dot_kernel.py",
    "kernels/test_convolution_kernel.py",
    "kernels/test_fft_kernel.py",
    "kernels/test_prefix_sum.py",
    "kernels/rng/test_random_numbers_kernel.py",
    "kernels/scatter/test_scatter_kernel.py",
    "kernels/sort/test_sort_common.py",
    "loops/test_lanes.py",
    "math/test_narrow.py",
    "scalars",
)
# Their vectors have 16 bytes and no FMA: the second level has a few more instructions.
_ALIKE = ("x86-64", "x86-64-v2")
_ALL = ("kernels", "loops", "math", "scalars", "test_generated_modules.py", "test_mixed_precision.py")
_NETS = ("idioms", "compiled", "forced")


def sample(level: str, seed: int) -> tuple[str, ...]:
    """The files of tests that run at a level."""
    if level not in _ALIKE:
        return _SAMPLE
    return _SAMPLE[(_ALIKE.index(level) + seed) % len(_ALIKE) :: len(_ALIKE)]


def test(level: str, files: Sequence[str], workers: int) -> bool:
    """Whether tests succeed at a level."""
    shared_out = ["-n", str(workers)] if workers > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", *shared_out, *(str(_TESTS / f) for f in files)]
    return subprocess.run(command, check=False, env={**os.environ, "XLAKIT_CPU": level}).returncode == 0


def search(level: str, seed: int, seconds: float) -> bool:
    """Whether the nets find nothing at a level."""
    os.environ["XLAKIT_CPU"] = level
    good = True
    for net in chosen(_NETS):
        found = run(net, seed, seconds / len(_NETS))
        print(f"{level} {net.name}: {found.fault or 'no fault'}; {found.last}", flush=True)
        good = good and not found.fault
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.levels", __doc__)
    parser.add_argument("--all", action="store_true", help="all tests of machine code, not a sample")
    parser.add_argument("--seconds", type=float, default=0.0, help="for nets at each level (0)")
    parser.add_argument(
        "--seed", type=int, default=0, help="what nets' programs are made from, and which level has what (0)"
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes that run tests")
    parser.add_argument("--level", action="append", default=[], help="these levels; by default those below the highest")
    options = parser.parse_args(arguments)
    failed: list[str] = []
    for level in options.level or levels()[:-1]:
        print(f"== {level}", flush=True)
        some = _SAMPLE if options.level else sample(level, options.seed)
        good = test(level, _ALL if options.all else some, options.workers)
        if options.seconds:
            good = search(level, options.seed, options.seconds) and good
        if not good:
            failed.append(level)
    print(f"levels that failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
