"""Programs of what is computed by kernels whose functions all programs share: products, sorts, transforms."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from fuzz.jax_programs.operations import (
    Source,
    Value,
    Values,
    accumulate,
    binary,
    cast,
    constant_bits,
    fit,
    index,
    product,
    reduce,
    update,
)


def kernels(seed: str) -> Callable[..., tuple[Value, ...]]:
    """A function of any arrays whose results are all that it computes, in exact numbers."""

    def run(*values: Value) -> tuple[Value, ...]:
        r, known = Source(f"large{seed}"), list(values)
        for kernel in [_wide_product, *r.choices(_KERNELS, k=r.randint(0, 2))]:
            known.append(kernel(r, known))
            if r.random() < 0.3:
                known.append(r.choice(_OTHERS)(r, known))
        # Constants on their way through the formats and the compile cache.
        known.append(constant_bits(r, known))
        return tuple(known[len(values) :])

    return run


def _transform(r: Source, values: Values) -> Value:
    """There and back: what is rounded is again a whole number."""
    x = cast(r, r.choice(values), "float32")
    rows = fit(r, x, (r.randint(1, 5), r.choice([8, 30, 97, 256, 1000])))
    return jnp.round(jnp.fft.ifft(jnp.fft.fft(rows)).real) + 0.0


def _wide_product(r: Source, values: Values) -> Value:
    """A product of several blocks, whose sums are whole numbers of less than 24 bits."""
    x, y = (cast(r, r.choice(values), "float32") for _ in range(2))
    m, k, n = (r.choice([33, 100, 130, 257]) for _ in range(3))
    return fit(r, x, (m, k)) @ fit(r, y, (k, n))


_KERNELS: tuple[Callable[[Source, Values], Value], ...] = (
    _wide_product, product, accumulate, accumulate, _transform,
)  # fmt: skip
_OTHERS: tuple[Callable[[Source, Values], Value], ...] = (binary, reduce, index, update)
