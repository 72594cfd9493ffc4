"""Where xlakit means to differ from jaxlib's CPU backend: one table, with the reason of each.

A difference explains a mismatch only where it reproduces it: most rows change what xlakit was given, or gave, in the
one way that the reason says, and the result must then agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from fuzz.programs.draft import Program
from fuzz.programs.values import Array
from xlakit.data.primitive import PrimitiveType

Leaves = list[Array]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A program whose results differ: xlakit's, jaxlib's, and the means to try again."""

    program: Program
    actual: Leaves
    expected: Leaves
    # xlakit's result for other arguments.
    rerun: Callable[[tuple[tuple[Array, ...], ...]], Leaves]
    # jaxlib's result for another program.
    reference: Callable[[Program], Leaves]
    # Whether leaves agree with jaxlib's within the program's tolerance.
    agree: Callable[[Leaves, Leaves], bool]


@dataclass(frozen=True, slots=True)
class Difference:
    """One intended difference."""

    reason: str
    explains: Callable[[Mismatch], bool]


def _flushed(array: Array) -> Array:
    """The array with denormal numbers replaced by zeros of their sign."""
    if array.dtype.kind == "c":
        both = np.array(array)
        both.real, both.imag = _flushed(np.real(array)), _flushed(np.imag(array))
        return both
    if array.dtype not in _FLUSHED_TYPES:
        return array
    wide = array.astype(np.float64)
    return np.where(_is_denormal(array), np.copysign(0.0, wide), wide).astype(array.dtype)


_FLUSHED_TYPES = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(ml_dtypes.bfloat16))


def _is_denormal(array: Array) -> Array:
    if array.dtype not in _FLUSHED_TYPES:
        return np.zeros(array.shape, np.bool_)
    wide = array.astype(np.float64)
    return np.asarray((np.abs(wide) < float(ml_dtypes.finfo(array.dtype).smallest_normal)) & (wide != 0))


def _denormals(mismatch: Mismatch) -> bool:
    """Whether results agree with denormals flushed in results, or in arguments too, or skipped where arguments are."""
    flat = [_flushed(leaf) for leaf in mismatch.actual]
    expected = [_flushed(leaf) for leaf in mismatch.expected]
    if mismatch.agree(flat, expected):
        return True
    values = mismatch.program.arguments
    again = [_flushed(leaf) for leaf in mismatch.rerun(tuple(tuple(map(_flushed, given)) for given in values))]
    if mismatch.agree(again, expected):
        return True
    arguments = [a for given in values for a in given]
    if any(a.shape != leaf.shape for a in arguments for leaf in flat):
        return False
    # jaxlib's elementary functions see some bits of a denormal argument, and not others.
    seen = np.logical_or.reduce([_is_denormal(a) for a in arguments])
    rest = [np.where(seen, theirs, mine) for mine, theirs in zip(flat, expected, strict=True)]
    return bool(np.any(seen)) and mismatch.agree(rest, expected)


def _unsigned_bits(mismatch: Mismatch) -> bool:
    if mismatch.program.opcode != "rng-bit-generator":
        return False
    viewed = [
        mine.view(theirs.dtype) if theirs.dtype.kind == "u" and mine.dtype.itemsize == theirs.dtype.itemsize else mine
        for mine, theirs in zip(mismatch.actual, mismatch.expected, strict=True)
    ]
    return mismatch.agree(viewed, mismatch.expected)


def _reduce_of_one(mismatch: Mismatch) -> bool:
    program, count = mismatch.program, len(mismatch.expected)
    arrays = program.arguments[0][:count]
    if program.opcode != "reduce" or any(a.size != r.size for a, r in zip(arrays, mismatch.expected, strict=False)):
        return False
    reshaped = [a.reshape(r.shape) for a, r in zip(arrays, mismatch.expected, strict=True)]
    return mismatch.agree(reshaped, mismatch.expected)


