"""Special functions through SciPy, for the custom calls that ``xlakit.lib.special`` makes.

They are computed in double precision and rounded to the type of the operands once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from xlakit.ir.operation import Array, Evaluation
from xlakit.lib.special import special_target

# Names in scipy.special.
_FUNCTIONS: Final = {
    "lgamma": "gammaln",
    "digamma": "psi",
    "erfc": "erfc",
    "erf_inv": "erfinv",
    "bessel_i0e": "i0e",
    "bessel_i1e": "i1e",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "regularized_incomplete_beta": "betainc",
    "zeta": "zeta",
}


def special_calls() -> dict[str, Callable[..., Any]]:
    """The functions for custom calls by name; each gets the evaluation first."""
    return {special_target(name): _call(scipy_name) for name, scipy_name in _FUNCTIONS.items()}


def _call(name: str) -> Callable[..., Any]:
    def call(context: Evaluation, *operands: Array) -> Array:
        from scipy import special  # takes a while to load, and few programs need it

        wide = [np.asarray(operand, np.float64) for operand in operands]
        with np.errstate(all="ignore"):
            return np.asarray(getattr(special, name)(*wide)).astype(operands[0].dtype)

    return call
