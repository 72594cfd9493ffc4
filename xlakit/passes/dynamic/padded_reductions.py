"""Rules for padded arrays in reductions and windows, which ignore the padding, and in sorts, which put it last."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.attributes import WindowDimension
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Array
from xlakit.ops.control import Call, Conditional
from xlakit.ops.data import Parameter
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.reduction import Reduce, identity_of
from xlakit.ops.scatter import Scatter
from xlakit.ops.shared.numerics import last_in_total_order
from xlakit.ops.sort import Sort, TopK
from xlakit.ops.windows import ReduceWindow, SelectAndScatter
from xlakit.passes.dynamic.padded_movement import beginning
from xlakit.passes.dynamic.padded_values import Padded, PaddedRules, Padder, array, bundle

REDUCTIONS = PaddedRules()
_rule = REDUCTIONS.rule

_NO_WINDOW = WindowDimension(1)


# -- reducers that ignore padding --------------------------------------------------------------------


def _reduced(
    op: Reduce | ReduceWindow, operands: Sequence[Padded], dimensions: Collection[int], make: Padder
) -> Instruction:
    """A reduction along ``dimensions`` that ignores the padding there.

    For a known reducer, padding becomes its identity. Other reducers get an additional PRED operand, whether an element
    is valid; then the last value returned is true.
    """
    count = len(operands) // 2
    dims = {d: size for d, size in make.common_dims(operands[:count]).items() if d in dimensions}
    arrays, inits = [x.value for x in operands[:count]], [x.value for x in operands[count:]]
    valid = make.valid(arrays[0].shape.dimensions, dims)
    if valid is None:
        return make.at_bounds([*arrays, *inits])
    # This is None for several arrays, since their reducers return tuples.
    identity = identity_of(op.to_apply, arrays[0].shape.element_type)
    if identity is not None:
        return make.at_bounds([make.chosen(valid, arrays[0], make.constant(identity)), *inits])
    true = make.scalar(True, PrimitiveType.PRED)
    value = make.add(dataclasses.replace(op, to_apply=selective(op.to_apply, make)), *arrays, valid, *inits, true)
    # The program may declare other element types than the reducer has.
    pairs = zip(make.elements(value)[:-1], make.old.shape.tuple_shapes_or_self, strict=True)
    results = [make.convert(part, shape.element_type) for part, shape in pairs]
    return make.tuple(*results) if make.old.shape.is_tuple else results[0]


def selective(computation: Computation, make: Padder) -> Computation:
    """f -> g, where g(x, x_valid, y, y_valid) is f(x, y) if both are valid, else the valid one; also g's validity."""
    old = [p.shape for p in computation.parameters]
    count = len(old) // 2
    flag = Shape(PrimitiveType.PRED)
    kinds = [s.element_type for s in computation.root.shape.tuple_shapes_or_self]

    def body(inner: Padder, *given: Instruction) -> Instruction:
        left, left_valid, right, right_valid = given[:count], given[count], given[count + 1 : -1], given[-1]
        alone = [
            inner.apply("select", left_valid, inner.convert(a, kind), inner.convert(b, kind))
            for a, b, kind in zip(left, right, kinds, strict=True)
        ]
        both = inner.apply("and", left_valid, right_valid)
        if computation.is_pointwise:
            combined = inner.elements(inner.add(Call(to_apply=computation), *left, *right))
            results = [inner.apply("select", both, c, a) for c, a in zip(combined, alone, strict=True)]
        else:
            # The reducer may not terminate on arbitrary values, such as those of padding.
            results = _called_where(both, computation, [*left, *right], alone, inner)
        return inner.tuple(*results, inner.apply("or", left_valid, right_valid))

    return make.function(f"{computation.name}_valid", [*old[:count], flag, *old[count:], flag], body)


def _called_where(
    test: Instruction,
    computation: Computation,
    operands: Sequence[Instruction],
    otherwise: Sequence[Instruction],
    make: Padder,
) -> list[Instruction]:
    """The results of a computation if a test holds, else ``otherwise`` without running the computation."""
    count = len(operands)
    given = make.tuple(*operands, *otherwise)

    def run(inner: Padder, x: Instruction) -> Instruction:
        called = inner.add(Call(to_apply=computation), *inner.elements(x)[:count])
        return inner.tuple(*inner.elements(called))

    def skip(inner: Padder, x: Instruction) -> Instruction:
        return inner.tuple(*inner.elements(x)[count:])

    called = make.function(f"{computation.name}_run", [given.shape], run)
    skipped = make.function(f"{computation.name}_skip", [given.shape], skip)
    return make.elements(make.add(Conditional(branch_computations=(called, skipped)), test, given, given))


