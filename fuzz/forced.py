"""``python -m fuzz.forced``: programs compiled with knobs and vectors drawn at random give what plain code gives.

Blocks, strips, tasks, costs and bounds that decide how arrays of some size are computed are knobs
(:class:`xlakit.options.Knob`). Set at random, small arrays take the ways of large ones: rests of blocks, several tasks,
packed operands, sorts that are shared out, loops copied or not. Each program runs at a width of vectors or a level of
the instruction set that the machine has, next to plain code with no knob set, as in :mod:`fuzz.plain`; kernels of one
operation are compared with the interpreter, as in :mod:`fuzz.compiled`.

    python -m fuzz.forced --seed 7 --seconds 60
    python -m fuzz.forced --seed 7 --number 12        one program, with its text and its knobs

``draw(seed, number)`` gives the options of a program, for ``with compiling(draw(seed, number)): ...``. Where a fault is
found, knobs are put back one by one as long as it stays: those that are left are printed.
"""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace

from fuzz import compiled, plain
from fuzz.programs.composed.modules import module as generated
from fuzz.programs.composed.movement_steps import pieces
from fuzz.programs.draft import FAMILIES, Program
from fuzz.programs.large.drafts import large_program
from fuzz.programs.operations.elementwise import BINARY, ELEMENTARY_UNARY, UNARY
from fuzz.programs.plan import Entry
from fuzz.support import numbered
from xlakit.options import KNOBS, Options, compiling, load_knobs
from xlakit.target import levels

# A draw is from all knobs, whichever programs were compiled before.
load_knobs()

# Where registers are narrower than vectors, LLVM splits them: code for wide vectors is tested on each machine.
WIDTHS = (16, 32, 64)
# The range of the number of multiplications of the products and convolutions below, which most knobs are about.
_MULTIPLICATIONS = (50_000, 1_000_000)
_CUT = {
    2: ("filter", _MULTIPLICATIONS),
    6: ("product", _MULTIPLICATIONS),
    8: ("recurrence", None),
    10: ("vectors", _MULTIPLICATIONS),
    14: ("filter", _MULTIPLICATIONS),
}


def draw(seed: int, number: int) -> Options:
    """A level or a width, some of the knobs set to one of their other numbers, and perhaps some passes left out.

    Passes are left out since their rewrites hide faults of later stages, such as in a loop that carries a value twice.
    """
    rng = random.Random(f"{seed} {number}")
    share = rng.choice([0.05, 0.2, 0.5, 1.0])
    # The knobs of one module decide together which path its code takes: now and then all of them are drawn, or none.
    share_of = {module: rng.choice([share, share, float(rng.random() < share)]) for module in sorted(_modules())}
    chosen = {name: rng.choice(KNOBS[name].others) for name in sorted(KNOBS) if rng.random() < share_of[_module(name)]}
    # A level brings the width of its vectors; the drawn one is this machine's with all of its features.
    width, level = rng.choice([*((w, "") for w in WIDTHS), *((0, name) for name in levels())])
    left_out = rng.choice([(), (), (), ("rewrites",), ("rewrites",), ("rewrites", "fusion"), ("fusion",), ("inline",)])
    return Options(frozenset(left_out), width, knobs=chosen, cpu=level)


def least() -> Options:
    """Every knob that has a number below its default set to the least."""
    return Options(knobs={n: min(k.others) for n, k in KNOBS.items() if min(k.others) < k.default})


def wholly(options: Options, module: str) -> Options:
    """The options, with all knobs of a module set: a path is taken then that one knob at its default would forbid."""
    knobs = {name: knob.others[0] for name, knob in KNOBS.items() if _module(name) == module}
    return replace(options, knobs={**options.knobs, **knobs})


def _module(knob: str) -> str:
    return knob.partition(".")[0]


def _modules() -> set[str]:
    return {_module(name) for name in KNOBS}


def _moves(number: int) -> bool:
    """Whether a program is of operations that move elements."""
    return number % 8 == 3


def _streams(number: int) -> bool:
    """Whether a program has many pieces of arrays, which one loop writes."""
    return number % 8 == 1


def program_of(seed: int, number: int) -> tuple[Program, Callable[[Program], str]]:
    """A program and its judge: a module is compared with plain code, one operation with the interpreter."""
    if number % 2:
        more = [pieces] * 12 * _streams(number)
        return generated(seed, number, wide=number % 8 != 7, moves=_moves(number), more=more), _against_plain
    if number % 16 in _CUT:
        name, size = _CUT[number % 16]
        return large_program(name, seed, number // 16, size), _against_interpreter
    rng = random.Random(f"{seed} {number} opcode")
    # Operations on elements are many, and all have the same kernel.
    others = sorted(FAMILIES.keys() - {*UNARY, *ELEMENTARY_UNARY, *BINARY})
    opcode = rng.choice(others if rng.random() < 0.85 else sorted(FAMILIES))
    return Entry(opcode, seed, number).make(), _against_interpreter


def _against_plain(program: Program) -> str:
    return plain.judge(program)


def _against_interpreter(program: Program) -> str:
    status, detail = compiled.judge(program)
    return detail if status == "failed" else ""


def judge(program: Program, judged: Callable[[Program], str], options: Options) -> str:
    """Describe the fault of a program under options, with the knobs that are needed to show it; "" if there is none."""
    fault = _under(program, judged, options)
    if not fault:
        return ""
    knobs = dict(options.knobs)
    for name in list(knobs):
        fewer = {other: value for other, value in knobs.items() if other != name}
        if _under(program, judged, replace(options, knobs=fewer)):
            knobs = fewer
    without = f", without {', '.join(sorted(options.plain))}" if options.plain else ""
    made_for = options.cpu or f"vectors of {options.vector_bytes} bytes"
    return f"{fault} ({made_for}, knobs {knobs}{without})"


def _under(program: Program, judged: Callable[[Program], str], options: Options) -> str:
    with compiling(options):
        return judged(program)


def _fault_of(options: Namespace, number: int) -> str:
    program, judged = program_of(options.seed, number)
    drawn = draw(options.seed, number)
    if _moves(number):  # guarded operations are computed always, then selected
        drawn = wholly(drawn, "guards")
    elif _streams(number):  # pieces are written past the caches
        drawn = wholly(drawn, "non_temporal")
    numbered.show(options, program.text, drawn.text)
    return judge(program, judged, drawn)


main = numbered.net("fuzz.forced", __doc__, 2000, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
