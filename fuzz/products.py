"""``python -m fuzz.products``: products and convolutions of sizes at which they are cut, packed and shared out.

The programs of the other commands are small: their products fit one tile or a few. These have up to some ten million
multiplications, and dimensions in any order, on one, two or three threads; the interpreter says what is right. Every
second one is smaller, and compiled with knobs and vectors drawn at random, as in :mod:`fuzz.forced`: its blocks are
small. The exit status is 1 where a result differs.
"""

from __future__ import annotations

import math
import random
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fuzz.forced import draw
from fuzz.programs.values import dtype_of
from fuzz.support import numbered
from xlakit import compile as compile_program, threads
from xlakit.ir.instruction import HloModule
from xlakit.options import KNOBS, Options, compiling, current

_LEAST, _MOST = 10_000, 60_000_000
_MOST_OF_CONVOLUTION = 200_000_000
# Of what is multiplied where blocks are small; the interpreter takes most of the time.
_MOST_FORCED = 4_000_000
_LEAST_ROWS_IN_RUNS = 250
# What the knobs of products and convolutions are called.
_KNOBS = ("gemm", "dot", "convolution", "machine.own")
# Errors of sums in another order, in units of the type's epsilon times the largest element, and some room.
_UNITS = 160
# Vectors take pairs and fours of narrow elements at once: those are packed in another way.
_TYPES = ("f32", "f32", "f32", "f64", "bf16", "s8")
_SUMS = {"bf16": "f32", "s8": "s32"}


@dataclass(frozen=True)
class Case:
    """A program of one product, and the shapes of its operands."""

    text: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    kind: str


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _case(kind: str, lhs: Sequence[int], rhs: Sequence[int], result: Sequence[int], operation: str) -> Case:
    lines = [
        "HloModule product",
        "",
        "ENTRY main {",
        f"  a = {kind}[{_listed(lhs)}] parameter(0)",
        f"  b = {kind}[{_listed(rhs)}] parameter(1)",
        f"  ROOT c = {_SUMS.get(kind, kind)}[{_listed(result)}] {operation}",
        "}",
    ]
    return Case("\n".join(lines) + "\n", (tuple(lhs), tuple(rhs)), kind)


def _size(chance: random.Random) -> int:
    small, even = chance.randint(1, 9), chance.choice([16, 32, 64, 128, 256])
    return chance.choice([small, even, chance.randint(10, 130), chance.randint(60, 600)])


def _dot(chance: random.Random, most: int) -> Case | None:
    """A product with its batch, free and contracted dimensions in any order."""
    sizes = {
        "b": [chance.randint(1, 5)] if chance.random() < 0.3 else [],
        **{part: [_size(chance) for _ in range(chance.choice([1, 1, 2]))] for part in "mnk"},
    }
    if not _LEAST < math.prod(map(math.prod, sizes.values())) < min(most, _MOST):
        return None
    left, right = ([(part, i) for part in parts for i in range(len(sizes[part]))] for parts in ("bmk", "bnk"))
    if chance.random() < 0.6:
        chance.shuffle(left)
        chance.shuffle(right)

    def places(order: Sequence[tuple[str, int]], part: str) -> str:
        return _listed([order.index((part, i)) for i in range(len(sizes[part]))])

    def shape(order: Sequence[tuple[str, int]]) -> list[int]:
        return [sizes[part][i] for part, i in order]

    free = [*(d for d in left if d[0] == "m"), *(d for d in right if d[0] == "n")]
    operation = (
        f"dot(a, b), lhs_batch_dims={{{places(left, 'b')}}}, lhs_contracting_dims={{{places(left, 'k')}}}, "
        f"rhs_batch_dims={{{places(right, 'b')}}}, rhs_contracting_dims={{{places(right, 'k')}}}"
    )
    return _case(chance.choice(_TYPES), shape(left), shape(right), [*sizes["b"], *shape(free)], operation)


