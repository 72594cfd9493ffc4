"""Programs with calls of other backends' libraries, and what they are compared with."""

import json

import numpy as np
from ml_dtypes import bfloat16

import xlakit
from xlakit.ir.operation import Array

TYPES = {"f16": np.float16, "bf16": bfloat16, "f32": np.float32, "f64": np.float64, "c64": np.complex64}
# Sums are in f32; the result is rounded to the type once.
TOLERANCES = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6, "f64": 1e-13, "c64": 2e-6}


def program(
    operands: list[str], result: str, target: str, config: object, attributes: str = "", element: int = 0
) -> str:
    """HLO text: a call of the operands; where its result is a tuple, an element of that."""
    names = [f"p{number}" for number in range(len(operands))]
    lines = [f"  {name} = {shape} parameter({i})" for i, (name, shape) in enumerate(zip(names, operands, strict=True))]
    text = config if isinstance(config, str) else json.dumps(config)
    call = f'custom-call({", ".join(names)}), custom_call_target="{target}"{attributes}, backend_config={text}'
    if result.startswith("("):
        lines.append(f"  call = {result} {call}")
        lines.append(f"  ROOT r = {result.strip('()').split(', ')[element]} get-tuple-element(call), index={element}")
    else:
        lines.append(f"  ROOT call = {result} {call}")
    return "\n".join(["HloModule m", "", "ENTRY e {", *lines, "}", ""])


def drawn(dimensions: tuple[int, ...], kind: str, seed: int) -> Array:
    """Normal numbers of a type."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(dimensions)
    if kind == "c64":
        return (numbers + 1j * rng.standard_normal(dimensions)).astype(np.complex64)
    return numbers.astype(TYPES[kind])


def wide(array: Array) -> Array:
    """The array in double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def check(text: str, arguments: list[Array], wanted: Array, kind: str) -> None:
    """Both backends give the numbers, computed in double precision, up to the rounding of a type."""
    module = xlakit.HloModule.from_text(text)
    for backend in ("cpu", "interpreter"):
        got = np.asarray(xlakit.compile(module, backend=backend)(*arguments))
        assert got.shape == wanted.shape
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(wide(got), wanted, rtol=TOLERANCES[kind], atol=TOLERANCES[kind] * scale)
