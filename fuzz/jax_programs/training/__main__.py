"""``python -m fuzz.jax_programs.training``: steps of training of drawn networks against the interpreter.

Some are compiled as they are, some for vectors of 16 bytes, some with knobs drawn as in :mod:`fuzz.forced`, some run
under the sanitizer. Most of the time goes to LLVM's passes, which faults of fusions and memory plans do not need: most
programs do without::

    python -m fuzz.jax_programs.training --seed 7 --seconds 60
    python -m fuzz.jax_programs.training --seed 7 --number 12
"""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from dataclasses import replace

import jax

from fuzz.forced import draw
from fuzz.jax_programs.training.judging import judge
from fuzz.jax_programs.training.steps import lowered, step
from fuzz.support import numbered
from xlakit.options import Options

# JAX keeps what it compiled.
_PROGRAMS_KEPT = 10
# The share of programs that LLVM's passes leave as they are, of those that no sanitizer watches.
_WITHOUT_PASSES = 0.6


def options_of(seed: int, number: int) -> Options:
    """How a program is compiled."""
    rng = random.Random(f"training {seed} {number} way")
    way = rng.choice([*("as it is",) * 3, "narrow", *("forced",) * 2, *("watched",) * 2])
    if way == "watched":
        return Options(sanitize=True, plain=frozenset({"llvm"}))
    made = draw(seed, number) if way == "forced" else Options(vector_bytes=16 if way == "narrow" else 0)
    return replace(made, plain=made.plain | {"llvm", "inline"}) if rng.random() < _WITHOUT_PASSES else made


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
