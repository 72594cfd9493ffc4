"""What a program gives, compiled and interpreted, and whether that is a fault."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fuzz.jax_programs.training.steps import Step, lowered
from xlakit import compile as compile_program
from xlakit.formats.hlo_proto import read_module
from xlakit.options import PLAIN, Options, compiling
from xlakit.tools.inputs import flatten

Results = list[np.ndarray[Any, Any]]
# By the type that is computed in: the norm of the difference over that of the result. Wrong memory makes it about 1.
_ALLOWED = {"float64": 1e-9, "float32": 2e-4, "bfloat16": 0.1, "float16": 0.02}
# One wrong element of a large array changes the norm little: none may be off by more than so many times as much.
_OF_AN_ELEMENT = 10.0
# Gradients that are zero but for roundings have those of their terms: arrays are compared with the greatest, too.
_OF_THE_GREATEST = 0.02


def difference(actual: Results, expected: Results) -> tuple[float, str]:
    """The greatest difference of an array, and of which."""
    sizes = [_size(array) for array in expected]
    greatest = max(sizes, default=0.0)
    found = (0.0, "")
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf"), f"result {number} is {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        wide, other = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(other)
        off = float("inf")
        if np.array_equal(np.isfinite(wide), finite):
            scale = max(sizes[number], _OF_THE_GREATEST * greatest, float(np.finfo(np.float32).tiny))
            apart = np.abs(np.where(finite, wide, 0) - np.where(finite, other, 0)) / scale
            off = max(_size(apart), float(apart.max(initial=0.0)) / _OF_AN_ELEMENT)
        if off > found[0]:
            most = f"{off:.2g} of its norm, or an element by {off * _OF_AN_ELEMENT:.2g} of it"
            found = off, f"result {number}, {b.dtype}{list(b.shape)}, is off by {most}"
    return found


def _size(array: np.ndarray[Any, Any]) -> float:
    """The root of the mean square of the numbers."""
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    return float(np.sqrt(np.square(finite).mean())) if finite.size else 0.0


def results(proto: bytes, arguments: Results, options: Options, backend: str = "cpu") -> Results:
    """What the module of a proto gives."""
    with compiling(options):
        compiled = compile_program(read_module(proto), backend=backend)
        return [np.array(result) for result in flatten(compiled(*arguments)).values()]


def judge(made: Step, options: Options) -> str:
    """Describe the fault of a program compiled with options; "" if there is none."""
    proto = lowered(made).compiler_ir("hlo").as_serialized_hlo_module_proto()
    arguments = [np.asarray(a) for a in jax.tree_util.tree_leaves(made.arguments)]
    actual = results(proto, arguments, options)
    expected = results(proto, arguments, Options(), "interpreter")
    off, which = difference(actual, expected)
    if off <= _ALLOWED[made.computed.name]:
        return ""
    plain = results(proto, arguments, Options(plain=frozenset(PLAIN)))
    # A program that makes much of roundings makes as much of them where it is plain code.
    if difference(plain, expected)[0] > off / 3 and difference(actual, plain)[0] > off / 3:
        return ""
    return f"{made.what}: {which} ({options.text})"
