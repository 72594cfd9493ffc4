"""Functions that many programs need, compiled once: they depend on types and on the sizes of tiles, not on a program.

A program imports them by name, and the name says all that there is to know about one, so that it can be made wherever
the program is loaded; ``common_families.py`` does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from xlakit import options
from xlakit.cpu.kernels.shared.common_code import PREFIX
from xlakit.cpu.llvm import VOID, Function, Module, Type, Value
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError


class Common(Protocol):
    """A function that many programs need: a dataclass whose fields are all that it depends on."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    def write(self, fn: Function) -> None:
        """Write its body, without the return.

        One that is written in vectors lowers the effort of the function: LLVM's passes would take as long as its code
        generation, and gain nothing.
        """
        ...


@runtime_checkable
class Encoded(Protocol):
    """What a common function may depend on beside numbers, texts and types."""

    def encoded(self) -> str:
        """All that there is to know about it, as a part of a name."""
        ...


def call(fn: Function, function: Common, *arguments: Value) -> None:
    """Call a common function."""
    fn.call(declared(fn.module, function), VOID, *arguments)


def declared(module: Module, function: Common) -> str:
    """The symbol of a common function, which the module imports."""
    return module.declare(symbol_of(function), VOID, function.parameters)


def symbol_of(function: Common) -> str:
    """The name by which programs import a common function: it has the tag of the options that it is made with."""
    values = [_written(getattr(function, f.name)) for f in fields(function)]
    return PREFIX + ".".join([f"{function.family}${options.current().tag}", *values])


# -- names -----------------------------------------------------------------------------------------


def _written(value: Any) -> str:
    """A value as part of a name; its first letter says what it is."""
    if value is None:
        return "n"
    if isinstance(value, bool):
        return f"b{int(value)}"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, str):
        return f"s{value}"
    if isinstance(value, PrimitiveType):
        return f"k{value.hlo_name}"
    if isinstance(value, Encoded):
        return f"e{value.encoded()}"
    raise InternalError(f"a common function cannot depend on {value!r}")
