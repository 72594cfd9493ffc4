"""Algorithms on whole arrays: fft, cholesky, triangular-solve, the batch norms, random bits."""

from __future__ import annotations

import numpy as np

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.values import POSITIVE, SMALL, Array, dtype_of, is_complex, is_float, make_values
from fuzz.support.tolerances import EXACT, MATRIX, Measure, Tolerance

_NORMALIZED = Tolerance(Measure.NORM, 64)


@family("fft", tuple(f"{form} {kind}" for form in ("FFT", "IFFT", "RFFT", "IRFFT") for kind in ("f32", "f64")), 3)
def fft(draft: Draft, case: str) -> Program:
    """One to three dimensions of any length, with batch dimensions in front."""
    lengths = [draft.pick([1, 2, 3, 4, 5, 7, 8, 12, 13]) for _ in range(draft.pick([1, 1, 2, 3]))]
    if len(lengths) == 3:
        lengths = [min(n, 4) for n in lengths]
    batch = draft.integers(1, 3, draft.integer(0, 2))
    return transform(draft, case, batch, lengths)


def transform(draft: Draft, case: str, batch: list[int], lengths: list[int]) -> Program:
    """An fft of the last dimensions, which have these lengths."""
    form, part = case.split()
    whole = {"f32": "c64", "f64": "c128"}[part]
    half = [*lengths[:-1], lengths[-1] // 2 + 1]
    source, target = {"RFFT": (part, whole), "IRFFT": (whole, part)}.get(form, (whole, whole))
    operand = draft.parameter(source, [*batch, *(half if form == "IRFFT" else lengths)], SMALL, plain=True)
    result = [*batch, *(half if form == "RFFT" else lengths)]
    draft.emit(f"{target}[{join(result)}]", f"fft({operand}), fft_type={form}, fft_length={{{join(lengths)}}}")
    return draft.finish("fft", MATRIX, case)


def _definite(draft: Draft, kind: str, dims: list[int]) -> Array:
    """A batch of Hermitian matrices that are well positive."""
    size = dims[-1]
    wide = np.complex128 if is_complex(kind) else np.float64
    half = make_values(draft.rng, kind, dims, SMALL).astype(wide)
    product = half @ np.conj(np.swapaxes(half, -1, -2)) + size * np.eye(size)
    return product.astype(dtype_of(kind))


@family("cholesky", ("f32", "f64", "c64", "c128"), 1.5)
def cholesky(draft: Draft, case: str) -> Program:
    """Either triangle, batches, also of size 0 and 1."""
    dims = [*draft.integers(1, 3, draft.integer(0, 2)), *[draft.pick([1, 2, 3, 5, 8])] * 2]
    operand = draft.parameter(case, dims, values=_definite(draft, case, dims), plain=True)
    draft.emit(f"{case}[{join(dims)}]", f"cholesky({operand}), lower={str(draft.chance()).lower()}")
    return draft.finish("cholesky", MATRIX, case)


@family("triangular-solve", ("f32", "f64", "c64", "c128"), 2)
def triangular_solve(draft: Draft, case: str) -> Program:
    """Both sides, both triangles, all forms of the matrix, a diagonal of ones."""
    batch = draft.integers(1, 3, draft.integer(0, 2))
    size, other = draft.pick([1, 2, 3, 5, 8]), draft.integer(1, 4)
    matrix = make_values(draft.rng, case, [*batch, size, size], SMALL)
    matrix = (matrix.astype(np.complex128 if is_complex(case) else np.float64) * 0.3 + 2 * np.eye(size)).astype(
        matrix.dtype
    )
    return solve(draft, case, matrix, other)


def solve(draft: Draft, case: str, matrix: Array, other: int) -> Program:
    """A triangular-solve with a matrix, or with each of a batch of them, for ``other`` vectors."""
    left_side, lower, unit = draft.chance(), draft.chance(), draft.chance(0.3)
    *batch, size, _ = matrix.shape
    a = draft.parameter(case, matrix.shape, values=matrix, plain=True)
    dims = [*batch, size, other] if left_side else [*batch, other, size]
    b = draft.parameter(case, dims, SMALL, plain=True)
    form = draft.pick(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    flags = [("left_side", left_side), ("lower", lower), ("unit_diagonal", unit)]
    text = ", ".join(f"{name}={str(value).lower()}" for name, value in flags)
    draft.emit(f"{case}[{join(dims)}]", f"triangular-solve({a}, {b}), {text}, transpose_a={form}")
    return draft.finish("triangular-solve", MATRIX, f"{case} {form}")


def _batch_norm_operand(draft: Draft) -> tuple[list[int], int, int]:
    dims = draft.dims(1, 4, most=100, empty=0.0)
    feature = draft.integer(0, len(dims) - 1)
    return dims, feature, dims[feature]


@family("batch-norm-training", ("f32", "f64", "f16", "bf16"), 1.2)
def batch_norm_training(draft: Draft, case: str) -> Program:
    """Any feature dimension."""
    dims, feature, size = _batch_norm_operand(draft)
    x = draft.parameter(case, dims, SMALL, plain=True)
    scale, offset = (draft.parameter(case, [size], SMALL, plain=True) for _ in range(2))
    shapes = f"({case}[{join(dims)}], {case}[{size}], {case}[{size}])"
    draft.emit(shapes, f"batch-norm-training({x}, {scale}, {offset}), epsilon=0.01, feature_index={feature}")
    return draft.finish("batch-norm-training", _NORMALIZED, case)


@family("batch-norm-inference", ("f32", "f64", "f16", "bf16"), 1.2)
def batch_norm_inference(draft: Draft, case: str) -> Program:
    """Any feature dimension."""
    dims, feature, size = _batch_norm_operand(draft)
    x = draft.parameter(case, dims, SMALL, plain=True)
    vectors = [draft.parameter(case, [size], style, plain=True) for style in (SMALL, SMALL, SMALL, POSITIVE)]
    call = f"batch-norm-inference({', '.join([x, *vectors])}), epsilon=0.01, feature_index={feature}"
    draft.emit(f"{case}[{join(dims)}]", call)
    return draft.finish("batch-norm-inference", _NORMALIZED, case)


@family("batch-norm-grad", ("f32", "f64", "f16", "bf16"), 1.2)
def batch_norm_grad(draft: Draft, case: str) -> Program:
    """Any feature dimension."""
    dims, feature, size = _batch_norm_operand(draft)
    x = draft.parameter(case, dims, SMALL, plain=True)
    vectors = [draft.parameter(case, [size], style, plain=True) for style in (SMALL, SMALL, POSITIVE)]
    grad = draft.parameter(case, dims, SMALL, plain=True)
    shapes = f"({case}[{join(dims)}], {case}[{size}], {case}[{size}])"
    operands = ", ".join([x, *vectors, grad])
    draft.emit(shapes, f"batch-norm-grad({operands}), epsilon=0.01, feature_index={feature}")
    return draft.finish("batch-norm-grad", _NORMALIZED, case)


_RANDOM = tuple(
    f"{algorithm} {kind}"
    for algorithm in ("rng_three_fry", "rng_philox", "rng_default")
    for kind in ("u8", "u16", "u32", "u64", "s32", "s64")
)


@family("rng-bit-generator", _RANDOM, 2)
def rng_bit_generator(draft: Draft, case: str) -> Program:
    """Every algorithm and width; the state comes out too."""
    algorithm, kind = case.split()
    words = 2 if algorithm == "rng_three_fry" else draft.pick([2, 3])
    if algorithm == "rng_default":
        words = draft.pick([2, 3])
    state = draft.parameter("u64", [words])
    dims = draft.dims(0, 3)
    shapes = f"(u64[{words}], {kind}[{join(dims)}])"
    draft.emit(shapes, f"rng-bit-generator({state}), algorithm={algorithm}")
    return draft.finish("rng-bit-generator", EXACT, case)


_DRAWN = (*(f"uniform {kind}" for kind in ("f32", "f64", "bf16", "s32", "u32", "s64")), "normal f32", "normal f64")


@family("rng", _DRAWN, 0.6)
def rng(draft: Draft, case: str) -> Program:
    """Each implementation chooses its own numbers: the result is whether they are of the shape, and in the range."""
    form, kind = case.split()
    dims, normal = draft.dims(), form == "normal"
    first, second = (0, 1) if normal else (draft.integer(0, 3), draft.integer(4, 9))
    # So many deviations from the mean do not happen.
    low, high = (-40, 40) if normal else (first, second)
    bounds = [draft.emit(f"{kind}[]", f"constant({number})") for number in (first, second)]
    shape, truth = f"{kind}[{join(dims)}]", f"pred[{join(dims)}]"
    drawn = draft.emit(shape, f"rng({bounds[0]}, {bounds[1]}), distribution=rng_{form}")
    inside: list[str] = []
    for number, direction in ((low, "GE"), (high, "LE" if is_float(kind) else "LT")):
        bound = draft.emit(f"{kind}[]", f"constant({number})")
        wide = draft.emit(shape, f"broadcast({bound}), dimensions={{}}")
        inside.append(draft.emit(truth, f"compare({drawn}, {wide}), direction={direction}"))
    draft.emit(truth, f"and({inside[0]}, {inside[1]})")
    return draft.finish("rng", EXACT, case)
