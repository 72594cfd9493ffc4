"""A JAX program as HLO, without being run."""

from __future__ import annotations

from typing import Any

import jax

from fuzz.jax_programs.control import arguments, program


def lowered(seed: str) -> bytes:
    """The proto of the HLO module that JAX makes of a program."""
    given = [jax.ShapeDtypeStruct(shape, jax.numpy.dtype(kind)) for kind, shape in arguments(seed)]
    made: Any = jax.jit(program(seed)).lower(*given)
    return made.compiler_ir("hlo").as_serialized_hlo_module_proto()
