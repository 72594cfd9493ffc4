"""``jax.experimental.buffer_callback``: Python functions that write their results into given buffers.

Arguments are views of the program's memory. Results are written into temporary arrays, which are then copied to the
program's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from xlakit.ir.operation import Array
from xlakit.jax.lowerings.callbacks import Callback, emit_call
from xlakit.runtime.dlpack import CPU, exported


class Buffer:
    """An array that is passed to such a function. The function must not use it after it has returned."""

    def __init__(self, array: Array, *, is_result: bool) -> None:
        self._array = array.view()
        self._array.setflags(write=is_result)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return self._array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""
        return self._array.dtype

    @property
    def writeable(self) -> bool:
        """Whether it is a result."""
        return self._array.flags.writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(
        self,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> object:
        if stream is not None:
            raise BufferError("the processor has no streams; DLPack's stream is None for it")
        return exported(self._array, self._array if self.writeable else None, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


class ExecutionContext:
    """The execution context that is passed to such a function."""

    @property
    def stage(self) -> Any:
        """The stage, which is always the execution of the program."""
        from jax.experimental.buffer_callback import ExecutionStage

        return ExecutionStage.EXECUTE

    @property
    def stream(self) -> int:
        """The stream of a GPU. Raises JaxRuntimeError, since this platform has none."""
        import jax

        raise jax.errors.JaxRuntimeError("XLA FFI GPU context is not available: this platform is the processor")


_CONTEXT: Final = ExecutionContext()


class BufferCallback(Callback):
    """A Python function with its aliases: the numbers of results that start with the value of an argument, and of these
    arguments.
    """

    def __init__(self, function: Callable[..., Any], results: Sequence[Any], aliases: Mapping[int, int]) -> None:
        super().__init__(function, results)
        self._aliases = aliases

    def __call__(self, *arguments: Array) -> tuple[Array, ...]:
        """Call it with the memory of arguments and results."""
        argument_arrays = list(arguments)
        results = [np.zeros(shape, dtype) for shape, dtype in self.results]
        for number, argument in self._aliases.items():
            # An aliased argument and result share one array.
            results[number] = argument_arrays[argument] = argument_arrays[argument].copy()
        self.function(
            _CONTEXT,
            [Buffer(result, is_result=True) for result in results],
            [Buffer(argument, is_result=False) for argument in argument_arrays],
        )
        return tuple(results)


def buffer_rule(_: Any) -> Any:
    """The lowering rule of ``buffer_callback``."""
    from jax import tree

    def lower(
        ctx: Any,
        *operands: Any,
        callback: Callable[..., Any],
        in_tree: Any,
        out_tree: Any,
        has_side_effect: bool,
        input_output_aliases: Sequence[tuple[int, int]],
        **_: Any,
    ) -> Any:
        def call(context: ExecutionContext, results: list[Buffer], arguments: list[Buffer]) -> None:
            positional, named = tree.unflatten(in_tree, arguments)
            if callback(context, tree.unflatten(out_tree, results), *positional, **named) is not None:
                raise ValueError("a function of buffer_callback writes its results, and gives nothing back")

        aliases = {result: argument for argument, result in input_output_aliases}
        holder = BufferCallback(call, ctx.avals_out, aliases)
        return emit_call(ctx, holder, operands, ctx.avals_out, has_side_effect=has_side_effect).results

    return lower
