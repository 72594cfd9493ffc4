"""``python -m fuzz.mutations``: damaged HLO text, protos and bytecode, which must be refused in order, or be legal.

Each mutant is read, verified if it can be read, and printed back; what is printed must read as the same module. The
outcome must be success or an XlakitError, within a second and without memory growing. Anything else is printed with
its reproducer, and the exit status is 1. Mutants that are legal are unusual programs: texts among them are checked by
the linter, too, and go through the passes and the code generator.
"""

from __future__ import annotations

import faulthandler
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fuzz.support.mutation_seeds import seed_texts
from fuzz.support.mutators import mutate_bytes, mutate_message, mutate_text
from fuzz.support.numbered import TooSlowError, command, time_limit
from xlakit.api import compile
from xlakit.cpu.codegen import generate
from xlakit.cpu.program import Target
from xlakit.errors import InternalError, XlakitError
from xlakit.execution.groups import Grid
from xlakit.formats.detect import load
from xlakit.formats.hlo_proto import schema
from xlakit.formats.hlo_text.faults import check_text as all_faults
from xlakit.formats.stablehlo import stablehlo_bytecode
from xlakit.ir.instruction import HloModule
from xlakit.passes.pipeline import run_pipeline
from xlakit.tools.lint.linter import lint

_SECONDS = 1.0
# For passes and code of a program.
_SECONDS_OF_CODE = 4.0
_GROWTH_BYTES = 256 << 20
# Every so many mutants one is bytecode, which is read in a process of its own.
_PER_BYTECODE = 2000
_SECONDS_OF_BYTECODE = 15.0
# More than any mutant may have, and less than what would make the machine swap.
_ADDRESS_SPACE_BYTES = 16 << 30

# A program of which there is bytecode, with a function and a loop.
_LOOP = """HloModule m
go { t = (s32[], f32[2,2]) parameter(0)  i = s32[] get-tuple-element(t), index=0  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }
body { t = (s32[], f32[2,2]) parameter(0)  i = s32[] get-tuple-element(t), index=0  one = s32[] constant(1)
  x = f32[2,2] get-tuple-element(t), index=1  j = s32[] add(i, one)
  y = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}  ROOT r = (s32[], f32[2,2]) tuple(j, y) }
ENTRY e { x = f32[2,2] parameter(0)  zero = s32[] constant(0)  s = (s32[], f32[2,2]) tuple(zero, x)
  w = (s32[], f32[2,2]) while(s), condition=go, body=body  ROOT y = f32[2,2] get-tuple-element(w), index=1 }
"""
# Programs that are legal, or nearly, and far too large: compiling them must be refused, not tried.
_TOO_LARGE = (
    "HloModule m\nENTRY e {\n  ROOT i = f32[1152921504606846976] iota(), iota_dimension=0\n}\n",
    "HloModule m\nENTRY e {\n  ROOT i = u8[1073741824,1073741824] iota(), iota_dimension=0\n}\n",
    "HloModule m\nENTRY e {\n  c = s8[] constant(1)\n"
    "  ROOT b = s8[1152921504606846976] broadcast(c), dimensions={}\n}\n",
    "HloModule m\nENTRY e {\n  ROOT c = pred[1152921504606846976] constant({...})\n}\n",
    "HloModule m\nENTRY e {\n  ROOT c = f32[1152921504606846976,0] constant({})\n}\n",
    "HloModule m\nENTRY e {\n  ROOT i = c128[9223372036854775807] iota(), iota_dimension=0\n}\n",
    "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  z = f32[] constant(0)\n"
    "  ROOT q = f32[1152921504606846976] pad(p, z), padding=0_1152921504606846972\n}\n",
    "HloModule m, replica_count=1152921504606846976\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n",
    "HloModule m\nENTRY e {\n  ROOT p = f32[4] parameter(0), sharding={devices=[1152921504606846976]<="
    "[1152921504606846976]}\n}\n",
)


