"""Lays out object files of ELF for x86-64, as LLVM writes them, as one image."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Final

from xlakit.dataclass import dataclass
from xlakit.machine_code.image import PAGE, Image, pages

# The header of a file: 64 bits, little-endian, version 1; relocatable, for x86-64.
_IDENT: Final = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_FILE: Final = struct.Struct("<HH20xQ10xHHH")  # from byte 16 on: kind, machine, sections' offset, size, count, names
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, align, entry
_SYMBOL: Final = struct.Struct("<IBBHQQ")  # name, info, visibility, section, value, size
_RELOCATION: Final = struct.Struct("<QQq")  # offset, symbol and type, addend
_SIGNED: Final = struct.Struct("<i")

_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL = 1, 2, 4, 8, 9
_WRITE, _ALLOC, _EXECUTE, _THREAD_LOCAL = 1, 2, 4, 0x400
_UNDEFINED, _RESERVED = 0, 0xFF00
_LOCAL, _GLOBAL = 0, 1
_NO_TYPE, _OBJECT, _FUNCTION, _OF_SECTION, _OF_FILE = range(5)
# Kinds of relocations: the distance to a symbol, to a called symbol (which may be imported), to a word with its
# address.
_DISTANCE, _CALL, _WORDS = 2, 4, (9, 41, 42)
# jmp *distance(%rip)
_JUMP: Final = b"\xff\x25"
_JUMP_BYTES: Final = 8
_WORD: Final = 8
# Distances are signed 32-bit numbers.
_LARGEST: Final = 1 << 30
_CODE, _CONSTANTS, _DATA, _ZEROS = range(4)


class _Unknown(Exception):
    """An object file has a section, a symbol or a relocation that is not known here."""


@dataclass(slots=True)
class _Symbol:
    """A symbol. name: empty if it is local. at: its part of the image and the offset there; None if it is imported."""

    name: str
    at: tuple[int, int] | None


@dataclass(slots=True)
class _Relocation:
    """A relocation: the 32-bit distance to a symbol, to a jump to it, or to a word with its address."""

    part: int
    offset: int
    kind: int
    symbol: _Symbol
    addend: int


def image_of(objects: Sequence[bytes]) -> Image | None:
    """The image of object files that are linked together; None if they have anything that is not known here.

    All their global functions are functions of the image.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        layout = _Layout()
        for data in objects:
            layout.add(data)
        return layout.image()
    except _Unknown:
        return None


