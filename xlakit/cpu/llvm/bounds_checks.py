"""Bounds checks: a pass over LLVM IR after which no access leaves the object that its address was computed from.

The sanitizer compiles with it. The pass reads the IR as the emitters have written it, before LLVM's own passes. It
traces the pointer of every load, store, copy and atomic operation back to its origin, and inserts a check before the
access. A pointer carries the bounds of its object, two words:

    where a pointer comes from                      its bounds
    ------------------------------------------      ------------------------------------------------------
    alloca, a constant of the module, scratch       those of that memory
    getelementptr                                   those of its base pointer
    phi, select                                     a phi, a select of the operands' bounds
    a parameter                                     two more parameters, which all callers pass
    a load                                          the bounds recorded when the pointer was stored there
    :func:`~xlakit.cpu.llvm.bounds.within`          those that the emitter states: an array, a part of scratch
    the runtime, integers                           unknown, (0, 0): only null and its neighbors are refused

Functions that the runtime or Python calls (*fixed* functions: the entry, and the phases of kernels) keep their
parameters; they get a table of pointers, whose bounds were recorded when the table was written. Bounds of stored
pointers are kept outside of the program's memory (:mod:`xlakit.cpu.runtime.bounds`): for each address the pointer that
was stored there and its bounds. A load whose value is not selected afterwards is checked too: no load may leave its
object.

A failed check reports the access, and replaces its address by that of spare memory, so that the function runs to its
end and changes nothing else; a failed copy copies no bytes.

The pass does not check the runtime's own functions, BLAS, and C functions behind custom calls, which get the beginnings
of arrays. It accepts the few forms of instructions that ``function.py`` writes, and raises InternalError for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from xlakit.cpu.llvm.bounds import CHECK, DECLARED, HIGH, LOW, NOTE
from xlakit.cpu.llvm.function import Function
from xlakit.cpu.llvm.promises import ADDRESS, NO_ALIAS
from xlakit.errors import InternalError

_UNKNOWN = ("0", "0")
# The function that allocates memory, of as many bytes as its argument says.
_GIVES_MEMORY = "xlakit_scratch_acquire"
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}

_DEFINE = re.compile(r"^define (.*?)@([\w.$-]+)\((.*)\) ([^()]*\{)$")
_DECLARE = re.compile(r"^declare (\S+) @([\w.$-]+)\((.*)\)(.*)$")
_GLOBAL = re.compile(r"^@([\w.$-]+) = internal (?:constant|global) \[(\d+) x i8\]")
_WITHIN = re.compile(r"^  ; within (%\w+) (\d+)$")
_ASSIGNED = re.compile(r"^  (%\w+) = (.*)$")
_ADDRESS = re.compile(rf"^{ADDRESS} [^,]+, ptr ([^,]+), ")
_LOAD = re.compile(r"^load (?:volatile |atomic )?(.+), ptr ([%@][\w.$-]+)([ ,].*)$")
_STORE = re.compile(r"^store (?:volatile |atomic )?(.+), ptr ([%@][\w.$-]+)([ ,].*)$")
_UPDATE = re.compile(r"^(?:atomicrmw \w+|cmpxchg) ptr ([%@][\w.$-]+), (\w+) ")
_CALL = re.compile(r"^call (.*?)([@%][\w.$-]+)\((.*)\)([^()]*)$")
_CHOICE = re.compile(r"^select i1 [^,]+, ptr ([^,]+), ptr ([^,]+)$")
_WAYS = re.compile(r"\[ ([^,]+), (%[\w.$-]+) \]")
_MEMORY = re.compile(r"^alloca (.+), i64 (\d+), align \d+$")
_NAMED = re.compile(r"ptr @([\w.$-]+)")


def fixed_functions(functions: Mapping[str, Function], phases: Iterable[str]) -> frozenset[str]:
    """The functions that are called from outside the module: those of ``phases``, and those passed to the runtime."""
    names = {name for name, function in functions.items() if not function.linkage} | set(phases)
    for function in functions.values():
        for line in function.text().splitlines():
            call = _CALL.match(line.strip().partition(" = ")[2] or line.strip())
            if call is not None and call[2].startswith("@xlakit_") and call[2][1:] not in functions:
                names.update(name for name in _NAMED.findall(call[3]) if name in functions)
    return frozenset(names)


class BoundsChecks:
    """Inserts bounds checks into LLVM IR.

    functions: the names of the functions of the module. prefix: that of the names of common functions. fixed: see
    :func:`fixed_functions`.
    """

    def __init__(self, functions: Iterable[str], prefix: str, fixed: frozenset[str]) -> None:
        self._functions = frozenset(functions)
        self._prefix = prefix
        self._fixed = fixed

    def carries(self, name: str) -> bool:
        """Whether a function has two more parameters for the bounds of each of its pointers."""
        return (name in self._functions or name.startswith(self._prefix)) and name not in self._fixed

    def checked(self, text: str) -> str:
        """The text of a module, or of a part of one, with a check before each access."""
        sizes = {match[1]: int(match[2]) for line in text.splitlines() if (match := _GLOBAL.match(line))}
        lines: list[str] = []
        body: _Body | None = None
        sites: dict[str, str] = {}
        parameters: list[str] = []
        for line in text.splitlines():
            if (begin := _DEFINE.match(line)) is not None:
                body, parameters = _Body(self, begin[2], sizes, sites), _parts(begin[3])
                lines.append(f"define {begin[1]}@{begin[2]}({body.parameters(parameters)}) {begin[4]}")
            elif body is not None and line == "}":
                lines += [*body.written(), line]
                body = None
            elif body is not None:
                body.lines.append(line)
            elif (declared := _DECLARE.match(line)) is not None and self.carries(declared[2]):
                types = _parts(declared[3])
                more = ["i64, i64"] * types.count("ptr")
                lines.append(f"declare {declared[1]} @{declared[2]}({', '.join([*types, *more])}){declared[4]}")
            else:
                lines.append(line)
        lines += [f'@{name} = internal constant [{len(site) + 1} x i8] c"{site}\\00"' for site, name in sites.items()]
        return "\n".join([*lines, *DECLARED.values(), ""])


class _Body:
    """Rewrites the body of one function."""

    def __init__(self, checks: BoundsChecks, name: str, sizes: Mapping[str, int], sites: dict[str, str]) -> None:
        self._checks = checks
        self._name = name
        self._sizes = sizes
        self._sites = sites
        self.lines: list[str] = []
        # The base pointer of each derived pointer.
        self._begins: dict[str, str] = {}
        # Pointers whose bounds have names of their own.
        self._with_named_bounds: set[str] = set()
        self._written: list[str] = []
        self._count = 0

    def parameters(self, parameters: Sequence[str]) -> str:
        """The parameters, followed by the bounds of the pointers among them."""
        parameters = [parameter.replace(f" {NO_ALIAS}", "") for parameter in parameters]
        if not self._checks.carries(self._name):
            return ", ".join(parameters)
        pointers = [parameter.split()[-1] for parameter in parameters if parameter.startswith("ptr ")]
        self._with_named_bounds.update(pointers)
        return ", ".join([*parameters, *(f"i64 {p}.low, i64 {p}.high" for p in pointers)])

    def written(self) -> list[str]:
        """The lines of the body with the checks."""
        extents = {match[1]: int(match[2]) for line in self.lines if (match := _WITHIN.match(line))}
        for line in self.lines:
            match = _ASSIGNED.match(line)
            if match is not None:
                self._look_at(match[1], match[2], extents)
        for line in self.lines:
            match = _ASSIGNED.match(line)
            name, text = (match[1], match[2]) if match is not None else ("", line[2:] if line[:2] == "  " else "")
            if not text or text.startswith(";"):
                self._written.append(line)
                continue
            self._instruction(name, text)
            if name in extents:
                self._bound(name, str(extents[name]))
        return self._written

    # -- bounds ----------------------------------------------------------------------------------

    def _look_at(self, name: str, text: str, extents: Mapping[str, int]) -> None:
        """Record the origin of a value, if it is a pointer."""
        address = _ADDRESS.match(text)
        if name in extents:
            self._with_named_bounds.add(name)
        elif address is not None:
            self._begins[name] = address[1]
        elif text.startswith("freeze ptr "):
            self._begins[name] = text.rsplit(maxsplit=1)[-1]
        elif (
            text.startswith(("phi ptr ", "load ptr, ", "alloca ", f"call ptr @{_GIVES_MEMORY}("))
            or _CHOICE.match(text) is not None
        ):
            self._with_named_bounds.add(name)

    def _bounds(self, pointer: str) -> tuple[str, str]:
        """The begin and the end of the object of a pointer, as IR operands."""
        while pointer in self._begins:
            pointer = self._begins[pointer]
        if pointer in self._with_named_bounds:
            return f"{pointer}.low", f"{pointer}.high"
        size = self._sizes.get(pointer[1:]) if pointer.startswith("@") else None
        if size is None:
            return _UNKNOWN
        begin = f"ptrtoint (ptr {pointer} to i64)"
        return begin, f"add (i64 {begin}, i64 {size})"

    def _bound(self, name: str, size: str) -> None:
        """Define the bounds of a new object of ``size`` bytes."""
        self._written.append(f"  {name}.low = ptrtoint ptr {name} to i64")
        self._written.append(f"  {name}.high = add i64 {name}.low, {size}")

    # -- instructions ----------------------------------------------------------------------------

    def _instruction(self, name: str, text: str) -> None:
        opcode = text.partition(" ")[0]
        if opcode == "load":
            self._load(name, text)
        elif opcode == "store":
            self._store(text)
        elif opcode in ("atomicrmw", "cmpxchg"):
            match = self._matched(_UPDATE, text)
            checked = self._check(match[1], _bytes(match[2]), f"{opcode} {match[2]}")
            self._write(name, text.replace(f"ptr {match[1]},", f"ptr {checked},", 1))
        elif opcode == "call":
            self._call(name, text)
        elif name in self._with_named_bounds and opcode in ("phi", "select", "alloca"):
            self._write(name, text)
            self._define_bounds(name, text)
        else:
            self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        self._written.append(f"  {name} = {text}" if name else f"  {text}")

    def _define_bounds(self, name: str, text: str) -> None:
        """Define the bounds of a phi, a select or an alloca."""
        if text.startswith("alloca "):
            match = self._matched(_MEMORY, text)
            self._bound(name, str(_bytes(match[1]) * int(match[2])))
            return
        choice = _CHOICE.match(text)
        for side, which in enumerate(("low", "high")):
            if choice is not None:
                condition = text.partition(",")[0]
                yes, no = (self._bounds(choice[n])[side] for n in (1, 2))
                self._write(f"{name}.{which}", f"{condition}, i64 {yes}, i64 {no}")
            else:
                ways = [f"[ {self._bounds(value)[side]}, {label} ]" for value, label in _WAYS.findall(text)]
                self._write(f"{name}.{which}", f"phi i64 {', '.join(ways)}")

    def _load(self, name: str, text: str) -> None:
        match = self._matched(_LOAD, text)
        checked = self._check(match[2], _bytes(match[1]), f"load {match[1]}")
        self._write(name, text.replace(f"ptr {match[2]}{match[3]}", f"ptr {checked}{match[3]}"))
        if match[1] == "ptr":
            for which, function in (("low", LOW), ("high", HIGH)):
                self._write(f"{name}.{which}", f"call i64 @{function}(ptr {checked}, ptr {name})")

    def _store(self, text: str) -> None:
        match = self._matched(_STORE, text)
        kind = _type_of(match[1])
        checked = self._check(match[2], _bytes(kind), f"store {kind}")
        self._write("", text.replace(f"ptr {match[2]}{match[3]}", f"ptr {checked}{match[3]}"))
        if kind == "ptr":
            pointer = match[1].split()[-1]
            low, high = self._bounds(pointer)
            self._write("", f"call void @{NOTE}(ptr {checked}, ptr {pointer}, i64 {low}, i64 {high})")

    def _call(self, name: str, text: str) -> None:
        match = self._matched(_CALL, text)
        callee, arguments = match[2], _parts(match[3])
        pointers = [argument.split()[-1] for argument in arguments if argument.startswith("ptr ")]
        if callee.startswith("@llvm."):
            if pointers and not callee.startswith("@llvm.prefetch"):
                arguments = self._moved(callee, arguments)
        elif callee.startswith("%") or self._checks.carries(callee[1:]):
            for low, high in map(self._bounds, pointers):
                arguments += [f"i64 {low}", f"i64 {high}"]
        self._write(name, f"call {match[1]}{callee}({', '.join(arguments)}){match[4]}")
        if callee == f"@{_GIVES_MEMORY}":
            self._bound(name, arguments[0].split()[-1])

    def _moved(self, callee: str, arguments: list[str]) -> list[str]:
        """The arguments of a copy or a fill, whose count becomes 0 if one side leaves its object."""
        if not callee.startswith(("@llvm.memcpy.", "@llvm.memmove.", "@llvm.memset.")):
            raise InternalError(f"no bounds check is known for {callee}, which {self._name} calls")
        count = arguments[2].split()[-1]
        operation = callee.split(".")[1]
        for side in (0,) if operation == "memset" else (0, 1):
            pointer = arguments[side].split()[-1]
            checked = self._check(pointer, count, f"{operation} {'to' if side == 0 else 'from'}")
            if checked == pointer:
                continue
            is_there, some = self._new(), self._new()
            self._write(is_there, f"icmp eq ptr {checked}, {pointer}")
            self._write(some, f"select i1 {is_there}, i64 {count}, i64 0")
            arguments[side], count = f"ptr {checked}", some
        return [*arguments[:2], f"i64 {count}", *arguments[3:]]

    def _check(self, pointer: str, size: int | str, access: str) -> str:
        """Check an access of ``size`` bytes; gives the pointer to use in place of ``pointer``."""
        bounds = self._bounds(pointer)
        checked = self._new()
        site = self._sites.setdefault(f"{self._name}: {access}", f"bounds.site.{len(self._sites)}")
        arguments = f"ptr {pointer}, i64 {bounds[0]}, i64 {bounds[1]}, i64 {size}, ptr @{site}"
        self._write(checked, f"call ptr @{CHECK}({arguments})")
        return checked

    def _new(self) -> str:
        self._count += 1
        return f"%bounds.{self._count}"

    def _matched(self, form: re.Pattern[str], text: str) -> re.Match[str]:
        match = form.match(text)
        if match is None:
            raise InternalError(f"no bounds check is known for what {self._name} does: {text}")
        return match


def _parts(text: str) -> list[str]:
    """The parts of a list at its commas, except those inside of brackets."""
    parts: list[str] = []
    depth, begin = 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "<[({") - (letter in ">])}")
        if letter == "," and not depth:
            parts.append(text[begin:index].strip())
            begin = index + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def _type_of(operand: str) -> str:
    """The type at the begin of a typed operand."""
    if operand.startswith("<"):
        return operand[: operand.index(">") + 1]
    return operand.partition(" ")[0]


def _bytes(kind: str) -> int:
    """The number of bytes that an access of a type touches."""
    lanes, element = 1, kind
    if kind.startswith("<"):
        number, _, element = kind[1:-1].split()
        lanes = int(number)
    if element in _BITS:
        bits = _BITS[element]
    elif element[:1] == "i" and element[1:].isdigit():
        bits = int(element[1:])
    else:
        raise InternalError(f"no bounds check is known for memory of type {kind}")
    return -(-bits * lanes // 8)
