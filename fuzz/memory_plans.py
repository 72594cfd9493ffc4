"""``python -m fuzz.memory_plans``: the memory plans of generated programs are proved; no program is run.

Programs come in turn from all generators: loops and branches, algorithms, modules of many operations (some in fusions
as other compilers make them), programs of several devices, and JAX programs. Each is lowered as it is, then with knobs,
widths and passes drawn as :mod:`fuzz.forced` draws them. :mod:`xlakit.memory.checker` says what is proved.

    python -m fuzz.memory_plans --seed 7 --seconds 60
    python -m fuzz.memory_plans --seed 7 --number 12      one program, with its text
    python -m fuzz.memory_plans --file program.hlo        a program of one's own
    python -m fuzz.memory_plans --benchmarks              the benchmark's rows, and the checker's part of compiling them

The exit status is 1 where a plan is wrong.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fuzz.forced import draw
from fuzz.idioms import FAMILIES
from fuzz.programs.composed.fused import fused
from fuzz.programs.composed.modules import module as generated
from fuzz.programs.devices.collective_bodies import spread_module
from fuzz.support import numbered
from xlakit.cpu.codegen import generate, make_objects
from xlakit.cpu.entry.plan_proof import prove_memory_plan
from xlakit.cpu.program import Target
from xlakit.errors import UnsupportedError, XlakitError
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule
from xlakit.options import DEFAULT, compiling
from xlakit.passes.pipeline import run_pipeline


def jax_program(seed: int, number: int) -> HloModule:
    """A JAX program as HLO."""
    # JAX takes long to load, and is needed for one program in some.
    from fuzz.jax_programs.lowered import lowered

    return HloModule.from_proto(lowered(f"{seed}.{number}"))


def _sketched(family: str, seed: int, number: int) -> HloModule:
    return FAMILIES[family](seed, number).module


def _fused(seed: int, number: int) -> HloModule:
    module = HloModule.from_text(generated(seed, number, wide=number % 2 == 1).text)
    return fused(module, np.random.default_rng([seed, number]))


SOURCES: tuple[Callable[[int, int], HloModule], ...] = (
    *(partial(_sketched, family) for family in sorted(FAMILIES)),
    lambda seed, number: HloModule.from_text(generated(seed, number).text),
    _fused,
    lambda seed, number: HloModule.from_text(spread_module(seed, number).text),
    jax_program,
)


def program(seed: int, number: int) -> HloModule:
    """A program, of each source in turn."""
    number, source = divmod(number, len(SOURCES))
    return SOURCES[source](seed, number)


def judge(module: HloModule, seed: int, number: int) -> str:
    """Describe the fault of a program's plans; "" if there is none."""
    target = Target(Grid(module.replica_count, module.num_partitions))
    for options in (DEFAULT, draw(seed, number)):
        with compiling(options, check_memory=True):
            try:
                generate(run_pipeline(module), target)
            except UnsupportedError:
                continue
            except XlakitError as error:
                return f"{type(error).__name__}: {error}"
    return ""


def _benchmarks() -> int:
    """Prove the plans of the benchmark's rows; the time that takes beside that of compiling them."""
    from benchmarks.peers import export
    from benchmarks.workloads import WORKLOADS

    total = own = 0.0
    parts: list[tuple[float, str]] = []
    for workload in WORKLOADS:
        module = HloModule.from_proto(export(workload, workload.program(quick=True)))
        grid = Grid(module.replica_count, module.num_partitions)
        begin = time.perf_counter()
        with compiling(check_memory=False):
            code = generate(run_pipeline(module), Target(grid))
            make_objects(code)
        middle = time.perf_counter()
        prove_memory_plan(code.plan, grid)
        end = time.perf_counter()
        total, own = total + middle - begin, own + end - middle
        parts.append(((end - middle) / (middle - begin), workload.name))
    most, name = max(parts)
    print(
        f"{len(parts)} programs proved in {own:.2f} s, {own / total:.1%} of compiling them; at most {most:.1%}, {name}"
    )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = numbered.parser("fuzz.memory_plans", __doc__, 20_000)
    parser.add_argument("--file", help="the HLO text of one program, instead of generated ones")
    parser.add_argument("--benchmarks", action="store_true", help="the benchmark's rows, instead of generated programs")
    options = parser.parse_args(arguments)
    if options.benchmarks:
        return _benchmarks()
    if options.file:
        fault = judge(HloModule.from_text(Path(options.file).read_text()), options.seed, 0)
        print(f"FAILED {options.file}: {fault}" if fault else "1 programs, 0 failures")
        return 1 if fault else 0

    def fault_of(number: int) -> str:
        module = program(options.seed, number)
        if options.number is not None:
            print(module.to_text())
        return judge(module, options.seed, number)

    return numbered.run("fuzz.memory_plans", numbered.entries(options, fault_of), options.seconds)


if __name__ == "__main__":
    sys.exit(main())
