"""Layers of networks and their gradients: products one after another, with what is computed of their rows between.

Fusions of several products store results between them, and read arrays that others may share the memory of. So any
value is read again by later layers, and the results are any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuzz.programs.draft import Program
from fuzz.programs.large.drafts import LargeDraft, kind

# Sums of whole numbers below it are exact in every type here.
_LIMIT = 1 << 20


@dataclass(frozen=True)
class _Rows:
    """Rows of one value each or of a width, and the largest number that is in them."""

    name: str
    width: int
    largest: int


class _Network:
    """Values of one number of rows, and a step at a time that makes one more."""

    def __init__(self, draft: LargeDraft, element: str) -> None:
        self._draft, self._element = draft, element
        self._rows = draft.integer(2, 80)
        wide = draft.integer(2, 64)
        # The same width again and again, so that values may lie where others lay.
        self._widths = draft.pick([[wide], [wide], [wide, draft.integer(2, 64)]])
        self.values = [self._given(width) for width in self._widths for _ in range(2)]

    def _given(self, width: int) -> _Rows:
        dims = [self._rows, width]
        values = self._draft.whole(self._element, dims, 1, 2)
        return _Rows(self._draft.parameter(self._element, dims, values=values, plain=True), width, 2)

    def _emit(self, width: int, call: str, largest: int) -> _Rows:
        made = _Rows(self._draft.emit(f"{self._element}[{self._rows},{width}]", call), width, largest)
        return self._small(made) if largest >= _LIMIT else made

    def _small(self, value: _Rows) -> _Rows:
        """The value between -2 and 2."""
        low, high = (self._draft.emit(f"{self._element}[]", f"constant({n})") for n in (-2, 2))
        return self._emit(value.width, f"clamp({low}, {value.name}, {high})", 2)

    def product(self, value: _Rows) -> _Rows:
        """A product with a matrix, which may lie either way."""
        draft, width = self._draft, self._draft.pick(self._widths)
        value = self._small(value) if value.largest * value.width * 2 >= _LIMIT else value
        turned = draft.chance()
        dims = [width, value.width] if turned else [value.width, width]
        matrix = draft.parameter(self._element, dims, values=draft.whole(self._element, dims, 1, 2), plain=True)
        numbers = f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(turned)}}}"
        return self._emit(width, f"dot({value.name}, {matrix}), {numbers}", value.largest * value.width * 2)

    def row(self, value: _Rows) -> _Rows:
        """The sum or the largest number of each row, in all of its places."""
        opcode = self._draft.pick(["add", "maximum"])
        each = self.reduced(value, opcode, 1)
        largest = value.largest * (value.width if opcode == "add" else 1)
        return self._emit(value.width, f"broadcast({each}), dimensions={{0}}", largest)

    def reduced(self, value: _Rows, opcode: str, along: int) -> str:
        """The name of the sums or the largest numbers of the rows, or of the columns."""
        draft, size = self._draft, value.width if along == 0 else self._rows
        first = draft.emit(f"{self._element}[]", f"constant({0 if opcode == 'add' else -1})")
        call = f"reduce({value.name}, {first}), dimensions={{{along}}}, to_apply={draft.reducer(opcode, self._element)}"
        return draft.emit(f"{self._element}[{size}]", call)

    def combined(self, value: _Rows, others: Sequence[_Rows] = ()) -> _Rows:
        """The value and another one of its width, element by element."""
        draft = self._draft
        same_width = [[v for v in values if v.width == value.width] for values in (others, self.values)]
        other = draft.pick(same_width[0] or same_width[1])
        opcode = draft.pick(["add", "subtract", "multiply", "multiply", "maximum"])
        if opcode == "multiply" and value.largest * other.largest >= _LIMIT:
            value = self._small(value)
        largest = value.largest * other.largest if opcode == "multiply" else value.largest + other.largest
        return self._emit(value.width, f"{opcode}({value.name}, {other.name})", largest)

    def result(self, value: _Rows) -> str:
        """The name of a result: the value, or the sums or the largest numbers of its columns."""
        if self._draft.chance():
            return value.name
        largest = "maximum" if value.largest * self._rows >= _LIMIT else "add"
        return self.reduced(value, largest, 0)

    def shape_of(self, name: str, value: _Rows) -> str:
        """The shape of a result."""
        return (
            f"{self._element}[{self._rows},{value.width}]" if name == value.name else f"{self._element}[{value.width}]"
        )


@kind("layers", ("f32", "f32", "f64", "s32"), 3)
def layers(draft: LargeDraft, case: str) -> Program:
    """Two to four products in a chain; any of the values between them are results, or are read by a later layer.

    What is computed before the first product is read after the last one more often than not, as in a gradient.
    """
    if draft.chance(0.2):
        return _heads(draft, case)
    network = _Network(draft, case)
    value = draft.pick(network.values)
    early = list[_Rows]()
    # Loops would compute what is only element-wise again where it is read.
    for step in draft.pick([[network.product], [network.product, network.combined], [network.combined] * 2]):
        value = step(value)
        early.append(value)
    network.values.extend(early)
    between = list[_Rows]()
    for _ in range(draft.integer(1, 3)):
        for step in _layer(draft, network):
            value = step(value)
            between.append(value)
    value = network.product(value)
    value = network.combined(value, early if draft.chance(0.7) else network.values)
    network.values.extend(between)
    chosen = [value, draft.pick(between), *(draft.pick(network.values) for _ in range(draft.integer(0, 1)))]
    names = [network.result(v) for v in chosen]
    shapes = [network.shape_of(name, v) for name, v in zip(names, chosen, strict=True)]
    draft.emit(f"({', '.join(shapes)})", f"tuple({', '.join(names)})")
    return draft.exact("dot", case)


def _layer(draft: LargeDraft, network: _Network) -> Sequence[Callable[[_Rows], _Rows]]:
    """A product, and what comes after it."""
    row, other = network.row, network.combined
    return [network.product, *draft.pick([[], [row], [row], [other, row], [row, other], [other]])]


def _heads(draft: LargeDraft, case: str) -> Program:
    """Two products for each of some heads, as many as there are rows; those of the second one lie head by head or not.

    Something as large as all results is read beside the first product, and not any more after that.
    """
    heads, wide, inner = draft.integer(8, 40), draft.integer(8, 64), draft.integer(1, 16)
    shape = f"{case}[{heads},{heads},{wide}]"

    def given(*dims: int) -> str:
        return draft.parameter(case, list(dims), values=draft.whole(case, list(dims), 1, 2), plain=True)

    batches = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}"
    less = draft.computation(
        [f"a = {case}[] parameter(0)", f"b = {case}[] parameter(1)", "r = pred[] compare(a, b), direction=LT"]
    )
    # No fusion computes it again, or with what reads it.
    beside = draft.emit(shape, f"sort({given(heads, heads, wide)}), dimensions={{2}}, to_apply={less}")
    queries, keys = given(heads, heads, inner), given(heads, wide, inner)
    first = draft.emit(shape, f"dot({queries}, {keys}), {batches}, rhs_contracting_dims={{2}}")
    zero = draft.emit(f"{case}[]", "constant(0)")
    sums = draft.emit(
        f"{case}[{heads},{heads}]", f"reduce({first}, {zero}), dimensions={{2}}, to_apply={draft.reducer('add', case)}"
    )
    rows = draft.emit(shape, f"broadcast({sums}), dimensions={{0,1}}")
    low, high = (draft.emit(f"{case}[]", f"constant({n})") for n in (-2, 2))
    weights = draft.emit(shape, f"clamp({low}, {draft.emit(shape, f'subtract({first}, {rows})')}, {high})")
    second = draft.emit(shape, f"dot({weights}, {given(heads, wide, wide)}), {batches}, rhs_contracting_dims={{1}}")
    if draft.chance(0.7):
        second = draft.emit(shape, f"transpose({second}), dimensions={{1,0,2}}")
    between = draft.emit(shape, f"multiply({first}, {beside})")
    if draft.chance(0.7):
        shape_between = f"s16[{heads},{heads},{wide}]"
        between = draft.emit(shape_between, f"convert({between})")
    else:
        shape_between = shape
    draft.emit(f"({shape_between}, {shape})", f"tuple({between}, {second})")
    return draft.exact("dot", case)
