"""Where elements go: broadcast, reshape, transpose, reverse, slice, pad, concatenate, the dynamic slices; sources."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.values import ALL_TYPES, COMPLEX, FLOATS, INTEGERS, NARROW_FLOATS, Array, is_float, make_values
from fuzz.support.tolerances import BITS, EXACT
from xlakit.data.literal import Literal
from xlakit.formats.hlo_text.literals import print_literal

_INDEX_TYPES = ("s32", "s64", "u32", "s8", "u8", "u64", "s16", "u16")


@family("broadcast", ALL_TYPES, 1.3)
def broadcast(draft: Draft, case: str) -> Program:
    """New dimensions anywhere; the mapping now and then in any order."""
    result = draft.dims(0, 5)
    kept = draft.subset(len(result))
    if draft.chance(0.2):
        kept = [kept[i] for i in draft.permutation(len(kept))]
    operand = draft.parameter(case, [result[d] for d in kept])
    draft.emit(draft.shape(case, result), f"broadcast({operand}), dimensions={{{join(kept)}}}")
    return draft.finish("broadcast", BITS, case)


@family("reshape", ALL_TYPES, 1.3)
def reshape(draft: Draft, case: str) -> Program:
    """The same elements under other sizes, dimensions of size 1 included."""
    dims = draft.dims()
    operand = draft.parameter(case, dims)
    draft.emit(draft.shape(case, regrouped(draft, math.prod(dims))), f"reshape({operand})")
    return draft.finish("reshape", BITS, case)


def regrouped(draft: Draft, count: int) -> list[int]:
    """Sizes whose product is ``count``."""
    if count == 0:
        return [*draft.integers(0, 4, draft.integer(0, 2)), 0]
    sizes: list[int] = []
    rest = count
    while rest > 1:
        divisors = [d for d in range(2, rest + 1) if rest % d == 0]
        size = draft.pick([divisors[0], draft.pick(divisors), divisors[-1]])
        sizes.append(size)
        rest //= size
    sizes += [1] * draft.integer(0, 2)
    return [sizes[i] for i in draft.permutation(len(sizes))]


@family("transpose", ALL_TYPES, 1.3)
def transpose(draft: Draft, case: str) -> Program:
    """Any permutation."""
    dims = draft.dims(0, 5)
    order = draft.permutation(len(dims))
    operand = draft.parameter(case, dims)
    draft.emit(draft.shape(case, [dims[i] for i in order]), f"transpose({operand}), dimensions={{{join(order)}}}")
    return draft.finish("transpose", BITS, case)


@family("reverse", ALL_TYPES, 1.2)
def reverse(draft: Draft, case: str) -> Program:
    """Any dimensions."""
    dims = draft.dims(0, 5)
    operand = draft.parameter(case, dims)
    call = f"reverse({operand}), dimensions={{{join(draft.subset(len(dims)))}}}"
    draft.emit(draft.shape(case, dims), call)
    return draft.finish("reverse", BITS, case)


@family("slice", ALL_TYPES, 1.3)
def slice_(draft: Draft, case: str) -> Program:
    """Any start, limit and stride; now and then nothing is left."""
    dims = draft.dims()
    result: list[int] = []
    ranges: list[str] = []
    for size in dims:
        start = draft.integer(0, size)
        limit = draft.integer(start, size) if draft.chance(0.2) else draft.integer(min(start + 1, size), size)
        stride = draft.pick([1, 1, 2, 3, 7])
        result.append(-(-(limit - start) // stride))
        ranges.append(f"[{start}:{limit}{f':{stride}' if stride > 1 else ''}]")
    operand = draft.parameter(case, dims)
    draft.emit(draft.shape(case, result), f"slice({operand}), slice={{{', '.join(ranges)}}}")
    return draft.finish("slice", BITS, case)


@family("pad", ALL_TYPES, 2)
def pad(draft: Draft, case: str) -> Program:
    """Padding at the edges, negative too, and between elements."""
    dims = draft.dims(1, 4, most=60)
    result: list[int] = []
    parts: list[str] = []
    for size in dims:
        interior = draft.pick([0, 0, 1, 2])
        inner = size + max(0, size - 1) * interior
        low = draft.integer(-min(inner, 2), 3)
        high = draft.integer(-min(inner + min(low, 0), 2), 3)
        if inner + low + high < 0:
            high = -low
        result.append(inner + low + high)
        parts.append(f"{low}_{high}" + (f"_{interior}" if interior else ""))
    operand, value = draft.parameter(case, dims), draft.parameter(case, [])
    draft.emit(draft.shape(case, result), f"pad({operand}, {value}), padding={'x'.join(parts)}")
    return draft.finish("pad", BITS, case)


@family("concatenate", ALL_TYPES, 1.3)
def concatenate(draft: Draft, case: str) -> Program:
    """One to four operands along any dimension; sizes of 0 among them."""
    dims = draft.dims(1, 4, most=60)
    along = draft.integer(0, len(dims) - 1)
    sizes = draft.integers(0, 5, draft.integer(1, 4))
    operands = [draft.parameter(case, [*dims[:along], size, *dims[along + 1 :]]) for size in sizes]
    result = [*dims[:along], sum(sizes), *dims[along + 1 :]]
    draft.emit(draft.shape(case, result), f"concatenate({', '.join(operands)}), dimensions={{{along}}}")
    return draft.finish("concatenate", BITS, case)


def _starts(draft: Draft, dims: Sequence[int], index: str) -> list[str]:
    """Scalar start indices, out of bounds on both sides among them."""
    return [draft.parameter(index, [], values=index_values(draft, index, [], size)) for size in dims]


def index_values(draft: Draft, kind: str, dims: Sequence[int], size: int) -> Array:
    """Indices into a dimension: most in range, some just outside of it, some far away."""
    near = draft.rng.integers(-2, size + 3, tuple(dims))
    inside = draft.rng.integers(0, max(size, 1), tuple(dims))
    values = np.where(draft.rng.random(tuple(dims)) < 0.7, inside, near)
    if kind[0] == "u":
        values = np.abs(values)
    array = np.asarray(values).astype(kind_dtype(kind))
    if draft.chance(0.15):
        far = make_values(draft.rng, kind, dims, "edges")
        array = np.asarray(np.where(draft.rng.random(tuple(dims)) < 0.3, far, array)).astype(array.dtype)
    return array


def kind_dtype(kind: str) -> np.dtype[np.generic]:
    """The dtype of an index type."""
    return np.dtype({"s": "int", "u": "uint"}[kind[0]] + kind[1:])


@family("dynamic-slice", ALL_TYPES, 2)
def dynamic_slice(draft: Draft, case: str) -> Program:
    """Starts of every index type, out of bounds too."""
    dims = draft.dims(1)
    sizes = [draft.integer(0 if draft.chance(0.1) else min(1, size), size) for size in dims]
    operand = draft.parameter(case, dims)
    starts = _starts(draft, dims, draft.pick(_INDEX_TYPES))
    call = f"dynamic-slice({', '.join([operand, *starts])}), dynamic_slice_sizes={{{join(sizes)}}}"
    draft.emit(draft.shape(case, sizes), call)
    return draft.finish("dynamic-slice", BITS, case)


@family("dynamic-update-slice", ALL_TYPES, 2)
def dynamic_update_slice(draft: Draft, case: str) -> Program:
    """Starts of every index type, out of bounds too."""
    dims = draft.dims()
    sizes = [draft.integer(0 if draft.chance(0.1) else min(1, size), size) for size in dims]
    operand, update = draft.parameter(case, dims), draft.parameter(case, sizes)
    starts = _starts(draft, dims, draft.pick(_INDEX_TYPES))
    draft.emit(draft.shape(case, dims), f"dynamic-update-slice({', '.join([operand, update, *starts])})")
    return draft.finish("dynamic-update-slice", BITS, case)


@family("iota", tuple(k for k in ALL_TYPES if k not in ("pred", "f8e8m0fnu")), 1.2)
def iota(draft: Draft, case: str) -> Program:
    """Any dimension; more elements than a narrow type can count."""
    dims = draft.dims(1, 4, most=300)
    along = draft.integer(0, len(dims) - 1)
    if draft.chance(0.2):
        dims = [300]
        along = 0
    draft.emit(draft.shape(case, dims), f"iota(), iota_dimension={along}")
    return draft.finish("iota", EXACT, case)


@family("constant", ALL_TYPES, 1.5)
def constant(draft: Draft, case: str) -> Program:
    """A literal in the text."""
    dims = draft.dims(0, 3, most=24)
    values = make_values(draft.rng, case, dims, draft.pick(["edges", "small"]))
    draft.emit(f"{case}[{join(dims)}]", f"constant({literal(values, case)})")
    return draft.finish("constant", EXACT, case)


def literal(values: Array, kind: str) -> str:
    """An array as HLO text has it."""
    if values.ndim:
        return "{" + ", ".join(literal(v, kind) for v in values) + "}"
    if kind in COMPLEX:
        return f"({_number(float(np.real(values)))}, {_number(float(np.imag(values)))})"
    if is_float(kind):
        return _number(float(values))
    return str(bool(values)).lower() if kind == "pred" else str(int(values))


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return repr(value)


@family("bitcast", ("f32 s32", "f32 f32", "bf16 u16", "f64 f64", "s8 u8", "u32 f32"), 0.6)
def bitcast(draft: Draft, case: str) -> Program:
    """Other dimensions or another type of the same width, in the default layout; jaxlib takes it in a fusion only."""
    source, target = case.split()
    dims = draft.dims(0, 4)
    result = draft.pick([dims, [math.prod(dims)], [1, *dims], [n for n in dims if n != 1]])
    shape, made = f"{source}[{join(dims)}]", f"{target}[{join(result)}]"
    operand = draft.parameter(source, dims, plain=True)
    called = draft.computation([f"x = {shape} parameter(0)", f"r = {made} bitcast(x)"])
    draft.emit(made, f"fusion({operand}), kind=kLoop, calls={called}")
    return draft.finish("bitcast", BITS, case)


@family("tuple", ("f32", "s4", "pred", "bf16"), 1.0)
def tuple_(draft: Draft, case: str) -> Program:
    """Nested tuples, the empty one among them."""
    shapes: list[str] = []
    names: list[str] = []
    for _ in range(draft.integer(0, 3)):
        dims = draft.dims(0, 2)
        names.append(draft.parameter(case, dims, plain=True))
        shapes.append(f"{case}[{join(dims)}]")
    inner = f"({', '.join(shapes)})"
    first = draft.emit(inner, f"tuple({', '.join(names)})")
    draft.emit(f"({', '.join([inner, *shapes])})", f"tuple({', '.join([first, *names])})")
    return draft.finish("tuple", EXACT, case)


@family("get-tuple-element", ("f32", "s4", "pred", "bf16"), 0.7)
def get_tuple_element(draft: Draft, case: str) -> Program:
    """An element of a tuple that an instruction makes."""
    count = draft.integer(1, 4)
    sizes = [draft.dims(0, 2) for _ in range(count)]
    names = [draft.parameter(case, dims, plain=True) for dims in sizes]
    shapes = [f"{case}[{join(dims)}]" for dims in sizes]
    whole = draft.emit(f"({', '.join(shapes)})", f"tuple({', '.join(names)})")
    index = draft.integer(0, count - 1)
    draft.emit(shapes[index], f"get-tuple-element({whole}), index={index}")
    return draft.finish("get-tuple-element", EXACT, case)


@family("shuffle", ("f32", "s8", "pred", "c64"), 0.6)
def shuffle(draft: Draft, case: str) -> Program:
    """Turned by shifts, or permuted by indices that hold for all of some dimensions; along any dimensions, or none."""
    dims = draft.dims(0, 3)
    operand = draft.parameter(case, dims, plain=True)
    moved = draft.subset(len(dims))
    call = f"shuffle({operand}), dimensions={{{join(moved)}}}"
    if draft.chance():
        call += f", mode=rotate, shifts={{{join(draft.integers(-5, 5, len(moved)))}}}"
    else:
        sizes = [1 if n and draft.chance(0.3) else n for n in dims]
        each = [draft.rng.integers(0, dims[d], sizes) if math.prod(sizes) else np.zeros(sizes, int) for d in moved]
        one = len(moved) == 1 and draft.chance()
        indices = each[0] if one else np.stack([*each], -1) if moved else np.zeros(sizes, int)
        call += (
            f", mode=permute, indices={print_literal(Literal.from_value(indices.astype(np.int32)), with_shape=True)}"
        )
    draft.emit(draft.shape(case, dims), call)
    return draft.finish("shuffle", BITS, case)


@family("opt-barrier", (*FLOATS, *NARROW_FLOATS, *INTEGERS), 0.5)
def opt_barrier(draft: Draft, case: str) -> Program:
    """The operand again."""
    dims = draft.dims()
    operand = draft.parameter(case, dims, plain=True)
    draft.emit(f"{case}[{join(dims)}]", f"opt-barrier({operand})")
    return draft.finish("opt-barrier", BITS, case)


@family("add-dependency", ("f32", "s32"), 0.4)
def add_dependency(draft: Draft, case: str) -> Program:
    """The operand after a token."""
    dims = draft.dims()
    operand = draft.parameter(case, dims, plain=True)
    token = draft.emit("token[]", "after-all()")
    both = draft.emit("token[]", f"after-all({token}, {token})")
    draft.emit(f"{case}[{join(dims)}]", f"add-dependency({operand}, {both})")
    return draft.finish("add-dependency", EXACT, case)


@family("domain", ("f32",), 0.2)
def domain(draft: Draft, case: str) -> Program:
    """The operand, across a change of sharding."""
    dims = draft.dims()
    operand = draft.parameter(case, dims, plain=True)
    kinds = 'kind="sharding", entry={maximal device=0}, exit={maximal device=0}'
    draft.emit(f"{case}[{join(dims)}]", f"domain({operand}), domain={{{kinds}}}")
    return draft.finish("domain", EXACT, case)
