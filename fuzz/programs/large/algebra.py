"""Large transforms, factorizations and random bits; results that are larger than the caches."""

from __future__ import annotations

import math

import numpy as np

from fuzz.programs.draft import Program, join
from fuzz.programs.large.drafts import LargeDraft, kind
from fuzz.programs.large.indexing import gather, scatter
from fuzz.programs.large.moves import pieces, transpose
from fuzz.programs.large.reductions import reduce, reductions
from fuzz.programs.operations.algebra import solve, transform
from fuzz.programs.values import Array, bits_of, dtype_of, is_complex
from fuzz.support.tolerances import EXACT, MATRIX


def _length(draft: LargeDraft, most: int) -> int:
    """The length of a transform: a power of two, a product of small primes, a prime, anything."""
    form = draft.integer(0, 3)
    size = max(1, round(math.exp(draft.rng.uniform(0, math.log(most)))))
    if form == 0:
        return 1 << round(math.log2(size))
    if form == 1:
        product = 1
        while product < size:
            product *= draft.pick([2, 2, 3, 4, 5, 7])
        return min(product, 2 * most)
    return _prime(size) if form == 2 else size


def _prime(size: int) -> int:
    while any(size % n == 0 for n in range(2, math.isqrt(size) + 1)):
        size += 1
    return size


@kind("fft", tuple(f"{form} {part}" for form in ("FFT", "IFFT", "RFFT", "IRFFT") for part in ("f32", "f64")), 3)
def fft(draft: LargeDraft, case: str) -> Program:
    """One to three dimensions, in batches."""
    rank = draft.pick([1, 1, 2, 3])
    lengths = [_length(draft, round((draft.most / 4) ** (1 / rank))) for _ in range(rank)]
    count = max(1, draft.integer(draft.least, draft.most) // math.prod(lengths))
    batch = [] if count == 1 else [count] if draft.chance() else [max(1, count // 3), 3]
    return transform(draft, case, batch, lengths)


_RANDOM = tuple(
    f"{algorithm} {bits}" for algorithm in ("rng_three_fry", "rng_philox") for bits in ("u8", "u16", "u32", "u64")
)


@kind("random", _RANDOM, 1)
def random(draft: LargeDraft, case: str) -> Program:
    """Random bits of every width, and the state that follows."""
    algorithm, bits = case.split()
    words = 2 if algorithm == "rng_three_fry" else 3
    state, dims = draft.parameter("u64", [words]), draft.dims(1, 3)
    draft.emit(f"(u64[{words}], {bits}[{join(dims)}])", f"rng-bit-generator({state}), algorithm={algorithm}")
    return draft.finish("rng-bit-generator", EXACT, case)


def _matrix_sizes(draft: LargeDraft) -> tuple[list[int], int]:
    """Some batch dimensions and the size of a matrix, where blocks begin and end in different ones."""
    size = draft.pick([draft.integer(2, 40), draft.integer(40, 300), draft.integer(300, 900)])
    return ([draft.integer(1, max(1, 60_000 // size**2 + 1))] if draft.chance() else []), size


def _wide(case: str, values: Array) -> Array:
    return values.astype(np.complex128 if is_complex(case) else np.float64)


@kind("cholesky", ("f32", "f64", "c64", "c128"), 1)
def cholesky(draft: LargeDraft, case: str) -> Program:
    """Either triangle of one matrix or many."""
    batch, size = _matrix_sizes(draft)
    half = _wide(case, draft.whole(case, [*batch, size, size], 1, 1))
    matrix = half @ np.conj(np.swapaxes(half, -1, -2)) / size + np.eye(size)
    dims = [*batch, size, size]
    operand = draft.parameter(case, dims, values=matrix.astype(dtype_of(case)), plain=True)
    draft.emit(f"{case}[{join(dims)}]", f"cholesky({operand}), lower={str(draft.chance()).lower()}")
    return draft.finish("cholesky", MATRIX, case)


@kind("triangular-solve", ("f32", "f64", "c64", "c128"), 1)
def triangular_solve(draft: LargeDraft, case: str) -> Program:
    """Both sides, both triangles, every form of the matrix, few sides and many."""
    batch, size = _matrix_sizes(draft)
    other = draft.pick([1, draft.integer(1, 20), draft.integer(60, 300)])
    # Of a matrix that is nearly the identity the inverse is, too.
    matrix = _wide(case, draft.whole(case, [*batch, size, size], 1, 1)) / (2 * size) + np.eye(size)
    return solve(draft, case, matrix.astype(dtype_of(case)), other)


def _computed(draft: LargeDraft, case: str) -> Program:
    """Element by element, with operands that are spread along dimensions; one large result or two."""
    dims = draft.dims(1, 3)
    shape = f"{case}[{join(dims)}]"
    first = draft.parameter(case, dims, values=draft.whole(case, dims, 8))
    results = [first]
    for _ in range(draft.integer(1, 2)):
        along = draft.subset(len(dims))
        sizes = [dims[d] for d in along]
        other = draft.parameter(case, sizes, values=draft.whole(case, sizes, 8), plain=True)
        wide = draft.emit(shape, f"broadcast({other}), dimensions={{{join(along)}}}")
        results.append(draft.emit(shape, f"{draft.pick(['add', 'subtract'])}({results[-1]}, {wide})"))
    if len(results) > 2 and draft.chance():
        draft.emit(f"({shape}, {shape})", f"tuple({results[1]}, {results[2]})")
    return draft.exact("computed", case)


# Results that go round the caches have at least so many bytes.
_STREAMED, _MOST_STREAMED = 17 << 20, 40 << 20
_STREAMING = (transpose, pieces, gather, _computed, _computed, reduce, reductions, scatter)


@kind("stream", ("f32", "s8", "bf16", "f64", "s32", "f16", "c64", "u16"), 1)
def stream(draft: LargeDraft, case: str) -> Program:
    """Programs of other kinds, with arrays that do not fit in the caches."""
    width = max(1, bits_of(case) // 8)
    draft.least, draft.most = _STREAMED // width, _MOST_STREAMED // width
    authors = [a for a in _STREAMING if a is not reductions or case in ("f32", "bf16", "s32", "f64", "f16")]
    return draft.pick(authors)(draft, case)
