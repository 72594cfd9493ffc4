"""The JSON text in which XLA's backends keep the parameters of a custom call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import numpy as np

from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.ffi.attributes import parse_attributes

_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


class Config:
    """An object of a backend_config. Keys that are absent have the defaults of protos: zero, false, empty."""

    def __init__(self, fields: dict[str, object], path: str = "") -> None:
        self._fields = fields
        self._path = path

    @classmethod
    def parse(cls, text: str, section: str) -> Config:
        """The object under the key ``section``, or the whole one, as older versions of XLA write it.

        Raises ShapeError for text that is no JSON object.
        """
        try:
            fields = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ShapeError(f"backend_config is not JSON: {error}", hint="see docs/workbench.md") from None
        if not isinstance(fields, dict):
            raise ShapeError(f"backend_config must be a JSON object, got {text[:80]}", hint="see docs/workbench.md")
        whole = cls(cast("dict[str, object]", fields))
        return whole.section(section) if section in whole else whole

    @classmethod
    def of_attributes(cls, text: str) -> Config:
        """The attributes of a call of the typed FFI. Raises ParseError."""
        return cls(
            {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in parse_attributes(text).items()
            }
        )

    @classmethod
    def of_numbers(cls, text: str, names: Sequence[str]) -> Config:
        """Numbers with commas between them, by the names of the first of them. Raises ShapeError."""
        parts = [part.strip() for part in text.strip().strip('"').split(",")] if text.strip() else []
        if len(parts) > len(names):
            known = f"it may have {', '.join(names)}" if names else "it has none in calls of this target"
            raise ShapeError(f"backend_config is {text[:80]}", hint=known)
        return cls(dict(zip(names, parts, strict=False)))

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def section(self, key: str) -> Config:
        """An object inside; empty where the key is absent."""
        fields = self._fields.get(key)
        if fields is None:
            return Config({}, self.name(key))
        if not isinstance(fields, dict):
            raise self.error(key, "an object")
        return Config(cast("dict[str, object]", fields), self.name(key))

    def number(self, key: str, default: float = 0.0) -> float:
        """A floating-point number."""
        value = self._fields.get(key, default)
        if isinstance(value, str):
            if value in _FLOATS:
                return _FLOATS[value]
            try:
                return float(value)
            except ValueError:
                raise self.error(key, "a number") from None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, "a number")
        return float(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers, which protos write as text."""
        items = self._fields.get(key, [])
        if not isinstance(items, list):
            raise self.error(key, "a list of integers")
        return tuple(self._integer(key, item) for item in cast("list[object]", items))

    def integer(self, key: str, default: int = 0) -> int:
        """An integer, which protos write as text."""
        return self._integer(key, self._fields.get(key, default))

    def needed_integer(self, key: str) -> int:
        """An integer that has no default. Raises ShapeError where it is absent."""
        if key not in self:
            hint = "compare it with the text that XLA printed"
            raise ShapeError(f"backend_config has no {self.name(key)}", hint=hint)
        return self.integer(key)

    def _integer(self, key: str, item: object) -> int:
        if isinstance(item, str) and item.removeprefix("-").isdecimal():
            return int(item)
        if isinstance(item, bool) or not isinstance(item, int):
            raise self.error(key, "integers")
        return item

    def flag(self, key: str) -> bool:
        """A truth value."""
        value = self._fields.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str) -> str:
        """A text, by default empty."""
        value = self._fields.get(key, "")
        if not isinstance(value, str):
            raise self.error(key, "a text")
        return value

    def choice(self, key: str, known: Sequence[str]) -> str:
        """One of some names, by default the first. Raises UnsupportedError for others."""
        return self._known(key, self._fields.get(key, known[0]), known)

    def choices(self, key: str, known: Sequence[str]) -> tuple[str, ...]:
        """A list of names. Raises UnsupportedError for those that are not known."""
        items = self._fields.get(key, [])
        if not isinstance(items, list):
            raise self.error(key, "a list of names")
        return tuple(self._known(key, item, known) for item in cast("list[object]", items))

    def _known(self, key: str, item: object, known: Sequence[str]) -> str:
        if not isinstance(item, str):
            raise self.error(key, "a name")
        if item not in known:
            raise UnsupportedError(
                f"backend_config has {self.name(key)} '{item}', which has no meaning here",
                hint=f"{self.name(key)} may be {', '.join(known)}",
            )
        return item

    def refuse(self, *keys: str) -> None:
        """Raise UnsupportedError where a key has a value that is not empty, zero or false."""
        for key in keys:
            if self._fields.get(key) not in (None, False, 0, "0", "", [], {}):
                raise UnsupportedError(
                    f"backend_config has {self.name(key)} {str(self._fields[key])[:80]}, which has no meaning here",
                    hint="register a function for the call with xlakit.register_custom_call",
                )

    def error(self, key: str, rule: str) -> ShapeError:
        """An error about a value."""
        return ShapeError(
            f"backend_config has {self.name(key)} {json.dumps(self._fields.get(key))[:80]}, it must be {rule}",
            hint="compare it with the text that XLA printed",
        )

    def name(self, key: str) -> str:
        """A key with those of the objects around it."""
        return f"{self._path}.{key}" if self._path else key
