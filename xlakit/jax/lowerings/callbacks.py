"""Calls from JAX's programs back to Python: ``pure_callback``, ``io_callback``, ``debug.callback`` and ``debug.print``.

A program refers to a function by a number. JAX keeps the function alive as long as the program.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlakit.errors import ExecutionError
from xlakit.jax.versions import of_jax

if TYPE_CHECKING:
    from xlakit.ir.operation import Array, Evaluation

TARGET: Final = "xlakit_python_callback"
# Each device of several calls it with its own part of the arguments; see passes/spmd/operations/effects.py.
TARGET_ON_PARTS: Final = "xlakit_partitioned_python_callback"

_numbers = itertools.count(1)
_functions: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()


class Callback:
    """A function with the types and dimensions of the results that it must return."""

    def __init__(self, function: Callable[..., Sequence[Any]], results: Sequence[Any]) -> None:
        self.number = next(_numbers)
        self.function = function
        self.results = [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in results]
        _functions[self.number] = self

    def __call__(self, *arguments: Array) -> tuple[Array, ...]:
        """Call the function, and check its results."""
        from jax._src import dtypes

        # Copies, as the function may keep its arguments after the program's memory is freed.
        returned = self.function(*(argument.copy() for argument in arguments))
        if len(returned) != len(self.results):
            raise RuntimeError(
                f"Mismatched number of outputs from callback. Expected: {len(self.results)}, Actual: {len(returned)}"
            )
        arrays = [np.asarray(dtypes.canonicalize_value(np.asarray(value))) for value in returned]
        for number, (array, (shape, dtype)) in enumerate(zip(arrays, self.results, strict=True)):
            for what, actual, expected in (("shape", array.shape, shape), ("dtype", array.dtype, dtype)):
                if actual != expected:
                    raise RuntimeError(
                        f"Incorrect output {what} for return value #{number}: Expected: {expected}, Actual: {actual}"
                    )
        return tuple(arrays)


def answer(context: Evaluation, *operands: Any) -> Any:
    """Execute the custom call: call the function whose number it has."""
    number = int(context.instruction.annotations.backend_config or 0)
    callback = _functions.get(number)
    if callback is None:
        raise ExecutionError(
            "a callback of another process, or of a program that is gone",
            hint="compile the program in the process that traced it",
        )
    # Ordered callbacks have a token as their first operand and result.
    tokens = [None for operand in operands if operand is None]
    results = (*tokens, *callback(*(operand for operand in operands if operand is not None)))
    return results if context.shape.is_tuple else results[0]


def emit_call(
    ctx: Any,
    callback: Callback,
    operands: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    token: Any = None,
    target: str = TARGET,
) -> Any:
    """The custom call of a function, which lives as long as the program. With a token, the first result is a token."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    # Registered with JAX, which then does not cache the program in files: the number is meaningless in other processes.
    ctx.module_context.add_host_callback(callback)
    types = [type for aval in result_avals for type in of_jax().mlir_types(ctx.module_context, aval)]
    values = list(operands)
    if token is not None:
        types, values = [stablehlo.TokenType.get(), *types], [token, *values]
    return mlir.custom_call(
        target,
        result_types=types,
        operands=values,
        backend_config=str(callback.number),
        has_side_effect=has_side_effect,
        api_version=2,
    )


def _emit(
    ctx: Any,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[Sequence[Any], Any, Any]:
    """Emit a callback as a custom call in MLIR; signature and result are those of JAX's function for its platforms."""
    from jax._src.named_sharding import SdyArray
    from jax._src.sharding_impls import SdyArrayList

    holder = Callback(callback, result_avals)
    target = TARGET_ON_PARTS if partitioned else TARGET
    call = emit_call(ctx, holder, operands, result_avals, has_side_effect=has_side_effect, token=token, target=target)
    if sharding is not None:
        # There is a sharding for each result; the token needs one, too.
        if token is not None and result_avals and isinstance(sharding, SdyArrayList):
            devices = sharding.shardings[0].logical_device_ids
            of_token = SdyArray(mesh_shape=(), dim_shardings=(), logical_device_ids=devices)
            sharding = SdyArrayList((of_token, *sharding.shardings))
        of_jax().set_sharding(ctx.module_context, call, sharding)
    results = list(call.results)
    if token is not None:
        token = results.pop(0)
    return results, token, holder


def register_callbacks(platform: str) -> None:
    """Register the lowering of JAX's callbacks for a platform."""
    import jax.interpreters.mlir as public
    from jax._src import callback, debugging
    from jax._src.interpreters import mlir

    theirs: Any = callback.emit_python_callback

    def emit_python_callback(ctx: Any, *arguments: Any, **options: Any) -> Any:
        emit = _emit if tuple(ctx.module_context.platforms) == (platform,) else theirs
        return emit(ctx, *arguments, **options)

    # Replaced in JAX's modules: JAX's own rules, which handle the order of effects and shardings, look it up when used.
    modules: list[Any] = [callback, public]
    for module in modules:
        module.emit_python_callback = emit_python_callback
    mlir.register_lowering(debugging.debug_callback_p, debugging.debug_callback_lowering, platform=platform)
    mlir.register_lowering(debugging.debug_print_p, debugging.debug_print_lowering_rule, platform=platform)
