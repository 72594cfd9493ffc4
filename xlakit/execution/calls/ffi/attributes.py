"""Attributes of typed FFI calls: the dictionary in ``backend_config``, in MLIR's text form.

``{axis = 1 : i64, eps = 1.0e-6 : f32, name = "x", dims = dense<[1, 2]> : tensor<2xi64>, deep = {flag = true}}``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ParseError
from xlakit.ir.operation import Array

# Scalars are arrays of rank 0; arrays have rank 1, as the interface passes them.
Attribute = Array | str | Mapping[str, "Attribute"]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<hex>-?0x[0-9A-Fa-f]+)"""
    r"""|(?P<number>-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"""
    r"""|(?P<word>[A-Za-z_][\w.$]*)"""
    r"""|(?P<sign>[{}\[\]<>(),:=]))""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(rb'\\(["\\nt]|[0-9A-Fa-f]{2})')
_ESCAPED: Final = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"t": b"\t"}
_KINDS: Final = {
    "i1": PrimitiveType.PRED,
    **{f"i{width}": PrimitiveType[f"S{width}"] for width in (2, 4, 8, 16, 32, 64)},
    **{f"si{width}": PrimitiveType[f"S{width}"] for width in (2, 4, 8, 16, 32, 64)},
    **{f"ui{width}": PrimitiveType[f"U{width}"] for width in (2, 4, 8, 16, 32, 64)},
    "index": PrimitiveType.S64,
    "f16": PrimitiveType.F16,
    "bf16": PrimitiveType.BF16,
    "f32": PrimitiveType.F32,
    "f64": PrimitiveType.F64,
    **{"f8" + kind.name[2:]: kind for kind in PrimitiveType if kind.name.startswith("F8E")},
}
_HINT: Final = 'a dictionary of attributes reads like {axis = 1 : i64, name = "x", dims = array<i64: 1, 2>}'


def parse_attributes(text: str) -> dict[str, Attribute]:
    """The attributes by name, in the order of their names. Raises ParseError."""
    if not text.strip():
        return {}
    reader = _Reader(text)
    attributes = reader.dictionary()
    reader.expect_end()
    return attributes


class _Reader:
    """Reads one dictionary."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind, self._token = "", ""
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                raise self._error(f"{self._text[self._at :].strip()[:20]!r}")
            self._kind, self._token = "end", ""
            return
        self._at = match.end()
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]

    def _error(self, problem: str) -> ParseError:
        rule = f"the attributes of a typed FFI call have {problem}"
        return ParseError(rule, source=self._text, offset=self._at, name="backend_config", hint=_HINT)

    def _take(self) -> str:
        token = self._token
        self._advance()
        return token

    def _expect(self, sign: str) -> None:
        if self._token != sign or self._kind == "string":
            raise self._error(f"{self._token!r} where {sign!r} is wanted")
        self._advance()

    def _accept(self, sign: str) -> bool:
        if self._token != sign or self._kind == "string":
            return False
        self._advance()
        return True

    def expect_end(self) -> None:
        """Raise ParseError if anything is left to be read."""
        if self._kind != "end":
            raise self._error(f"{self._token!r} after their end")

    def dictionary(self) -> dict[str, Attribute]:
        """``{name = value, ...}``; a name alone is a unit attribute, which is true."""
        attributes: dict[str, Attribute] = {}
        self._expect("{")
        while not self._accept("}"):
            if self._kind not in ("word", "string"):
                raise self._error(f"{self._token!r} where a name is wanted")
            name = _string(self._take()) if self._kind == "string" else self._take()
            attributes[name] = self._value() if self._accept("=") else np.asarray(True)
            if self._token != "}":
                self._expect(",")
        return dict(sorted(attributes.items()))

    def _value(self) -> Attribute:
        if self._kind == "string":
            return _string(self._take())
        if self._token == "{":
            return self.dictionary()
        if self._token in ("true", "false"):
            return np.asarray(self._take() == "true")
        if self._token in ("array", "dense") and self._kind == "word":
            return self._array() if self._take() == "array" else self._dense()
        if self._kind in ("number", "hex"):
            number = self._take()
            kind = self._type() if self._accept(":") else _plain_kind(number)
            return np.asarray(self._number(number, kind), kind.dtype)
        raise self._error(f"{self._token!r}, which is no number, string, array or dictionary")

    def _type(self) -> PrimitiveType:
        dtype = _KINDS.get(self._token)
        if dtype is None:
            raise self._error(f"the type {self._token!r}, which calls have no attributes of")
        self._advance()
        return dtype

    def _number(self, text: str, kind: PrimitiveType) -> Any:
        if text in ("true", "false"):
            return text == "true"
        is_hex = "0x" in text
        if kind.is_floating and is_hex:
            return np.asarray(int(text, 16), f"u{kind.dtype.itemsize}").view(kind.dtype)[()]
        try:
            if kind.is_floating:
                return kind.dtype.type(float(text))
            number = int(text, 16 if is_hex else 10)
            # An unsigned type may be written with its bits as a signed number.
            return kind.dtype.type(number % (1 << 8 * kind.dtype.itemsize) if kind.is_unsigned else number)
        except (ValueError, OverflowError):
            raise self._error(f"{text}, which is no {kind.hlo_name}") from None

    def _array(self) -> Array:
        """``array<i64: 1, 2>``."""
        self._expect("<")
        kind = self._type()
        numbers: list[Any] = []
        if self._accept(":"):
            while self._token != ">":
                numbers.append(self._number(self._take(), kind))
                if self._token != ">":
                    self._expect(",")
        self._expect(">")
        return np.array(numbers, kind.dtype)

    def _dense(self) -> Array:
        """``dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>``: the elements in their order; one may stand for all."""
        self._expect("<")
        words: list[str] = []
        while self._token != ">" or self._kind == "string":
            if self._kind == "end":
                raise self._error("an array without an end")
            if self._kind in ("number", "hex", "string") or self._token in ("true", "false"):
                words.append(self._token)
            self._advance()
        self._expect(">")
        self._expect(":")
        count, kind = self._tensor()
        if len(words) == 1 and words[0].startswith('"'):
            return self._raw(words[0][1:-1], count, kind)
        numbers = [self._number(word, kind) for word in words]
        if len(numbers) not in (1, count):
            raise self._error(f"an array of {len(numbers)} elements where its type has {count}")
        return np.array(numbers * count if len(numbers) == 1 else numbers, kind.dtype)

    def _raw(self, digits: str, count: int, kind: PrimitiveType) -> Array:
        """Elements from the hexadecimal digits of their bytes; the bytes of a single element are a splat."""
        try:
            data = bytes.fromhex(digits.removeprefix("0x"))
            if kind is PrimitiveType.PRED and len(data) < count:
                bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
                return bits[:count].astype(np.bool_) if len(data) > 1 else np.full(count, bits[0], np.bool_)
            numbers = np.frombuffer(data, kind.dtype)
            return np.broadcast_to(numbers, count).copy() if numbers.size == 1 else numbers.reshape(count).copy()
        except ValueError:
            raise self._error(f"an array of {count} {kind.hlo_name} whose digits do not make so many") from None

    def _tensor(self) -> tuple[int, PrimitiveType]:
        """The number of elements, and their type, of ``tensor<2x3xf32>``."""
        self._expect("tensor")
        start = self._at
        end = self._text.find(">", start)
        if self._token != "<" or end < 0:
            raise self._error("a type that is no tensor")
        *sizes, name = self._text[start:end].strip().split("x")
        if not all(size.isdigit() for size in sizes) or name not in _KINDS:
            raise self._error(f"the type tensor<{self._text[start:end]}>")
        self._at = end + 1
        self._advance()
        return int(np.prod([int(size) for size in sizes], dtype=np.int64)), _KINDS[name]


def _plain_kind(number: str) -> PrimitiveType:
    """The type of a number without one: MLIR leaves out those of 64 bits."""
    is_real = "0x" not in number and any(c in number for c in ".eE")
    return PrimitiveType.F64 if is_real else PrimitiveType.S64


def _string(token: str) -> str:
    """The text of a string in quotes; bytes that are no text are kept as surrogates."""

    def meant(match: re.Match[bytes]) -> bytes:
        return _ESCAPED.get(match[1]) or bytes([int(match[1], 16)])

    return _ESCAPE.sub(meant, token[1:-1].encode()).decode("utf-8", "surrogateescape")
