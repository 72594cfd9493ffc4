"""Range analysis of loop counters: folds comparisons, clamps, minima and maxima that are decided by the ranges."""

from __future__ import annotations

from collections.abc import Callable

from xlakit.data.primitive import PrimitiveType
from xlakit.ir.attributes import SliceDimension
from xlakit.ir.enums import ComparisonDirection
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import DataMovement
from xlakit.ops.control import While
from xlakit.ops.data import Constant, Copy, Iota
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.elementwise.binary import Maximum, Minimum
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.elementwise.select import Clamp, Select
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate
from xlakit.ops.scatter import Scatter
from xlakit.ops.shared.numerics import limits, to_integer
from xlakit.passes.analysis.loops import Loop, LoopPass, counted_elements, element_read, loop_of, with_loops
from xlakit.passes.core.framework import PassContext
from xlakit.passes.core.matching import as_integer, literal, uniform
from xlakit.passes.core.rewriter import Rewriter, RuleIndex
from xlakit.passes.core.rules import Rules
from xlakit.passes.simplify.indexing import only_window, update_window

RANGES = Rules("while-ranges")
_rule = RANGES.rule

# The least and the greatest value of an integer.
Range = tuple[int, int]

# The depth of the search through operands.
_DEPTH = 12


class WhileRanges(LoopPass):
    """Fold operations on counters of loops with a known trip count, such as a test for negative numbers."""

    name = "while-ranges"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Change the loops of one computation."""
        index = RANGES.index(context.disabled)
        changed: dict[Instruction, While] = {}
        for loop in map(loop_of, computation.instructions):
            ranges = None if loop is None else counted_elements(loop)
            if loop is not None and ranges:
                body = _RangesRewriter(loop, ranges, index, context).result()
                if body is not loop.body:
                    body = Computation(
                        context.computation_name(body.name), body.instructions, body.root, body.execution_thread
                    )
                    changed[loop.instruction] = While(condition=loop.condition, body=body)
        return with_loops(computation, changed, context)


class _RangesRewriter(Rewriter):
    """Rewrites the body of a loop, given the ranges of some elements of its state."""

    def __init__(self, loop: Loop, elements: dict[int, Range], index: RuleIndex, context: PassContext) -> None:
        super().__init__(loop.body, index, context)
        self._parameter = loop.parameter
        self._elements = elements
        self._known: dict[Instruction, Range | None] = {}

    def range_of(self, x: Instruction, depth: int = _DEPTH) -> Range | None:
        """The range of all elements of an array of integers, if it is known."""
        if not x.shape.is_array or not x.shape.element_type.is_integral or not depth:
            return None
        if x not in self._known:
            found = self._find(x, depth - 1)
            least, greatest = limits(x.shape.element_type)
            self._known[x] = found if found is not None and least <= found[0] and found[1] <= greatest else None
        return self._known[x]

    def _find(self, x: Instruction, depth: int) -> Range | None:
        """The bounds of an array's elements, from its operation and the bounds of its operands; None if unknown."""
        number = element_read(x, self._parameter)
        if number is not None:
            return self._elements.get(number)
        op = x.op
        if isinstance(op, Constant):
            one = as_integer(uniform(x))
            array = literal(x)
            if one is None and array is not None and array.size:
                numbers = to_integer(array)
                return int(numbers.min()), int(numbers.max())
            return None if one is None else (one, one)
        if isinstance(op, Iota):
            return 0, x.shape.dimensions[op.iota_dimension] - 1
        # A gather with a slice size of 0 may give zeros, which are no elements of the operand.
        if isinstance(op, _MOVING) and not (isinstance(op, Gather) and 0 in op.slice_sizes):
            return self.range_of(x.operands[0], depth)
        if isinstance(op, Convert) and x.operands[0].shape.element_type is PrimitiveType.PRED:
            return 0, 1
        combine = _COMBINED.get(op.opcode)
        if combine is None:
            return None
        ranges = [self.range_of(o, depth) for o in x.operands[isinstance(op, Select) :]]
        if isinstance(op, _BOUNDING):
            whole = limits(x.shape.element_type)
            ranges = [whole if r is None else r for r in ranges]
        return combine(*ranges) if None not in ranges else None


