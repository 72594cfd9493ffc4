"""``python -m fuzz.cached``: programs are run again from the compile cache, by other processes and with other options.

A few generated JAX programs are compiled by one process, each as if tuning had chosen a width of vectors and knobs that
are drawn at random (:mod:`fuzz.forced`). Then some of the functions that programs share are taken from the cache, as if
there had been no room for them, and another process runs the programs in any order: through JAX, which finds them by
its bytes, as modules, and compiled with yet other options in between. All numbers are exact, so that all results must
have the same bits; and what was kept must be found::

    python -m fuzz.cached --seed 7 --seconds 60
    python -m fuzz.cached --seed 7 --number 12        one batch of programs

The exit status is 1 where a program fails, differs, or is compiled again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fuzz.support import numbered

# Programs of a batch, which share the cache and the processes.
_BATCH = 5
_LONGEST_SECONDS = 300.0
# Options that are in force for this process are not what is tested.
_OPTIONS = ("XLAKIT_TUNE", "XLAKIT_PLAIN", "XLAKIT_VERIFY", "XLAKIT_SANITIZE", "XLAKIT_AS", "XLAKIT_CACHE")


def judge(seed: int, number: int) -> str:
    """What is wrong with the programs of a batch; empty where nothing is."""
    drawn = random.Random(f"{seed} {number} batch")
    with tempfile.TemporaryDirectory(prefix="cached-") as name:
        folder = Path(name)
        for role, tunes in (("first", True), ("again", drawn.random() < 0.5)):
            command = [sys.executable, "-m", "fuzz.support.workers.cached_worker", role, name, f"{seed}{number:04}"]
            command += map(str, range(_BATCH))
            fault = _fault_of(command, {**_environment(folder / "cache"), "XLAKIT_TUNE": str(int(tunes))})
            if fault:
                return fault
            _evict(folder / "cache", drawn)
    return ""


def _environment(cache: Path) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name not in _OPTIONS}
    return {**others, "JAX_PLATFORMS": "xlakit", "XLAKIT_CACHE_DIR": str(cache)}


def _fault_of(command: Sequence[str], environment: dict[str, str]) -> str:
    """The first fault that a process tells, or how it ended."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{command[3]}: not done in {_LONGEST_SECONDS:.0f} s"
    if done.stdout:
        return f"{command[3]}: {done.stdout.splitlines()[0]}"
    return (
        f"{command[3]}: ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}" if done.returncode else ""
    )


def _evict(cache: Path, drawn: random.Random) -> None:
    """Take some of the functions that programs share from the cache."""
    share = drawn.choice([0.0, 0.5, 1.0])
    for path in sorted(cache.glob("runtime-*")):
        if drawn.random() < share:
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = numbered.parser("fuzz.cached", __doc__ or "", 200).parse_args(arguments)

    def fault_of(number: int) -> str:
        return judge(options.seed, number)

    return numbered.run("fuzz.cached", numbered.entries(options, fault_of), options.seconds)


if __name__ == "__main__":
    sys.exit(main())
