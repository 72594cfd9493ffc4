"""Forms of loops that move numbers: orders, margins, pieces, strides, and places that the program computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fuzz.programs.draft import Draft, Named, join
from fuzz.programs.forms.elements import converted
from fuzz.programs.values import INTEGERS, bits_of, dtype_of, is_complex, is_float

_MOST_ELEMENTS = 20_000


def _zero(kind: str) -> str:
    return "false" if kind == "pred" else "(0, 0)" if is_complex(kind) else "0"


def transpose(draft: Draft, value: Named) -> Named:
    """Dimensions in another order."""
    order = draft.permutation(len(value.dims))
    dims = tuple(value.dims[d] for d in order)
    call = f"transpose({value.name}), dimensions={{{join(order)}}}"
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", call), value.kind, dims)


def reverse(draft: Draft, value: Named) -> Named:
    """Some dimensions backwards."""
    turned = draft.subset(len(value.dims)) or [len(value.dims) - 1]
    return Named(
        draft.emit(value.shape, f"reverse({value.name}), dimensions={{{join(turned)}}}"), value.kind, value.dims
    )


def cut(draft: Draft, value: Named) -> Named:
    """A part, with strides."""
    ranges, dims = [], []
    for size in value.dims:
        first = draft.integer(0, min(3, size - 1)) if draft.chance(0.6) else 0
        end = size - draft.integer(0, min(2, size - 1 - first))
        stride = draft.pick([1, 1, 2, 3, 4])
        ranges.append(f"[{first}:{end}:{stride}]")
        dims.append(-(-(end - first) // stride))
    call = f"slice({value.name}), slice={{{', '.join(ranges)}}}"
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", call), value.kind, tuple(dims))


def pad(draft: Draft, value: Named) -> Named:
    """Margins, which may be negative, and elements in between."""
    number = _zero(value.kind)
    if value.kind != "pred" and not is_complex(value.kind):
        number = draft.pick(["0", "1"])
    fill = draft.emit(f"{value.kind}[]", f"constant({number})")
    config, dims = [], []
    for size in value.dims:
        low, high = draft.pick([0, 1, 2, 5, -1]), draft.pick([0, 1, 3, -1])
        inside = draft.pick([0, 0, 0, 1, 2])
        low, high = (max(low, 0), max(high, 0)) if size < 3 else (low, high)
        config.append(f"{low}_{high}_{inside}")
        dims.append(low + high + size + (size - 1) * inside)
    if math.prod(dims) > _MOST_ELEMENTS:
        return value
    call = f"pad({value.name}, {fill}), padding={'x'.join(config)}"
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", call), value.kind, tuple(dims))


def join_pieces(draft: Draft, value: Named) -> Named:
    """Pieces of different sizes along a dimension, one of them computed."""
    axis = draft.integer(0, len(value.dims) - 1)
    opcode = "not" if value.kind == "pred" or value.kind in INTEGERS else "negate"
    names, total = [value.name], value.dims[axis]
    for _ in range(draft.integer(1, 3)):
        size = draft.integer(1, value.dims[axis])
        ranges = ", ".join(f"[0:{size if d == axis else n}]" for d, n in enumerate(value.dims))
        shape = f"{value.kind}[{join([size if d == axis else n for d, n in enumerate(value.dims)])}]"
        part = draft.emit(shape, f"slice({value.name}), slice={{{ranges}}}")
        names.append(draft.emit(shape, f"{opcode}({part})") if draft.chance() else part)
        total += size
    dims = tuple(total if d == axis else n for d, n in enumerate(value.dims))
    if math.prod(dims) > _MOST_ELEMENTS:
        return value
    names = [names[i] for i in draft.permutation(len(names))]
    call = f"concatenate({', '.join(names)}), dimensions={{{axis}}}"
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", call), value.kind, dims)


def reshape(draft: Draft, value: Named) -> Named:
    """The same elements in other dimensions."""
    left, dims = math.prod(value.dims), []
    while left > 1 and len(dims) < 3:
        factor = draft.pick([f for f in range(1, left + 1) if left % f == 0])
        dims.append(factor)
        left //= factor
    dims.append(left)
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", f"reshape({value.name})"), value.kind, tuple(dims))


def _places(draft: Draft, dims: tuple[int, ...], bound: int) -> str:
    """S32 numbers from a bit below 0 to a bit above a bound."""
    kind = draft.pick(["s32", "s32", "s8", "s64", "u8"])
    low, high = (0 if kind[0] == "u" else -2), min(bound + 1, 120)
    values = draft.rng.integers(low, high + 1, dims)
    name = draft.parameter(kind, dims, values=np.asarray(values).astype(dtype_of(kind)))
    return converted(draft, Named(name, kind, dims), "s32").name if kind != "s32" else name


def dynamic_part(draft: Draft, value: Named) -> Named:
    """A part at a computed place, or the value with such a part overwritten."""
    sizes = [draft.integer(1, size) for size in value.dims]
    starts = ", ".join(_start(draft, size) for size in value.dims)
    call = f"dynamic-slice({value.name}, {starts}), dynamic_slice_sizes={{{join(sizes)}}}"
    part = Named(draft.emit(f"{value.kind}[{join(sizes)}]", call), value.kind, tuple(sizes))
    if draft.chance():
        return part
    starts = ", ".join(_start(draft, size) for size in value.dims)
    call = f"dynamic-update-slice({value.name}, {part.name}, {starts})"
    return Named(draft.emit(value.shape, call), value.kind, value.dims)


def _start(draft: Draft, size: int) -> str:
    value = np.asarray(draft.integer(-1, size), np.int32)
    return draft.parameter("s32", [], values=value)


def gather(draft: Draft, value: Named) -> Named:
    """Slices of one dimension at computed places."""
    axis = draft.integer(0, len(value.dims) - 1)
    count = draft.pick([1, 3, 7, 17, 33])
    rest = [d for d in range(len(value.dims)) if d != axis]
    place = draft.integer(0, len(rest))
    dims = [value.dims[d] for d in rest]
    dims.insert(place, count)
    if math.prod(dims) > _MOST_ELEMENTS:
        return value
    indices = _places(draft, (count,), value.dims[axis])
    offsets = [d for d in range(len(dims)) if d != place]
    sizes = [1 if d == axis else n for d, n in enumerate(value.dims)]
    call = (
        f"gather({value.name}, {indices}), offset_dims={{{join(offsets)}}}, collapsed_slice_dims={{{axis}}}, "
        f"start_index_map={{{axis}}}, index_vector_dim=1, slice_sizes={{{join(sizes)}}}"
    )
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", call), value.kind, tuple(dims))


def scatter(draft: Draft, value: Named) -> Named:
    """Slices of one dimension overwritten or combined at computed places."""
    axis = draft.integer(0, len(value.dims) - 1)
    count = draft.pick([1, 3, 7, 17])
    indices = _places(draft, (count,), value.dims[axis])
    rest = [d for d in range(len(value.dims)) if d != axis]
    dims = [count, *(value.dims[d] for d in rest)]
    if math.prod(dims) > _MOST_ELEMENTS:
        return value
    row = gather_rows(draft, value, axis, dims)
    opcode = "xor" if value.kind == "pred" else "add" if value.kind in INTEGERS or is_complex(value.kind) else "maximum"
    if is_complex(value.kind):
        return value
    call = (
        f"scatter({value.name}, {indices}, {row}), update_window_dims={{{join(range(1, len(dims)))}}}, "
        f"inserted_window_dims={{{axis}}}, scatter_dims_to_operand_dims={{{axis}}}, index_vector_dim=1, "
        f"to_apply={draft.reducer(opcode, value.kind)}"
    )
    return Named(draft.emit(value.shape, call), value.kind, value.dims)


def gather_rows(draft: Draft, value: Named, axis: int, dims: list[int], first: int = 0) -> str:
    """So many copies of a slice along a dimension, before the others."""
    ranges = ", ".join(f"[{first}:{first + 1}]" if d == axis else f"[0:{n}]" for d, n in enumerate(value.dims))
    ones = [1 if d == axis else n for d, n in enumerate(value.dims)]
    part = draft.emit(f"{value.kind}[{join(ones)}]", f"slice({value.name}), slice={{{ranges}}}")
    flat = draft.emit(f"{value.kind}[{join(dims[1:])}]", f"reshape({part})")
    return draft.emit(f"{value.kind}[{join(dims)}]", f"broadcast({flat}), dimensions={{{join(range(1, len(dims)))}}}")


def chosen_row(draft: Draft, value: Named) -> Named:
    """A slice of one dimension written at a computed place, or not, by a computed condition; or one of two slices."""
    axis = draft.integer(0, len(value.dims) - 1)
    rest = [n for d, n in enumerate(value.dims) if d != axis]
    place = draft.parameter("s32", [1], values=np.asarray([draft.integer(-2, value.dims[axis])], np.int32))
    opcode = draft.pick(["", "", "xor" if value.kind == "pred" else "add" if value.kind in INTEGERS else ""])
    kind = value.kind
    called = (
        draft.reducer(opcode, kind)
        if opcode
        else draft.computation([f"x = {kind}[] parameter(0)", f"r = {kind}[] parameter(1)"])
    )
    made: list[str] = []
    for _ in range(draft.pick([1, 1, 2])):
        row = gather_rows(draft, value, axis, [1, *rest], draft.integer(0, value.dims[axis] - 1))
        flipped = draft.emit(
            f"{kind}[{join([1, *rest])}]", f"{'not' if kind == 'pred' or kind in INTEGERS else 'negate'}({row})"
        )
        made.append(
            draft.emit(
                value.shape,
                f"scatter({value.name}, {place}, {flipped}), update_window_dims={{{join(range(1, len(value.dims)))}}}, "
                f"inserted_window_dims={{{axis}}}, scatter_dims_to_operand_dims={{{axis}}}, index_vector_dim=1, "
                f"to_apply={called}",
            )
        )
    both = [*made, value.name][:2]
    both = [both[i] for i in draft.permutation(2)]
    # Mostly a single slice is not written.
    condition = draft.parameter("pred", [], values=np.asarray((both[0] == value.name) == draft.chance(0.7)))
    wide = draft.emit(f"pred[{join(value.dims)}]", f"broadcast({condition}), dimensions={{}}")
    return Named(draft.emit(value.shape, f"select({wide}, {both[0]}, {both[1]})"), kind, value.dims)


def spread(draft: Draft, value: Named) -> Named:
    """Numbers between the numbers of each row, and at its ends."""
    fill = draft.emit(f"{value.kind}[]", f"constant({_zero(value.kind)})")
    low, high, inside = draft.integer(0, 3), draft.integer(0, 3), draft.pick([1, 1, 2, 3])
    size = value.dims[-1]
    dims = (*value.dims[:-1], low + high + size + (size - 1) * inside)
    if math.prod(dims) > _MOST_ELEMENTS:
        return value
    config = "x".join([*["0_0"] * (len(dims) - 1), f"{low}_{high}_{inside}"])
    # By itself it has a loop of its own.
    operand = draft.emit(value.shape, f"opt-barrier({value.name})") if draft.chance() else value.name
    return Named(
        draft.emit(f"{value.kind}[{join(dims)}]", f"pad({operand}, {fill}), padding={config}"), value.kind, dims
    )


def take_along(draft: Draft, value: Named) -> Named:
    """From each row, numbers at places of its own."""
    count = draft.pick([1, 3, 7, 17, value.dims[-1]])
    dims = (*value.dims[:-1], count)
    if math.prod(dims) > _MOST_ELEMENTS:
        return value
    outer = join(range(len(dims) - 1))
    indices = _places(draft, (*dims, 1), value.dims[-1])
    call = (
        f"gather({value.name}, {indices}), offset_dims={{}}, collapsed_slice_dims={{{len(dims) - 1}}}, "
        f"operand_batching_dims={{{outer}}}, start_indices_batching_dims={{{outer}}}, "
        f"start_index_map={{{len(dims) - 1}}}, index_vector_dim={len(dims)}, slice_sizes={{{join([1] * len(dims))}}}"
    )
    return Named(draft.emit(f"{value.kind}[{join(dims)}]", call), value.kind, dims)


def rebits(draft: Draft, value: Named) -> Named:
    """The bits of each number as several narrower ones, or those of each row as one wider number."""
    if value.kind == "pred" or is_complex(value.kind) or is_float(value.kind) or bits_of(value.kind) < 8:
        value = converted(draft, value, draft.pick(["s8", "u16", "s32", "u64"]))
    bits = bits_of(value.kind)
    wide = [b for b in (8, 16, 32, 64) if b > bits and b // bits == value.dims[-1]]
    if wide:
        kind, dims = f"{draft.pick('su')}{wide[0]}", value.dims[:-1]
    elif bits > 8:
        narrow = draft.pick([b for b in (8, 16, 32) if b < bits])
        kind, dims = f"{draft.pick('su')}{narrow}", (*value.dims, bits // narrow)
    else:
        return value
    if math.prod(dims) > 4 * _MOST_ELEMENTS:
        return value
    return Named(draft.emit(f"{kind}[{join(dims)}]", f"bitcast-convert({value.name})"), kind, dims)


def beside_known(draft: Draft, value: Named) -> Named:
    """Computed with an array that the program knows, in a computation of its own."""
    if value.kind not in INTEGERS or bits_of(value.kind) < 8:
        value = converted(draft, value, draft.pick(["s8", "s32", "u16", "u8"]))
    size = value.dims[-1]
    numbers = ", ".join(str(draft.integer(0, 9)) for _ in range(size))
    known = draft.emit(f"{value.kind}[{size}]", f"constant({{{numbers}}})")
    wide = draft.emit(value.shape, f"broadcast({known}), dimensions={{{len(value.dims) - 1}}}")
    called = draft.computation(
        [
            f"x = {value.kind}[] parameter(0)",
            f"y = {value.kind}[] parameter(1)",
            f"m = {value.kind}[] multiply(x, y)",
            f"r = {value.kind}[] {draft.pick(['subtract', 'xor', 'maximum'])}(m, x)",
        ]
    )
    call = f"map({value.name}, {wide}), dimensions={{{join(range(len(value.dims)))}}}, to_apply={called}"
    return Named(draft.emit(value.shape, call), value.kind, value.dims)


def sort(draft: Draft, value: Named) -> Named:
    """A dimension in order, with places beside it."""
    if is_complex(value.kind) or value.kind == "pred":
        value = converted(draft, value, draft.pick(["s8", "f32", "u16", "bf16"]))
    axis = draft.integer(0, len(value.dims) - 1)
    places = draft.emit(f"s32[{join(value.dims)}]", f"iota(), iota_dimension={axis}")
    order = draft.pick(["LT", "GT"])
    total = ", type=TOTALORDER" if value.kind not in INTEGERS else ""
    called = draft.computation(
        [
            f"x = {value.kind}[] parameter(0)",
            f"y = {value.kind}[] parameter(1)",
            "i = s32[] parameter(2)",
            "j = s32[] parameter(3)",
            f"r = pred[] compare(x, y), direction={order}{total}",
        ]
    )
    shapes = f"({value.shape}, s32[{join(value.dims)}])"
    both = draft.emit(shapes, f"sort({value.name}, {places}), dimensions={{{axis}}}, is_stable=true, to_apply={called}")
    part = draft.integer(0, 1)
    kind = "s32" if part else value.kind
    made = draft.emit(f"{kind}[{join(value.dims)}]", f"get-tuple-element({both}), index={part}")
    return Named(made, kind, value.dims)


def product(draft: Draft, value: Named) -> Named:
    """A product with itself along a dimension, in a type that holds the sums."""
    if value.kind == "pred" or value.kind not in (*INTEGERS, "f32", "f64", "c64"):
        value = converted(draft, value, draft.pick(["s8", "s32", "f32", "u16", "s4"]))
    axis = draft.integer(0, len(value.dims) - 1)
    kept = [n for d, n in enumerate(value.dims) if d != axis]
    dims = (*kept, *kept)
    if math.prod(dims) * value.dims[axis] > 200_000 or len(dims) > 4:
        return value
    contract = f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{{axis}}}"
    return Named(
        draft.emit(f"{value.kind}[{join(dims)}]", f"dot({value.name}, {value.name}), {contract}"), value.kind, dims
    )


# Those that compute nothing, so that NaNs keep their bits.
ONLY_MOVES: tuple[Callable[[Draft, Named], Named], ...] = (
    transpose, reverse, cut, pad, reshape, dynamic_part, gather, spread, take_along,
)  # fmt: skip

MOVES: tuple[Callable[[Draft, Named], Named], ...] = (
    transpose, transpose, reverse, cut, pad, pad, join_pieces, join_pieces, reshape, dynamic_part, gather, gather,
    scatter, chosen_row, chosen_row, sort, product, spread, take_along, rebits, beside_known,
)  # fmt: skip
