"""Programs over a batch, as ``jax.vmap`` makes them: each operation has the batch's dimension first.

Half of them are compiled with knobs for which each operation that can be is made in batch-minor form, at any cost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from fuzz.jax_programs.control import program

_SIZES = (16, 17, 32, 40)
_ALL = {
    "batch_minor.fewest_members": 3,
    "batch_minor.fewest_arrays": 1,
    "batch_minor.moved": 0.0,
    "batch_minor.moved_array": 0.0,
}


def is_batch(seed: str) -> bool:
    """Whether a seed is one of these programs."""
    return seed.startswith("batches")


def sizes(seed: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes of an argument, with those of the batch."""
    return (random.Random(f"{seed} batch").choice(_SIZES), *shape)


def over_batch(seed: str) -> Callable[..., Any]:
    """The program over the first dimension of its arguments."""
    return jax.vmap(program(seed))


@contextmanager
def with_knobs(seed: str) -> Generator[None]:
    """Compile as is drawn for a program."""
    from xlakit.options import compiling

    is_forced = is_batch(seed) and random.Random(f"{seed} knobs").random() < 0.5
    # Programs of small whole numbers have no subnormal results, but for functions such as exp.
    keeps_subnormals = random.Random(f"{seed} subnormals").random() < 0.25
    with compiling(knobs=_ALL if is_forced else {}, flush_subnormals=False if keeps_subnormals else None):
        yield
