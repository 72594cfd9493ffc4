"""Steps that make shapes, types, constants and attributes of a module smaller or simpler."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from xlakit.data.literal import Array, Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.attributes import Window, WindowDimension
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import Kind, Op
from xlakit.ir.rebuilding import rebuilt
from xlakit.ops.data import Constant, ElidedConstant, GetTupleElement, Parameter
from xlakit.ops.movement import Broadcast
from xlakit.tools.reduce.edits import Draft, cleaned, edited_at, inferred_again, path_of
from xlakit.tools.reduce.search import Candidate, Search, repeated

# The most elements of a constant that takes the place of a value: candidates are texts, in which it is written out.
_MOST_WRITTEN = 4096
# Lists of numbers that are sizes of arrays, not numbers of dimensions.
_SIZES = ("dynamic_slice_sizes", "slice_sizes", "fft_length")
# Types by what they are replaced with: the common ones of which every backend knows all operations.
_SIMPLER = {
    PrimitiveType.F64: PrimitiveType.F32,
    PrimitiveType.F16: PrimitiveType.F32,
    PrimitiveType.BF16: PrimitiveType.F32,
    PrimitiveType.C128: PrimitiveType.C64,
    PrimitiveType.S64: PrimitiveType.S32,
    PrimitiveType.U64: PrimitiveType.U32,
    PrimitiveType.S16: PrimitiveType.S32,
    PrimitiveType.S8: PrimitiveType.S32,
    PrimitiveType.U16: PrimitiveType.U32,
    PrimitiveType.U8: PrimitiveType.U32,
    PrimitiveType.U32: PrimitiveType.S32,
    PrimitiveType.C64: PrimitiveType.F32,
}


# -- sizes -----------------------------------------------------------------------------------------


@repeated
def shrink_dimensions(best: HloModule) -> Iterator[Candidate]:
    """Make dimensions smaller: all of one size in the whole module at once, with its multiples, then without."""
    sizes = _sizes(best)
    for size in sizes:
        has_multiples = any(other > size and other % size == 0 for other in sizes)
        for smaller in dict.fromkeys((1, 2, 3, 4, 8, size // 4, size // 2, size - 1)):
            if 0 < smaller < size:
                yield partial(resized, best, size, smaller)
                if has_multiples:
                    yield partial(resized, best, size, smaller, multiples=False)


def _sizes(module: HloModule) -> list[int]:
    """The sizes of dimensions from 2, those with which the most elements would go first."""
    elements_of_size: Counter[int] = Counter()
    for i in module.instructions:
        for _, leaf in i.shape.leaves():
            if leaf.is_array:
                for size in leaf.dimensions:
                    elements_of_size[size] += leaf.num_elements
    return [size for size, _ in elements_of_size.most_common() if size > 1]


def resized(module: HloModule, size: int, smaller: int, *, multiples: bool = True) -> HloModule:
    """The module whose dimensions of a size, or multiples of it, are smaller."""

    def scaled(number: int) -> int:
        is_meant = number == size or (multiples and number > 0 and number % size == 0)
        return number // size * smaller if is_meant else number

    def shape(old: Shape) -> Shape:
        if not old.is_array:
            return old
        dimensions = [scaled(d) for d in old.dimensions]
        return old if dimensions == list(old.dimensions) else old.with_dimensions(dimensions, old.dynamic_dimensions)

    def literal(array: Array) -> Array:
        return array[tuple(slice(scaled(d)) for d in array.shape)]

    return _mapped(module, shape, literal, partial(_scaled, scaled))


def _scaled(scaled: Callable[[int], int], op: Op) -> Op:
    changes: dict[str, Any] = {}
    for spec in op.attributes:
        value = getattr(op, spec.name)
        if not value:
            continue
        if spec.kind is Kind.SLICE_RANGES:
            changes[spec.name] = tuple(dataclasses.replace(s, limit=scaled(s.limit)) for s in value)
        elif spec.kind is Kind.INT64_LIST and spec.name in _SIZES:
            changes[spec.name] = tuple(map(scaled, value))
        elif spec.kind is Kind.WINDOW:
            changes[spec.name] = Window(tuple(dataclasses.replace(d, size=scaled(d.size)) for d in value.dimensions))
    return dataclasses.replace(op, **changes) if changes else op


# -- types -----------------------------------------------------------------------------------------


@repeated
def simplify_types(best: HloModule) -> Iterator[Candidate]:
    """Replace a type by a more common one, in the whole module."""
    types = {leaf.element_type for i in best.instructions for _, leaf in i.shape.leaves()}
    for old, new in _SIMPLER.items():
        if old in types:
            yield partial(retyped, best, old, new)


def retyped(module: HloModule, old: PrimitiveType, new: PrimitiveType) -> HloModule:
    """The module with one type in place of another."""

    def shape(given: Shape) -> Shape:
        return given.with_element_type(new) if given.is_array and given.element_type is old else given

    def literal(array: Array) -> Array:
        real: Array = np.real(array) if array.dtype.kind == "c" and not new.is_complex else array
        with np.errstate(all="ignore"):
            return real.astype(new.dtype) if array.dtype == old.dtype else array

    return _mapped(module, shape, literal, lambda op: op)


def _mapped(
    module: HloModule,
    shape: Callable[[Shape], Shape],
    literal: Callable[[Array], Array],
    attributes: Callable[[Op], Op],
) -> HloModule:
    """The module with all declared shapes, literals and attributes changed; other shapes follow from these."""

    def change(_: Instruction, i: Instruction) -> Instruction:
        declared = i.shape.with_leaves(shape)
        if isinstance(i.op, Constant):
            constant = Constant(literal=_changed(i.op.literal, shape, literal))
            return i.replace(op=constant, shape=constant.literal.shape)
        if isinstance(i.op, Broadcast):
            declared = _broadcast(i.op, i.operands[0].shape, declared)
        return inferred_again(i, attributes(i.op), i.operands, declared)

    return cleaned(module, rebuilt(module, change).entry)


def _broadcast(op: Broadcast, operand: Shape, declared: Shape) -> Shape:
    """The declared shape of a broadcast with the sizes that its operand has now."""
    dimensions = list(declared.dimensions)
    for dimension, size in zip(op.dimensions, operand.dimensions, strict=True):
        dimensions[dimension] = size
    return declared if dimensions == list(declared.dimensions) else declared.with_dimensions(dimensions)


def _changed(value: Literal, shape: Callable[[Shape], Shape], change: Callable[[Array], Array]) -> Literal:
    if value.shape.is_tuple:
        return Literal.make_tuple([_changed(e, shape, change) for e in value.elements])
    return Literal(shape(value.shape), change(value.array)) if value.shape.is_array else value


# -- constants and attributes ----------------------------------------------------------------------


@repeated
def simplify_constants(best: HloModule) -> Iterator[Candidate]:
    """Make constants shorter: zero, one, half of a number (as in the count of a loop), one number for all elements."""
    for computation in best.computations:
        for i in computation.instructions:
            if isinstance(i.op, Constant) and i.shape.is_array and i.op.literal.array.size:
                for simpler in _simpler(i.op.literal.array):
                    yield partial(_with_constant, best, path_of(computation, i), simpler)


def _simpler(array: Array) -> Iterator[Array]:
    first = array.ravel()[0]
    tries: list[Array] = [np.zeros_like(array), np.ones_like(array), np.full_like(array, first)]
    if array.size > 1 and array.dtype.kind != "c":
        tries += [np.full_like(array, array.max()), np.full_like(array, array.min())]
    if array.dtype.kind in "iu" and array.size == 1:
        tries += [np.full_like(array, 2), array // 2]
    yield from (t for t in tries if _length(t) < _length(array))


def _length(array: Array) -> tuple[bool, int, float]:
    """How much a constant says: whether its elements differ, and how much its first is."""
    first = array.ravel()[0]
    differs = bool((array != first).any())
    with np.errstate(all="ignore"):
        size = float(abs(first.astype(np.complex128) if hasattr(first, "astype") else first))
    return differs, len(str(first)), size if size == size else np.inf  # noqa: PLR0124 - NaN differs from itself


def _with_constant(module: HloModule, path: str, array: Array) -> HloModule:
    def shorten(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction:
        return draft.append(i.replace(op=Constant(literal=Literal(i.shape.without_layout(), array))))

    return edited_at(module, [path], shorten)


def take_constants(search: Search) -> None:
    """Replace values inside of loops, branches and fusions by constants: ones, then zeros."""
    for number in (1, 0):
        search.minimize(_inner_values, partial(_constants, number=number))


def _inner_values(module: HloModule) -> list[str]:
    return [
        path_of(c, i)
        for c in module.computations
        if c is not module.entry
        for i in c.instructions
        if i.shape.is_array and not isinstance(i.op, (Constant, ElidedConstant, Parameter)) and not _is_filled(i)
    ]


def _is_filled(i: Instruction) -> bool:
    """Whether a value is a large array of one constant, as _constants makes it."""
    is_repeated = isinstance(i.op, Broadcast) and isinstance(i.operands[0].op, Constant) and not i.op.dimensions
    return is_repeated and math.prod(i.shape.dimensions) > _MOST_WRITTEN


def _constants(module: HloModule, paths: Sequence[str], number: int) -> HloModule:
    def fill(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction:
        *before, last = filled(i.shape.without_layout(), number, draft.unused_name)
        for added in before:
            draft.append(added)
        return draft.append(i.replace(op=last.op, operands=last.operands, shape=last.shape))

    return edited_at(module, paths, fill)


def filled(shape: Shape, number: int, name: Callable[[str], str]) -> list[Instruction]:
    """Instructions of which the last is an array full of a number: a constant, or one that is broadcast."""
    if math.prod(shape.dimensions) <= _MOST_WRITTEN:
        array = np.full(shape.dimensions, number, shape.element_type.dtype)
        return [Instruction(Constant(literal=Literal(shape, array)), (), shape, name("constant"))]
    literal = Literal.from_value(number, shape.element_type)
    element = Instruction(Constant(literal=literal), (), literal.shape, name("constant"))
    return [element, Instruction(Broadcast(), (element,), shape, name("broadcast"))]


def take_values(search: Search) -> None:
    """Replace values of the entry by what they are in a run: a fault may show for some values only."""
    captured = search.captured()

    def values(module: HloModule) -> list[str]:
        root, known = module.entry.root, captured.values
        return [i.name for i in module.entry.instructions if i.operands and i is not root and i.name in known]

    def replaced(module: HloModule, names: Sequence[str]) -> HloModule:
        def take(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction:
            shape = i.shape.without_layout()
            literal = Literal(shape, captured.values[i.name])
            return draft.append(i.replace(op=Constant(literal=literal), operands=(), shape=shape))

        return edited_at(module, [path_of(module.entry, i) for i in module.entry.instructions if i.name in names], take)

    search.minimize(values, replaced)


@repeated
def use_parameters(best: HloModule) -> Iterator[Candidate]:
    """Let called computations use a parameter, or an element of it, in place of a constant."""
    for path, given in _given_instead(best).items():
        yield partial(_using, best, {path: given})


def with_parameters_used(module: HloModule) -> HloModule:
    """The module whose called computations use parameters in place of all constants of their shapes."""
    return _using(module, _given_instead(module))


def _given_instead(module: HloModule) -> dict[str, Instruction]:
    """For each constant of a called computation, by its path, what stands before it and is given in its shape."""
    found: dict[str, Instruction] = {}
    for computation in module.computations:
        given: dict[Shape, Instruction] = {}
        for i in computation.instructions if computation is not module.entry else ():
            if isinstance(i.op, Constant) and i.shape in given:
                found[path_of(computation, i)] = given[i.shape]
            elif isinstance(i.op, Parameter):
                given[i.shape] = i
            elif isinstance(i.op, GetTupleElement) and isinstance(i.operands[0].op, Parameter):
                given.setdefault(i.shape, i)
    return found


def _using(module: HloModule, instead: Mapping[str, Instruction]) -> HloModule:
    def use(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction:
        return draft.new[instead[path_of(draft.old, i)]]

    return edited_at(module, list(instead), use)


@repeated
def share_constants(best: HloModule) -> Iterator[Candidate]:
    """Use one constant for another of its shape."""
    for computation in best.computations:
        constants = [i for i in computation.instructions if isinstance(i.op, Constant)]
        for number, later in enumerate(constants):
            earlier = next((i for i in constants[:number] if i.shape == later.shape), None)
            if earlier is not None:
                yield partial(_using, best, {path_of(computation, later): earlier})


@repeated
def simplify_attributes(best: HloModule) -> Iterator[Candidate]:
    """Give attributes their defaults."""
    for computation in best.computations:
        for i in computation.instructions:
            for spec in i.op.attributes:
                if spec.kind is Kind.WINDOW:
                    for plainer in _plainer(getattr(i.op, spec.name)):
                        yield partial(_with_default, best, path_of(computation, i), spec.name, plainer)
                has_default = not spec.required and spec.kind not in (Kind.COMPUTATION, Kind.COMPUTATION_LIST)
                if has_default and getattr(i.op, spec.name) != spec.default:
                    yield partial(_with_default, best, path_of(computation, i), spec.name, spec.default)


def _plainer(window: Window | None) -> Iterator[Window]:
    """Windows with less of strides, paddings, dilations and reversals."""
    for field in dataclasses.fields(WindowDimension):
        if window is not None and field.default is not dataclasses.MISSING:
            plain = Window(tuple(dataclasses.replace(d, **{field.name: field.default}) for d in window.dimensions))
            if plain != window:
                yield plain


def _with_default(module: HloModule, path: str, name: str, default: Any) -> HloModule:
    def simplify(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction:
        changed: Any = dataclasses.replace(op, **{name: default})
        return draft.keep(i, changed, operands)

    return edited_at(module, [path], simplify)
