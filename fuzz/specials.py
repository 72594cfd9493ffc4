"""``python -m fuzz.specials``: operations on elements, of all pairs of special values, compiled and interpreted.

A program has some operations of one type, each on all numbers at which functions have rules of their own: zeros,
infinities and NaN, the ends of the range, in each combination of two operands or of the parts of a complex number.
Where these are drawn one by one, a pair comes up once in thousands of programs. Results narrower than F32 are converted
in the same loop as well, where they go on in registers: they must be the numbers that are stored. Types of 16 bits and
more come first where there is not the time for all; before them, in turn, for each type whose NaNs have several
fractions, what only moves numbers, to the bit, and what rounds the numbers of narrow floats to whole ones or changes
their signs.

    python -m fuzz.specials --seed 7 --seconds 60
    python -m fuzz.specials --number 12                  one program, with its text
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuzz.programs.draft import join
from fuzz.programs.operations.bits import Moves
from fuzz.programs.operations.elementwise import BINARY, ELEMENTARY_UNARY, UNARY, part_of, tolerance
from fuzz.programs.values import (
    ALL_TYPES,
    COMPLEX,
    FLOATS,
    MANY_NANS,
    NARROW_FLOATS,
    SPECIAL,
    Array,
    dtype_of,
    float_edges,
    is_complex,
    is_float,
    make_values,
)
from fuzz.support import numbered
from fuzz.support.tolerances import BITS, EXACT, mismatches
from xlakit import compile as compile_program
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling, current
from xlakit.tools.inputs import flatten

# Functions of narrow floats that are exact but at the ends of the range: they come first.
_EXACT = ("abs", "ceil", "floor", "negate", "round-nearest-afz", "round-nearest-even", "sign")
# So many operations are in one program; where they are converted, too, one loop has no more results than twice as many.
_MOST = 8
_MOST_CONVERTED = 4
# Of complex numbers there are too many pairs for all: so many are drawn.
_MOST_NUMBERS = 24
_PARTS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
# What two complex numbers give is not told by C.
_LEFT_OUT = {("atan2", kind) for kind in COMPLEX}
# Powers of complex numbers have no signs of zeros by C or XLA: the formulas differ in where their angles are 0.
_WITHOUT_SIGNS = {"power"}


@dataclass(frozen=True, slots=True)
class Batch:
    """Some operations of one type and number of operands; ``convert`` is to the type behind it.

    is_as_written: compiled without rewrites.
    """

    kind: str
    arity: int
    opcodes: tuple[str, ...]
    is_as_written: bool = False

    @property
    def narrow(self) -> list[int]:
        """The operations whose results are floats of fewer than 32 bits."""
        kinds = [_result(opcode, self.kind) for opcode in self.opcodes]
        return [i for i, kind in enumerate(kinds) if is_float(kind) and kind not in ("f32", "f64")]

    def text(self, count: int) -> str:
        """The module that has them all, on arrays of so many elements; narrow results are converted to F32, too."""
        results = [f"{_result(opcode, self.kind)}[{count}]" for opcode in self.opcodes]
        operands = join([f"x{i}" for i in range(self.arity)])
        lines = [f"x{i} = {self.kind}[{count}] parameter({i})" for i in range(self.arity)]
        lines += [
            f"r{i} = {result} {opcode.partition(' ')[0]}({operands})"
            for i, (opcode, result) in enumerate(zip(self.opcodes, results, strict=True))
        ]
        names = [f"r{i}" for i in range(len(results))]
        for i in self.narrow:
            lines.append(f"w{i} = f32[{count}] convert(r{i})")
            names.append(f"w{i}")
        results += [f"f32[{count}]"] * len(self.narrow)
        lines.append(f"ROOT r = ({join(results)}) tuple({join(names)})")
        return "\n".join(["HloModule specials", "ENTRY e {", *lines, "}", ""])


def _result(opcode: str, kind: str) -> str:
    if opcode.startswith("convert "):
        return opcode.split()[1]
    parts = {"real": part_of(kind), "imag": part_of(kind), "abs": part_of(kind), "is-finite": "pred"}
    return {"f32": "c64", "f64": "c128"}[kind] if opcode == "complex" else parts.get(opcode, kind)


def batches(seed: int) -> list[Batch]:
    """Every operation of every type once: common types come sooner, and of these functions before conversions."""
    rng = random.Random(seed)
    found: list[Batch] = []
    for kind in ALL_TYPES:
        unary = [o for o, kinds in {**UNARY, **ELEMENTARY_UNARY}.items() if kind in kinds]
        conversions = [f"convert {other}" for other in ALL_TYPES]
        binary = [o for o, kinds in BINARY.items() if kind in kinds and (o, kind) not in _LEFT_OUT]
        exact = [o for o in unary if kind in NARROW_FLOATS and o in _EXACT]
        unary = [o for o in unary if o not in exact]
        most = _MOST_CONVERTED if kind in (*NARROW_FLOATS, "f16", "bf16") else _MOST
        for arity, opcodes in ((1, exact), (1, unary), (1, conversions), (2, binary)):
            rng.shuffle(opcodes)
            cut = [tuple(opcodes[i : i + most]) for i in range(0, len(opcodes), most)]
            found += [Batch(kind, arity, some, rng.random() < 0.5) for some in cut]
    return sorted(found, key=lambda batch: rng.random() + _rank(batch))


def _rank(batch: Batch) -> float:
    """How much later a batch comes than others, of which some come later all the same."""
    if batch.kind in NARROW_FLOATS and batch.opcodes[0] in _EXACT:
        return -1.0
    if batch.kind not in (*FLOATS, *COMPLEX):
        return 1.0
    return 0.5 if batch.opcodes[0].startswith("convert") else 0.0


def numbers(kind: str, rng: np.random.Generator) -> Array:
    """The special values of a type, and a few others; of one of eight bits all."""
    if kind in NARROW_FLOATS and kind != "f4e2m1fn":
        return rng.permutation(np.arange(256, dtype=np.uint8)).view(dtype_of(kind))
    if is_complex(kind):
        given = make_values(rng, "f32" if kind == "c64" else "f64", [2], SPECIAL).astype(np.float64)
        parts = [*_PARTS, *given]
        return np.array([complex(x, y) for x in parts for y in parts], dtype_of(kind))
    few = make_values(rng, kind, [12], "edges")
    return np.concatenate([np.array(float_edges(kind)).astype(few.dtype), few]) if is_float(kind) else few


def arguments(batch: Batch, rng: np.random.Generator) -> list[Array]:
    """The numbers, or all pairs of them."""
    with np.errstate(all="ignore"):
        given = numbers(batch.kind, rng)
    if batch.arity == 1:
        return [given]
    if len(given) > _MOST_NUMBERS:
        given = given[rng.permutation(len(given))[:_MOST_NUMBERS]]
    return [np.repeat(given, len(given)), np.tile(given, len(given))]


def judge(batch: Batch, given: Sequence[Array]) -> str:
    """Describe the fault of the operations' compiled code; "" if there is none."""
    module = HloModule.from_text(batch.text(given[0].size))
    expected = flatten(compile_program(module, backend="interpreter")(*given))
    try:
        # What rewrites would take away is emitted then.
        with compiling(plain=current().plain | ({"rewrites"} if batch.is_as_written else set())):
            actual = flatten(compile_program(module, backend="cpu", cache=False)(*given))
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}"
    made = list(actual.values())
    for i, wide in zip(batch.narrow, made[len(batch.opcodes) :], strict=True):
        # What goes on in registers is what is stored.
        said = made[i].astype(np.float32)
        wrong = (wide.view(np.uint32) != said.view(np.uint32)) & ~(np.isnan(wide) & np.isnan(said))
        if wrong.any():
            place = int(np.argmax(wrong))
            at = join([repr(x[place]) for x in given])
            return f"{batch.opcodes[i]} of {batch.kind}, converted: {wide[place]} instead of {said[place]} for {at}"
    for opcode, (name, other) in zip(batch.opcodes, expected.items(), strict=False):
        allowed = EXACT if opcode.startswith("convert ") else tolerance(opcode, batch.kind)
        wrong = mismatches(actual[name], other, allowed)
        if other.dtype.kind == "c" and opcode not in _WITHOUT_SIGNS:
            wrong |= other_signs(actual[name], other) | other_nans(actual[name], other)
        if wrong.any():
            place = int(np.argmax(wrong))
            at = join([repr(x[place]) for x in given])
            return f"{opcode} of {batch.kind}: {actual[name][place]} instead of {other[place]} for {at}"
    return ""


