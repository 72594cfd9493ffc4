"""What the language costs, as ratios against jaxlib in the same run.

    python -m fuzz.speed [FILE ...] [--repeat 7]

For each program (by default the gradient of a transformer of four layers): parse, verify, print and run it, and let
jaxlib parse and run it, turn by turn; medians. The interpreter is a reference, not a compiler: a ratio below 10 says
that it is quick enough to compare with.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xlakit as xla
from xlakit.data.text_table import duration
from xlakit.execution.inputs import make_inputs
from xlakit.tools.jaxlib_backend import JaxlibBackend

DEFAULT = Path(__file__).parents[1] / "examples" / "hlo" / "transformer_grad_4_layers.hlo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each file."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description="Time parse, verify, print and run, against jaxlib."
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="HLO text (default: the transformer's gradient)")
    parser.add_argument("--repeat", type=int, default=7, help="how often; medians are printed")
    options = parser.parse_args(arguments)
    jaxlib = JaxlibBackend()
    for file in options.files or [DEFAULT]:
        text = Path(file).read_text(encoding="utf-8")
        print(f"{Path(file).name}, {text.count(chr(10))} lines")
        for name, seconds, peer in measure(text, jaxlib, options.repeat):
            ratio = f"  jaxlib {duration(peer * 1e9):>8}  ratio {seconds / peer:5.2f}" if peer else ""
            print(f"  {name:8}{duration(seconds * 1e9):>8}{ratio}")
    return 0


def measure(text: str, jaxlib: JaxlibBackend, repeat: int) -> list[tuple[str, float, float]]:
    """(step, seconds, jaxlib's seconds or 0) for each step."""
    module = xla.HloModule.from_text(text)
    values = make_inputs(module.entry.program_shape, 0)
    interpreted = xla.compile(module, backend="interpreter")
    compiled = xla.compile(module, backend="cpu")
    peer = jaxlib.prepare(text, [values])
    steps: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = [
        ("parse", lambda: xla.HloModule.from_text(text), lambda: jaxlib.parse(text)),
        ("verify", module.verify, None),
        ("print", module.to_text, None),
        ("run", lambda: interpreted(*values), peer),
        ("compiled", lambda: compiled(*values), peer),
    ]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in steps}
    for _ in range(repeat):
        for name, ours, theirs in steps:
            times[name].append((_time(ours), _time(theirs) if theirs else 0.0))
    return [
        (name, *(statistics.median(column) for column in zip(*pairs, strict=True))) for name, pairs in times.items()
    ]


def _time(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
