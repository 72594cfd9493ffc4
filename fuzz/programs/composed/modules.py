"""Modules of many operations: element-wise chains, movement, reductions, products, loops and conditionals, mixed.

Floats go through continuous functions alone, and what decides (comparisons, indices, predicates) is made of integers,
so that a small difference in rounding stays small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fuzz.programs.draft import Draft, Named, Program, join
from fuzz.programs.values import SMALL
from fuzz.support.tolerances import EXACT

_FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
_INTEGERS = ("s32", "s32", "u32", "s8", "s64", "u8", "s16", "u64", "s4", "u4")
_OF_FLOATS = ("tanh", "negate", "abs", "sine", "cosine", "logistic")
_OF_TWO_FLOATS = ("add", "subtract", "multiply", "maximum", "minimum")
_OF_INTEGERS = ("negate", "not", "abs", "popcnt", "count-leading-zeros", "sign")
_OF_TWO_INTEGERS = (
    "add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "divide", "remainder",
    "shift-left", "shift-right-logical", "shift-right-arithmetic",
)  # fmt: skip
_MOST_ELEMENTS = 4096
# Rows of so many elements are whole vectors.
_WHOLE = (16, 32, 64, 128)


class Body:
    """The instructions of one computation in the making."""

    def __init__(
        self,
        draft: Draft,
        emit: Callable[[str, str], str],
        values: list[Named],
        prefix: str,
        steps: Sequence[Callable[[Body], None]],
    ) -> None:
        self.draft = draft
        self.emit = emit
        self.values = values
        self.prefix = prefix
        self.steps = steps
        # What becomes a result in any case.
        self.results: list[Named] = []

    def add(self, kind: str, dims: Sequence[int], call: str) -> Named:
        """An instruction; its value may be used from here on."""
        made = Named(self.emit(f"{kind}[{join(dims)}]", call), kind, tuple(dims))
        self.values.append(made)
        return made

    def pick(self, test: Callable[[Named], bool] = lambda _: True) -> Named | None:
        """One of the values that pass a test, later ones more often."""
        found = [v for v in self.values if test(v)]
        if not found:
            return None
        return found[-1 - min(len(found) - 1, int(self.draft.rng.exponential(4)))]

    def step(self) -> None:
        """One more operation, or none where what was drawn does not fit."""
        maker = self.draft.pick(self.steps)
        maker(self)

    def scalar(self, kind: str, number: int) -> Named:
        """A constant."""
        return self.add(kind, (), f"constant({number})")

    def matching(self, value: Named) -> Named:
        """Another value of the same type and dimensions, made for it where there is none."""
        found = self.pick(lambda v: v.kind == value.kind and v.dims == value.dims and v is not value)
        if found is not None and self.draft.chance(0.8):
            return found
        if value.dims and self.draft.chance():
            scalar = self.scalar(value.kind, self.draft.integer(0 if value.kind[0] == "u" else -1, 2))
            return self.add(value.kind, value.dims, f"broadcast({scalar.name}), dimensions={{}}")
        return value


def _unary(body: Body) -> None:
    value = body.pick(lambda v: v.kind != "pred")
    if value is not None:
        opcode = body.draft.pick(_OF_FLOATS if value.is_float else _OF_INTEGERS)
        if value.kind[0] == "u" and opcode in ("abs", "sign", "negate"):
            opcode = "not"
        body.add(value.kind, value.dims, f"{opcode}({value.name})")


def _binary(body: Body) -> None:
    value = body.pick(lambda v: v.kind != "pred")
    if value is None:
        return
    other = body.matching(value)
    opcode = body.draft.pick(_OF_TWO_FLOATS if value.is_float else _OF_TWO_INTEGERS)
    made = body.add(value.kind, value.dims, f"{opcode}({value.name}, {other.name})")
    if value.is_float and opcode in ("add", "subtract", "multiply") and body.draft.chance(0.3):
        body.add(value.kind, value.dims, f"tanh({made.name})")


def _select(body: Body) -> None:
    value = body.pick(lambda v: v.kind[0] in "su" and len(v.kind) > 1)
    if value is None:
        return
    other = body.matching(value)
    direction = body.draft.pick(["LT", "GE", "EQ", "NE"])
    mask = body.add("pred", value.dims, f"compare({value.name}, {other.name}), direction={direction}")
    chosen = body.pick(lambda v: v.dims == value.dims and v.kind != "pred") or value
    against = body.matching(chosen)
    body.add(chosen.kind, chosen.dims, f"select({mask.name}, {chosen.name}, {against.name})")


def _convert(body: Body) -> None:
    value = body.pick()
    if value is None:
        return
    kinds = _FLOATS if value.is_float else (*_INTEGERS, "f32", "f64")
    kind = body.draft.pick(kinds)
    made = body.add(kind, value.dims, f"convert({value.name})")
    if made.is_float and not value.is_float:
        body.add(kind, value.dims, f"sine({made.name})")


def _broadcast(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) < 4)
    if value is None:
        return
    rank = len(value.dims)
    places = body.draft.subset(rank + body.draft.integer(1, 2), rank)
    total = max([rank + 1, *(p + 1 for p in places)])
    dims = [body.draft.integer(1, 6) for _ in range(total)]
    for place, size in zip(places, value.dims, strict=True):
        dims[place] = size
    if math.prod(dims) <= _MOST_ELEMENTS:
        body.add(value.kind, dims, f"broadcast({value.name}), dimensions={{{join(places)}}}")


def _reshape(body: Body) -> None:
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


def _transpose(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 1)
    if value is not None:
        order = body.draft.permutation(len(value.dims))
        dims = [value.dims[d] for d in order]
        body.add(value.kind, dims, f"transpose({value.name}), dimensions={{{join(order)}}}")


def _slice(body: Body) -> None:
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


def _pad(body: Body) -> None:
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
    if math.prod(dims) <= _MOST_ELEMENTS:
        body.add(value.kind, dims, f"pad({value.name}, {fill.name}), padding={'x'.join(config)}")


def _concatenate(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    other = body.matching(value) if value.kind != "pred" else value
    axis = body.draft.integer(0, len(value.dims) - 1)
    dims = list(value.dims)
    dims[axis] *= 2
    if math.prod(dims) <= _MOST_ELEMENTS:
        body.add(value.kind, dims, f"concatenate({value.name}, {other.name}), dimensions={{{axis}}}")


def _reverse(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is not None:
        turned = body.draft.subset(len(value.dims))
        body.add(value.kind, value.dims, f"reverse({value.name}), dimensions={{{join(turned)}}}")


def _iota(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is not None:
        kind = body.draft.pick(["s32", "f32", "u8", "s64"])
        body.add(kind, value.dims, f"iota(), iota_dimension={body.draft.integer(0, len(value.dims) - 1)}")


def _reduce(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred")
    if value is None:
        return
    over = body.draft.subset(len(value.dims)) or [len(value.dims) - 1]
    opcode = body.draft.pick(["add", "add", "maximum", "minimum"])
    initial = body.scalar(value.kind, body.draft.pick([0, 0, 1]))
    dims = [size for d, size in enumerate(value.dims) if d not in over]
    reducer = body.draft.reducer(opcode, value.kind)
    call = f"reduce({value.name}, {initial.name}), dimensions={{{join(over)}}}, to_apply={reducer}"
    made = body.add(value.kind, dims, call)
    if value.is_float and opcode == "add":
        made = body.add(value.kind, dims, f"tanh({made.name})")
    elif value.kind in ("s4", "u4"):  # bits above the range, which results in memory do not have
        body.add("s32", dims, f"convert({made.name})")
    if body.draft.chance(0.4):
        kept = [d for d in range(len(value.dims)) if d not in over]
        spread = body.add(value.kind, value.dims, f"broadcast({made.name}), dimensions={{{join(kept)}}}")
        body.add(value.kind, value.dims, f"subtract({value.name}, {spread.name})")


def _dot(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred" and math.prod(v.dims) > 0)
    if value is None:
        return
    other = body.pick(lambda v: v.kind == value.kind and v.dims == value.dims) or value
    axis = body.draft.integer(0, len(value.dims) - 1)
    kept = [size for d, size in enumerate(value.dims) if d != axis]
    dims = [*kept, *kept]
    if math.prod(dims) > _MOST_ELEMENTS or len(dims) > 4:
        return
    contract = f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{{axis}}}"
    made = body.add(value.kind, dims, f"dot({value.name}, {other.name}), {contract}")
    if value.is_float:
        body.add(value.kind, dims, f"tanh({made.name})")


def _dynamic(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    index = body.pick(lambda v: v.kind == "s32" and not v.dims) or body.scalar("s32", 1)
    sizes = [body.draft.integer(1, max(1, size)) for size in value.dims]
    if 0 in value.dims:
        return
    starts = ", ".join([index.name] * len(sizes))
    part = body.add(value.kind, sizes, f"dynamic-slice({value.name}, {starts}), dynamic_slice_sizes={{{join(sizes)}}}")
    if body.draft.chance():
        body.add(value.kind, value.dims, f"dynamic-update-slice({value.name}, {part.name}, {starts})")


def _gather(body: Body) -> None:
    value = body.pick(lambda v: len(v.dims) == 2 and 0 not in v.dims)
    indices = body.pick(lambda v: v.kind == "s32" and len(v.dims) == 1)
    if value is None or indices is None:
        return
    rows, columns = value.dims
    del rows
    dims = [indices.dims[0], columns]
    if math.prod(dims) <= _MOST_ELEMENTS:
        body.add(
            value.kind,
            dims,
            f"gather({value.name}, {indices.name}), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
            f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{columns}}}",
        )


def _only_for_it(body: Body, value: Named) -> Named:
    """A value that no other instruction takes by chance."""
    shape = f"{value.kind}[{join(value.dims)}]"
    return Named(body.emit(shape, f"negate({value.name})"), value.kind, value.dims)


def _while(body: Body) -> None:
    draft = body.draft
    if body.prefix.count("w") > 1:
        return
    carried = [v for v in (body.pick(lambda v: v.kind != "pred") for _ in range(draft.integer(1, 3))) if v]
    # Some begin with what has no other reader; and one value may begin several elements.
    carried = [_only_for_it(body, v) if draft.chance() else v for v in carried]
    carried += [draft.pick(carried) for _ in range(draft.integer(0, 2)) if carried]
    shapes = ["s32[]", *(f"{v.kind}[{join(v.dims)}]" for v in carried)]
    state = f"({', '.join(shapes)})"
    lines = [f"p = {state} parameter(0)"]
    lines += [f"g{i} = {s} get-tuple-element(p), index={i}" for i, s in enumerate(shapes)]
    inner = Body(draft, _into(lines, "b"), [Named("g0", "s32", ())], body.prefix + "w", body.steps)
    inner.values += [Named(f"g{i + 1}", v.kind, v.dims) for i, v in enumerate(carried)]
    for _ in range(draft.integer(1, 5)):
        inner.step()
    results = []
    for i, v in enumerate(carried):
        same = [w for w in inner.values if w.kind == v.kind and w.dims == v.dims]
        chosen = draft.pick(same[-2:]) if draft.chance(0.7) else Named(f"g{i + 1}", v.kind, v.dims)
        if chosen.name != f"g{i + 1}" and draft.chance():
            # What the loop was given is read late, too.
            others = [w for w in inner.values if w.name.startswith("g") and w.kind == v.kind and w.dims == v.dims]
            chosen = inner.add(v.kind, v.dims, f"minimum({chosen.name}, {draft.pick(others).name})")
        results.append(chosen.name)
    one = inner.scalar("s32", 1)
    count = inner.add("s32", (), f"add(g0, {one.name})")
    lines.append(f"r = {state} tuple({', '.join([count.name, *results])})")
    loop = draft.computation(lines)
    limit = draft.pick([draft.integer(0, 5), *[draft.integer(9, 40)] * 2])
    test = draft.computation(
        [
            f"p = {state} parameter(0)",
            "i = s32[] get-tuple-element(p), index=0",
            f"n = s32[] constant({limit})",
            "r = pred[] compare(i, n), direction=LT",
        ]
    )
    zero = body.scalar("s32", 0)
    start = body.emit(state, f"tuple({', '.join([zero.name, *(v.name for v in carried)])})")
    end = body.emit(state, f"while({start}), condition={test}, body={loop}")
    for i, v in enumerate(carried):
        if not i or draft.chance(0.7):
            body.add(v.kind, v.dims, f"get-tuple-element({end}), index={i + 1}")


def _conditional(body: Body) -> None:
    draft = body.draft
    value = body.pick(lambda v: v.kind != "pred")
    index = body.pick(lambda v: v.kind == "s32" and not v.dims)
    if value is None or index is None or len(body.prefix) > 2:
        return
    shape = f"{value.kind}[{join(value.dims)}]"
    branches = []
    for _ in range(draft.integer(1, 3)):
        lines = [f"p = {shape} parameter(0)"]
        inner = Body(draft, _into(lines, "b"), [Named("p", value.kind, value.dims)], body.prefix + "c", body.steps)
        for _ in range(draft.integer(0, 3)):
            inner.step()
        same = [v for v in inner.values if v.kind == value.kind and v.dims == value.dims]
        lines.append(f"r = {shape} copy({same[-1].name})")
        branches.append(draft.computation(lines))
    given = ", ".join([value.name] * len(branches))
    body.add(
        value.kind,
        value.dims,
        f"conditional({index.name}, {given}), branch_computations={{{join(branches)}}}",
    )


def _complex(body: Body) -> None:
    """Complex numbers on the way, or the parts of a real one."""
    value = body.pick(lambda v: v.is_float)
    if value is None:
        return
    part = body.draft.pick(["real", "imag"])
    if value.kind not in ("f32", "f64") or body.draft.chance(0.3):
        zero = body.add(value.kind, value.dims, f"imag({value.name})")
        body.add(value.kind, value.dims, f"add({zero.name}, {body.matching(value).name})")
        return
    shape = f"{'c64' if value.kind == 'f32' else 'c128'}[{join(value.dims)}]"
    one, other = (body.emit(shape, f"complex({value.name}, {body.matching(value).name})") for _ in range(2))
    made = body.emit(shape, f"{body.draft.pick(['multiply', 'add', 'subtract'])}({one}, {other})")
    found = body.add(value.kind, value.dims, f"{part}({made})")
    body.add(value.kind, value.dims, f"tanh({found.name})")


def _pieces(body: Body) -> None:
    """An array put together of pieces that are computed."""
    value = body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred" and v.dims[-1] in _WHOLE)
    value = value or body.pick(lambda v: len(v.dims) > 0 and v.kind != "pred")
    if value is None:
        return
    axis, count = body.draft.pick([0, 0, len(value.dims) - 1]), body.draft.integer(2, 4)
    dims = list(value.dims)
    dims[axis] *= count
    if math.prod(dims) > _MOST_ELEMENTS:
        return
    opcode = "maximum" if value.is_float else body.draft.pick(["add", "xor", "maximum"])
    parts = [body.emit(value.shape, f"{opcode}({value.name}, {body.matching(value).name})") for _ in range(count - 1)]
    made = body.add(value.kind, dims, f"concatenate({', '.join([value.name, *parts])}), dimensions={{{axis}}}")
    body.results.append(made)


def _divided(body: Body) -> None:
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
    if size > _MOST_ELEMENTS:
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
    if not 0 < count <= _MOST_ELEMENTS // 4:
        return None
    part = body.emit(f"{value.kind}[{join(dims)}]", f"slice({value.name}), slice={{{', '.join(ranges)}}}")
    return Named(body.emit(f"{value.kind}[{count}]", f"reshape({part})"), value.kind, (count,))


def _into(lines: list[str], stem: str) -> Callable[[str, str], str]:
    def emit(shape: str, call: str) -> str:
        name = f"{stem}{len(lines)}"
        lines.append(f"{name} = {shape} {call}")
        return name

    return emit


_STEPS: tuple[Callable[[Body], None], ...] = (
    _unary, _unary, _binary, _binary, _binary, _binary, _select, _convert, _broadcast, _broadcast, _reshape,
    _transpose, _slice, _pad, _concatenate, _reverse, _iota, _reduce, _reduce, _reduce, _dot, _dynamic, _gather,
    _while, _while, _while, _conditional,
)  # fmt: skip


# What there is in wide modules besides.
_MORE = (_complex, _complex, _pieces, _pieces, _pieces, _divided, _divided)
# What moves elements, several of which stand in one index.
_MOVES = (
    _unary, _binary, _binary, _select, _broadcast, _reshape, _transpose, _slice, _pad, _concatenate, _reverse, _pieces,
    _divided, _divided, _divided, _divided, _divided, _divided,
)  # fmt: skip


def _dims(draft: Draft, *, wide: bool) -> list[int]:
    dims = draft.dims(0, 3, most=600, empty=0.03)
    if wide and dims and draft.chance(0.6):
        # Whole vectors, as many as there are in arrays of any size.
        dims[-1] = draft.pick(_WHOLE)
        while math.prod(dims) > _MOST_ELEMENTS // 4:
            largest = dims.index(max(dims[:-1]))
            dims[largest] //= 2
    return dims


def module(
    seed: int,
    number: int,
    *,
    wide: bool = False,
    moves: bool = False,
    more: Sequence[Callable[[Body], None]] = (),
) -> Program:
    """Module ``number`` of a seed: its text and its arguments.

    wide: with rows of whole vectors, pieces and complex numbers, for what has ways of its own for large arrays.
    moves: of what moves elements, in few steps, for indices that are divided and chosen.
    more: further steps.
    """
    draft = Draft(np.random.default_rng([seed, number]))
    steps = _MOVES if moves else (*_STEPS, *_MORE) if wide else _STEPS
    body = Body(draft, draft.emit, [], "", (*steps, *more))
    for _ in range(draft.integer(1, 4)):
        kind = draft.pick([*_FLOATS, "s32", "u32", "s8", "s4", "u4"])
        dims = _dims(draft, wide=wide)
        name = draft.parameter(kind, dims, SMALL)
        body.values.append(Named(name, kind, tuple(dims)))
    size = draft.integer(1, 9)
    indices = draft.rng.integers(-2, 9, size).astype(np.int32)
    body.values.append(Named(draft.parameter("s32", [size], values=indices), "s32", (size,)))
    choice = np.asarray(draft.integer(-1, 3), np.int32)
    body.values.append(Named(draft.parameter("s32", [], values=choice), "s32", ()))
    for _ in range(draft.integer(2, 9) if moves else draft.integer(4, 40)):
        body.step()
    picked = [body.values[-1], *(body.pick() or body.values[-1] for _ in range(3))]
    results = list(dict.fromkeys([*picked, *body.results[:3]]))
    shapes = ", ".join(f"{v.kind}[{join(v.dims)}]" for v in results)
    draft.emit(f"({shapes})", f"tuple({', '.join(v.name for v in results)})")
    return draft.finish("module", EXACT)
