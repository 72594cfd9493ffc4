"""``python -m fuzz.jax_programs.training``: steps of training of drawn networks against the interpreter.

Some are compiled as they are, some for vectors of 16 bytes, some with knobs drawn as in :mod:`fuzz.forced`, some run
under the sanitizer::

    python -m fuzz.jax_programs.training --seed 7 --seconds 60
    python -m fuzz.jax_programs.training --seed 7 --number 12
"""

from __future__ import annotations

import random
import sys
from argparse import Namespace

import jax

from fuzz.forced import draw
from fuzz.jax_programs.training.judging import judge
from fuzz.jax_programs.training.steps import lowered, step
from fuzz.support import numbered
from xlakit.options import Options

# JAX keeps what it compiled.
_PROGRAMS_KEPT = 10


def options_of(seed: int, number: int) -> Options:
    """How a program is compiled."""
    way = random.Random(f"training {seed} {number} way").choice(["as it is", "as it is", "narrow", "forced", "watched"])
    if way == "forced":
        return draw(seed, number)
    return Options(vector_bytes=16 if way == "narrow" else 0, sanitize=way == "watched")


def _fault_of(options: Namespace, number: int) -> str:
    if number % _PROGRAMS_KEPT == 0:
        jax.clear_caches()
    made, way = step(options.seed, number), options_of(options.seed, number)
    if options.number is not None:
        numbered.show(options, lowered(made).as_text(), way.text)
    return judge(made, way)


main = numbered.net("fuzz.jax_programs.training", __doc__, 1000, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
