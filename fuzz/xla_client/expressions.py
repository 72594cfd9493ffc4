"""Expressions that both modules evaluate: what is printed, compared, pickled, refused.

A file of ``expressions/`` has blocks. ``## NAME`` begins one; a name that ends with ``!`` starts afresh for every line.
``+ `` is a line of its preparation; every other line is an expression or a statement. One that begins with ``~`` and a
word of ``REASONS`` differs, for that reason; that it still does is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_FOLDER = Path(__file__).parent / "expressions"
REASONS = {
    "more": "xlakit takes or has this, and jaxlib alone, without JAX's Python, does not",
    "own": "texts, names, numbers and states that each package makes of its own",
    "right": "jaxlib takes what has no meaning, or loses part of it; xlakit follows HLO's semantics, or refuses it",
    "early": "an operation that does not fit its operands, which xlakit refuses where jaxlib waits, or gives no result",
    "not": "xlakit does not have this",
}
_MARK = re.compile(r"~(\w+) ")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_OBJECT = re.compile(r"<[\w.]*\.(\w+) object at 0x>")


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Why it differs, or an empty text, and the question, for each line of all files. Raises KeyError."""
    for path in sorted(_FOLDER.glob("*.txt")):
        block, setup = "", [""]
        for line in path.read_text().splitlines():
            if line.startswith("## "):
                block, setup = f"{path.stem}: {line[3:]}", []
            elif line.startswith("+ "):
                setup.append(line[2:])
            elif line.strip():
                mark = _MARK.match(line)
                reason = "" if mark is None else REASONS[mark[1]]
                expression = line if mark is None else line[mark.end() :]
                yield reason, {"block": block, "setup": "\n".join(setup), "expression": expression}


class Evaluator:
    """Evaluates the lines of one block after the other."""

    def __init__(self, xc: Any) -> None:
        self._xc = xc
        self._block = ""
        self._names: dict[str, Any] = {}

    def answer(self, question: dict[str, Any]) -> str:
        """The value in words, or the type and the status of the exception."""
        try:
            if question["block"] != self._block or self._block.endswith("!"):
                self._block = question["block"]
                self._names = {"xc": self._xc, "ops": self._xc.ops, "xe": self._xc._xla, "np": np, "S": self._xc.Shape}
                exec(question["setup"], self._names)
            try:
                code = compile(question["expression"], "<expression>", "eval")
            except SyntaxError:
                code = compile(question["expression"], "<expression>", "exec")
            return in_words(eval(code, self._names))
        except Exception as error:
            status = re.match(r"([A-Z_]+):", str(error))
            return f"raises {type(error).__name__} {status[1] if status else ''}"


def in_words(value: Any) -> str:
    """A value without what differs from process to process."""
    if type(value).__name__ == "ArrayImpl":
        return f"ArrayImpl {in_words(np.asarray(value))}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)} {value.tolist()!r}"
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{in_words(name)}: {in_words(part)}" for name, part in value.items())) + "}"
    if type(value) in (list, tuple):
        return type(value).__name__ + "[" + ", ".join(map(in_words, value)) + "]"
    if isinstance(value, type):
        return f"class {value.__name__}"
    if value is None or isinstance(value, (str, bytes, int, float, complex)):
        return repr(value)
    text = _OBJECT.sub(r"<\1>", _ADDRESS.sub("0x", repr(value)))
    return f"{type(value).__name__}: {text}"
