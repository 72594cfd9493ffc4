"""``python -m fuzz.forms``: loops of every form in every type, compiled and interpreted, must agree to the bit.

The other nets draw few types for large programs, or many types for single operations. Here each module has a few forms
of loops that the compiler chooses between (reductions of rows and of columns, vectors that overlap, pieces, margins,
transposes, gathers, masks) between chains of operations on elements that change the type on the way, in sizes that are
no whole number of vectors. Numbers are exact, and so are comparisons.

Every fourth module has expressions of few operations and many constants instead, on all numbers of a type: what rules
of algebra rewrite.

Of three modules one is compiled as usual, one for vectors of another width or another level of the instruction set, and
one with knobs drawn as well, as in :mod:`fuzz.forced`.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from fuzz import forced
from fuzz.modules import difference_in_bits
from fuzz.programs.draft import Program
from fuzz.programs.forms.expressions import expressions
from fuzz.programs.forms.modules import forms_module
from fuzz.support import numbered
from xlakit import compile as compile_program
from xlakit.ir.instruction import HloModule
from xlakit.options import DEFAULT, Options
from xlakit.tools.inputs import flatten


def judge(program: Program) -> str:
    """Describe the fault of a module's compiled code; "" if there is none."""
    parsed = HloModule.from_text(program.text)
    expected = flatten(compile_program(parsed, backend="interpreter")(*program.arguments[0]))
    try:
        actual = flatten(compile_program(parsed, backend="cpu", cache=False)(*program.arguments[0]))
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    faults = ((name, difference_in_bits(actual[name], expected[name])) for name in expected)
    return next((f"result {name}: {fault}" for name, fault in faults if fault), "")


def program_of(seed: int, number: int) -> Program:
    """Module ``number`` of a seed."""
    return expressions(seed, number) if number % 4 == 3 else forms_module(seed, number)


def drawn(seed: int, number: int) -> Options:
    """How a module is compiled."""
    full = forced.draw(seed, number)
    return (DEFAULT, Options(vector_bytes=full.vector_bytes, cpu=full.cpu), full)[number % 3]


def _fault_of(options: Namespace, number: int) -> str:
    program, settings = program_of(options.seed, number), drawn(options.seed, number)
    numbered.show(options, program.text, settings.text)
    return forced.judge(program, judge, settings)


main = numbered.net("fuzz.forms", __doc__, 100_000, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
