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

import random
import sys
import tempfile
from pathlib import Path

from fuzz.support import numbered
from fuzz.support.workers.batches import fault_of_worker

# Programs of a batch, which share the cache and the processes.
_BATCH = 5
_LONGEST_SECONDS = 300.0


def judge(seed: int, number: int) -> str:
    """Describe the fault of the programs of a batch; "" if there is none."""
    drawn = random.Random(f"{seed} {number} batch")
    with tempfile.TemporaryDirectory(prefix="cached-") as name:
        folder = Path(name)
        for role, tunes in (("first", True), ("again", drawn.random() < 0.5)):
            environment = {"XLAKIT_CACHE_DIR": str(folder / "cache"), "XLAKIT_TUNE": str(int(tunes))}
            arguments = [role, name, f"{seed}{number:04}", *map(str, range(_BATCH))]
            fault = fault_of_worker("cached_worker", arguments, environment, _LONGEST_SECONDS)
            if fault:
                return f"{role}: {fault}"
            _evict(folder / "cache", drawn)
    return ""


def _evict(cache: Path, drawn: random.Random) -> None:
    """Take some of the functions that programs share from the cache."""
    share = drawn.choice([0.0, 0.5, 1.0])
    for path in sorted(cache.glob("runtime-*")):
        if drawn.random() < share:
            path.unlink()


main = numbered.net("fuzz.cached", __doc__, 200, lambda options, number: judge(options.seed, number))

if __name__ == "__main__":
    sys.exit(main())