def moved(program: Moves, given: Sequence[Array]) -> str:
    """Describe which bits compiled moves change; "" if they change none."""
    module = HloModule.from_text(program.text)
    expected = flatten(compile_program(module, backend="interpreter")(*given))
    actual = flatten(compile_program(module, backend="cpu", cache=False)(*given))
    for (_, call), (name, other) in zip(program.calls, expected.items(), strict=True):
        wrong = mismatches(actual[name], other, BITS)
        if wrong.any():
            return f"{call} of {program.kind} changes the bits of {np.count_nonzero(wrong)} of {wrong.size} elements"
    return ""


def other_signs(actual: Array, expected: Array) -> Array:
    """Where zero or infinite parts of complex numbers have other signs; a number with a NaN tells none."""
    wrong = np.zeros(expected.shape, bool)
    for part in (np.real, np.imag):
        a, b = part(actual), part(expected)
        alike = ((a == 0) & (b == 0)) | (np.isinf(a) & np.isinf(b))
        wrong |= alike & (np.signbit(a) != np.signbit(b))
    return wrong & ~(np.isnan(actual) | np.isnan(expected))


def other_nans(actual: Array, expected: Array) -> Array:
    """Where a part of complex numbers is NaN on one side only."""
    parts = (np.isnan(part(actual)) != np.isnan(part(expected)) for part in (np.real, np.imag))
    return np.logical_or(*parts)


def main(arguments_given: Sequence[str] | None = None) -> int:
    """The command."""
    options = numbered.parser("fuzz.specials", __doc__, 1000).parse_args(arguments_given)
    kinds = list(MANY_NANS)
    random.Random(options.seed).shuffle(kinds)
    made = batches(options.seed)
    first = [each for pair in zip(map(Moves, kinds), made, strict=False) for each in pair]
    listed = [*first, *made[len(kinds) :]]
    options.count = min(options.count, len(listed))

    def fault_of(number: int) -> str:
        batch, rng = listed[number], np.random.default_rng([options.seed, number])
        if isinstance(batch, Moves):
            numbered.show(options, batch.text)
            return moved(batch, batch.arguments(rng))
        given = arguments(batch, rng)
        if options.number is not None:
            print(batch.text(given[0].size))
        return judge(batch, given)

    return numbered.run("fuzz.specials", numbered.entries(options, fault_of), options.seconds)


if __name__ == "__main__":
    sys.exit(main())
