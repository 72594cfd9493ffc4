"""Element-wise operations of integers, bits, conversions between all types, and quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import DTYPES, INTEGERS, SIZES, array, row
from benchmarks.program import Workload

_UNARY: dict[str, Callable[..., Any]] = {
    "negate": lax.neg,
    "abs": lambda x: lax.abs(x) if jnp.issubdtype(x.dtype, jnp.signedinteger) else x + 1,
    "sign": lax.sign,
    "not": lax.bitwise_not,
    "popcnt": lax.population_count,
    "clz": lax.clz,
    "square": lambda x: x * x,
    "power": lambda x: x**5,
    "shift_by_3": lambda x: lax.shift_left(x, x.dtype.type(3)) ^ lax.shift_right_logical(x, x.dtype.type(2)),
    "divide_by_7": lambda x: x // x.dtype.type(7),
    "modulo_10": lambda x: x % x.dtype.type(10),
}
_BINARY: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "multiply": lax.mul,
    "divide": lax.div,
    "floor_divide": jnp.floor_divide,
    "remainder": lax.rem,
    "maximum": lax.max,
    "and": lax.bitwise_and,
    "xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right": lax.shift_right_arithmetic,
    "less": lax.lt,
    "select": lambda x, y: jnp.where(x > y, x, y + y),
    "gcd": jnp.gcd,
}
_OF_PREDICATES: dict[str, Callable[..., Any]] = {
    "and": jnp.logical_and,
    "xor": jnp.logical_xor,
    "less": lax.lt,
    "not_and": lambda x, y: ~x & y,
}


def rows() -> Iterator[Workload]:
    """Each operation at each type and size, and conversions from each type to each other one."""
    for size, count in SIZES.items():
        for kind in INTEGERS:
            for arity, table in ((1, _UNARY), (2, _BINARY)):
                for name, function in table.items():
                    if name == "gcd" and size == "large":
                        continue
                    draws = [array(kind, count, low=-3, high=100), array(kind, count, low=1, high=7)][:arity]
                    yield row("integers", f"{name} {kind} {size}", function, *draws)
        for name, function in _OF_PREDICATES.items():
            yield row("integers", f"{name} pred {size}", function, *[array("pred", count)] * 2)
        yield from _conversions(size, count)


def _conversions(size: str, count: int) -> Iterator[Workload]:
    for source in DTYPES:
        for target, dtype in DTYPES.items():
            if source != target and not source.startswith("c"):
                name = f"convert {source} to {target} {size}"
                yield row("integers", name, lambda x, d=dtype: x.astype(d), array(source, count, low=0, high=100))

    def quantized(x: Any) -> Any:
        scale = jnp.max(jnp.abs(x)) / 127
        return jnp.clip(jnp.round(x / scale), -128, 127).astype(jnp.int8), scale

    # The half of a step may be rounded to either side.
    yield row("integers", f"quantize f32 {size}", quantized, array("f32", count), differing=0.001)
    yield row("integers", f"dequantize s8 {size}", lambda x: x.astype(jnp.float32) * 0.05, array("s8", count, high=99))
    yield row("integers", f"bits f32 {size}", lambda x: lax.bitcast_convert_type(x, jnp.int32), array("f32", count))
    yield row(
        "integers",
        f"reduce_precision f32 {size}",
        lambda x: lax.reduce_precision(x, exponent_bits=5, mantissa_bits=10),
        array("f32", count),
    )
