"""Module: functions, constants and declarations that make up one LLVM IR text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set

from xlakit.cpu.llvm.function import Effort, Function
from xlakit.cpu.llvm.partition import Partition
from xlakit.cpu.llvm.types import Type
from xlakit.cpu.llvm.values import Value
from xlakit.errors import InternalError

_NODE = re.compile(r"!(\d+)")
# The spelling of each byte in LLVM's string constants.
_BYTES = [chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in range(256)]


class Module:
    """One LLVM IR module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: dict[str, Function] = {}
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._metadata: list[str] = ["!{i32 1}"]

    def function(
        self,
        name: str,
        result: Type,
        parameters: Sequence[Type],
        *,
        attributes: Sequence[str] = (),
        external: bool = False,
    ) -> Function:
        """Begin a function; a taken name gets a number. ``external`` functions are visible from outside."""
        function = Function(self, self.unique(name), result, parameters, attributes)
        if external:
            function.linkage = ""
        self.functions[function.name] = function
        return function

    def begin(
        self,
        name: str,
        result: Type,
        parameters: Sequence[Type],
        *,
        attributes: Sequence[str] = (),
        external: bool = False,
    ) -> tuple[Function, *tuple[Value, ...]]:
        """Begin a function as :meth:`function` does; gives it and its parameters."""
        function = self.function(name, result, parameters, attributes=attributes, external=external)
        return function, *function.parameters

    def unique(self, name: str) -> str:
        """The name, with a number appended if it is taken."""
        functions, number, unique = self.functions, 1, name
        while unique in functions or unique in self._declarations or unique in self._globals:
            number += 1
            unique = f"{name}.{number}"
        return unique

    def declare(self, name: str, result: Type, parameters: Sequence[Type], attributes: str = "") -> str:
        """Declare an external function or an intrinsic; gives its name."""
        if name in self.functions or name in self._globals:
            raise InternalError(f"{name} is declared, which the module has by another meaning")
        if name not in self._declarations:
            types = ", ".join(t.name for t in parameters)
            self._declarations[name] = f"declare {result.name} @{name}({types}) {attributes}".rstrip()
        return name

    @property
    def declared(self) -> list[str]:
        """The names of all declared functions, intrinsics included."""
        return list(self._declarations)

    def constant_data(self, name: str, data: bytes, align: int = 64) -> str:
        """Add read-only bytes to the module; gives the name of the global."""
        unique = self.unique(name)
        text = "".join(map(_BYTES.__getitem__, data))
        self._globals[unique] = f'@{unique} = internal constant [{len(data)} x i8] c"{text}", align {align}'
        return unique

    def shared_data(self, name: str, data: bytes, align: int = 64) -> str:
        """Read-only bytes under a fixed name, added to the module on first use; gives the name."""
        return name if name in self._globals else self.constant_data(name, data, align)

    def global_data(self, name: str, size: int) -> str:
        """Add zeroed, writable bytes to the module; gives the name of the global."""
        unique = self.unique(name)
        self._globals[unique] = f"@{unique} = internal global [{size} x i8] zeroinitializer, align 64"
        return unique

    # -- metadata --------------------------------------------------------------------------------

    @property
    def one_metadata(self) -> str:
        """The metadata node ``!{i32 1}``."""
        return "!0"

    def access_group(self) -> str:
        """A new access group."""
        return self._node("distinct !{}")

    def branch_weights(self, *, likely: bool) -> str:
        """Metadata that a branch is likely, or unlikely, taken."""
        weights = "i32 2000, i32 1" if likely else "i32 1, i32 2000"
        return self._node('!{!"branch_weights", ' + weights + "}")

    def loop_metadata(self, properties: Sequence[str]) -> str:
        """A new distinct node for a loop, with its properties (each the inside of a metadata node)."""
        nodes = [self._node("!{!" + text + "}") for text in properties]
        node = f"!{len(self._metadata)}"
        return self._node("distinct !{" + ", ".join([node, *nodes]) + "}")

    def _node(self, text: str) -> str:
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    def text(self) -> str:
        """The LLVM IR text of the whole module."""
        functions = [f.text() for f in self.functions.values()]
        return self._text(self._globals.values(), functions, self._declarations.values())

    def parts(self, threads: int = 1) -> list[tuple[Effort, str]]:
        """The module as several IR texts that are compiled separately and linked together, the most expensive first.

        Functions of different efforts are in different parts; so, with several threads, are functions that do not call
        each other.
        """
        if not self.functions:
            return []
        partition = Partition(self.functions, self._globals, threads)
        for name in partition.shared:
            self.functions[name].linkage = ""
        return [(effort, self._part(names, partition.names_in(names))) for effort, names in partition.parts]

    def _part(self, functions: Sequence[str], names: Set[str]) -> str:
        defined = set(functions)
        data = [text for name, text in self._globals.items() if name in names]
        outside = [text for name, text in self._declarations.items() if name in names]
        declarations = [f.declaration for name, f in self.functions.items() if name in names and name not in defined]
        return self._text(data, [self.functions[name].text() for name in functions], [*outside, *declarations])

    def _text(self, data: Iterable[str], functions: Sequence[str], declared: Iterable[str]) -> str:
        parts = ["\n".join(data), "\n".join(functions), "\n".join(declared), self._metadata_of(functions)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _metadata_of(self, functions: Sequence[str]) -> str:
        """The metadata nodes that functions refer to, directly or through other nodes."""
        waiting = {int(number) for text in functions for number in _NODE.findall(text)}
        reached: set[int] = set()
        while waiting:
            reached |= waiting
            waiting = {int(n) for node in waiting for n in _NODE.findall(self._metadata[node])} - reached
        return "\n".join(f"!{number} = {self._metadata[number]}" for number in sorted(reached))