@dataclass(slots=True)
class Tally:
    """Counts by outcome, and what went wrong."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def check_text(text: str) -> None:
    """Read, verify, print, and read again; all faults at once are some where there is one."""
    told = all_faults(text).faults
    try:
        module = HloModule.from_text(text)
        module.verify()
    except XlakitError as error:
        if not told:
            raise AssertionError(f"this is no fault to 'xlakit check': {error}") from None
        raise
    if told:
        raise AssertionError(f"'xlakit check' finds a fault: {told[0]}")
    _check_printed(module)


def check_proto(data: bytes) -> None:
    """The same for a serialized proto."""
    module = HloModule.from_proto(data)
    module.to_text()  # also what is no legal program can be looked at
    module.verify()
    _check_printed(HloModule.from_proto(module.to_proto()))


def check_bytecode(rng: np.random.Generator) -> None:
    """Read damaged bytecode of StableHLO as that of a file; without jaxlib there is none."""
    load(mutate_bytes(stablehlo_bytecode(HloModule.from_text(_LOOP)), rng), "mutant")


def _check_printed(module: HloModule) -> None:
    for short in (False, True):
        printed = module.to_text(short=short)
        try:
            again = HloModule.from_text(printed).to_text(short=short)
        except XlakitError as error:
            raise AssertionError(f"what was printed cannot be read: {error}") from None
        if again != printed:
            raise AssertionError("what was printed reads as another module")


def check_use(text: str) -> None:
    """Warnings, passes and code of a legal program: an internal error is a fault."""
    module = HloModule.from_text(text)
    lint(module)
    try:
        generate(run_pipeline(module), Target(Grid(module.replica_count, module.num_partitions)))
    except InternalError as error:
        raise AssertionError(str(error)) from None


def check_too_large(text: str) -> None:
    """Compile and run without arguments: it must be refused."""
    module = HloModule.from_text(text)
    compile(module)()
    raise AssertionError("this program was not refused")


def attempt(tally: Tally, name: str, check: Callable[[], None], reproducer: str, most: float = _SECONDS) -> bool:
    """One check, with its limits; whether it ended without an error."""
    before, start = _peak_memory(), time.process_time()
    fault = ""
    try:
        with time_limit(5 * most):
            check()
        outcome = "accepted"
    except XlakitError as error:
        outcome = type(error).__name__
        if not error.rule:
            fault = "an error without a word"
        str(error)
    except TooSlowError:
        outcome = fault = f"stopped after {5 * most:.0f} s"
    except Exception as error:  # whatever it is, it is what this command looks for
        outcome = fault = f"{type(error).__name__}: {error}"
    seconds, growth = time.process_time() - start, _peak_memory() - before
    if not fault and seconds > most:
        fault = f"took {seconds:.1f} s ({outcome})"
    if not fault and growth > _GROWTH_BYTES:
        fault = f"took {growth >> 20} MiB ({outcome})"
    tally.outcomes["FAILED" if fault else f"{name}: {outcome}"] += 1
    if fault:
        tally.failures.append(f"{fault[:2000]}\n{reproducer}")
    return not fault and outcome == "accepted"


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(count: int, seed: int, *, number: int | None = None, progress: bool = False) -> Tally:
    """Make and check ``count`` mutants, two texts for every proto, or the one with a number."""
    tally = Tally()
    texts = seed_texts(seed)
    protos = [data for data in map(_as_proto, texts) if data]
    for i in range(count) if number is None else [number]:
        _one_mutant(tally, texts, protos, seed, i, show=number is not None)
        if progress and (i % 2000 == 1999 or i + 1 == count):
            print(f"{i + 1}/{count} mutants, {len(tally.failures)} failures", file=sys.stderr)
    for text in _TOO_LARGE if number is None else ():
        attempt(tally, "too large", lambda text=text: check_too_large(text), text)
    return tally


def _as_proto(text: str) -> bytes:
    try:
        return HloModule.from_text(text).to_proto()
    except XlakitError:
        return b""  # elided constants cannot be written; the text is a seed all the same


def _one_mutant(tally: Tally, texts: list[str], protos: list[bytes], seed: int, number: int, *, show: bool) -> None:
    rng = np.random.default_rng([seed, number])
    reproduce = f"python -m fuzz.mutations --seed {seed} --number {number}"
    if number % _PER_BYTECODE == _PER_BYTECODE - 1:
        attempt(tally, "bytecode", lambda: check_bytecode(rng), reproduce, _SECONDS_OF_BYTECODE)
        return
    if number % 3 < 2:
        mutant = mutate_text(texts[int(rng.integers(len(texts)))], rng)
        shown = mutant if len(mutant) <= 4000 else f"{mutant[:4000]}... ({len(mutant)} characters)"
        if attempt(tally, "text", lambda: check_text(mutant), f"{reproduce}\n{shown}"):
            attempt(tally, "use", lambda: check_use(mutant), f"{reproduce}\n{shown}", _SECONDS_OF_CODE)
        if show:
            print(mutant)
        return
    data = protos[int(rng.integers(len(protos)))]
    if rng.random() < 0.6:
        message = schema.parse("HloModuleProto", data, exact=True)
        mutate_message(message, rng)
        data = message.SerializeToString()
    else:
        data = mutate_bytes(data, rng)
    attempt(tally, "proto", lambda: check_proto(data), reproduce)
    if show:
        print(data)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.mutations", __doc__)
    parser.add_argument("--count", type=int, default=20000, help="how many mutants (20000)")
    parser.add_argument("--seed", type=int, default=0, help="what the mutants are made from (0)")
    parser.add_argument("--number", type=int, help="one mutant, by its number, and show it")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, resource.RLIM_INFINITY))
    tally = run(options.count, options.seed, number=options.number, progress=True)
    for failure in tally.failures:
        print(f"\nFAILED {failure}")
    for outcome, count in sorted(tally.outcomes.items()):
        print(f"{count:7d}  {outcome}")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
