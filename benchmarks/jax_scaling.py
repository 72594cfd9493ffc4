"""``python -m benchmarks.jax_scaling``: data-parallel training of the example's transformer on several processes.

Every device has its share of a batch of 16 texts, and gradients are averaged with an all-reduce. Printed are the losses
of four devices in one, two and four processes, which are the same to the bit; milliseconds of a step, the placements
and platforms taking turns; and how training scales by a model whose constants are measured here.

The model: a step on p processes takes T + r(p), where T is the time of one device on its own texts, and the all-reduce
of n bytes takes r = c + 2 (p - 1) alpha + 2 (p - 1)/p n beta: each process sends a part of its gradients to each other
one, combines what it gets, and sends that to each other one. c is what a call costs, alpha what a message does.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.jax_processes import measure
from benchmarks.programs.jax_jobs import Job

_EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "jax" / "language_model.py"
_TEXTS: Final = 16
# Processes and devices of each.
_PLACEMENTS: Final = ((1, 1), (1, 4), (2, 2), (4, 1))
_SIZES: Final = (65536, 262144, 1 << 20, 1 << 22)
_MODELED: Final = (1, 2, 4, 16, 64, 256, 1000)
_ANSWER: Final = "benchmarks.jax_scaling:answer"


@cache
def _example() -> Any:
    spec = importlib.util.spec_from_file_location("language_model", _EXAMPLE)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(str(_EXAMPLE))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _training() -> tuple[Callable[[Any, Any, Any], Any], Any, Any, Any]:
    """The step, its first state, and the texts of each step and the sharding of those."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    example = _example()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

    def slopes(parameters: Any, texts: Any) -> Any:
        return jax.lax.pmean(jax.value_and_grad(example.loss)(parameters, texts), "data")

    def step(state: Any, texts: Any, number: Any) -> Any:
        parameters, mean, square = state
        average = jax.shard_map(
            slopes, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec("data")), out_specs=PartitionSpec(),
            check_vma=False,
        )  # fmt: skip
        value, gradient = average(parameters, texts)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
        scale = example.RATE * jnp.sqrt(1 - 0.99**number) / (1 - 0.9**number)
        parameters = jax.tree.map(lambda p, m, s: p - scale * m / (jnp.sqrt(s) + 1e-8), parameters, mean, square)
        return (parameters, mean, square), value

    parameters = example.initial_parameters(jax.random.key(0))
    nothing = jax.tree.map(jnp.zeros_like, parameters)
    state = jax.tree.map(lambda x: jax.device_put(np.asarray(x), whole), (parameters, nothing, nothing))
    corpus = np.array([example.LETTERS.index(letter) for letter in example.TEXT], np.int32)
    starts = np.random.default_rng(0).integers(0, len(corpus) - example.LENGTH - 1, (1000, _TEXTS))
    return jax.jit(step), state, corpus[starts[..., None] + np.arange(example.LENGTH + 1)], split


def _run(steps: int) -> tuple[float, list[str]]:
    """Milliseconds of a step, and the bits of the losses."""
    import jax

    step, state, texts, split = _training()
    losses: list[Any] = []
    start = time.perf_counter()
    for number in range(1, steps + 1):
        these = texts[number % len(texts)]
        placed = jax.make_array_from_callback(these.shape, split, lambda index, these=these: these[index])
        state, value = step(state, placed, np.float32(number))
        losses.append(np.asarray(value))
    seconds = time.perf_counter() - start
    return seconds / steps * 1e3, [loss.tobytes().hex() for loss in losses]


def _gradient_bytes() -> int:
    import jax

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(_training()[1][0]))


def answer(what: str, *arguments: Any) -> Any:
    """A process's answer to a request: ``"bytes"``, ``"run"``, or the time of a collective."""
    if what == "bytes":
        return _gradient_bytes()
    return _run(*arguments) if what == "run" else measure(*arguments)