def _f16_logistic(mismatch: Mismatch) -> bool:
    program = mismatch.program
    if program.opcode != "logistic" or program.case != "f16":
        return False
    (mine,), (theirs,), operand = mismatch.actual, mismatch.expected, program.arguments[0][0]
    with np.errstate(all="ignore"):
        overflows = np.isinf(np.exp(-operand.astype(np.float64)).astype(np.float16))
    return mismatch.agree([np.where(overflows, np.float16(0), mine)], [theirs])


def _largest_f4(mismatch: Mismatch) -> bool:
    program = mismatch.program
    if program.opcode != "convert" or not program.case.startswith("f4e2m1fn"):
        return False
    largest = np.abs(program.arguments[0][0].astype(np.float32)) == 6
    rest = [
        np.where(largest, theirs, mine) if PrimitiveType.from_dtype(theirs.dtype).is_integral else mine
        for mine, theirs in zip(mismatch.actual, mismatch.expected, strict=True)
    ]
    return mismatch.agree(rest, mismatch.expected)


def _powers_below_f32(mismatch: Mismatch) -> bool:
    program = mismatch.program
    if program.opcode != "convert" or "f8e8m0fnu" not in program.case:
        return False
    operand = program.arguments[0][0]
    with np.errstate(all="ignore"):
        tiny = np.abs(np.real(operand).astype(np.float64)) < float(np.finfo(np.float32).smallest_normal)
    rest = [
        np.where(tiny, theirs, mine) if theirs.dtype == ml_dtypes.float8_e8m0fnu else mine
        for mine, theirs in zip(mismatch.actual, mismatch.expected, strict=True)
    ]
    return mismatch.agree(rest, mismatch.expected)


def _all_reduce_min_max(mismatch: Mismatch) -> bool:
    if mismatch.program.opcode != "all-reduce" or not re.search(r"maximum|minimum", mismatch.program.text):
        return False
    rest: Leaves = []
    for mine, theirs in zip(mismatch.actual, mismatch.expected, strict=True):
        zeros = (_flushed(mine) == 0) & (theirs == 0)
        rest.append(np.where(np.isnan(mine.astype(np.float64)) | zeros, theirs, mine).astype(mine.dtype))
    return mismatch.agree(rest, mismatch.expected)


def _empty_index_vectors(mismatch: Mismatch) -> bool:
    program = mismatch.program
    return program.opcode == "scatter" and "scatter_dims_to_operand_dims={}" in program.text


def _packed(mismatch: Mismatch) -> bool:
    """Whether results agree with those of jaxlib for the same values stored in bytes."""
    program = mismatch.program
    narrow = re.compile(r"\b([su])[24]\[")
    if program.opcode not in ("sort", "scatter") or not narrow.search(program.text):
        return False
    wide = replace(
        program,
        text=narrow.sub(r"\g<1>8[", program.text),
        arguments=tuple(tuple(_as_bytes(a) for a in values) for values in program.arguments),
    )
    results = mismatch.reference(wide)
    again = [theirs.astype(mine.dtype) for mine, theirs in zip(mismatch.actual, results, strict=True)]
    return mismatch.agree(mismatch.actual, again)


def _as_bytes(array: Array) -> Array:
    name = array.dtype.name
    return array.astype(name.rstrip("24") + "8") if name in ("int2", "int4", "uint2", "uint4") else array


def _bits_of_the_byte(mismatch: Mismatch) -> bool:
    if mismatch.program.opcode != "popcnt":
        return False
    (operand,) = mismatch.program.arguments[0]
    counts = np.bitwise_count(operand.astype(np.int64).astype(np.uint8))
    return mismatch.agree([counts.astype(operand.dtype)], mismatch.expected)


def _complex_nan_literal(mismatch: Mismatch) -> bool:
    if mismatch.program.opcode != "constant" or mismatch.expected[0].dtype.kind != "c":
        return False
    (mine,), (theirs,) = mismatch.actual, mismatch.expected
    return mismatch.agree([np.where(np.isnan(np.real(mine)), theirs, mine)], [theirs]) and bool(
        np.all(np.isnan(theirs[np.isnan(np.real(mine))]))
    )


