"""``python -m benchmarks.jax_input_pipeline``: training in JAX beside NumPy code that makes the data.

Trains a multilayer perceptron on images that NumPy crops and mirrors between the steps, on xlakit and on jaxlib's CPU,
each with its asynchronous dispatch and without it. Four processes are started, and take turns: what else the machine
does meets all of them alike. For each width of the layers and each kind of loop it prints milliseconds (the median over
the rounds) and ratios to jaxlib (the median of the ratios of each round).

kinds of loops
  tiny     ``x + 1`` of ten numbers; microseconds for a call
  steps    steps with one batch, one after the other
  waiting  as steps, and Python reads the loss after each
  data     a new batch is made by NumPy before each step
  both     a new batch, and Python reads the loss after each step
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

KINDS: Final = ("tiny", "steps", "waiting", "data", "both")
# The environment of each way to run; the one that others are compared with comes first.
WAYS: Final = {
    "jaxlib": {"JAX_PLATFORMS": "cpu"},
    "jaxlib, not asynchronous": {"JAX_PLATFORMS": "cpu", "JAX_CPU_ENABLE_ASYNC_DISPATCH": "0"},
    "xlakit": {"XLAKIT_AS": "cpu", "XLAKIT_ASYNC": ""},
    "xlakit, not asynchronous": {"XLAKIT_AS": "cpu", "XLAKIT_ASYNC": "0"},
}
_BATCH, _SIDE, _CROP, _CHANNELS, _CLASSES = 256, 32, 28, 3, 10
_FEATURES: Final = _CROP * _CROP * _CHANNELS


class Pipeline:
    """Images, and batches that are made of them."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._images = self._rng.integers(0, 256, (2000, _SIDE, _SIDE, _CHANNELS), np.uint8)
        self._labels = self._rng.integers(0, _CLASSES, 2000)

    def batch(self) -> tuple[Any, Any]:
        """A batch of pieces of images, at random places and half of them mirrored, and their labels."""
        rng = self._rng
        chosen = rng.integers(0, len(self._images), _BATCH)
        pieces = np.empty((_BATCH, _CROP, _CROP, _CHANNELS), np.float32)
        places, mirrored = rng.integers(0, _SIDE - _CROP + 1, (_BATCH, 2)), rng.random(_BATCH) < 0.5
        for number, (image, (row, column), mirror) in enumerate(zip(chosen, places, mirrored, strict=True)):
            piece = self._images[image, row : row + _CROP, column : column + _CROP]
            pieces[number] = piece[:, ::-1] if mirror else piece
        pieces *= 1 / 255
        return pieces.reshape(_BATCH, _FEATURES), self._labels[chosen]


def _training(width: int) -> tuple[Any, Callable[[Any, Any, Any], tuple[Any, Any]]]:
    import jax
    import jax.numpy as jnp

    sizes = (_FEATURES, width, width, _CLASSES)
    rng = np.random.default_rng(1)
    pairs = pairwise(sizes)
    start = [(rng.normal(0, m**-0.5, (m, n)).astype(np.float32), np.zeros(n, np.float32)) for m, n in pairs]

    def loss(parameters: Any, images: Any, labels: Any) -> Any:
        x = images
        for weights, bias in parameters[:-1]:
            x = jax.nn.relu(x @ weights + bias)
        scores = jax.nn.log_softmax(x @ parameters[-1][0] + parameters[-1][1])
        return -jnp.take_along_axis(scores, labels[:, None], 1).mean()

    def step(parameters: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        value, slopes = jax.value_and_grad(loss)(parameters, images, labels)
        return jax.tree.map(lambda p, s: p - 0.01 * s, parameters, slopes), value

    tree: Any = jax.tree.map(jnp.asarray, start)
    return tree, jax.jit(step, donate_argnums=0)


def serve(width: int, steps: int) -> None:
    """Time loops of the kinds that lines of the input name; write the time of an iteration for each, in seconds."""
    import jax
    import jax.numpy as jnp

    pipeline = Pipeline()
    parameters, step = _training(width)
    fixed = tuple(map(jnp.asarray, pipeline.batch()))
    tiny, number = jax.jit(lambda x: x + 1), jnp.ones(10)
    kept = [parameters]

    def iteration(kind: str) -> None:
        images, labels = pipeline.batch() if kind in ("data", "both") else fixed
        kept[0], loss = step(kept[0], images, labels)
        if kind in ("waiting", "both"):
            float(loss)

    def timed(kind: str) -> float:
        count = 2000 if kind == "tiny" else steps
        start = time.perf_counter()
        for _ in range(count):
            if kind == "tiny":
                tiny(number)
            else:
                iteration(kind)
        jax.block_until_ready(kept[0])
        return (time.perf_counter() - start) / count

    for line in sys.stdin:
        print(timed(line.strip()), flush=True)


class _Server:
    """A process that times loops."""

    def __init__(self, environment: dict[str, str], width: int, steps: int) -> None:
        command = [sys.executable, "-m", "benchmarks.jax_input_pipeline", "--serve", str(width), "--steps", str(steps)]
        inherited = {k: v for k, v in os.environ.items() if k not in ("JAX_PLATFORMS", "XLAKIT_AS", "XLAKIT_ASYNC")}
        self._process = subprocess.Popen(
            command, env=inherited | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def time(self, kind: str) -> float:
        """The seconds of an iteration of a loop of this kind."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{kind}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _times(width: int, options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """For each kind and way the times of all rounds."""
    servers = {way: _Server(environment, width, options.steps) for way, environment in WAYS.items()}
    times: dict[str, dict[str, list[float]]] = {kind: {way: [] for way in WAYS} for kind in options.kinds}
    try:
        for kind in options.kinds:
            for round in range(-1, options.rounds):
                for way, server in servers.items():
                    taken = server.time(kind)
                    # Before the first round, programs are compiled.
                    if round >= 0:
                        times[kind][way].append(taken)
    finally:
        for server in servers.values():
            server.close()
    return times


def report(width: int, times: dict[str, dict[str, list[float]]]) -> str:
    """The lines of a table for one width."""
    lines: list[str] = []
    for kind, of_ways in times.items():
        unit = 1e6 if kind == "tiny" else 1e3
        cells: list[str] = []
        theirs = next(iter(of_ways.values()))
        for values in of_ways.values():
            ratio = statistics.median(a / b for a, b in zip(values, theirs, strict=True))
            cells.append(f"{statistics.median(values) * unit:.2f} ({ratio:.2f})")
        lines.append(f"| {width} | {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.jax_input_pipeline", description="Time training beside NumPy."
    )
    parser.add_argument("--widths", default="64,512,1536", help="of the layers, by commas (default 64,512,1536)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of loops (default {','.join(KINDS)})")
    parser.add_argument("--rounds", type=int, default=7, help="how often each way has its turn (default 7)")
    parser.add_argument("--steps", type=int, default=40, help="in a turn (default 40)")
    parser.add_argument("--serve", type=int, metavar="WIDTH", help="time loops in this process, as its input asks for")
    options = parser.parse_args(arguments)
    options.kinds = options.kinds.split(",")
    if not set(options.kinds) <= set(KINDS):
        parser.error(f"--kinds is of {', '.join(KINDS)}")
    if options.serve is not None:
        serve(options.serve, options.steps)
        return 0
    print("| width | loop | " + " | ".join(WAYS) + " |")
    print("|---|---|" + "---:|" * len(WAYS))
    for width in map(int, options.widths.split(",")):
        print(report(width, _times(width, options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
