"""The parts of JAX's dispatch that programs use: argument signatures, and its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlakit.compat.xla_client.binding import Wrapper, bound, fields_of, incompatible, no_constructor
from xlakit.compat.xla_client.errors import as_status
from xlakit.compat.xla_client.jit_state import (
    JitState as JitState,
    get_enable_x64 as get_enable_x64,
    global_state as global_state,
    narrow,
    set_thread_local_state_initialization_callback as set_thread_local_state_initialization_callback,
    swap_thread_local_state_disable_jit as swap_thread_local_state_disable_jit,
    thread_local_state as thread_local_state,
)
from xlakit.compat.xla_client.runtime.array import ArrayImpl
from xlakit.errors import ArgumentError


class PyArgSignature:
    """The type of an argument: dtype, shape, and whether another operand's type prevails."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self) -> None:
        raise TypeError("PyArgSignature: no constructor defined!")

    dtype: Any
    shape: tuple[int, ...]
    weak_type: bool


@bound
def _ArgSignatureOfValue(value: object, jax_enable_x64: bool, /) -> PyArgSignature:
    """The type of an array or a number; NumPy's types of 64 bits are narrower unless they are enabled.

    Raises XlaRuntimeError for other values.
    """
    made = PyArgSignature.__new__(PyArgSignature)
    if isinstance(value, ArrayImpl):
        made.dtype, made.shape, made.weak_type = value.dtype, value.shape, value.weak_type
        return made
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
        raise ArgumentError(
            f"a {type(value).__name__} is no array and no number",
            hint="give an array of this package or of NumPy, or a number",
        )
    found = np.asarray(value)
    made.dtype = found.dtype if jax_enable_x64 else narrow(found.dtype)
    made.shape = found.shape
    made.weak_type = not isinstance(value, (np.ndarray, np.generic))
    return made


def _is_float0(value: np.ndarray[Any, Any], /) -> bool:  # pyright: ignore[reportUnusedFunction]
    """Whether the elements are of JAX's type of no bytes, which gradients of integers have."""
    return value.dtype == np.dtype([("float0", np.void, 0)])


class ArgumentSignature(Wrapper[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]):
    """What a call's static arguments are, and the names and trees of the others: the key of a compiled function."""

    __slots__ = ()

    __init__ = no_constructor

    @property
    def static_args(self) -> list[Any]:
        """The static arguments, those without a name first."""
        return list(self.wrapped[0])

    @property
    def static_arg_names(self) -> list[Any]:
        """The names of the static arguments that have one."""
        return list(self.wrapped[1])

    @property
    def dynamic_arg_names(self) -> list[Any]:
        """The names of the other arguments that have one."""
        return list(self.wrapped[2])

    @property
    def dynamic_arg_treedefs(self) -> list[Any]:
        """The structures of the other arguments, as the registry gives them."""
        return list(self.wrapped[3])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArgumentSignature):
            raise incompatible("__eq__", f"an ArgumentSignature is not compared with a {type(other).__name__}")
        if self is other:
            return True
        if self.wrapped[1:] != other.wrapped[1:] or len(self.static_args) != len(other.static_args):
            return False
        return all(map(_same, self.static_args, other.static_args))

    def __hash__(self) -> int:
        try:
            static = tuple(map(hash, self.static_args))
        except TypeError as error:
            raise ValueError(f"static arguments need a hash: {error}") from error
        return hash((static, *self.wrapped[1:]))

    def __repr__(self) -> str:
        static, static_names, names, trees = self.wrapped
        parts = [f"[{','.join(map(str, part))}]" for part in (static, static_names, names)]
        return (
            f"static args (positional + keyword): {parts[0]}, static arg keyword names: {parts[1]}, "
            f"dynamic arg signatures (positional + keyword): {parts[2]}"
            f"dynamic arg shardings: [{'| '.join(map(str, trees))}]"
        )


def _same(one: object, other: object) -> bool:
    """Whether static arguments are of one type and equal."""
    if type(one) is not type(other):
        return False
    try:
        return bool(one == other)
    except Exception as error:
        raise ValueError(f"static arguments need to be comparable with __eq__: {error}") from error


@bound
def parse_arguments(
    positional_args: Sequence[Any],
    keyword_args: Sequence[Any],
    kwnames: tuple[Any, ...],
    static_argnums: Sequence[int],
    static_argnames: Sequence[str],
    pytree_registry: Any,
) -> tuple[ArgumentSignature, list[Any]]:
    """The signature of a call, and the leaves of the arguments that are not static.

    Numbers from the end are negative; numbers and names that the call does not have count for nothing. Raises
    XlaRuntimeError where ``keyword_args`` has more values than ``kwnames`` has names.
    """
    flatten = fields_of(pytree_registry, "flatten").flatten
    if len(keyword_args) > len(kwnames):
        few = ArgumentError(f"{len(keyword_args)} keyword arguments have {len(kwnames)} names", hint="name each")
        raise as_status(few)
    count = len(positional_args)
    numbers = {number + count if number < 0 else number for number in static_argnums}
    # Pairs of whether an argument is static, and the argument.
    given = [(number in numbers, value) for number, value in enumerate(positional_args)]
    named = sorted(zip(kwnames, keyword_args, strict=False), key=lambda pair: pair[0])
    given += [(name in static_argnames, value) for name, value in named]
    leaves: list[Any] = []
    trees: list[Any] = []
    for _, value in (pair for pair in given if not pair[0]):
        found, tree = flatten(value)
        leaves += found
        trees.append(tree)
    names = [name for name, _ in named]
    static_names = tuple(name for name in names if name in static_argnames)
    others = tuple(name for name in names if name not in static_argnames)
    static = tuple(value for is_static, value in given if is_static)
    return ArgumentSignature.of((static, static_names, others, tuple(trees))), leaves