def _convolution(chance: random.Random, most: int) -> Case | None:
    """A convolution in two dimensions, or the gradient of its kernel."""
    batch, inputs = (
        chance.choice([1, 2, 4, 8, 16, 32]),
        chance.choice([3, 8, 24, 32, 40, 48, 64, chance.randint(5, 70)]),
    )
    outputs = chance.choice([3, 8, 16, 32, 48, 64, 128])
    high, wide = chance.choice([4, 6, 8, 9, 12, 16]), chance.choice([4, 7, 8, 16])
    size, stride = chance.choice([1, 2, 3, 5]), chance.choice([1, 1, 2])
    if batch * high * wide * inputs * outputs * size * size > most:
        return None
    kind, pad = chance.choice(_TYPES), size // 2
    around = f"pad={pad}_{pad}x{pad}_{pad}"
    if chance.random() < 0.5:
        lhs, rhs = (batch, high, wide, inputs), (batch, high, wide, outputs)
        window = f"window={{size={high}x{wide} {around}}}"
        taps = 2 * pad + 1
        operation = f"convolution(a, b), {window}, dim_labels=f01b_i01o->01bf"
        return _case(kind, lhs, rhs, (taps, taps, inputs, outputs), operation)
    places = [(extent + 2 * pad - size) // stride + 1 for extent in (high, wide)]
    window = f"window={{size={size}x{size} stride={stride}x{stride} {around}}}"
    if chance.random() < 0.7:
        labels, lhs, rhs = "b01f_01io->b01f", (batch, high, wide, inputs), (size, size, inputs, outputs)
        result = (batch, *places, outputs)
    else:
        labels, lhs, rhs = "bf01_oi01->bf01", (batch, inputs, high, wide), (outputs, inputs, size, size)
        result = (batch, outputs, *places)
    return _case(kind, lhs, rhs, result, f"convolution(a, b), {window}, dim_labels={labels}")


def _features_alone(chance: random.Random, most: int) -> Case | None:
    """A convolution of each feature by itself: lines of any length, and taps that fall on padding."""
    batch, features = chance.choice([1, 3]), chance.randint(2, 70)
    extents, sizes = (chance.randint(1, 12), chance.randint(1, 90)), (chance.choice([1, 3]), chance.randint(1, 50))
    places: list[int] = []
    parts: dict[str, list[str]] = {"size": [], "stride": [], "pad": [], "rhs_dilate": []}
    for extent, size in zip(extents, sizes, strict=True):
        low, high = chance.randint(-1, size), chance.randint(-1, size)
        stride, dilation = chance.choice([1, 1, 2, 3]), chance.choice([1, 1, 2])
        places.append((extent + low + high - (size - 1) * dilation - 1) // stride + 1)
        for name, value in zip(parts, (size, stride, f"{low}_{high}", dilation), strict=True):
            parts[name].append(str(value))
    if min(places) < 1 or batch * features * math.prod(places) * math.prod(sizes) > most:
        return None
    window = " ".join(f"{name}={'x'.join(values)}" for name, values in parts.items())
    operation = f"convolution(a, b), window={{{window}}}, dim_labels=b01f_01io->b01f, feature_group_count={features}"
    lhs, rhs = (batch, *extents, features), (*sizes, 1, features)
    return _case(chance.choice(_TYPES), lhs, rhs, (batch, *places, features), operation)


def _rows_in_runs(chance: random.Random, most: int) -> Case | None:
    """A product whose left rows lie in runs of whole vectors on both sides of the contracted dimension.

    There are more rows than a block or a task has; types whose steps are packed in groups keep them as rows.
    """
    outer, inner = chance.randint(2, 9), chance.choice([8, 16, 16, 16]) * chance.randint(1, 10)
    depth, columns = chance.randint(8, chance.choice([40, 130])), chance.choice([8, 40, 64, 100, 100, 200])
    if outer * inner < _LEAST_ROWS_IN_RUNS or outer * inner * depth * columns > most:
        return None
    operation = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    kind = chance.choice(["s8", "s8", "s8", "bf16", "f32"])
    return _case(kind, (outer, depth, inner), (depth, columns), (outer, inner, columns), operation)


def case(seed: int, number: int) -> Case:
    """Program ``number`` of a seed."""
    chance = random.Random(f"{seed} {number}")
    most = _MOST_FORCED if _is_forced(number) else _MOST_OF_CONVOLUTION
    makers = [_dot, _dot, _convolution, _convolution, _features_alone, *[_rows_in_runs] * 3]
    while True:
        made = chance.choice(makers)(chance, most)
        if made is not None:
            return made


def judge(given: Case, seed: int = 0, count: int = 2) -> str:
    """Describe the fault of the compiled product on so many threads; "" if there is none."""
    rng = np.random.default_rng(seed)
    # Bytes have whole numbers.
    spread = 40.0 if given.kind == "s8" else 1.0
    values = [
        (spread * rng.standard_normal(shape)).clip(-100, 100).astype(dtype_of(given.kind)) for shape in given.shapes
    ]
    module = HloModule.from_text(given.text)
    expected = np.asarray(compile_program(module, backend="interpreter")(*values))
    with threads(count):
        actual = np.asarray(compile_program(module)(*values))
    wrong = np.abs(actual - expected)
    epsilon = 0.0 if given.kind == "s8" else float(np.finfo(expected.dtype).eps)
    allowed = _UNITS * epsilon * float(np.abs(expected).max(initial=0.0))
    faults = np.argwhere(~(wrong <= allowed))
    if not len(faults):
        return ""
    return f"{len(faults)} of {wrong.size} elements differ by up to {wrong.max()}, the first at {faults[0].tolist()}"


def _is_forced(number: int) -> bool:
    """Whether a program is compiled with knobs drawn at random."""
    return number % 2 == 1


def _forced(seed: int, number: int) -> Options:
    """Knobs of products and convolutions, half of them or a few, besides the width of vectors."""
    rng = random.Random(f"{seed} {number} knobs")
    share = rng.choice([0.1, 0.5])
    names = [name for name in sorted(KNOBS) if name.startswith(_KNOBS)]
    knobs = {name: rng.choice(KNOBS[name].others) for name in names if rng.random() < share}
    return replace(draw(seed, number), plain=frozenset(), knobs=knobs)


def _fault_of(options: Namespace, number: int) -> str:
    made = case(options.seed, number)
    drawn = _forced(options.seed, number) if _is_forced(number) else current()
    numbered.show(options, made.text, drawn.text)
    with compiling(drawn):
        return judge(made, number, 1 + number % 3)


main = numbered.net("fuzz.products", __doc__, 1000, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
