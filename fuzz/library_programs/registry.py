"""What a program is, and the list of them: a file registers those of its library with a decorator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

# Each is a module of this package.
FILES: Final = (
    "jax_alone.control",
    "jax_alone.searching",
    "jax_alone.arrays",
    "jax_alone.linear_algebra",
    "training",
    "optax_optimizers",
    "optax_wrappers",
    "flax_linen",
    "flax_nnx",
    "equinox_models",
    "diffrax_solves",
    "optimistix_solves",
    "lineax_solves",
    "numpyro_inference",
    "blackjax_sampling",
    "jaxopt_solves",
    "tinygp_processes",
    "mjx_physics",
    "distrax_distributions",
    "haiku_models",
    "chex_checks",
    "ott_transport",
    "keras_models",
    "fields.reinforcement_learning",
    "fields.chains_and_graphs",
    "fields.geometry",
    "fields.probability",
    "fields.environments",
    "fields.circuits",
    "fields.equations",
    "jax_alone.derivatives",
    "jax_alone.precision",
    "jax_alone.scientific",
    "jax_alone.outside",
    "jax_alone.algorithms",
    "jax_alone.recipes",
    "jax_alone.solvers",
    "jax_alone.models",
    "jax_alone.simulations",
    "jax_alone.texts_and_waves",
    "jax_alone.many_devices",
)
# Of files whose programs are for several devices: how many.
DEVICES: Final = {"jax_alone.many_devices": 8}


@dataclass(frozen=True)
class Program:
    """A function of a random key that gives arrays, in any tree."""

    name: str
    function: Callable[[Any], Any]
    tolerance: float | None = None
    """How far numbers may be apart, relative to the largest of their array; None for the default of the type."""
    why: str = ""
    """Why it is not the default."""
    jit: bool = True
    """Whether it is compiled as a whole; otherwise it compiles what it likes."""
    x64: bool = False


_PROGRAMS: dict[str, Program] = {}


def program(
    name: str, *, tolerance: float | None = None, why: str = "", jit: bool = True, x64: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a function as a program; the name begins with its library's, such as ``optax/adam``."""
    if (tolerance is None) != (not why):
        raise ValueError(f"{name}: a tolerance of its own needs a reason, and only that does")

    def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if name in _PROGRAMS:
            raise ValueError(f"there are two programs {name}")
        _PROGRAMS[name] = Program(name, function, tolerance, why, jit, x64)
        return function

    return register


def programs(file: str) -> Iterator[Program]:
    """The programs of a file."""
    before = set(_PROGRAMS)
    import_module(f"fuzz.library_programs.{file}")
    yield from (found for name, found in _PROGRAMS.items() if name not in before)
