"""rng: uniform and normal numbers from the words of Philox4x32, as ``xlakit.ops.shared.random_numbers`` defines them.

A task computes some words into memory in order, and then converts them to elements in a loop that LLVM vectorizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xlakit.cpu.kernels.rng.random_words import PHILOX_CYCLES, counters, joined, lane_count, philox
from xlakit.cpu.kernels.shared.preconditions import require
from xlakit.cpu.kernels.shared.shuffles import interleaved
from xlakit.cpu.llvm import F64, I32, I64, I128, Function, Module, Value
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.math.library import math_function
from xlakit.cpu.math.trigonometric import sine_cosine_of_eighth
from xlakit.cpu.scalars import Scalar, load, register_type, store
from xlakit.cpu.scalars.convert import convert, from_bits, to_bits
from xlakit.cpu.scalars.memory import as_real
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.ir.enums import RandomDistribution
from xlakit.ir.instruction import Instruction
from xlakit.ops.random import Rng
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model

# The number of blocks of words of a task.
_TASK = knob("random_numbers.task", 512, 64, tries=(times(0.25), times(4)))
# Cycles for an element, without its words.
_UNIFORM_CYCLES, _NORMAL_CYCLES = 2.8, 10.0

# The state of a draw: a key, and the halves of its first counter.
STATE_BYTES = 24

# Converts words to elements.
_Make = Callable[[Sequence[Value]], Sequence[Scalar]]


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How words become elements: ``taken`` words of ``width`` bits give ``made`` elements."""

    width: int
    taken: int
    made: int

    @property
    def words_of_block(self) -> int:
        """The number of words of a block."""
        return 128 // self.width

    @property
    def elements_of_block(self) -> int:
        """The number of elements that a block gives."""
        return self.words_of_block // self.taken * self.made


