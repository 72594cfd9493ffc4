"""Steps that move elements: broadcasts, reshapes, transposes, slices, pads, concatenations and reversals."""

from __future__ import annotations

import math

from fuzz.programs.composed.body import MOST_ELEMENTS, Body
from fuzz.programs.draft import Named, join

# Rows of so many elements are whole vectors.
WHOLE = (16, 32, 64, 128)


def broadcasts(body: Body) -> None:
    """A value along new dimensions."""
    value = body.pick(lambda v: len(v.dims) < 4)
    if value is None:
        return
    rank = len(value.dims)
    places = body.draft.subset(rank + body.draft.integer(1, 2), rank)
    total = max([rank + 1, *(p + 1 for p in places)])
    dims = [body.draft.integer(1, 6) for _ in range(total)]
    for place, size in zip(places, value.dims, strict=True):
        dims[place] = size
    if math.prod(dims) <= MOST_ELEMENTS:
        body.add(value.kind, dims, f"broadcast({value.name}), dimensions={{{join(places)}}}")


def reshapes(body: Body) -> None:
    """The same elements in up to four other dimensions."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    left, dims = math.prod(value.dims), []
    while left > 1 and len(dims) < 3:
        factor = body.draft.pick([f for f in range(1, left + 1) if left % f == 0])
        dims.append(factor)
        left //= factor
    dims.append(left)
    body.add(value.kind, dims, f"reshape({value.name})")


def transposes(body: Body) -> None:
    """Dimensions in another order."""
    value = body.pick(lambda v: len(v.dims) > 1)
    if value is not None:
        order = body.draft.permutation(len(value.dims))
        dims = [value.dims[d] for d in order]
        body.add(value.kind, dims, f"transpose({value.name}), dimensions={{{join(order)}}}")


def slices(body: Body) -> None:
    """A part of a value, with strides."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    ranges, dims = [], []
    for size in value.dims:
        start = body.draft.integer(0, max(0, size - 1)) if body.draft.chance(0.4) else 0
        stride = body.draft.pick([1, 1, 1, 2])
        ranges.append(f"[{start}:{size}:{stride}]")
        dims.append(-(-(size - start) // stride))
    body.add(value.kind, dims, f"slice({value.name}), slice={{{', '.join(ranges)}}}")


def pads(body: Body) -> None:
    """Margins, negative ones included, and elements in between."""
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred")
    if value is None:
        return
    fill = body.scalar(value.kind, 1)
    config, dims = [], []
    for size in value.dims:
        low, high, interior = body.draft.integer(-1, 2), body.draft.integer(0, 2), body.draft.pick([0, 0, 0, 1])
        low = max(low, 0) if size < 3 else low
        config.append(f"{low}_{high}_{interior}")
        dims.append(low + high + size + max(0, size - 1) * interior)
    if math.prod(dims) <= MOST_ELEMENTS:
        body.add(value.kind, dims, f"pad({value.name}, {fill.name}), padding={'x'.join(config)}")


def concatenations(body: Body) -> None:
    """Two values along a dimension."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    other = body.matching(value) if value.kind != "pred" else value
    axis = body.draft.integer(0, len(value.dims) - 1)
    dims = list(value.dims)
    dims[axis] *= 2
    if math.prod(dims) <= MOST_ELEMENTS:
        body.add(value.kind, dims, f"concatenate({value.name}, {other.name}), dimensions={{{axis}}}")


def reversals(body: Body) -> None:
    """Some dimensions backwards."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is not None:
        turned = body.draft.subset(len(value.dims))
        body.add(value.kind, value.dims, f"reverse({value.name}), dimensions={{{join(turned)}}}")


def iotas(body: Body) -> None:
    """Numbers along a dimension of a value."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is not None:
        kind = body.draft.pick(["s32", "f32", "u8", "s64"])
        body.add(kind, value.dims, f"iota(), iota_dimension={body.draft.integer(0, len(value.dims) - 1)}")


def masks(body: Body) -> None:
    """What is below a number that only the program knows, along some dimensions or all; 0 elsewhere."""
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred")
    end = body.pick(lambda v: v.kind == "s32" and not v.dims)
    if value is None or end is None:
        return
    zero = body.scalar(value.kind, 0)
    zeros = body.emit(value.shape, f"broadcast({zero.name}), dimensions={{}}")
    masked = value
    for axis in body.draft.subset(len(value.dims)):
        numbers = body.emit(f"s32[{join(value.dims)}]", f"iota(), iota_dimension={axis}")
        ends = body.emit(f"s32[{join(value.dims)}]", f"broadcast({end.name}), dimensions={{}}")
        mask = body.emit(f"pred[{join(value.dims)}]", f"compare({numbers}, {ends}), direction=LT")
        masked = body.add(value.kind, value.dims, f"select({mask}, {masked.name}, {zeros})")
    if masked is not value:
        body.results.append(masked)


def pieces(body: Body) -> None:
    """An array put together of pieces that are computed."""
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred" and v.dims[-1] in WHOLE)
    value = value or body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred")
    if value is None:
        return
    axis, count = body.draft.pick([0, 0, len(value.dims) - 1]), body.draft.integer(2, 4)
    dims = list(value.dims)
    dims[axis] *= count
    if math.prod(dims) > MOST_ELEMENTS:
        return
    opcode = "maximum" if value.is_float else body.draft.pick(["add", "xor", "maximum"])
    parts = [body.emit(value.shape, f"{opcode}({value.name}, {body.matching(value).name})") for _ in range(count - 1)]
    made = body.add(value.kind, dims, f"concatenate({', '.join([value.name, *parts])}), dimensions={{{axis}}}")
    body.results.append(made)


def divided_indices(body: Body) -> None:
    """Pieces, and arrays with a margin, of what is cut out and reshaped: outside of a part divided indices are wild."""
    parts: list[Named] = []
    for _ in range(body.draft.integer(1, 3)):
        value = body.pick(lambda v: v.kind != "pred" and len(v.dims) > 0 and (not parts or v.kind == parts[0].kind))
        part = None if value is None else _cut_out(body, value)
        if part is not None:
            parts.append(part)
    if not parts:
        return
    kind = parts[0].kind
    margin = [body.draft.integer(1, 7), body.draft.integer(0, 5)]
    size = sum(part.dims[0] for part in parts) + sum(margin)
    if size > MOST_ELEMENTS:
        return
    fill = body.scalar(kind, 1)
    if len(parts) == 1 and body.draft.chance():
        made = body.add(kind, [size], f"pad({parts[0].name}, {fill.name}), padding={margin[0]}_{margin[1]}")
    else:
        ends = [body.emit(f"{kind}[{n}]", f"broadcast({fill.name}), dimensions={{}}") for n in margin]
        names = [ends[0], *(part.name for part in parts), ends[1]]
        made = body.add(kind, [size], f"concatenate({', '.join(names)}), dimensions={{0}}")
    body.results.append(made)


def _cut_out(body: Body, value: Named) -> Named | None:
    """Rows without their ends in a row: their index is a quotient and a remainder; None for what has no elements."""
    if len(value.dims) == 1:
        dims = (value.dims[0], body.draft.integer(2, 5))
        value = Named(
            body.emit(f"{value.kind}[{join(dims)}]", f"broadcast({value.name}), dimensions={{0}}"), value.kind, dims
        )
    ranges, dims = [], []
    for place, extent in enumerate(value.dims):
        # Rows are left out at the end, so that whole vectors from any place in the others lie inside.
        rest = body.draft.integer(0, extent // 3) if place == 0 else body.draft.integer(0, 1)
        first = body.draft.integer(0, 2) if extent > rest + 3 else 0
        last = extent - rest if extent - rest > first else extent
        ranges.append(f"[{first}:{last}]")
        dims.append(last - first)
    count = math.prod(dims)
    if not 0 < count <= MOST_ELEMENTS // 4:
        return None
    part = body.emit(f"{value.kind}[{join(dims)}]", f"slice({value.name}), slice={{{', '.join(ranges)}}}")
    return Named(body.emit(f"{value.kind}[{count}]", f"reshape({part})"), value.kind, (count,))
