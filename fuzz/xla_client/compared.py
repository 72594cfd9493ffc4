"""Whether two answers are the same, but for roundings and for what is meant to differ."""

from __future__ import annotations

import math
from typing import Any

from fuzz.xla_client.draft import Call
from fuzz.xla_client.probe import DIED

Answer = dict[str, Any]

# Random numbers; and vectors and factors that are as right with the other sign.
_ANY_VALUES = frozenset({"RngNormal", "RngUniform"})
_EITHER_SIGN = frozenset({"Eigh", "QR", "QrDecomposition", "SVD"})
# jaxlib's iterations end at an epsilon that is their argument.
_LOOSE = frozenset({"Eigh", "SVD"})
# What is computed by other instructions than jaxlib's, whose texts and costs are others.
_OTHER_PROGRAMS = _EITHER_SIGN | {
    "Acos", "Asin", "Asinh", "BesselI0e", "BesselI1e", "Digamma", "ErfInv", "Erfc", "Igamma", "IgammaGradA", "Igammac",
    "LU", "Lgamma", "NextAfter", "RandomGammaGrad", "RegularizedIncompleteBeta", "Zeta",
}  # fmt: skip
# By type: relative to the number, or to the largest one of the result.
_TOLERANCES = {
    "float32": 2e-5,
    "float64": 1e-11,
    "bfloat16": 2e-2,
    "float16": 2e-3,
    "complex64": 2e-5,
    "complex128": 1e-11,
}


def difference(call: Call, ours: Answer, reference: Answer) -> str:
    """What differs, in words; empty where nothing does that counts."""
    if reference.get("error") == DIED:
        return ""
    if "error" in reference and "error" not in ours and is_left_out(call):
        return ""
    if ("error" in ours) != ("error" in reference):
        return f"{_short(ours)} instead of {_short(reference)}"
    if "error" in ours:
        return "" if ours["error"] == reference["error"] else f"{_short(ours)} instead of {_short(reference)}"
    if "value" in ours or "value" in reference or ours["shape"] != reference["shape"]:
        return "" if ours == reference else f"{_short(ours)} instead of {_short(reference)}"
    if call["op"] not in _OTHER_PROGRAMS and (found := _costs(ours["cost"], reference["cost"])):
        return found
    if call["op"] not in _OTHER_PROGRAMS and (found := _texts(ours["text"], reference["text"])):
        return found
    if call["op"] in _ANY_VALUES or _has_negative_exponents(call) or _reduces_single_elements(call):
        return ""
    pairs = list(zip(ours["results"], reference["results"], strict=True))
    if call["op"] == "SVD":
        # The left singular vectors of no singular value are any basis.
        del pairs[0]
    return next((found for pair in pairs if (found := _values(call["op"], *pair))), "")


def _texts(ours: list[str], reference: list[str]) -> str:
    pairs = zip("\n".join(ours).split("\n"), "\n".join(reference).split("\n"), strict=False)
    return next((f"{x.strip()} instead of {y.strip()}" for x, y in pairs if x != y), "")


def _costs(ours: dict[str, float], reference: dict[str, float]) -> str:
    for name in sorted(ours.keys() | reference.keys()):
        x, y = ours.get(name, 0.0), reference.get(name, 0.0)
        # Of nothing jaxlib knows no share, and a reduction of nothing has less than no operations.
        if math.isfinite(y) and y >= 0 and not math.isclose(x, y, rel_tol=1e-6):
            return f"costs {x} instead of {y} {name}"
    return ""


def is_left_out(call: Call) -> bool:
    """Whether jaxlib refuses a call that is right: slices of scalars have no text in StableHLO."""
    return call["op"] in ("DynamicSlice", "DynamicUpdateSlice") and not call["operands"][0][1]


def _has_negative_exponents(call: Call) -> bool:
    """Whether integers are raised to negative powers, of which jaxlib gives 0 for the base -1."""
    return call["op"] == "Pow" and any(
        "int" in dtype and any(value < 0 for value in values) for dtype, _, values in call["operands"][1:]
    )


def _reduces_single_elements(call: Call) -> bool:
    """Whether each result of a reduction is of one element, which jaxlib gives without the initial value."""
    if call["op"] != "Reduce" or len(call["operands"]) < 2:
        return False
    given = [*call["arguments"], *call["keywords"].values()][-1]
    sizes = call["operands"][0][1]
    return given[0] == "plain" and isinstance(given[1], list) and all(sizes[d] == 1 for d in given[1] if d < len(sizes))


def _short(answer: Answer) -> str:
    if "error" in answer:
        return f"{answer['error']} ({answer.get('message', '')[:160]})"
    return f"a result of shape {answer['shape']}" if "shape" in answer else str(answer["value"])


def _values(op: str, ours: Answer, reference: Answer) -> str:
    if (ours["dtype"], ours["shape"]) != (reference["dtype"], reference["shape"]):
        return f"{ours['dtype']}{ours['shape']} instead of {reference['dtype']}{reference['shape']}"
    tolerance = 1e-4 if op in _LOOSE else _TOLERANCES.get(ours["dtype"], 0.0)
    mine, theirs = _flat(ours["values"]), _flat(reference["values"])
    largest = max((abs(x) for x in theirs if math.isfinite(x)), default=0.0)
    for number, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        if op in _EITHER_SIGN:
            x, y = abs(x), abs(y)
        if not _near(x, y, tolerance, largest):
            return f"element {number} is {x!r} instead of {y!r}"
    return ""


def _flat(values: list[Any]) -> list[float]:
    return [part for value in values for part in (value if isinstance(value, list) else [value])]


def _near(x: float, y: float, tolerance: float, largest: float) -> bool:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return True
    return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= tolerance * max(abs(y), largest)
