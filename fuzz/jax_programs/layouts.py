"""Programs whose arguments and results lie in memory in orders that were drawn: ``jax.experimental.layout``.

An argument is an array of NumPy or of the device, in any order of its dimensions, and may be given up to the program;
a result is asked for in an order, or in whichever the compiler likes. What a program gives is taken by another one,
which returns it in a third order, and leaves JAX as an array of NumPy and through DLPack.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout

from fuzz.jax_programs.control import program

Array = Any


def in_layouts(seed: str, given: Sequence[Array]) -> list[list[Array]]:
    """The results of a program on xlakit, as each of the ways gives them on which they leave JAX.

    Raises AssertionError where a result lies in another order than was asked for.
    """
    r, device = random.Random(f"{seed} layouts"), jax.devices("xlakit")[0]
    here = jax.sharding.SingleDeviceSharding(device)
    with jax.default_device(device):
        function: Callable[..., Sequence[Array]] = program(seed)
        shapes = [x.shape for x in jax.eval_shape(function, *given)]
        asked = [_asked(r, shape, here) for shape in shapes]
        is_automatic = r.random() < 0.3
        keeps_last = r.random() < 0.4
        if is_automatic:
            automatic = jax.jit(function, in_shardings=Format(Layout.AUTO, here), out_shardings=tuple(asked))
            compiled = automatic.lower(*given).compile()
            arguments = [jax.device_put(x, f) for x, f in zip(given, compiled.input_formats[0], strict=True)]
            made = compiled(*arguments)
        elif keeps_last:
            made = _with_reference(r, function, asked, given, here)
        else:
            arguments = [_placed(r, x, here) for x in given]
            # JAX donates nothing of a given order to results of any order.
            is_open = any(wanted is not None and wanted.layout is Layout.AUTO for wanted in asked)
            given_up = [n for n, x in enumerate(arguments) if isinstance(x, jax.Array) and r.random() < 0.4]
            donated = [] if is_open else given_up
            made = jax.jit(function, out_shardings=tuple(asked), donate_argnums=donated)(*arguments)
        _check(made, asked)
        others = [_asked(r, shape, here) for shape in shapes]
        passed = jax.jit(lambda *values: tuple(jnp.copy(v) for v in values), out_shardings=tuple(others))(*made)
        _check(passed, others)
        return [_out(made), _out(passed)]


def _with_reference(
    r: random.Random, function: Callable[..., Sequence[Array]], asked: Sequence[Any], given: Sequence[Array], here: Any
) -> Sequence[Array]:
    """The results of a program that also puts its first one into a mutable array, which then holds it."""
    first = jax.eval_shape(function, *given)[0]
    reference = jax.new_ref(_in_order(r, np.zeros(first.shape, first.dtype), here))

    def keeping(reference: Any, *values: Array) -> Sequence[Array]:
        made = function(*values)
        reference[...] = made[0] | reference[...] if first.dtype == bool else made[0] + reference[...]
        return made

    made = jax.jit(keeping, out_shardings=tuple(asked))(reference, *[_placed(r, x, here) for x in given])
    held = np.asarray(reference[...])
    if not np.array_equal(held, np.asarray(made[0]), equal_nan=held.dtype.kind in "fc"):
        raise AssertionError(f"the mutable array holds {held} instead of {made[0]}")
    return made


def _order(r: random.Random, rank: int) -> tuple[int, ...]:
    return tuple(r.sample(range(rank), rank))


def _in_order(r: random.Random, x: Array, here: Any) -> Array:
    return jax.device_put(x, Format(Layout(_order(r, np.ndim(x))), here))


def _placed(r: random.Random, x: Array, here: Any) -> Array:
    return x if r.random() < 0.2 else _in_order(r, x, here)


def _asked(r: random.Random, shape: Sequence[int], here: Any) -> Any:
    way = r.random()
    if way < 0.2:
        return None
    return Format(Layout.AUTO if way < 0.4 else Layout(_order(r, len(shape))), here)


def _check(made: Sequence[Array], asked: Sequence[Any]) -> None:
    for number, (x, wanted) in enumerate(zip(made, asked, strict=True)):
        if wanted is None or wanted.layout is Layout.AUTO:
            continue
        own, order = x.format.layout.major_to_minor, wanted.layout.major_to_minor
        if own != order:
            raise AssertionError(f"result {number} lies in the order {own} instead of {order}")


def _out(made: Sequence[Array]) -> list[Array]:
    """Values as arrays of NumPy; those whose type NumPy has go through DLPack."""
    return [np.from_dlpack(x) if x.dtype.kind in "iufc" and x.size else np.asarray(x) for x in made]
