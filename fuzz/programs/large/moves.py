"""Large arrays that only move: transposes and other copies, pieces put together, loops that change an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fuzz.programs.draft import Program, join
from fuzz.programs.large.drafts import LargeDraft, kind
from fuzz.programs.values import EDGES, is_complex

_TYPES = ("f32", "bf16", "s8", "f64", "s32", "pred", "u16", "c64", "c128", "s4", "f16", "u64", "f8e5m2")


class Moving:
    """An array on its way through a program: its name and its sizes."""

    def __init__(self, draft: LargeDraft, case: str, dims: Sequence[int]) -> None:
        self.draft = draft
        self.case = case
        self.dims = list(dims)
        self.name = draft.before(draft.parameter(case, dims, EDGES), case, dims)

    def step(self, dims: Sequence[int], call: str) -> None:
        """Go on with the result of a call."""
        self.dims = list(dims)
        self.name = self.draft.emit(f"{self.case}[{join(dims)}]", call)

    def transposed(self) -> None:
        """The dimensions in another order."""
        order = self.draft.permutation(len(self.dims))
        self.step([self.dims[i] for i in order], f"transpose({self.name}), dimensions={{{join(order)}}}")

    def regrouped(self) -> None:
        """The same elements under other sizes."""
        rest = math.prod(self.dims)
        sizes: list[int] = []
        for _ in range(self.draft.integer(1, 2)):
            sizes.append(self.draft.pick([d for d in range(1, min(rest, 4096) + 1) if rest % d == 0]))
            rest //= sizes[-1]
        self.step([*sizes, rest], f"reshape({self.name})")

    def reversed(self) -> None:
        """Some dimensions the other way round."""
        along = self.draft.subset(len(self.dims), self.draft.integer(1, len(self.dims)))
        self.step(self.dims, f"reverse({self.name}), dimensions={{{join(along)}}}")

    def met(self) -> None:
        """Chosen from this array and another one that is read in another order."""
        draft, dims = self.draft, self.dims
        order = draft.permutation(len(dims))
        source = [dims[order.index(d)] for d in range(len(dims))]
        other = draft.parameter(self.case, source)
        turned = draft.emit(f"{self.case}[{join(dims)}]", f"transpose({other}), dimensions={{{join(order)}}}")
        if is_complex(self.case) or self.case == "pred" or draft.chance(0.3):
            chosen = draft.parameter("pred", dims)
            self.step(dims, f"select({chosen}, {self.name}, {turned})")
        else:
            self.step(dims, f"{draft.pick(['maximum', 'minimum'])}({self.name}, {turned})")

    def padded(self) -> None:
        """Some elements around, or left out at an end; now and then some between."""
        draft, parts, result = self.draft, list[str](), list[int]()
        dilated = draft.integer(0, len(self.dims) - 1) if draft.chance(0.2) else -1
        for d, size in enumerate(self.dims):
            interior = 1 if d == dilated else 0
            inner = size + max(0, size - 1) * interior
            low, high = (draft.pick([0, 0, 1, draft.integer(0, 5), draft.integer(0, 70), -1]) for _ in range(2))
            low, high = (n if (n >= 0 and inner < 64 * max(1, n) + 64) or n <= 1 else n % 4 for n in (low, high))
            if inner + low + high <= 0 or (len(self.dims) > 3 and size < 8):
                low = high = 0
            parts.append(f"{low}_{high}" + (f"_{interior}" if interior else ""))
            result.append(inner + low + high)
        if math.prod(result) <= 3 * draft.most:
            value = draft.parameter(self.case, [])
            self.step(result, f"pad({self.name}, {value}), padding={'x'.join(parts)}")

    def joined(self) -> None:
        """With other arrays on either side."""
        draft = self.draft
        along = draft.integer(0, len(self.dims) - 1)
        size = self.dims[along]
        names, total = [self.name], size
        for _ in range(draft.integer(1, 3)):
            own = max(1, draft.pick([1, size // 3, size, draft.integer(1, 100)]))
            if math.prod(self.dims) // max(1, size) * (total + own) > 3 * draft.most:
                continue
            dims = [*self.dims[:along], own, *self.dims[along + 1 :]]
            name = draft.before(draft.parameter(self.case, dims), self.case, dims)
            names.insert(draft.integer(0, len(names)), name)
            total += own
        result = [*self.dims[:along], total, *self.dims[along + 1 :]]
        self.step(result, f"concatenate({', '.join(names)}), dimensions={{{along}}}")

    def rolled(self) -> None:
        """Cut in two along a dimension, and put together the other way."""
        along = self.draft.integer(0, len(self.dims) - 1)
        size = self.dims[along]
        if size < 2:
            return
        cut = self.draft.integer(1, size - 1)
        pieces: list[str] = []
        for start, limit in ((cut, size), (0, cut)):
            ranges = [f"[{start}:{limit}]" if d == along else f"[0:{n}]" for d, n in enumerate(self.dims)]
            dims = [limit - start if d == along else n for d, n in enumerate(self.dims)]
            call = f"slice({self.name}), slice={{{', '.join(ranges)}}}"
            pieces.append(self.draft.emit(f"{self.case}[{join(dims)}]", call))
        self.step(self.dims, f"concatenate({', '.join(pieces)}), dimensions={{{along}}}")

    def sliced(self) -> None:
        """A part, of which perhaps every second or third element."""
        ranges, result = list[str](), list[int]()
        for size in self.dims:
            start = self.draft.integer(0, min(size - 1, self.draft.pick([0, 1, 9])))
            limit = self.draft.integer(max(start + 1, size - self.draft.pick([0, 1, 9])), size)
            stride = self.draft.pick([1, 1, 1, 2, 3])
            ranges.append(f"[{start}:{limit}:{stride}]")
            result.append(-(-(limit - start) // stride))
        self.step(result, f"slice({self.name}), slice={{{', '.join(ranges)}}}")

    def updated(self) -> None:
        """With a smaller array in a place that is known as the program runs."""
        draft = self.draft
        sizes = [max(1, draft.pick([n, n, n // 2, draft.integer(1, n)])) for n in self.dims]
        update = draft.parameter(self.case, sizes, EDGES)
        starts = [
            draft.parameter("s32", [], values=np.asarray(draft.integer(-2, n - m + 2), np.int32))
            for n, m in zip(self.dims, sizes, strict=True)
        ]
        self.step(self.dims, f"dynamic-update-slice({', '.join([self.name, update, *starts])})")

    def spread(self) -> None:
        """Along new dimensions."""
        count = max(1, min(60, 2 * self.draft.most // max(1, math.prod(self.dims))))
        size, place = self.draft.integer(1, count), self.draft.integer(0, len(self.dims))
        kept = [d for d in range(len(self.dims) + 1) if d != place]
        result = [*self.dims[:place], size, *self.dims[place:]]
        self.step(result, f"broadcast({self.name}), dimensions={{{join(kept)}}}")

    def finish(self, opcode: str) -> Program:
        """The program that gives the array, perhaps in a layout of its own."""
        self.draft.emit(self.draft.shape(self.case, self.dims), f"copy({self.name})")
        return self.draft.exact(opcode, self.case)


def _chain(draft: LargeDraft, case: str, steps: Sequence[Callable[[Moving], None]], rank: int) -> Moving:
    moving = Moving(draft, case, draft.dims(1, rank))
    for _ in range(draft.integer(1, 3)):
        draft.pick(steps)(moving)
    return moving


_TURNS = (Moving.transposed, Moving.transposed, Moving.regrouped, Moving.reversed, Moving.met, Moving.spread)
_PIECES = (Moving.padded, Moving.joined, Moving.rolled, Moving.sliced, Moving.updated, Moving.met)


def moved(draft: LargeDraft, case: str, rank: int) -> Moving:
    """An array that has come some way, for programs that go on with it."""
    return _chain(draft, case, (*_TURNS, *_PIECES), rank)


@kind("transpose", _TYPES, 3, (10_000, 2_000_000))
def transpose(draft: LargeDraft, case: str) -> Program:
    """Transposes and other copies, one after the other, in any layout."""
    return _chain(draft, case, _TURNS, 5).finish("transpose")


@kind("pieces", _TYPES, 3)
def pieces(draft: LargeDraft, case: str) -> Program:
    """Arrays padded, put together, cut and written into."""
    return _chain(draft, case, (*_PIECES, *_PIECES, Moving.transposed, Moving.reversed), 4).finish("pieces")


@kind("loop", ("f32", "s8", "f64", "bf16", "c64", "s32"), 2, (30_000, 1_000_000))
def loop(draft: LargeDraft, case: str) -> Program:
    """A loop whose state is an array that each turn reads a piece of, and writes a piece of, anywhere."""
    dims = draft.dims(2, 3)
    along, turns = draft.integer(0, len(dims) - 1), draft.integer(2, 40)
    size = dims[along]
    width = draft.pick([1, 1, max(1, size // turns), draft.integer(1, size)])
    piece = [width if d == along else n for d, n in enumerate(dims)]
    whole, part, table = f"{case}[{join(dims)}]", f"{case}[{join(piece)}]", f"s32[{turns}]"
    state = f"(s32[], {whole}, {whole}, {table}, {table})"
    one = ["zero = s32[] constant(0)"]
    for name, source in (("from", 3), ("to", 4)):
        one += [
            f"{name}_table = {table} get-tuple-element(s), index={source}",
            f"{name}_one = s32[1] dynamic-slice({name}_table, i), dynamic_slice_sizes={{1}}",
            f"{name} = s32[] reshape({name}_one)",
        ]
    places = {name: ", ".join(name if d == along else "zero" for d in range(len(dims))) for name in ("from", "to")}
    source = draft.pick(["x", "y"])
    body = [
        f"s = {state} parameter(0)",
        "i = s32[] get-tuple-element(s), index=0",
        f"x = {whole} get-tuple-element(s), index=1",
        f"y = {whole} get-tuple-element(s), index=2",
        *one,
        f"read = {part} dynamic-slice({source}, {places['from']}), dynamic_slice_sizes={{{join(piece)}}}",
        f"old = {part} dynamic-slice(y, {places['to']}), dynamic_slice_sizes={{{join(piece)}}}",
        f"new = {part} {draft.pick(['add', 'add', 'subtract'])}(read, old)",
        f"next = {whole} dynamic-update-slice(y, new, {places['to']})",
        "step = s32[] constant(1)",
        "j = s32[] add(i, step)",
        f"r = {state} tuple(j, x, next, from_table, to_table)",
    ]
    test = [
        f"s = {state} parameter(0)",
        "i = s32[] get-tuple-element(s), index=0",
        f"n = s32[] constant({turns})",
        "r = pred[] compare(i, n), direction=LT",
    ]
    names = [draft.computation(test), draft.computation(body)]
    # Numbers double in each turn at most where an array is added to itself.
    terms = 1 << min(turns, 40) if source == "y" else turns
    arrays = [draft.parameter(case, dims, values=draft.whole(case, dims, terms), plain=True) for _ in range(2)]
    tables = [
        draft.parameter("s32", [turns], values=np.asarray(draft.integers(-1, size, turns), np.int32)) for _ in range(2)
    ]
    start = draft.emit("s32[]", "constant(0)")
    initial = draft.emit(state, f"tuple({', '.join([start, *arrays, *tables])})")
    last = draft.emit(state, f"while({initial}), condition={names[0]}, body={names[1]}")
    draft.emit(whole, f"get-tuple-element({last}), index=2")
    return draft.exact("loop", case)
