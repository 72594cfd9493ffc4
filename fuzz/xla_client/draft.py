"""Arguments of a call of ``ops``, drawn one after the other, and faults put into such a call.

A call is a record that :mod:`fuzz.xla_client.probe` reads: the operation, the parameters of the program, the arguments.
"""

from __future__ import annotations

import copy
import math
import random
from typing import Any

Call = dict[str, Any]
Value = list[Any]

FLOATS = ("float32", "float32", "float64", "bfloat16", "float16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int32", "int32", "int8", "uint8", "int16", "uint32", "int64", "uint64")
TYPES = (*FLOATS, *INTEGERS, *COMPLEX, "bool")
_SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0)


class Draft:
    """A call that is being drawn."""

    def __init__(self, rng: random.Random, op: str) -> None:
        self.rng = rng
        self.call: Call = {"op": op, "operands": [], "arguments": [], "keywords": {}}

    def operand(self, dtype: str, dimensions: list[int], low: float = -4, high: float = 4, values: Any = None) -> Value:
        """A parameter of the program."""
        drawn = self._numbers(dtype, dimensions, low, high) if values is None else values
        self.call["operands"].append([dtype, dimensions, drawn])
        return ["operand", len(self.call["operands"]) - 1]

    def _numbers(self, dtype: str, dimensions: list[int], low: float, high: float) -> list[Any]:
        return [self._number(dtype, low, high) for _ in range(math.prod(dimensions))]

    def _number(self, dtype: str, low: float, high: float) -> Any:
        if dtype == "bool":
            return self.rng.random() < 0.5
        if "int" in dtype:
            return self.rng.randint(max(0, int(low)) if dtype.startswith("u") else int(low), int(high))
        if dtype.startswith("complex"):
            return [round(self.rng.uniform(low, high), 2), round(self.rng.uniform(low, high), 2)]
        special = [s for s in _SPECIAL if low <= s <= high or (low == -4 and high == 4)]
        if special and self.rng.random() < 0.1:
            return self.rng.choice(special)
        return round(self.rng.uniform(low, high), 2)

    def shape(self, least: int = 0, most: int = 3) -> list[int]:
        """Dimensions."""
        return [
            self.rng.choice((1, 2, 3, 3, 4, 0 if self.rng.random() < 0.2 else 5))
            for _ in range(self.rng.randint(least, most))
        ]

    def some(self, count: int) -> list[int]:
        """Some of the dimensions, in order."""
        return [d for d in range(count) if self.rng.random() < 0.5]

    def give(self, *arguments: Value, **keywords: Value) -> Call:
        """The call of these arguments."""
        self.call["arguments"], self.call["keywords"] = list(arguments), keywords
        return self.call


def plain(value: Any) -> Value:
    """A value of Python."""
    return ["plain", value]


_JUNK: tuple[Value, ...] = (
    plain(None), plain("text"), plain(1.5), plain(-1), plain(7), plain(True), plain([]), plain([0, 0]), plain([-1]),
    plain([9]), plain([1.5]), plain({"a": 1}), ["builder"], ["type", "F32"], ["shape", "f32[2]"], ["pairs", [0, 1]],
    ["computation", "Add", ["float32", "float32"]], ["operand", 0],
)  # fmt: skip


def spoiled(seed: int, call: Call) -> Call:
    """The call with a fault: another argument, one too few or too many, or an operand of another type or shape."""
    rng, call = random.Random(seed), copy.deepcopy(call)
    arguments, keywords, way = call["arguments"], call["keywords"], rng.random()
    junk = rng.choice(_JUNK if call["operands"] else _JUNK[:-1])
    if way < 0.6 and arguments:
        arguments[rng.randrange(len(arguments))] = junk
    elif way < 0.7 and arguments:
        arguments.pop(rng.randrange(len(arguments)))
    elif way < 0.8:
        arguments.append(junk)
    elif way < 0.85 or not call["operands"]:
        keywords["unknown" if rng.random() < 0.5 else "operand"] = junk
    else:
        operand = rng.choice(call["operands"])
        dtype, dimensions = rng.choice(TYPES), rng.choice(([], [2], [2, 3], [3, 0]))
        operand[:] = [dtype, dimensions, [0] * math.prod(dimensions)]
        if dtype.startswith("complex"):
            operand[2] = [[0, 0]] * math.prod(dimensions)
    return call
