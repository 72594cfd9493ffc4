"""Common functions: code that many programs share, because it depends only on types, tile sizes and options.

A program imports them by name. The name contains everything that the code depends on, so that the function can be
compiled wherever the program is loaded; ``common_families.py`` does that.
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
from xlakit.passes.analysis.sort_order import SortKey


class Common(Protocol):
    """A common function: a dataclass whose fields are everything that its code depends on."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    def write(self, fn: Function) -> None:
        """Write its body, without the return.

        A body that is written in vectors lowers the effort of the function: LLVM's passes would take as long as code
        generation, and gain nothing.
        """
        ...


@runtime_checkable
class Encoded(Protocol):
    """A value that a common function may depend on, beside numbers, texts and types."""

    def encoded(self) -> str:
        """The value in full, as a part of a name."""
        ...


def call(fn: Function, function: Common, *arguments: Value) -> None:
    """Call a common function."""
    fn.call(declared(fn.module, function), VOID, *arguments)


def declared(module: Module, function: Common) -> str:
    """Declare a common function in a module, which then imports it; gives its symbol."""
    return module.declare(symbol_of(function), VOID, function.parameters)


def symbol_of(function: Common) -> str:
    """The name by which programs import a common function; it includes the tag of the options in force."""
    values = [_written(getattr(function, f.name)) for f in fields(function)]
    return PREFIX + ".".join([f"{function.family}${options.current().tag}", *values])


# -- names -----------------------------------------------------------------------------------------


def _written(value: Any) -> str:
    """A value as part of a name; the first letter is its type."""
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
        return f"{'o' if isinstance(value, SortKey) else 'e'}{value.encoded()}"
    raise InternalError(f"a common function cannot depend on {value!r}")
