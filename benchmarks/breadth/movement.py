"""Arrays that are moved: transposed in all orders, joined, padded, rolled, repeated, cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import array, row
from benchmarks.program import Workload

_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "tiny": ((8, 9), (3, 4, 5)),
    "cached": ((181, 179), (32, 32, 32), (8, 16, 16, 16)),
    "large": ((2048, 2048), (3, 1024, 1365), (512, 512, 16), (16, 64, 64, 64)),
}
_KINDS = ("s8", "bf16", "f32", "f64", "c128")
_UNARY: dict[str, Callable[..., Any]] = {
    "flip": jnp.flip,
    "roll": lambda x, a: jnp.roll(x, 3, a),
    "pad": lambda x, a: jnp.pad(x, [(1, 2) if d == a else (0, 0) for d in range(x.ndim)]),
    "pad_reflect": lambda x, a: jnp.pad(x, [(1, 2) if d == a else (0, 0) for d in range(x.ndim)], mode="reflect"),
    "pad_interior": lambda x, a: lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, int(d == a)) for d in range(x.ndim)]),
    "repeat": lambda x, a: jnp.repeat(x, 2, axis=a),
    "tile": lambda x, a: jnp.tile(x, [2 if d == a else 1 for d in range(x.ndim)]),
    "slice": lambda x, a: lax.slice_in_dim(x, 1, x.shape[a] - 1, axis=a),
    "slice_stride": lambda x, a: lax.slice_in_dim(x, 0, x.shape[a], 2, axis=a),
    "split": lambda x, a: tuple(jnp.array_split(x, 3, axis=a)),
    "rot90": lambda x, a: jnp.rot90(x, axes=(a, (a + 1) % x.ndim)),
    "broadcast": lambda x, a: jnp.broadcast_to(jnp.expand_dims(jnp.take(x, 0, a), a), x.shape),
    "stencil": lambda x, a: x - 0.5 * (jnp.roll(x, 1, a) + jnp.roll(x, -1, a)),
    "tril": jnp.tril,
    "moveaxis_add": lambda x, a: jnp.moveaxis(x, a, -1) + 1,
    "reshape_sum": lambda x, a: jnp.moveaxis(x, a, 0).reshape(-1) * 2,
}
_BINARY: dict[str, Callable[..., Any]] = {
    "concatenate": lambda x, y, a: jnp.concatenate([x, y], a),
    "stack": lambda x, y, a: jnp.stack([x, y], a),
    "interleave": lambda x, y, a: jnp.stack([x, y], -1).reshape(*x.shape[:-1], -1) + a,
    "where": lambda x, y, a: jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, a) % 3 == 0, x, y),
    "outer_add": lambda x, y, a: jnp.expand_dims(jnp.take(x, 0, a), a) + y,
}


def rows() -> Iterator[Workload]:
    """All transposes of ranks 2 to 4 at all widths of elements; everything else for F32 and some for others."""
    for size, shapes in _SHAPES.items():
        for shape in shapes:
            text = "x".join(map(str, shape))
            for order in list(itertools.permutations(range(len(shape))))[1:]:
                for kind in _KINDS if len(shape) < 4 or size == "cached" else ("f32",):
                    name = f"transpose {kind} {text} {''.join(map(str, order))} {size}"
                    yield row("movement", name, lambda x, o=order: jnp.transpose(x, o), array(kind, *shape))
            for axis in range(len(shape)):
                for kind in ("f32", "bf16", "s8") if len(shape) == 2 else ("f32",):
                    place = f"{kind} {text} axis={axis} {size}"
                    for name, function in _UNARY.items():
                        yield row(
                            "movement", f"{name} {place}", lambda x, f=function, a=axis: f(x, a), array(kind, *shape)
                        )
                    for name, function in _BINARY.items():
                        yield row(
                            "movement",
                            f"{name} {place}",
                            lambda x, y, f=function, a=axis: f(x, y, a),
                            array(kind, *shape),
                            array(kind, *shape),
                        )
    for count in (64, 1 << 15, 1 << 22):
        yield row("movement", f"arange {count}", lambda x, n=count: jnp.arange(n) + x, array("s32"))
        yield row("movement", f"linspace {count}", lambda x, n=count: jnp.linspace(0, x, n), array("f32"))
        yield row("movement", f"fill {count}", lambda x, n=count: jnp.full(n, x), array("f32"))
    for side in (8, 181, 2048):
        yield row("movement", f"eye {side}", lambda x, n=side: jnp.eye(n) * x, array("f32"))
        yield row("movement", f"diag {side}", jnp.diag, array("f32", side))
        yield row("movement", f"diagonal {side}", jnp.diagonal, array("f32", side, side))
        yield row("movement", f"trace {side}", jnp.trace, array("f32", side, side))
        yield row("movement", f"meshgrid {side}", jnp.meshgrid, *[array("f32", side)] * 2)