# -- reductions ----------------------------------------------------------------------------------------


@_rule("reduce")
def reduce(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Padding along the reduced dimensions becomes the identity of the reducer."""
    op, count = old.op_as(Reduce), len(operands) // 2
    value = _reduced(op, operands, op.dimensions, make)
    kept = [d for d in range(operands[0].shape.rank) if d not in op.dimensions]
    known = make.common_dims(operands[:count])
    dims = {i: known[d] for i, d in enumerate(kept) if d in known}
    return bundle(value, [dims] * count)


@_rule("reduce-window")
def reduce_window(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """As a reduction under each placement of the window; the result's sizes are numbers of placements."""
    op, count = old.op_as(ReduceWindow), len(operands) // 2
    windows = op.window.dimensions
    spanned = [d for d, w in enumerate(windows) if w != _NO_WINDOW]
    value = _reduced(op, operands, spanned, make)
    dims = make.common_dims(operands[:count])
    for d in dims.keys() & set(spanned):
        dims[d] = make.instruction(make.placements(dims[d], windows[d]))
    return bundle(value, [dims] * count)


@_rule("select-and-scatter")
def select_and_scatter(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Finds the position of the valid element that each window placement selects, then scatters to it."""
    op, (x, source, init) = old.op_as(SelectAndScatter), operands
    bounds, placements = x.shape.dimensions, source.shape.dimensions
    position = _selected(x, op, make)
    dims = {**source.dims, **{d: make.placements(n, op.window.dimensions[d]) for d, n in x.dims.items()}}
    valid = make.valid(placements, dims)
    position = make.chosen(valid, position, make.number(-1))
    scatter = Scatter(
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=len(placements),
        to_apply=op.scatter,
    )
    kind = old.shape.element_type
    start = make.broadcast(make.convert(init.value, kind), (x.shape.num_elements,))
    value = make.add(scatter, start, position, make.convert(source.value, kind))
    return array(make.reshape(value, bounds), x.dims)


def _selected(x: Padded, op: SelectAndScatter, make: Padder) -> Instruction:
    """For each placement the row-major index of its selected element; -1 if it has no valid element."""
    bounds = x.shape.dimensions
    numbers = make.reshape(make.positions((x.shape.num_elements,), 0), bounds)
    valid = make.valid(bounds, x.dims) or make.broadcast(make.scalar(True, PrimitiveType.PRED), bounds)
    kind = op.select.parameters[0].shape.element_type
    values = make.convert(x.value, kind)

    def select(inner: Padder, *given: Instruction) -> Instruction:
        (a, _, a_valid), (b, _, b_valid) = given[:3], given[3:]
        wins = inner.add(Call(to_apply=op.select), a, b)
        keeps = inner.apply("and", a_valid, inner.apply("or", inner.apply("not", b_valid), wins))
        return inner.tuple(*(inner.apply("select", keeps, p, q) for p, q in zip(given[:3], given[3:], strict=True)))

    scalars = [Shape(kind), Shape(PrimitiveType.S32), Shape(PrimitiveType.PRED)]
    selection = make.function(f"{op.select.name}_valid", [*scalars, *scalars], select)
    starts = [make.zero(kind), make.number(-1), make.scalar(False, PrimitiveType.PRED)]
    window = ReduceWindow(window=op.window, to_apply=selection)
    return make.element(make.add(window, values, numbers, valid, *starts), 1)


# -- sorts ---------------------------------------------------------------------------------------------


@_rule("sort")
def sort(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Padding goes last: its key is the greatest if the comparator orders by one key, else a PRED is compared first."""
    op = old.op_as(Sort)
    bounds = operands[0].shape.dimensions
    sizes = [x.dims for x in operands]
    dims = {d: size for x in reversed(operands) for d, size in x.dims.items() if d == op.dimension}
    valid = make.valid(bounds, dims)
    values = [x.value for x in operands]
    if valid is None:
        return bundle(make.at_bounds(values), sizes)
    last = _last_key(op.to_apply, operands)
    if last is not None:
        key, number = last
        values[key] = make.chosen(valid, values[key], make.constant(number))
        # Valid elements with that key come first, because the sort is stable.
        stable = Sort(dimension=op.dimension, is_stable=True, to_apply=op.to_apply)
        return bundle(make.at_bounds(values, stable), sizes)
    order = Sort(dimension=op.dimension, is_stable=op.is_stable, to_apply=_valid_first(op.to_apply, make))
    parts = make.elements(make.add(order, *values, make.apply("not", valid)))[:-1]
    return bundle(make.tuple(*parts) if old.shape.is_tuple else parts[0], sizes)


def _last_key(comparator: Computation, operands: Sequence[Padded]) -> tuple[int, Array] | None:
    """The operand that a comparator orders by and the last key in its order; None unless it is one total comparison."""
    root = comparator.root
    if not isinstance(root.op, Compare) or any(not isinstance(o.op, Parameter) for o in root.operands):
        return None
    first, second = (o.op.number for o in root.operands)  # pyright: ignore
    kind = operands[first // 2].shape.element_type
    direction = root.op.direction
    directions = (ComparisonDirection.LT, ComparisonDirection.GT)
    total = root.op.type is ComparisonType.TOTALORDER or kind.is_integral or kind is PrimitiveType.PRED
    own = root.operands[0].shape.element_type is kind
    if first ^ 1 != second or direction not in directions or not total or not own:
        return None
    greatest = (direction is ComparisonDirection.LT) is (first % 2 == 0)
    number = last_in_total_order(kind, greatest=greatest)
    return None if number is None else (first // 2, number)


def _valid_first(comparator: Computation, make: Padder) -> Computation:
    """less -> less if both elements are valid; else the valid one goes first."""

    def first(inner: Padder, *given: Instruction) -> Instruction:
        *keys, missing, other_missing = given
        less = inner.add(Call(to_apply=comparator), *keys)
        return inner.apply("and", inner.apply("not", missing), inner.apply("or", other_missing, less))

    shapes = [*(p.shape for p in comparator.parameters), *[Shape(PrimitiveType.PRED)] * 2]
    return make.function(f"{comparator.name}_valid", shapes, first)


@_rule("topk")
def top_k(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Padding comes last; if fewer than k elements are valid, zeros fill the rest."""
    (x,), op = operands, old.op_as(TopK)
    last_dimension = x.shape.rank - 1
    size = x.dims.get(last_dimension)
    dims = {d: n for d, n in x.dims.items() if d != last_dimension}
    if size is None:
        return bundle(make.at_bounds([x.value]), [dims, dims])
    last = last_in_total_order(x.shape.element_type, greatest=not op.largest)
    if last is not None:
        value = make.at_bounds([make.filled(x, make.constant(last), [last_dimension])])
        parts = make.elements(value)
    else:
        parts = _first_in_order(x, size, op, make)
    results: list[Instruction] = []
    for part in parts:
        valid = make.valid(part.shape.dimensions, {last_dimension: size})
        results.append(make.chosen(valid, part, make.zero(part.shape.element_type)))
    return bundle(make.tuple(*results), [dims, dims])


def _first_in_order(x: Padded, size: Instruction, op: TopK, make: Padder) -> list[Instruction]:
    """The first k elements of a stable sort, and their positions."""
    bounds, axis = x.shape.dimensions, x.shape.rank - 1
    compare = Compare(
        direction=ComparisonDirection.GT if op.largest else ComparisonDirection.LT, type=ComparisonType.TOTALORDER
    )
    shapes = [Shape(x.shape.element_type)] * 2 + [Shape(PrimitiveType.S32)] * 2
    comparator = make.function("first", shapes, lambda inner, a, b, *_: inner.add(compare, a, b))
    positions = make.positions(bounds, axis)
    missing = make.compare(positions, make.broadcast(size, bounds), "GE")
    order = Sort(dimension=axis, is_stable=True, to_apply=_valid_first(comparator, make))
    parts = make.elements(make.add(order, x.value, positions, missing))[:2]
    return [beginning(part, (*bounds[:-1], op.k), make) for part in parts]
