"""The functions behind custom calls: Python's, C's, and those whose meaning everybody knows.

Source: seed document "Operation semantics", section CustomCall, for the signature of C functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ExecutionError, UnsupportedError, XlakitError
from xlakit.interpreter.values import read_only, to_device
from xlakit.ir.enums import CustomCallApiVersion
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import TOKEN, Array, Evaluation, Value
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.sort import TopK, sort_order

Target = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A registered function; one with a context gets the Evaluation first, and device values as they are."""

    function: Target
    with_context: bool = False


_registered: dict[str, _Entry] = {}


def register_custom_call(name: str, function: Target, *, with_context: bool = False) -> None:
    """Let custom calls named ``name`` run a Python function, in all programs that are compiled from now on.

    function: gets the operands (read-only arrays, tuples of them, None for tokens) and returns the result: what
        converts to the call's declared shape without loss.
    with_context: give the function an ``Evaluation`` as its first argument, which knows the instruction, its shape and
        attributes, and the replica.

    Registering a name again replaces its function.
    """
    if not callable(function):
        raise ArgumentError(f"{function!r} is not a function")
    _registered[name] = _Entry(_for_host(function, with_context=with_context), with_context=True)


def register_c_custom_call(name: str, pointer: object) -> None:
    """Let custom calls named ``name`` run a C function ``void name(void* out, void** in)``.

    pointer: a ctypes function, an address, or a PyCapsule that holds one. It must stay valid.

    The buffers lie in the layouts of the operands' and the result's shapes (or of operand_layout_constraints), with
    elements of sub-byte types in a byte each; a tuple is a table of pointers to its elements.
    """
    address = _address(pointer)
    _registered[name] = _Entry(lambda context, *operands: _call_c(address, context, operands), with_context=True)


class CustomCalls:
    """The functions that one executable can call: its own, the registered ones, and the built-in ones."""

    def __init__(self, own: Mapping[str, Target] | None = None) -> None:
        self._entries: dict[str, _Entry] = dict(_BUILT_IN) | _registered
        for name, function in (own or {}).items():
            if isinstance(function, ctypes._CFuncPtr):  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
                address = _address(function)
                self._entries[name] = _Entry(_bind_c(address), with_context=True)
            else:
                self._entries[name] = _Entry(_for_host(function, with_context=False), with_context=True)

    def check(self, target: str) -> None:
        """Raise UnsupportedError where nothing is registered under a name."""
        if target not in self._entries:
            raise UnsupportedError(
                f"no custom call is registered as '{target}'",
                hint="xlakit.register_custom_call(name, function) adds one; known: " + ", ".join(sorted(self._entries)),
            )

    def call(self, context: Evaluation, target: str, operands: Sequence[Value]) -> Value:
        """The result of a target, checked; an exception of its function is the cause of the ExecutionError."""
        self.check(target)
        try:
            return self._entries[target].function(context, *operands)
        except XlakitError:
            raise
        except Exception as error:
            raise ExecutionError(f"custom call '{target}' raised {type(error).__name__}: {error}") from error