def _losses(bits: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(bytes.fromhex("".join(bits)), np.float32)


def _name(placement: tuple[int, int]) -> str:
    processes, devices = placement
    return f"{processes} process{'es' * (processes > 1)} of {devices}"


def report_training(jobs: dict[tuple[str, tuple[int, int]], Job], steps: int, rounds: int) -> dict[Any, float]:
    """Print losses and times; gives milliseconds of a step for each platform and placement."""
    runs: dict[Any, list[tuple[float, list[str]]]] = {key: [] for key in jobs}
    for _ in range(rounds + 1):
        for key, job in jobs.items():
            found = job.ask("run", steps)
            runs[key].append((max(ms for ms, _ in found), found[0][1]))
    # The first round compiles.
    times = {key: [ms for ms, _ in run[1:]] for key, run in runs.items()}
    print("| platform | devices | last loss | losses | ms a step | of 4 devices in one process |")
    print("|---|---|---:|---|---:|---:|")
    for platform in dict.fromkeys(platform for platform, _ in jobs):
        one = _losses(runs[platform, (1, 1)][0][1])
        four = runs[platform, (1, 4)][0][1]
        for placement in _PLACEMENTS:
            bits, own = runs[platform, placement][0][1], times[platform, placement]
            differ = float(np.max(np.abs(_losses(bits) - one)))
            what = "the bits of 1 process of 4" if bits == four else f"{differ:.1e} from one device"
            ratio = statistics.median(a / b for a, b in zip(own, times[platform, (1, 4)], strict=True))
            print(
                f"| {platform} | {_name(placement)} | {_losses(bits)[-1]:.6f} | {what} | {min(own):.1f} | {ratio:.2f} |"
            )
    return {key: min(own) for key, own in times.items()}


def fit(rows: Sequence[tuple[int, int, float]]) -> tuple[float, float, float]:
    """The constants c, alpha and beta of the model for times of (processes, bytes, seconds); relative least squares."""
    terms = np.array([[1, 2 * (p - 1), 2 * (p - 1) / p * n] for p, n, _ in rows])
    seconds = np.array([t for *_, t in rows])
    scaled = terms / seconds[:, None]
    best: tuple[float, Any] = (np.inf, np.zeros(3))
    # No constant is negative: those that would be are left out.
    for chosen in ([0, 1, 2], [1, 2], [0, 2], [2]):
        found = np.zeros(3)
        found[chosen] = np.linalg.lstsq(scaled[:, chosen], np.ones(len(rows)), rcond=None)[0]
        error = float(np.sum((scaled @ found - 1) ** 2))
        if (found >= 0).all() and error < best[0]:
            best = error, found
    c, alpha, beta = best[1]
    return float(c), float(alpha), float(beta)


def reduce_seconds(processes: int, size: int, constants: tuple[float, float, float]) -> float:
    """The model's time of an all-reduce."""
    c, alpha, beta = constants
    return c + 2 * (processes - 1) * alpha + 2 * (processes - 1) / processes * size * beta if processes > 1 else 0.0


def report_model(jobs: dict[Any, Job], step: float, size: int, rounds: int) -> None:
    """Measure all-reduces on two and four processes, and print the fit and what it predicts."""
    rows: list[tuple[int, int, float]] = []
    for processes, job in ((2, jobs["pair"]), (4, jobs["xlakit", (4, 1)])):
        for bytes in _SIZES:
            least = min(max(job.ask("message", "all-reduce", bytes, 0.05)) for _ in range(rounds + 1))
            rows.append((processes, bytes, least))
    constants = fit(rows)
    c, alpha, beta = constants
    print(f"\nall-reduce: c {c * 1e6:.0f} us, alpha {alpha * 1e6:.0f} us, 1/beta {1e-9 / max(beta, 1e-15):.2f} GB/s")
    print("| processes | bytes | measured, us | model, us |\n|---:|---:|---:|---:|")
    for processes, bytes, seconds in rows:
        modeled = reduce_seconds(processes, bytes, constants)
        print(f"| {processes} | {bytes:,} | {seconds * 1e6:,.0f} | {modeled * 1e6:,.0f} |")
    print(f"\na step of {step:.1f} ms on each process, and the all-reduce of {size:,} bytes of gradients")
    print("| processes | all-reduce, ms | step, ms | of the time of one |\n|---:|---:|---:|---:|")
    for processes in _MODELED:
        reduction = reduce_seconds(processes, size, constants) * 1e3
        print(f"| {processes:,} | {reduction:.1f} | {step + reduction:.1f} | {step / (step + reduction):.2f} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.jax_scaling", description=(__doc__ or "").split("\n\n", 1)[0]
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    jobs: dict[Any, Job] = {}
    try:
        for platform in ("xlakit", "jaxlib"):
            for placement in _PLACEMENTS:
                jobs[platform, placement] = Job(_ANSWER, platform, *placement)
        times = report_training(jobs, options.steps, options.rounds)
        jobs["pair"] = Job(_ANSWER, "xlakit", 2)
        size = jobs["xlakit", (1, 1)].ask("bytes")[0]
        report_model(jobs, times["xlakit", (1, 1)], size, options.rounds)
    finally:
        failed = sys.exc_info()
        for job in jobs.values():
            job.__exit__(*failed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
