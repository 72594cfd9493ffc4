"""Fourier transforms: powers of two, prime and odd lengths, real ones, in batches, of several dimensions."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload

_LENGTHS = (
    4,
    7,
    16,
    30,
    64,
    100,
    127,
    128,
    243,
    256,
    360,
    509,
    512,
    1000,
    1024,
    1009,
    4096,
    10007,
    16384,
    65536,
    100000,
)


def rows() -> Iterator[Workload]:
    """Single transforms of all lengths, and batches of the shorter ones."""
    for length in _LENGTHS:
        for batch in (1, 64) if length > 1024 else (1, 64, 2000):
            if length * batch > 1 << 21:
                continue
            shape = (length,) if batch == 1 else (batch, length)
            text = f"{batch}x{length}"
            for kind in ("c64", "c128"):
                yield row("transforms", f"fft {kind} {text}", jnp.fft.fft, array(kind, *shape), tolerance=100)
            yield row("transforms", f"ifft c64 {text}", jnp.fft.ifft, array("c64", *shape), tolerance=100)
            for kind in ("f32", "f64"):
                yield row("transforms", f"rfft {kind} {text}", jnp.fft.rfft, array(kind, *shape), tolerance=100)
            half = (*shape[:-1], length // 2 + 1)
            yield row(
                "transforms",
                f"irfft c64 {text}",
                lambda x, n=length: jnp.fft.irfft(x.at[..., 0].set(1).at[..., -1].set(1), n),
                array("c64", *half),
                tolerance=100,
            )
    for side in (16, 100, 128, 509, 512):
        yield row("transforms", f"fft2 c64 {side}", jnp.fft.fft2, array("c64", side, side), tolerance=100)
        yield row("transforms", f"rfft2 f32 {side}", jnp.fft.rfft2, array("f32", side, side), tolerance=100)
    for side in (16, 32, 60):
        yield row("transforms", f"fftn c64 {side}", jnp.fft.fftn, array("c64", side, side, side), tolerance=100)
    yield row(
        "transforms", "fft_axis0 c64 256x300", lambda x: jnp.fft.fft(x, axis=0), array("c64", 256, 300), tolerance=100
    )
    yield row("transforms", "fftshift c64 512", jnp.fft.fftshift, array("c64", 512, 512))
    yield row(
        "transforms",
        "fft_convolve f32 8192",
        lambda x, y: jnp.fft.irfft(jnp.fft.rfft(x, 16384) * jnp.fft.rfft(y, 16384), 16384),
        array("f32", 8192),
        array("f32", 8192),
        tolerance=1000,
    )
