"""``python -m benchmarks.sharded_times``: the time of programs over eight devices of one process, beside XLA's.

The programs are those of :mod:`benchmarks.programs.sharded`, or those of all modules beside it whose names have one of
the parts that are asked for. Each compiler has a process of its own; the two take turns, program by program and round
by round, while the other one waits. The time of a program is the least of its rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from benchmarks.choice import with_parts
from benchmarks.sharded_bytes import child_environment, compiled, programs

_ROUNDS = 5
# How long a program is called in each round, in seconds.
_BUDGET = 0.05


class _Process:
    """A process on a platform that times programs by name."""

    def __init__(self, platform: str) -> None:
        command = [sys.executable, "-m", "benchmarks.sharded_times", "--child"]
        self._process = subprocess.Popen(
            command, env=child_environment(platform), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def seconds(self, name: str, budget: float) -> float:
        """The least time of a call, of as many as fit into a budget."""
        given, said = self._process.stdin, self._process.stdout
        assert given is not None
        assert said is not None
        given.write(json.dumps([name, budget]) + "\n")
        given.flush()
        answer = said.readline()
        if not answer:
            raise RuntimeError(f"the process that runs {name!r} has ended")
        return float(answer)


def _answer() -> None:
    """Time what is asked for on standard input, line by line."""
    import jax

    known: dict[str, tuple[Any, Sequence[Any]]] = {}
    for line in sys.stdin:
        name, budget = json.loads(line)
        if name not in known:
            known[name] = compiled(name)
            jax.block_until_ready(known[name][0](*known[name][1]))
        program, given = known[name]
        best, end = math.inf, time.perf_counter() + budget
        while time.perf_counter() < end or best == math.inf:
            start = time.perf_counter()
            jax.block_until_ready(program(*given))
            best = min(best, time.perf_counter() - start)
        print(best, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.sharded_times", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("programs", nargs="*", help="parts of names (those of the first module)")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help=f"how often each program has its turn ({_ROUNDS})")
    parser.add_argument("--budget", type=float, default=_BUDGET, help=f"seconds of a turn ({_BUDGET})")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        _answer()
        return 0
    from benchmarks.programs.sharded import PROGRAMS

    names = with_parts(parser, options.programs, programs() if options.programs else PROGRAMS)
    print(f"| program | xlakit: us | XLA: us | ratio |\n|{'---|' * 4}")
    ratios: list[float] = []
    with _Process("xlakit") as ours, _Process("cpu") as theirs:
        for name in names:
            times = [[p.seconds(name, options.budget) for p in (ours, theirs)] for _ in range(options.rounds)]
            own, other = (min(t[n] for t in times) for n in range(2))
            ratios.append(own / other)
            print(f"| {name} | {own * 1e6:,.0f} | {other * 1e6:,.0f} | {own / other:.3g} |", flush=True)
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
    print(f"\n{len(ratios)} programs; geometric mean of the ratios: {mean:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