def emit_random_numbers(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of an rng; its table has the two parameters, the result, and the state of the draw as scratch."""
    kind, total = instruction.shape.element_type, instruction.shape.num_elements
    if not total:
        return Kernel((), scratch_bytes=STATE_BYTES)
    distribution = instruction.op_as(Rng).distribution
    recipe = _recipe(distribution, kind)
    fn, table, begin, end = kernel_function(module, "random_numbers")
    *pointers, result, state = (fn.pointer(table, n) for n in range(4))
    parameter_kinds = [o.shape.element_type for o in instruction.operands]
    parameters = [load(fn, k, p, fn.i64(0)) for k, p in zip(parameter_kinds, pointers, strict=True)]
    make = _maker(fn, distribution, kind, parameter_kinds[0], parameters)
    require("random numbers", [("a task is whole vectors", _TASK.value % lane_count() == 0)])
    words, word = philox(fn, state, 3), I32 if recipe.width == 32 else I64
    memory = fn.alloca(word, _TASK.value * recipe.words_of_block, align=64)
    blocks = -(-total // recipe.elements_of_block)

    def elements(group: Value, first: Value, count: int) -> None:
        """Store the elements of a group of words; ``first`` is the first element of the task."""
        draw_words = [fn.load(word, fn.at(memory, word, group * recipe.taken + n)) for n in range(recipe.taken)]
        for number, element in enumerate(make(draw_words)[:count]):
            store(fn, kind, element, result, first + group * recipe.made + number)

    with fn.loop(begin, end, hints=NO_UNROLL) as task:
        block = task.index * _TASK.value
        count = (fn.i64(blocks) - block).umin(_TASK.value)
        with fn.loop(0, count, lane_count(), hints=NO_UNROLL) as loop:
            random = words(counters(fn, block + loop.index))
            random = interleaved(fn, random if recipe.width == 32 else joined(random))
            fn.store(random, fn.at(memory, word, loop.index * recipe.words_of_block))
        first = block * recipe.elements_of_block
        left = (fn.i64(total) - first).umin(_TASK.value * recipe.elements_of_block)
        groups = left.integer("udiv", recipe.made)
        with fn.loop(0, groups, independent=True) as loop:
            elements(loop.index, first, recipe.made)
        if total % recipe.made:
            with fn.if_((left % recipe.made).ne(0)):
                elements(groups, first, 1)
    each = _NORMAL_CYCLES if distribution is RandomDistribution.RNG_NORMAL else _UNIFORM_CYCLES
    cost = cost_model().cycles(blocks * PHILOX_CYCLES + total * each)
    return Kernel((Phase(fn.name, -(-blocks // _TASK.value), cost),), scratch_bytes=STATE_BYTES)


def _recipe(distribution: RandomDistribution, kind: PrimitiveType) -> _Recipe:
    wide = kind.bit_width == 64
    if distribution is RandomDistribution.RNG_NORMAL:
        return _Recipe(64 if wide else 32, 2, 2)
    if kind.is_integral:
        return _Recipe(64, 2 if wide else 1, 1)
    return _Recipe(64 if wide else 32, 1, 1)


def _maker(
    fn: Function,
    distribution: RandomDistribution,
    kind: PrimitiveType,
    parameter_kind: PrimitiveType,
    parameters: Sequence[Scalar],
) -> _Make:
    """The function that converts words to elements of a type; ``parameters`` have the type ``parameter_kind``."""
    if kind is PrimitiveType.PRED:
        first, second = map(as_real, parameters)
        return lambda words: [fn.select((words[0] >> 31).ne(0), second, first)]
    if kind.is_integral:
        low, high = (as_real(p).resized(I64, signed=kind.is_signed) for p in parameters)
        return _integers(fn, kind, low, high)
    first, second = (as_real(convert(fn, parameter_kind, PrimitiveType.F64, p)) for p in parameters)
    if distribution is RandomDistribution.RNG_NORMAL:
        return _normals(fn, kind, first, second)
    return _floats(fn, kind, first, second)


def _integers(fn: Function, kind: PrimitiveType, low: Value, high: Value) -> _Make:
    some = low.compare("slt" if kind.is_signed else "ult", high)
    values = fn.select(some, high - low, fn.i64(1))

    def make(words: Sequence[Value]) -> Sequence[Scalar]:
        if kind.bit_width == 64:
            factor = values.cast("zext", I128)
            below = (words[0].cast("zext", I128) * factor) >> 64
            steps = ((words[1].cast("zext", I128) * factor + below) >> 64).cast("trunc", I64)
        else:
            upper, lower = words[0] >> 32, words[0] & 0xFFFFFFFF
            steps = (upper * values + ((lower * values) >> 32)) >> 32
        return [(low + steps).cast("trunc", register_type(kind))]

    return make


def _floats(fn: Function, kind: PrimitiveType, low: Value, high: Value) -> _Make:
    one, half = fn.constant(F64, 1.0), fn.constant(F64, 0.5)
    scale = fn.select(fn.intrinsic("llvm.fabs", F64, high - low) < math.inf, one, half)
    back = one / scale
    start = low * scale
    span = high * scale - start
    some = low < high
    bound = as_real(convert(fn, PrimitiveType.F64, kind, high))
    below = _below(fn, kind, bound)

    def make(words: Sequence[Value]) -> Sequence[Scalar]:
        if kind is PrimitiveType.F64:
            fraction = (words[0] >> 11).cast("uitofp", F64) * 2.0**-53
        else:
            fraction = words[0].cast("uitofp", F64) * 2.0**-32
        rounded = as_real(convert(fn, PrimitiveType.F64, kind, (start + span * fraction) * back))
        reached = (rounded.cast("fpext", F64) >= high) & some
        return [fn.select(reached, below, rounded)]

    return make


def _below(fn: Function, kind: PrimitiveType, bound: Value) -> Value:
    """The greatest number of a type that is less than ``bound``."""
    bits = to_bits(fn, kind, bound)
    less = fn.select(bound < 0.0, bits + 1, fn.constant(bits.type, (1 << (kind.bit_width - 1)) | 1))
    return as_real(from_bits(fn, kind, fn.select(bound > 0.0, bits - 1, less)))


def _normals(fn: Function, kind: PrimitiveType, mean: Value, deviation: Value) -> _Make:
    """Pairs of normal numbers by Box and Muller's transform."""

    def make(words: Sequence[Value]) -> Sequence[Scalar]:
        bits = words[0].type.bits
        fraction = (words[0].cast("uitofp", F64) + 0.5) * 2.0**-bits
        radius = fn.intrinsic("llvm.sqrt", F64, math_function(fn, "log", fraction) * -2.0)
        quarter, angle = words[1] >> (bits - 2), (words[1] << 2).cast("sitofp", F64)
        sine, cosine = sine_cosine_of_eighth(angle * (2.0**-bits * (math.pi / 2)))
        is_odd, turned = (quarter & 1).ne(0), (quarter >> 1).ne(0)
        across, up = fn.select(is_odd, -sine, cosine), fn.select(is_odd, cosine, sine)
        points = (fn.select(turned, -part, part) * radius for part in (across, up))
        return [convert(fn, PrimitiveType.F64, kind, mean + deviation * point) for point in points]

    return make