def _long_exponents(mismatch: Mismatch) -> bool:
    """Agreement when exponents lose all but their lowest six bits, and unsigned ones count as signed."""
    program = mismatch.program
    if program.opcode != "power" or program.case[0] not in "su":
        return False
    base, exponent = program.arguments[0]
    if base.dtype.kind not in "iu":
        return False
    signed = exponent.view(f"i{base.dtype.itemsize}")
    (again,) = mismatch.rerun(((base, np.where(signed > 0, exponent & 63, exponent).astype(base.dtype)),))
    one = base.dtype.type(1)
    lost = (signed < 0) & (base != one) & (base != ~(one - one))
    return mismatch.agree([np.where(lost, one - one, again)], mismatch.expected)


def _complex_specials(mismatch: Mismatch) -> bool:
    """Agreement where jaxlib does not give NaN, and where no operand has an infinity or NaN in a part."""
    arguments = mismatch.program.arguments[0]
    (mine,), (theirs,) = mismatch.actual, mismatch.expected
    if not arguments or any(a.dtype.kind != "c" or a.shape != theirs.shape for a in arguments):
        return False
    special = np.logical_or.reduce([~np.isfinite(a) for a in arguments])
    if mismatch.program.opcode == "power":
        special |= arguments[0] == 0
    lost = special & np.isnan(theirs)
    return bool(np.any(lost)) and mismatch.agree([np.where(lost, theirs, mine)], [theirs])


def _quiet_nans(mismatch: Mismatch) -> bool:
    """Agreement but for the bits of NaNs of types of 8 bits."""
    rest: Leaves = []
    for mine, theirs in zip(mismatch.actual, mismatch.expected, strict=True):
        is_narrow = theirs.dtype in _QUIETED_TYPES
        both = np.isnan(mine.astype(np.float64)) & np.isnan(theirs.astype(np.float64)) if is_narrow else False
        rest.append(np.where(both, theirs, mine))
    return mismatch.agree(rest, mismatch.expected)


_QUIETED_TYPES = tuple(map(np.dtype, (ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3, ml_dtypes.float8_e3m4)))


def _zero_of_powers(mismatch: Mismatch) -> bool:
    """Agreement where the least power of two stands for the zero that f8e8m0fnu has not, in an empty gather."""
    program = mismatch.program
    if program.opcode != "gather" or not re.search(r"slice_sizes=\{(\d+,)*0[,}]", program.text):
        return False
    filled = [
        np.where(leaf.view(np.uint8) == 0, np.float32(np.nan), leaf.astype(np.float32)).astype(leaf.dtype)
        if leaf.dtype == ml_dtypes.float8_e8m0fnu
        else leaf
        for leaf in mismatch.actual
    ]
    return mismatch.agree(filled, mismatch.expected)


def _unstable(mismatch: Mismatch) -> bool:
    return mismatch.agree(mismatch.actual, mismatch.reference(mismatch.program))


