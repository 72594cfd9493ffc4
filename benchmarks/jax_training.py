"""``python -m benchmarks.jax_training``: the same training in JAX on xlakit and on jaxlib's CPU.

Trains the transformer of ``examples/jax/language_model.py`` on both, each in processes of its own: first with nothing
on disk, then with what was compiled before (by xlakit's compile cache; for jaxlib by JAX's own). Says how far the
losses are apart and what it took. The exit status is 0 if the losses agree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

EXAMPLES: Final = Path(__file__).parents[1] / "examples" / "jax"
PLATFORMS: Final = ("xlakit", "cpu")

# Both platforms round, and add in different orders. The difference of the losses grows with each step, since each step
# starts from the result of the step before; in the first steps only the rounding of those steps themselves shows.
_FIRST_STEPS = 10
_FIRST_TOLERANCE, _TOLERANCE = 1e-5, 1e-3


@dataclass(frozen=True, slots=True)
class Training:
    """The losses and times of one process. seconds: all steps and their compilation, without the start of Python, JAX.

    begin: until the first step was done. step: the median of the others.
    """

    losses: Sequence[float]
    seconds: float
    begin: float
    step: float


def train(steps: int, blocks: int, batch: int) -> Training:
    """Train in this process, on the platform that JAX has here."""
    sys.path.insert(0, str(EXAMPLES))
    import jax
    import language_model as example

    model: Any = example
    model.BLOCKS, model.BATCH = blocks, batch
    jax.devices()
    done: list[float] = []
    step = model.step

    def watched(*arguments: Any) -> Any:
        result = jax.block_until_ready(step(*arguments))
        done.append(time.perf_counter())
        return result

    model.step = watched
    start = time.perf_counter()
    _, losses = model.train(steps)
    seconds = time.perf_counter() - start
    between = [after - before for before, after in pairwise(done)]
    return Training([float(loss) for loss in losses], seconds, done[0] - start, statistics.median(between or [0.0]))


def started(platform: str, folder: Path, options: argparse.Namespace) -> Training:
    """Train in a new process, with its caches in a folder."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": platform,
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "XLAKIT_CACHE": "on",
        "XLAKIT_CACHE_DIR": str(folder / "xlakit"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    sizes = [f"--steps={options.steps}", f"--blocks={options.blocks}", f"--batch={options.batch}"]
    command = [sys.executable, "-m", "benchmarks.jax_training", "--here", *sizes]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Training(**json.loads(done.stdout.splitlines()[-1]))


def differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """How far losses are apart at each step, as a part of jaxlib's."""
    return [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]


def agree(apart: Sequence[float]) -> bool:
    """Whether losses are as near to each other as rounding lets them be. A NaN is not."""
    return all(d <= _FIRST_TOLERANCE for d in apart[:_FIRST_STEPS]) and all(d <= _TOLERANCE for d in apart)


def report(runs: Mapping[str, Mapping[str, Training]]) -> str:
    """Times of all runs, by cache and platform, and the losses side by side."""
    lines = ["| caches | platform | all steps s | first step s | other steps ms |", "|---|---|---:|---:|---:|"]
    for caches, trainings in runs.items():
        for platform, t in trainings.items():
            lines.append(f"| {caches} | {platform} | {t.seconds:.2f} | {t.begin:.2f} | {t.step * 1e3:.2f} |")
    for caches, trainings in runs.items():
        lines += ["", *_losses(caches, trainings)]
    return "\n".join(lines)


def _losses(caches: str, trainings: Mapping[str, Training]) -> list[str]:
    ours, theirs = (trainings[platform].losses for platform in PLATFORMS)
    apart = differences(ours, theirs)
    count = len(apart)
    shown = sorted({1, min(10, count), min(50, count), count // 2 or 1, count})
    parts = ", ".join(f"step {n} {ours[n - 1]:.4f} / {theirs[n - 1]:.4f}" for n in shown)
    verdict = "agree" if agree(apart) else "DO NOT AGREE"
    return [
        f"losses with {caches} caches, xlakit / cpu: {parts}",
        f"apart at most {max(apart[:_FIRST_STEPS]):.1e} in the first {min(_FIRST_STEPS, count)} steps, "
        f"{max(apart):.1e} in all {count}: they {verdict}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 if the losses agree, 1 if not."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.jax_training", description="Train on both platforms."
    )
    parser.add_argument("--steps", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--blocks", type=int, default=2, help="of the transformer (default 2)")
    parser.add_argument("--batch", type=int, default=16, help="texts in a step (default 16)")
    parser.add_argument("--cold", action="store_true", help="only with nothing on disk")
    parser.add_argument("--here", action="store_true", help="train in this process, and write what it took as JSON")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps is at least 1")
    if options.here:
        print(json.dumps(asdict(train(options.steps, options.blocks, options.batch))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            caches: {platform: started(platform, Path(folder), options) for platform in PLATFORMS}
            for caches in (("empty",) if options.cold else ("empty", "full"))
        }
    print(report(runs))
    curves = [[t[platform].losses for platform in PLATFORMS] for t in runs.values()]
    return 0 if all(agree(differences(ours, theirs)) for ours, theirs in curves) else 1


if __name__ == "__main__":
    sys.exit(main())
