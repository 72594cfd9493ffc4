"""Module: functions, constants and declarations, as one text of LLVM IR."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from xlakit.cpu.llvm.function import Effort, Function
from xlakit.cpu.llvm.types import Type

_NAME = re.compile(r"@([\w.$-]+)")
# How LLVM's text has each byte.
_BYTES = [chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in range(256)]


class Module:
    """One unit of LLVM IR."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: dict[str, Function] = {}
        self._declarations: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._metadata: list[str] = ["!{}", "!{i32 1}"]

    def function(
        self,
        name: str,
        result: Type,
        parameters: Sequence[Type],
        *,
        attributes: Sequence[str] = (),
        external: bool = False,
    ) -> Function:
        """Begin a function; the name must be new. ``external`` functions are seen from outside."""
        made = Function(self, self.unique(name), result, parameters, attributes)
        if external:
            made.linkage = ""
        self.functions[made.name] = made
        return made

    def unique(self, name: str) -> str:
        """The name, with a number if it is taken."""
        taken, number, found = self.functions, 1, name
        while found in taken or found in self._declarations or found in self._globals:
            number += 1
            found = f"{name}.{number}"
        return found

    def declare(self, name: str, result: Type, parameters: Sequence[Type], attributes: str = "") -> str:
        """Declare a function from outside, or an intrinsic; gives its name."""
        if name not in self._declarations:
            types = ", ".join(t.name for t in parameters)
            self._declarations[name] = f"declare {result.name} @{name}({types}) {attributes}".rstrip()
        return name

    @property
    def declared(self) -> list[str]:
        """The names of what comes from outside, intrinsics among them."""
        return list(self._declarations)

    def constant_data(self, name: str, data: bytes, align: int = 64) -> str:
        """Put read-only bytes into the module; gives the name of the global."""
        found = self.unique(name)
        text = "".join(map(_BYTES.__getitem__, data))
        self._globals[found] = f'@{found} = internal constant [{len(data)} x i8] c"{text}", align {align}'
        return found

    def shared_data(self, name: str, data: bytes, align: int = 64) -> str:
        """Read-only bytes under a name of their own, put into the module when first asked for; gives the name."""
        return name if name in self._globals else self.constant_data(name, data, align)

    def global_data(self, name: str, size: int, align: int = 64) -> str:
        """Zeroed bytes that can be written; gives the name of the global."""
        found = self.unique(name)
        self._globals[found] = f"@{found} = internal global [{size} x i8] zeroinitializer, align {align}"
        return found

    # -- metadata --------------------------------------------------------------------------------

    @property
    def empty_metadata(self) -> str:
        """``!{}``."""
        return "!0"

    @property
    def one_metadata(self) -> str:
        """``!{i32 1}``."""
        return "!1"

    def access_group(self) -> str:
        """A new group of memory accesses."""
        return self._node("distinct !{}")

    def branch_weights(self, *, likely: bool) -> str:
        """How often a branch is taken."""
        weights = "i32 2000, i32 1" if likely else "i32 1, i32 2000"
        return self._node('!{!"branch_weights", ' + weights + "}")

    def loop_metadata(self, properties: Sequence[str]) -> str:
        """The identity of a loop with its properties (each the inside of a metadata node)."""
        nodes = [self._node("!{!" + text + "}") for text in properties]
        own = f"!{len(self._metadata)}"
        return self._node("distinct !{" + ", ".join([own, *nodes]) + "}")

    def _node(self, text: str) -> str:
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    def text(self) -> str:
        """The whole module."""
        return self._text(self._globals.values(), [f.text() for f in self.functions.values()], ())

    def parts(self) -> dict[Effort, str]:
        """The module as several that are linked together: its functions by the effort that they are worth."""
        efforts = [e for e in Effort if any(f.effort is e for f in self.functions.values())]
        if len(efforts) <= 1:
            return {effort: self.text() for effort in efforts}
        groups = {e: {n: f for n, f in self.functions.items() if f.effort is e} for e in efforts}
        names = {e: set(_NAME.findall("\n".join(f.text() for f in own.values()))) for e, own in groups.items()}
        for name, function in self.functions.items():
            if any(name in named for effort, named in names.items() if effort is not function.effort):
                function.linkage = ""
        return {effort: self._part(own, names[effort]) for effort, own in groups.items()}

    def _part(self, own: Mapping[str, Function], names: set[str]) -> str:
        data = [text for name, text in self._globals.items() if name in names]
        others = [f.declaration for name, f in self.functions.items() if name in names and name not in own]
        return self._text(data, [f.text() for f in own.values()], others)

    def _text(self, data: Iterable[str], functions: Iterable[str], declared: Iterable[str]) -> str:
        metadata = "\n".join(f"!{i} = {text}" for i, text in enumerate(self._metadata))
        parts = [
            "\n".join(data),
            "\n".join(functions),
            "\n".join([*self._declarations.values(), *declared]),
            metadata,
        ]
        return "\n\n".join(part for part in parts if part) + "\n"