# By name: what jaxlib does, and why xlakit does otherwise.
DIFFERENCES: dict[str, Difference] = {
    "denormals": Difference(
        "jaxlib's CPU backend runs with denormal f32 and f64 numbers flushed to zero (bf16 is computed in f32); xlakit "
        "keeps them, as IEEE 754 has it",
        _denormals,
    ),
    "unsigned bits": Difference(
        "jaxlib gives the random bits of a signed type as the unsigned type of the same width; HLO's declared shape is "
        "what xlakit gives",
        _unsigned_bits,
    ),
    "reduce of one": Difference(
        "XLA's simplifier replaces a reduce of one element each by its operand and forgets the initial value, which "
        "matters where that is no identity; xlakit combines it, as XLA's own evaluator does",
        _reduce_of_one,
    ),
    "f16 logistic": Difference(
        "jaxlib computes 1 / (1 + exp(-x)) in f16 itself, where exp(-x) overflows and the result becomes 0; xlakit "
        "rounds the exact value",
        _f16_logistic,
    ),
    "largest f4": Difference(
        "jaxlib converts the largest f4e2m1fn, 6, to the greatest integer: it compares with integer limits that it has "
        "rounded to f4e2m1fn, which has no infinity; xlakit gives 6",
        _largest_f4,
    ),
    "powers below f32": Difference(
        "jaxlib converts to f8e8m0fnu through f32 and flushes there, which makes small numbers 0 and then NaN, since "
        "f8e8m0fnu has no 0; xlakit gives the least power of two",
        _powers_below_f32,
    ),
    "all-reduce minimum and maximum": Difference(
        "jaxlib's CPU all-reduce takes the maximum and the minimum by one comparison, so a NaN that meets a number is "
        "lost, and the sign of a zero is that of the last; in HLO NaN propagates and 0 is greater than -0",
        _all_reduce_min_max,
    ),
    "empty index vectors": Difference(
        "jaxlib's CPU scatter combines only the last update where the index vectors are empty; all of them go to one "
        "place",
        _empty_index_vectors,
    ),
    "packed elements": Difference(
        "jaxlib's CPU backend reads arrays of 2 and 4 bits as bytes in sort and scatter; xlakit agrees with what it "
        "gives for the same values in 8 bits",
        _packed,
    ),
    "bits of the byte": Difference(
        "jaxlib's popcnt of a negative number of 2 or 4 bits counts the sign bits of the byte that holds it",
        _bits_of_the_byte,
    ),
    "complex NaN literal": Difference(
        "XLA's parser reads (nan, 0) as a NaN in both parts; xlakit keeps the imaginary part as written",
        _complex_nan_literal,
    ),
    "long exponents": Difference(
        "XLA's CPU backend unrolls integer powers to six squarings, which drops all but the lowest six bits of the "
        "exponent, and takes unsigned exponents for signed ones; xlakit gives the power modulo the type's range, as "
        "XLA's own evaluator does",
        _long_exponents,
    ),
    "complex specials": Difference(
        "jaxlib's complex functions are formulas that give NaN where a part of an operand is infinite or NaN, and for "
        "powers of 0; xlakit gives what C's Annex G says, as XLA's own evaluator does",
        _complex_specials,
    ),
    "quiet NaNs": Difference(
        "jaxlib moves elements of 8 bits through f16, which makes all their NaNs quiet ones; xlakit moves their bits",
        _quiet_nans,
    ),
    "zero of powers": Difference(
        "a gather whose slices have no element finds nothing to give; XLA's simplifier gives 0, which is NaN in "
        "f8e8m0fnu, xlakit bits of 0, which are the least power of two there",
        _zero_of_powers,
    ),
    "unstable": Difference(
        "jaxlib gave another result when it ran the same program again, and that one agrees (seen in convolutions of "
        "f16 with groups, of which one element was memory that was not written)",
        _unstable,
    ),
}

# Opcodes that jaxlib's CPU backend does not run at all, or that have no one result to compare. Those for which there
# are programs here are tried all the same, a few times, in case that changes.
CANNOT_RUN: dict[str, str] = {
    **dict.fromkeys(
        ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"),
        "StableHLO has them only as compositions, and the CPU backend does not emit the HLO operations",
    ),
    **dict.fromkeys(("mulhi", "scaled-dot", "ragged-all-to-all"), "does not survive the conversion to StableHLO"),
    **dict.fromkeys(("ragged-dot", "collective-broadcast"), "the CPU backend has no code for it"),
    **dict.fromkeys(
        ("async-start", "async-update", "async-done"), "the conversion to StableHLO loses the tuple in their shape"
    ),
    **dict.fromkeys(("copy-start", "copy-done"), "the CPU backend has no code for it"),
    **dict.fromkeys(
        ("infeed", "outfeed", "send", "send-done", "recv", "recv-done"),
        "waits for a host that jaxlib's Python interface does not let one play",
    ),
    "rng-get-and-update-state": "gives a state that goes on from program to program; jaxlib makes one of several",
    **dict.fromkeys(("atan", "shuffle", "collective-reduce"), "is not known to the HLO parser of jaxlib 0.10.2"),
}


def explanation(mismatch: Mismatch) -> str | None:
    """The name of the difference that explains a mismatch, if one does."""
    for name, difference in DIFFERENCES.items():
        if difference.explains(mismatch):
            return name
    return None