class _Layout:
    """The parts of an image, as object files are added."""

    def __init__(self) -> None:
        self._parts = bytearray(), bytearray(), bytearray()
        self._zeros, self._zeros_alignment = 0, 1
        self._globals: dict[str, tuple[int, int]] = {}
        self._relocations: list[_Relocation] = []

    def add(self, data: bytes) -> None:
        """Add an object file. Raises _Unknown."""
        if not data.startswith(_IDENT):
            raise _Unknown
        kind, machine, offset, size, count, _ = _FILE.unpack_from(data, 16)
        if (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
            raise _Unknown
        sections = [_SECTION.unpack_from(data, offset + n * size) for n in range(count)]
        places = [self._place_section(data, section) for section in sections]
        symbols: dict[int, list[_Symbol]] = {}
        for number, section in enumerate(sections):
            if section[1] == _SYMTAB:
                symbols[number] = self._read_symbols(data, section, sections[section[6]][4], places)
        for section in sections:
            target = places[section[7]] if section[1] in (_RELA, _REL) else None
            if target is not None:
                if section[1] == _REL:
                    raise _Unknown
                self._read_relocations(data, section, target, symbols[section[6]])

    def _place_section(self, data: bytes, section: tuple[int, ...]) -> tuple[int, int] | None:
        """The part of the image that has a section, and the offset there; None for a section that is not loaded."""
        _, kind, flags, _, offset, size, _, _, alignment, _ = section
        if not flags & _ALLOC or not size:
            return None
        if flags & _THREAD_LOCAL or kind not in (_PROGBITS, _NOBITS) or not alignment <= PAGE:
            raise _Unknown
        alignment = max(1, alignment)
        if kind == _NOBITS:
            self._zeros_alignment = max(self._zeros_alignment, alignment)
            at = -(-self._zeros // alignment) * alignment
            self._zeros = at + size
            return _ZEROS, at
        part = _CODE if flags & _EXECUTE else _DATA if flags & _WRITE else _CONSTANTS
        into = self._parts[part]
        into += bytes(-len(into) % alignment)
        at = len(into)
        into += data[offset : offset + size]
        return part, at

    def _read_symbols(
        self, data: bytes, section: tuple[int, ...], names: int, places: Sequence[tuple[int, int] | None]
    ) -> list[_Symbol]:
        found: list[_Symbol] = []
        for name, info, _, at, value, _ in _SYMBOL.iter_unpack(data[section[4] : section[4] + section[5]]):
            binding, kind = info >> 4, info & 15
            if kind == _OF_FILE or not (name or at):
                found.append(_Symbol("", None))
                continue
            if binding not in (_LOCAL, _GLOBAL) or kind > _OF_SECTION or at >= _RESERVED:
                raise _Unknown
            text = ""
            if binding == _GLOBAL:
                text = data[names + name : data.index(b"\0", names + name)].decode("utf-8", "surrogateescape")
            if at == _UNDEFINED:
                found.append(_Symbol(text, None))
                continue
            place = places[at]
            symbol = _Symbol(text, None if place is None else (place[0], place[1] + value))
            if text:
                if symbol.at is None or text in self._globals:
                    raise _Unknown
                self._globals[text] = symbol.at
            found.append(symbol)
        return found

    def _read_relocations(
        self, data: bytes, section: tuple[int, ...], target: tuple[int, int], symbols: Sequence[_Symbol]
    ) -> None:
        part, start = target
        for offset, info, addend in _RELOCATION.iter_unpack(data[section[4] : section[4] + section[5]]):
            self._relocations.append(_Relocation(part, start + offset, info & 0xFFFFFFFF, symbols[info >> 32], addend))

    def image(self) -> Image:
        """The image of all added object files. Raises _Unknown."""
        code, constants, data = self._parts
        table: dict[str | tuple[int, int], int] = {}
        jumps: dict[str, int] = {}
        for relocation in self._relocations:
            found = self._found(relocation.symbol)
            if relocation.kind in _WORDS:
                table.setdefault(found, len(table))
            elif relocation.kind == _CALL and isinstance(found, str):
                table.setdefault(found, len(table))
                jumps.setdefault(found, len(jumps))
            elif relocation.kind not in (_DISTANCE, _CALL) or isinstance(found, str):
                raise _Unknown
        code += bytes(-len(code) % _JUMP_BYTES)
        first_jump = len(code)
        code += bytes(_JUMP_BYTES * len(jumps))
        constants += bytes(-len(constants) % _WORD)
        first_word = len(constants)
        constants += bytes(_WORD * len(table))
        data += bytes(-len(data) % self._zeros_alignment)
        starts = self._starts()
        for symbol, number in jumps.items():
            at = first_jump + _JUMP_BYTES * number
            code[at : at + len(_JUMP)] = _JUMP
            word = starts[_CONSTANTS] + first_word + _WORD * table[symbol]
            _SIGNED.pack_into(code, at + len(_JUMP), word - (at + len(_JUMP) + _SIGNED.size))
        for relocation in self._relocations:
            found = self._found(relocation.symbol)
            if relocation.kind in _WORDS:
                to = starts[_CONSTANTS] + first_word + _WORD * table[found]
            elif isinstance(found, str):
                to = first_jump + _JUMP_BYTES * jumps[found]
            else:
                to = starts[found[0]] + found[1]
            here = starts[relocation.part] + relocation.offset
            _SIGNED.pack_into(self._parts[relocation.part], relocation.offset, to + relocation.addend - here)
        addresses = tuple(a if isinstance(a, str) else starts[a[0]] + a[1] for a in table)
        functions = {name: starts[part] + at for name, (part, at) in self._globals.items()}
        return Image(bytes(code), bytes(constants), bytes(data), self._zeros, addresses, functions)

    def _found(self, symbol: _Symbol) -> str | tuple[int, int]:
        """Where a symbol is in the image, or its name if it is imported."""
        found = symbol.at or self._globals.get(symbol.name)
        if found is None and not symbol.name:
            raise _Unknown
        return symbol.name if found is None else found

    def _starts(self) -> tuple[int, int, int, int]:
        """The begin of each part of the image, and of the zeros after the data."""
        code, constants, data = self._parts
        starts = 0, pages(len(code)), pages(len(code)) + pages(len(constants))
        if starts[_DATA] + len(data) + self._zeros > _LARGEST:
            raise _Unknown
        return (*starts, starts[_DATA] + len(data))