# Operations whose result consists of elements of the first operand.
_MOVING = (DataMovement, Copy, DynamicSlice, Gather)
# Operations whose result is bounded although the range of an operand is unknown.
_BOUNDING = (Clamp, Maximum, Minimum)


def _product(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _clamped(low: Range, x: Range, high: Range) -> Range:
    return min(max(low[0], x[0]), high[0]), min(max(low[1], x[1]), high[1])


_COMBINED: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _product,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "select": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "concatenate": lambda *parts: (min(p[0] for p in parts), max(p[1] for p in parts)),
    "clamp": _clamped,
    "convert": lambda a: a,
}


def _range(x: Instruction, make: Rewriter) -> Range | None:
    return make.range_of(x) if isinstance(make, _RangesRewriter) else None


# -- rules -----------------------------------------------------------------------------------------


@_rule("compare")
def compare_ranges(x: Instruction, make: Rewriter) -> Instruction | None:
    """i < n -> true, where the greatest i is below the least n, and likewise for the other directions."""
    left, right = (_range(o, make) for o in x.operands)
    if left is None or right is None:
        return None
    verdict = _VERDICTS[x.op_as(Compare).direction](left, right)
    return None if verdict is None else make.full(verdict, x.shape)


def _below(a: Range, b: Range) -> bool | None:
    return True if a[1] < b[0] else False if a[0] >= b[1] else None


def _equal(a: Range, b: Range) -> bool | None:
    if a[1] < b[0] or b[1] < a[0]:
        return False
    return True if a == b and a[0] == a[1] else None


def _opposite(verdict: bool | None) -> bool | None:
    return None if verdict is None else not verdict


_VERDICTS: dict[ComparisonDirection, Callable[[Range, Range], bool | None]] = {
    ComparisonDirection.LT: _below,
    ComparisonDirection.GE: lambda a, b: _opposite(_below(a, b)),
    ComparisonDirection.GT: lambda a, b: _below(b, a),
    ComparisonDirection.LE: lambda a, b: _opposite(_below(b, a)),
    ComparisonDirection.EQ: _equal,
    ComparisonDirection.NE: lambda a, b: _opposite(_equal(a, b)),
}


@_rule("clamp")
def clamp_inside(x: Instruction, make: Rewriter) -> Instruction | None:
    """clamp(a, i, b) -> i, where i is always between the greatest a and the least b."""
    low, number, high = (_range(o, make) for o in x.operands)
    if low is None or number is None or high is None or number[0] < low[1] or number[1] > high[0]:
        return None
    return x.operands[1]


@_rule("maximum", "minimum")
def min_max_of_ranges(x: Instruction, make: Rewriter) -> Instruction | None:
    """max(i, j) -> i, min(i, j) -> j, where i is never below j, and the other way round."""
    left, right = (_range(o, make) for o in x.operands)
    if left is None or right is None or not (left[0] >= right[1] or right[0] >= left[1]):
        return None
    return x.operands[0 if (left[0] >= right[1]) == (isinstance(x.op, Maximum)) else 1]


@_rule("scatter")
def scatter_inside(x: Instruction, make: Rewriter) -> Instruction | None:
    """scatter(x, i, u, f) -> dynamic-update-slice(x, f(x[i], u), i) of one window, where it is always inside of x."""
    sizes = only_window(x)
    if sizes is None:
        return None
    starts = _components(x.operands[1], make)
    bounds = x.operands[0].shape.dimensions
    for start, dimension in zip(starts, x.op_as(Scatter).scatter_dims_to_operand_dims, strict=True):
        found = _range(start, make)
        if found is None or found[0] < 0 or found[1] > bounds[dimension] - sizes[dimension]:
            return None
    return update_window(x, sizes, [make.reshape(start, ()) for start in starts], make)


def _components(indices: Instruction, make: Rewriter) -> list[Instruction]:
    """The components of a single index vector, each as an array of one element."""
    if indices.shape.num_elements == 1:
        return [indices]
    if isinstance(indices.op, Concatenate):
        return [part for operand in indices.operands for part in _components(operand, make)]
    if isinstance(indices.op, Broadcast) and indices.operands[0].shape.num_elements == 1:
        return [indices.operands[0]] * indices.shape.num_elements
    flat = make.reshape(indices, (indices.shape.num_elements,))
    return [make.slice(flat, [SliceDimension(i, i + 1)]) for i in range(indices.shape.num_elements)]
