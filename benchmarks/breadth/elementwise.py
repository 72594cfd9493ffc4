"""Element-wise operations of floats and complex numbers, and what people compose of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.breadth.row import COMPLEX, FLOATS, SIZES, array, row
from benchmarks.program import Workload

_ANY, _POSITIVE, _WITHIN_ONE, _ABOVE_ONE = (-3.0, 3.0), (0.1, 5.0), (-0.95, 0.95), (1.1, 5.0)
_Unary = dict[str, tuple[Callable[..., Any], tuple[float, float]]]

_OF_BOTH: _Unary = {
    "negate": (lax.neg, _ANY),
    "abs": (lax.abs, _ANY),
    "sign": (lax.sign, _ANY),
    "sqrt": (lax.sqrt, _POSITIVE),
    "rsqrt": (lax.rsqrt, _POSITIVE),
    "exp": (lax.exp, _ANY),
    "expm1": (lax.expm1, _ANY),
    "log": (lax.log, _POSITIVE),
    "log1p": (lax.log1p, _POSITIVE),
    "logistic": (lax.logistic, _ANY),
    "sin": (lax.sin, _ANY),
    "cos": (lax.cos, _ANY),
    "tan": (lax.tan, _ANY),
    "tanh": (lax.tanh, _ANY),
    "sinh": (lax.sinh, _ANY),
    "cosh": (lax.cosh, _ANY),
    "asin": (lax.asin, _WITHIN_ONE),
    "acos": (lax.acos, _WITHIN_ONE),
    "atan": (lax.atan, _ANY),
    "asinh": (lax.asinh, _ANY),
    "acosh": (lax.acosh, _ABOVE_ONE),
    "atanh": (lax.atanh, _WITHIN_ONE),
    "square": (lax.square, _ANY),
    "cube": (lambda x: x**3, _ANY),
    "reciprocal": (lambda x: 1 / x, _POSITIVE),
    "is_finite": (jnp.isfinite, _ANY),
}
_OF_REAL: _Unary = {
    "cbrt": (lax.cbrt, _ANY),
    "erf": (lax.erf, _ANY),
    "erfc": (lax.erfc, _ANY),
    "erf_inv": (lax.erf_inv, _WITHIN_ONE),
    "lgamma": (lax.lgamma, _POSITIVE),
    "digamma": (lax.digamma, _POSITIVE),
    "bessel_i0e": (lax.bessel_i0e, _ANY),
    "bessel_i1e": (lax.bessel_i1e, _ANY),
    "floor": (lax.floor, _ANY),
    "ceil": (lax.ceil, _ANY),
    "round": (jnp.round, _ANY),
    "exp2": (lax.exp2, _ANY),
    "relu": (jax.nn.relu, _ANY),
    "relu6": (jax.nn.relu6, _ANY),
    "leaky_relu": (jax.nn.leaky_relu, _ANY),
    "elu": (jax.nn.elu, _ANY),
    "selu": (jax.nn.selu, _ANY),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), _ANY),
    "gelu_tanh": (jax.nn.gelu, _ANY),
    "silu": (jax.nn.silu, _ANY),
    "softplus": (jax.nn.softplus, _ANY),
    "log_sigmoid": (jax.nn.log_sigmoid, _ANY),
    "mish": (jax.nn.mish, _ANY),
    "hard_swish": (jax.nn.hard_swish, _ANY),
    "sinc": (jnp.sinc, _ANY),
    "logit": (jax.scipy.special.logit, (0.05, 0.95)),
    "ndtr": (jax.scipy.special.ndtr, _ANY),
    "ndtri": (jax.scipy.special.ndtri, (0.05, 0.95)),
    "nan_to_num": (jnp.nan_to_num, _ANY),
    "clip": (lambda x: jnp.clip(x, -1, 1), _ANY),
    "polyval": (lambda x: ((x * 0.5 + 1) * x - 2) * x + 3, _ANY),
    "frexp": (jnp.frexp, _POSITIVE),
    "modf": (jnp.modf, _ANY),
}
_BINARY: _Unary = {
    "add": (lax.add, _ANY),
    "multiply": (lax.mul, _ANY),
    "divide": (lax.div, _POSITIVE),
    "power": (lax.pow, _POSITIVE),
}
_BINARY_OF_REAL: _Unary = {
    "maximum": (lax.max, _ANY),
    "minimum": (lax.min, _ANY),
    "remainder": (lax.rem, _POSITIVE),
    "mod": (jnp.mod, _POSITIVE),
    "floor_divide": (jnp.floor_divide, _POSITIVE),
    "atan2": (lax.atan2, _ANY),
    "hypot": (jnp.hypot, _ANY),
    "logaddexp": (jnp.logaddexp, _ANY),
    "nextafter": (lax.nextafter, _ANY),
    "less": (lax.lt, _ANY),
    "select": (lambda x, y: jnp.where(x > y, x, 2 * y), _ANY),
    "xlogy": (jax.scipy.special.xlogy, _POSITIVE),
    "copysign": (jnp.copysign, _ANY),
    "heaviside": (jnp.heaviside, _ANY),
    "ldexp": (lambda x, y: jnp.ldexp(x, jnp.int32(3)) + y, _ANY),
}
_BINARY_OF_COMPLEX: _Unary = {
    "equal": (lax.eq, _ANY),
    "parts": (lambda x, y: lax.complex(lax.real(x), lax.imag(y)), _ANY),
    "angle": (lambda x, y: jnp.angle(x * lax.conj(y)), _ANY),
}
# Functions that JAX supports for F32 and F64 only.
_ONLY_WIDE = ("ndtr", "ndtri")


def rows() -> Iterator[Workload]:
    """Each operation at each type it has and each size."""
    for size, count in SIZES.items():
        for kind in (*FLOATS, *COMPLEX):
            is_complex = kind in COMPLEX
            unary = _OF_BOTH if is_complex else _OF_BOTH | _OF_REAL
            binary = _BINARY | (_BINARY_OF_COMPLEX if is_complex else _BINARY_OF_REAL)
            for arity, table in ((1, unary), (2, binary)):
                for name, (function, (low, high)) in table.items():
                    if name in _ONLY_WIDE and kind in ("f16", "bf16"):
                        continue
                    draws = [array(kind, count, low=low, high=high)] * arity
                    # Rounding decides which whole number a quotient has.
                    differing = 0.05 if name in ("floor_divide", "mod", "remainder", "frexp") else 0.0
                    yield row(
                        "elementwise", f"{name} {kind} {size}", function, *draws, tolerance=100, differing=differing
                    )
