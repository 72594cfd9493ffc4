"""``python -m fuzz.threads``: programs that several threads compile and run at once give what one thread gives.

Each batch of programs has a process of its own, since what is loaded, measured or made at the first use is made once a
process. Two to five threads begin together; each reads, compiles and runs all programs in an order of its own, or all
in the same one, so that they compile the same program at once. The interpreter switches between them after a time that
is drawn, down to a microsecond. Every fourth batch goes through JAX. Afterwards one thread does the same, and all
results must have the same bits::

    python -m fuzz.threads --seed 7 --seconds 60
    python -m fuzz.threads --seed 7 --number 12        one batch of programs

The exit status is 1 where a program fails, differs, or is not done in time.
"""

from __future__ import annotations

import sys
import tempfile

from fuzz.support import numbered
from fuzz.support.workers.batches import fault_of_worker

_LONGEST_SECONDS = 120.0


def judge(seed: int, number: int) -> str:
    """Describe the fault of the programs of a batch; "" if there is none."""
    # What programs share is compiled by the threads, too, where the cache begins empty.
    with tempfile.TemporaryDirectory(prefix="threads-") as cache:
        environment = {"XLAKIT_CACHE_DIR": cache} if number % 2 else {}
        return fault_of_worker("threads_worker", [str(seed), str(number)], environment, _LONGEST_SECONDS)


main = numbered.net("fuzz.threads", __doc__, 200, lambda options, number: judge(options.seed, number))

if __name__ == "__main__":
    sys.exit(main())
