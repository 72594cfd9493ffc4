"""Functions that many programs need, compiled once: they depend on types and on the sizes of tiles, not on a program.

A program imports them by name, and the name says all that there is to know about one, so that it can be made wherever
the program is loaded; ``common_code.py`` does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol

from xlakit import options
from xlakit.cpu.kernels.gemm.engine import Engine
from xlakit.cpu.kernels.shared.common_code import PREFIX, is_there, keep, resolve
from xlakit.cpu.llvm import F16, F32, F64, I8, I16, I32, I64, VOID, Effort, Function, Module, Type, Value
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import InternalError

__all__ = ["PREFIX", "Common", "Missing", "call", "declared", "function_of", "resolve", "symbol_of", "text"]


class Common(Protocol):
    """A function that many programs need: a dataclass whose fields are all that it depends on."""

    family: ClassVar[str]
    parameters: ClassVar[Sequence[Type]]

    def write(self, fn: Function) -> None:
        """Write its body, without the return."""
        ...


def call(fn: Function, function: Any, *arguments: Value) -> None:
    """Call a common function."""
    fn.call(declared(fn.module, function), VOID, *arguments)


def declared(module: Module, function: Any) -> str:
    """The symbol of a common function, which the module imports."""
    return module.declare(symbol_of(function), VOID, function.parameters)


def symbol_of(function: Any) -> str:
    """The name by which programs import a common function: it has the tag of the options that it is made with."""
    values = [_written(getattr(function, f.name)) for f in fields(function)]
    return PREFIX + ".".join([f"{function.family}${options.current().tag}", *values])


def function_of(symbol: str) -> Any:
    """The common function that has this name."""
    from xlakit.cpu.kernels.common_families import FAMILIES

    head, *values = symbol.removeprefix(PREFIX).split(".")
    family, _, tag = head.partition("$")
    if tag != options.current().tag:
        raise InternalError(f"the common function {symbol} is to be made with other options than its program")
    return FAMILIES[family](*map(_read, values))


def text(symbol: str) -> str:
    """The LLVM IR of a common function, by the name that programs import."""
    function = function_of(symbol)
    module = Module(symbol)
    # Its name tells nothing of knobs.
    with options.compiling(replace(options.current(), knobs={})):
        fn = module.function(symbol, VOID, function.parameters, external=True)
        function.write(fn)
        fn.ret()
        return module.text()


# -- names -----------------------------------------------------------------------------------------

_TYPES = {type.name: type for type in (F16, F32, F64, I8, I16, I32, I64)}


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
    if isinstance(value, Engine):
        parts = (value.packed.name, value.acc.name, value.group, value.parts, value.rows, value.vectors)
        return "e" + "_".join(map(str, parts))
    raise InternalError(f"a common function cannot depend on {value!r}")


def _read(text: str) -> Any:
    kind, rest = text[0], text[1:]
    if kind == "n":
        return None
    if kind == "b":
        return rest == "1"
    if kind == "i":
        return int(rest)
    if kind == "k":
        return next(k for k in PrimitiveType if k.hlo_name == rest)
    if kind == "e":
        packed, acc, *numbers = rest.split("_")
        return Engine("common", _TYPES[packed], _TYPES[acc], *map(int, numbers))
    return rest


# -- machine code ----------------------------------------------------------------------------------


class Missing:
    """The common functions among the imports of a program that this process does not have yet.

    Those that are on disk are loaded; the others are to be compiled.
    """

    def __init__(self, imports: Iterable[str]) -> None:
        self._symbols = [symbol for symbol in imports if symbol.startswith(PREFIX) and not is_there(symbol)]

    def parts(self) -> Iterator[tuple[Effort, str]]:
        """What is to be compiled."""
        return ((Effort.ALL, text(symbol)) for symbol in self._symbols)

    def keep(self, objects: Sequence[bytes]) -> None:
        """Load what has been compiled, and keep it for other processes."""
        for symbol, data in zip(self._symbols, objects, strict=True):
            keep(symbol, data)
