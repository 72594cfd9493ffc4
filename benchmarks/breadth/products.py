"""Dots: of matrices and vectors of many shapes, in batches of small ones, of all types, and as einsum writes them."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload

_SHAPES = (
    (4, 4, 4),
    (16, 16, 16),
    (33, 35, 37),
    (64, 64, 64),
    (100, 100, 100),
    (128, 128, 128),
    (250, 250, 250),
    (256, 256, 256),
    (512, 512, 512),
    (1000, 1000, 1000),
    (1, 512, 512),
    (512, 512, 1),
    (1, 4096, 4096),
    (4096, 4096, 1),
    (512, 1, 512),
    (3000, 1, 1000),
    (8, 1024, 1024),
    (1024, 1024, 8),
    (20000, 16, 16),
    (20000, 64, 4),
    (16, 20000, 16),
    (3, 100000, 3),
    (2048, 64, 2048),
    (64, 2048, 64),
)
_BATCHED = (2, 3, 4, 5, 8, 12, 16, 24, 32, 48, 64)
_EINSUMS: dict[str, tuple[tuple[int, ...], ...]] = {
    "ij,jk->ki": ((200, 300), (300, 250)),
    "ji,jk->ik": ((300, 200), (300, 250)),
    "ij,kj->ik": ((200, 300), (250, 300)),
    "ij,ij->i": ((500, 300), (500, 300)),
    "ij,ij->": ((500, 300), (500, 300)),
    "ij,ij->j": ((500, 300), (500, 300)),
    "i,j->ij": ((800,), (700,)),
    "ijk,kl->ijl": ((16, 50, 64), (64, 80)),
    "ijk,jl->ikl": ((16, 50, 64), (50, 80)),
    "bij,bjk->bik": ((16, 50, 64), (16, 64, 40)),
    "bij,bkj->bik": ((16, 50, 64), (16, 40, 64)),
    "bhqd,bhkd->bhqk": ((4, 8, 64, 32), (4, 8, 64, 32)),
    "bqhd,bkhd->bhqk": ((4, 64, 8, 32), (4, 64, 8, 32)),
    "bhqk,bkhd->bqhd": ((4, 8, 64, 64), (4, 64, 8, 32)),
    "bi,bj->bij": ((200, 40), (200, 50)),
    "bi,bij->bj": ((200, 40), (200, 40, 50)),
    "bij,bj->bi": ((200, 40, 50), (200, 50)),
    "abc,abd->acd": ((20, 30, 16), (20, 30, 16)),
    "ijkl,lkm->ijm": ((8, 9, 10, 11), (11, 10, 12)),
}


def rows() -> Iterator[Workload]:
    """F32 at all shapes, other types at some."""
    yield from _matrices()
    yield from _batches()
    yield from _compositions()


def _matrices() -> Iterator[Workload]:
    for m, k, n in _SHAPES:
        for kind in ("f32", "f64", "bf16", "f16", "c64", "s32", "s8"):
            if kind in ("c64", "s32", "f16") and m * k * n > 300**3:
                continue
            name = f"dot {kind} {m}x{k}x{n}"
            yield row("products", name, jnp.matmul, array(kind, m, k), array(kind, k, n), tolerance=100)
            if kind in ("f32", "bf16") and m > 1:
                for form, left, right in (("TN", (k, m), (k, n)), ("NT", (m, k), (n, k)), ("TT", (k, m), (n, k))):
                    yield row(
                        "products",
                        f"dot_{form} {kind} {m}x{k}x{n}",
                        lambda a, b, f=form: (a.T if f[0] == "T" else a) @ (b.T if f[1] == "T" else b),
                        array(kind, *left),
                        array(kind, *right),
                        tolerance=100,
                    )
        yield row(
            "products",
            f"dot_s8_to_s32 {m}x{k}x{n}",
            lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
            array("s8", m, k, low=-100, high=100),
            array("s8", k, n, low=-100, high=100),
        )


def _batches() -> Iterator[Workload]:
    for side in _BATCHED:
        for batch in (16, 1000):
            for kind in ("f32", "f64", "c64") if side <= 32 else ("f32",):
                shapes = [array(kind, batch, side, side)] * 2
                yield row("products", f"batched {kind} {batch}x{side}", jnp.matmul, *shapes, tolerance=100)
            yield row(
                "products",
                f"batched_NT f32 {batch}x{side}",
                lambda a, b: a @ jnp.swapaxes(b, 1, 2),
                *[array("f32", batch, side, side)] * 2,
                tolerance=100,
            )
            yield row(
                "products",
                f"batched_vector f32 {batch}x{side}",
                lambda a, b: jnp.einsum("bij,bj->bi", a, b),
                array("f32", batch, side, side),
                array("f32", batch, side),
                tolerance=100,
            )
            yield row(
                "products",
                f"batched_uneven f32 {batch}x{side}x{2 * side}",
                jnp.matmul,
                array("f32", batch, side, side),
                array("f32", batch, side, 2 * side),
                tolerance=100,
            )


def _compositions() -> Iterator[Workload]:
    for text, (left, right) in _EINSUMS.items():
        for kind in ("f32", "bf16"):
            name = f"einsum {kind} {text}"
            yield row(
                "products",
                name,
                lambda a, b, t=text: jnp.einsum(t, a, b),
                array(kind, *left),
                array(kind, *right),
                tolerance=100,
            )
    for rank in (2, 8, 64):
        yield row(
            "products",
            f"chain f32 {rank}",
            lambda a, b, c: (a @ b) @ c,
            array("f32", 400, rank),
            array("f32", rank, 400),
            array("f32", 400, rank),
            tolerance=100,
        )
    yield row("products", "kron f32", jnp.kron, array("f32", 30, 30), array("f32", 30, 30))
    yield row("products", "cross f32", jnp.cross, array("f32", 10000, 3), array("f32", 10000, 3))
    yield row(
        "products",
        "tensordot f32",
        lambda a, b: jnp.tensordot(a, b, 2),
        array("f32", 30, 40, 50),
        array("f32", 40, 50, 60),
        tolerance=100,
    )
    yield row(
        "products",
        "distances f32",
        lambda a, b: jnp.sum((a[:, None] - b[None]) ** 2, -1),
        array("f32", 300, 16),
        array("f32", 400, 16),
    )
