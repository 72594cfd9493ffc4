"""Reads the viewer's data from the reports of ``xlakit run --profile --json`` and ``--shadow f64 --json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from xlakit.errors import ArgumentError

_LARGEST: Final = 1e200
_STEP_NUMBERS: Final = {
    "flops": "flops",
    "transcendentals": "transcendentals",
    "bytes": "bytes",
    "nanoseconds": "own_nanoseconds",
}


def read_report(name: str) -> str:
    """The text of a report; binary data is none. Raises OSError."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        # What the caller makes of no report tells which one it wants.
        return ""


def seconds_of(report: str, name: str) -> dict[str, float]:
    """The seconds that each instruction takes in a run, by name, of a report. Raises ArgumentError for what is no such
    report; ``name`` is the file's.
    """
    try:
        data = json.loads(report)
        scale = 1e-9 / max(1, data["runs"])
        return {row["instruction"]: row["nanoseconds"] * scale for row in data["instructions"]}
    except (ValueError, KeyError, TypeError):
        raise _no_report(name) from None


def errors_of(report: str, name: str) -> dict[str, float]:
    """The largest relative error of each instruction, by name, of a report of rounding errors. Raises ArgumentError for
    what is no such report; ``name`` is the file's.
    """
    errors: dict[str, float] = {}
    try:
        for row in json.loads(report)["rows"]:
            # Infinities are texts; JSON has no numbers for them.
            error = min(float(row["relative_error"]), _LARGEST)
            errors[str(row["instruction"])] = max(error, errors.get(str(row["instruction"]), 0.0))
    except (ValueError, KeyError, TypeError):
        raise ArgumentError(
            f"{name} is no report of rounding errors", hint="xlakit run FILE --shadow f64 --json prints one"
        ) from None
    return errors


def roofline_of(report: str, name: str) -> dict[str, Any] | None:
    """The steps of a report, and the roofs of its machine where it has them; None where the report has no steps.

    steps: those that took time and that compute or move something, with the operations, bytes and nanoseconds of all
    runs. roofs: as :meth:`xlakit.cpu.profiling.roofline.Roofline.as_dict` gives them. Raises ArgumentError for what is
    no such report; ``name`` is the file's.
    """
    try:
        data = json.loads(report)
        if data.get("steps") is None:
            return None
        steps = [_step(row) for row in data["steps"]]
        step_rows = [
            row for row in steps if row["nanoseconds"] and (row["flops"] or row["transcendentals"] or row["bytes"])
        ]
        roofs = data.get("machine", {}).get("roofs")
        return {"steps": step_rows} | ({} if roofs is None else {"roofs": _roofs(roofs)})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _no_report(name) from None


def _step(row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {key: _number(row[source]) for key, source in _STEP_NUMBERS.items()}
    roofline = row.get("roofline")
    part = None if roofline is None else _number(roofline)
    texts = {"name": str(row["name"]), "opcode": str(row.get("opcode") or row.get("kind") or "")}
    return {**texts, **numbers, "roofline": part, "bound": str(row.get("bound") or "")}


def _roofs(roofs: Mapping[str, Any]) -> dict[str, Any]:
    """The roofs of a report, all of them above zero."""
    roof_values: dict[str, Any] = {
        part: {str(key): _number(value, least=math.ulp(0.0)) for key, value in roofs[part].items()}
        for part in ("flops_per_nanosecond", "bytes_per_nanosecond")
    }
    if not all(roof_values.values()):
        raise ValueError("no roofs")
    return roof_values | {"flops_per_transcendental": _number(roofs["flops_per_transcendental"])}


def _number(value: object, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise ValueError(f"{value!r} is no number of a report")
    return value


def _no_report(name: str) -> ArgumentError:
    return ArgumentError(f"{name} is no report of a profile", hint="xlakit run FILE --profile --json prints one")
