"""Answers questions about one of the modules: ``python -m fuzz.xla_client.probe ours|reference``.

Each line of the input is a question as JSON, each line of the output its answer. The process of the reference has
jaxlib 0.6.0 and NumPy, and imports nothing of xlakit. A call is ``{"op": NAME, "operands": [[TYPE, DIMENSIONS, VALUES],
..], "arguments": [VALUE, ..], "keywords": {NAME: VALUE}}``; the operands are parameters of the program, and a value is
a list that begins with its kind, see :class:`_Program`.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fuzz.xla_client.expressions import Evaluator

Array = np.ndarray[Any, Any]

# The error of a question that ends the process.
DIED = "process ended"


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy type of a name."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def array_of(name: str, dimensions: list[int], values: list[Any]) -> Array:
    """An array of the numbers of :func:`plain_of`."""
    dtype = dtype_of(name)
    plain = [complex(*v) for v in values] if dtype.kind == "c" else values
    with np.errstate(all="ignore"):
        return np.asarray(plain, np.complex128 if dtype.kind == "c" else None).astype(dtype).reshape(dimensions)


def plain_of(array: Array) -> dict[str, Any]:
    """An array as JSON."""
    if array.dtype.kind == "c":
        values: Any = [[v.real, v.imag] for v in array.ravel().tolist()]
    elif array.dtype.kind in "biu":
        values = array.ravel().tolist()
    else:
        wide = np.int64 if "int" in array.dtype.name else np.float64
        values = array.astype(wide).ravel().tolist()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": values}


class _Program:
    """A program of one call; the methods make values of each kind."""

    def __init__(self, xc: Any, operands: list[Array]) -> None:
        self._xc = xc
        self.builder = xc.XlaBuilder("call")
        self._operands = [
            xc.ops.Parameter(self.builder, number, xc.shape_from_pyval(operand))
            for number, operand in enumerate(operands)
        ]

    def value(self, described: list[Any]) -> Any:
        """What a description says."""
        kind, *rest = described
        return getattr(self, f"_{kind}")(*rest)

    def _plain(self, value: Any) -> Any:
        return value

    def _builder(self) -> Any:
        return self.builder

    def _operand(self, number: int) -> Any:
        return self._operands[number]

    def _list(self, *items: list[Any]) -> Any:
        return [self.value(item) for item in items]

    def _pairs(self, *items: list[int]) -> Any:
        return [tuple(item) for item in items]

    def _type(self, name: str) -> Any:
        return getattr(self._xc.PrimitiveType, name)

    def _shape(self, text: str) -> Any:
        return self._xc.Shape(text)

    def _enum(self, owner: str, name: str) -> Any:
        return getattr(getattr(self._xc, owner, None) or getattr(self._xc.ops, owner), name)

    def _array(self, name: str, dimensions: list[int], values: list[Any]) -> Any:
        return array_of(name, dimensions, values)

    def _record(self, name: str, fields: dict[str, Any]) -> Any:
        made = getattr(self._xc, name)()
        for field, value in fields.items():
            made_field = getattr(made, field)
            if isinstance(value, list):
                made_field.extend(value)
            else:
                setattr(made, field, value)
        return made

    def _padding(self, *triples: list[int]) -> Any:
        return self._xc.make_padding_config([tuple(t) for t in triples])

    def _dot(self, contracting: list[list[int]], batch: list[list[int]]) -> Any:
        return self._xc.make_dot_dimension_numbers((tuple(contracting), tuple(batch)))

    def _convolution(self, text: list[str], rank: int) -> Any:
        return self._xc.make_convolution_dimension_numbers(tuple(text), rank)

    def _computation(self, name: str, types: list[str]) -> Any:
        """Applies an operation to scalars; of several types to the first two of them."""
        builder = self._xc.XlaBuilder("inner")
        scalars = [
            self._xc.ops.Parameter(builder, number, self._xc.Shape.scalar_shape(dtype_of(t)))
            for number, t in enumerate(types)
        ]
        getattr(self._xc.ops, name)(*scalars[: 1 if len(scalars) == 1 else 2])
        return builder.build()


class Probe:
    """Answers questions."""

    def __init__(self, xc: Any) -> None:
        self._xc = xc
        self._client = xc.make_cpu_client()
        self._evaluator = Evaluator(xc)

    def answer(self, question: dict[str, Any]) -> Any:
        """The answer; an exception is one, too."""
        if "expression" in question:
            return {"words": self._evaluator.answer(question)}
        if "op" not in question:
            return signatures(self._xc) if "signatures" in question else question
        try:
            return self._called(question)
        except Exception as error:
            status = re.match(r"([A-Z_]+):", str(error))
            return {"error": type(error).__name__, "status": status[1] if status else "", "message": str(error)[:300]}

    def _called(self, question: dict[str, Any]) -> Any:
        operands = [array_of(*operand) for operand in question["operands"]]
        program = _Program(self._xc, operands)
        arguments = [program.value(value) for value in question["arguments"]]
        keywords = {name: program.value(value) for name, value in question["keywords"].items()}
        made = getattr(self._xc.ops, question["op"])(*arguments, **keywords)
        if isinstance(made, tuple) and all(isinstance(m, self._xc.XlaOp) for m in made):
            made = self._xc.ops.Tuple(program.builder, list(made))
        if not isinstance(made, self._xc.XlaOp):
            return {"value": repr(made)}
        shape = program.builder.get_shape(made)
        built = program.builder.build(made)
        cost = self._xc._xla.hlo_module_cost_analysis(self._client, built.as_hlo_module())
        module = self._xc._xla.mlir.xla_computation_to_mlir_module(built)
        buffers = [self._client.buffer_from_pyval(operand) for operand in operands]
        results = self._client.compile(module).execute(buffers)
        leaves = shape.tuple_shapes() if shape.is_tuple() else [shape]
        found = [plain_of(values_of(*pair)) for pair in zip(results, leaves, strict=True)]
        return {"shape": repr(shape), "results": found, "cost": cost, "text": texts_of(built)}


def texts_of(built: Any) -> list[str]:
    """A computation in HLO text: as programs print it, and with what options show and leave out."""
    module = built.as_hlo_module()
    found = [built.as_hlo_text(), built.as_hlo_text(True), module.to_string()]
    # Names of computations are counted in a process, and a process is started again where a call ends one.
    return [re.sub(r"\b(call|inner)__\d+", r"\1", text) for text in found]


def values_of(result: Any, shape: Any) -> Array:
    """The values of an array of either module, of this shape."""
    if shape.numpy_dtype() != ml_dtypes.bfloat16:
        return np.asarray(result)
    # BF16 has no buffer protocol, and jaxlib's arrays have nothing else where JAX is not installed.
    result.block_until_ready()
    dimensions = shape.dimensions()
    size = 2 * math.prod(dimensions)
    raw = ctypes.string_at(result.unsafe_buffer_pointer(), size) if size else b""
    return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(dimensions)


def signatures(xc: Any) -> dict[str, list[str]]:
    """The parameters of every function and method of a module, with their defaults, by dotted name."""
    found: dict[str, list[str]] = {}
    _walk(xc, "", found, set())
    return found


_DUNDERS = ("__init__", "__call__", "__getitem__", "__len__", "__enter__", "__exit__", "__dlpack__", "__array__")


def _walk(owner: Any, path: str, found: dict[str, list[str]], seen: set[int]) -> None:
    if id(owner) in seen or path.count(".") > 3:
        return
    seen.add(id(owner))
    for name in sorted(dir(owner)):
        if name.startswith("__") and name not in _DUNDERS:
            continue
        try:
            value = getattr(owner, name)
        except Exception:
            continue  # some attributes of jaxlib cannot be read
        place = f"{path}{name}"
        home = getattr(value, "__module__", None) or getattr(value, "__name__", "")
        if inspect.ismodule(value):
            if "xla" in value.__name__:
                _walk(value, place + ".", found, seen)
        elif inspect.isclass(value):
            if str(home).startswith(("jaxlib", "xlakit")):
                _walk(value, place + ".", found, seen)
        elif callable(value):
            found[place] = _parameters(value)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """``name`` or ``name=default`` for each parameter; of overloads those of the first; ``?`` where it is not known."""
    overloads = getattr(function, "__nb_signature__", None)
    try:
        text = overloads[0][0] if overloads else str(inspect.signature(function))
    except (ValueError, TypeError):
        return ["?"]
    inner = text[text.index("(") + 1 :] if "(" in text else ""
    parts, depth, part, quote = [], 0, "", ""
    for c in inner:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth < 0:
                break
        if c == "," and depth == 0 and not quote:
            parts.append(part)
            part = ""
        else:
            part += c
    names = (re.match(r"\s*(\*{0,2}\w+|/|\*)", p) for p in [*parts, part])
    return [match[1] for match in names if match]


def main() -> None:
    """Answer until the input ends."""
    if sys.argv[1] == "ours":
        from xlakit.compat import xla_client as xc
    else:
        from jaxlib import xla_client as xc
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    probe = Probe(xc)
    for line in sys.stdin:
        answers.write(json.dumps(probe.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
