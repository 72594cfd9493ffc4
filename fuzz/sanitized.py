"""``python -m fuzz.sanitized``: generated modules run step by step, under the watch of the sanitizer.

Every other module has knobs and the width of vectors drawn as in :mod:`fuzz.forced`, so that more kernels and more
plans are seen; half of those are of operations that move elements, with conditions that only choose. What is found
stands in :mod:`xlakit.cpu.debugging.sanitizer`. What modules give is compared with what they give without the watch, to
the bit where no sum may be added in another order: LLVM makes no vectors of loops with checks. Modules that Python
helps to run are among them; those of several devices are not.

Every third program is of ordinary code, in which no access is checked: its vectors, tiles and masked accesses run in
all ways that kernels state of their accesses, each result in the memory of each operand that it may share, and must
give the same bits. Half of these are larger programs, of the kinds whose results may lie in the memory of operands.

    python -m fuzz.sanitized --seed 7 --seconds 60
    python -m fuzz.sanitized --seed 7 --number 12         one module, with its text

:func:`judge` takes any program, and options to compile it with. The exit status is 1 where something is wrong.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace

from fuzz.forced import draw, wholly
from fuzz.plain import sums_apart
from fuzz.programs.composed.modules import module as generated
from fuzz.programs.draft import Program
from fuzz.programs.large.drafts import large_program
from fuzz.support import numbered
from xlakit import compile as compile_program
from xlakit.cpu.compiler import compile_module
from xlakit.cpu.debugging.sanitizer import SanitizedExecutable
from xlakit.ir.instruction import HloModule
from xlakit.options import DEFAULT, Options, compiling
from xlakit.tools.inputs import flatten

# Larger programs, and the number of their elements or multiplications.
_KINDS = ("layers", "loop", "layers", "vectors", "recurrence", "reductions", "pieces")
_SIZE = (20_000, 300_000)


def judge(program: Program, options: Options = DEFAULT) -> str:
    """What the sanitizer says of a program that is compiled with options; empty where it finds nothing."""
    module, arguments = HloModule.from_text(program.text), program.arguments[0]
    try:
        with compiling(replace(options, sanitize=True)):
            actual = flatten(compile_program(module, backend="cpu", cache=False)(*arguments))
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    # Kernels are the same, but that they stay functions. What leaves its memory has been found before they run.
    with compiling(replace(options, plain=options.plain | {"inline"})):
        expected = flatten(compile_program(module, backend="cpu", cache=False)(*arguments))
        fault = sums_apart(module, arguments, actual, expected)
    return f"another result than without the watch: {fault}" if fault else ""


def judge_ordinary(program: Program, options: Options = DEFAULT) -> str:
    """What the sanitizer says of a program's ordinary code, in which no access is checked."""
    try:
        with compiling(replace(options, plain=options.plain | {"inline"}, check_memory=True)):
            compiled = compile_module(HloModule.from_text(program.text), cache=False)
            SanitizedExecutable(compiled)(*program.arguments[0])
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    return ""


def _fault_of(options: Namespace, number: int) -> str:
    moves, is_ordinary = number % 4 == 3, number % 3 == 2
    if is_ordinary and number % 4 < 2:
        program = large_program(_KINDS[number // 3 % len(_KINDS)], options.seed, number, _SIZE)
    else:
        program = generated(options.seed, number, wide=number % 2 == 1, moves=moves)
    numbered.show(options, program.text)
    drawn = draw(options.seed, number) if number % 2 else DEFAULT
    return (judge_ordinary if is_ordinary else judge)(program, wholly(drawn, "guards") if moves else drawn)


main = numbered.net("fuzz.sanitized", __doc__, 2000, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
