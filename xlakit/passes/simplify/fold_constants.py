"""Constant folding: the reference interpreter computes operations on constants when the program is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import XlakitError
from xlakit.execution.calls.custom_calls import CustomCalls
from xlakit.execution.context import ExecutionContext
from xlakit.execution.device import Device, start_run
from xlakit.execution.groups import Grid
from xlakit.execution.program import Program
from xlakit.execution.random_state import RandomState
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array, Op, Value
from xlakit.ir.traits import DataMovement, Elementwise, Expensive
from xlakit.ops.convolution import Convolution
from xlakit.ops.data import Constant, Copy, GetTupleElement, Iota, Tuple
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.elementwise.select import Select
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from xlakit.ops.reduction import Map, Reduce, applied_op
from xlakit.ops.scatter import Scatter
from xlakit.ops.sort import Sort
from xlakit.ops.windows import ReduceWindow, SelectAndScatter
from xlakit.options import current
from xlakit.passes.core.matching import literal
from xlakit.passes.core.rewriter import ANY, Rewriter
from xlakit.passes.core.rules import Rules

CONSTANTS = Rules("constants")
_rule = CONSTANTS.rule

# Operations that depend on their operands alone and take bounded time. Broadcasts and iotas are left out: they take
# less space than the constants that they would become.
_FOLDED = (
    *(Elementwise, BitcastConvert, GetTupleElement, Reshape, Reverse, Slice, Transpose, Concatenate, Pad),
    *(DynamicSlice, DynamicUpdateSlice, Gather, Scatter, SelectAndScatter, Map, Reduce, ReduceWindow, Sort),
    *(Convolution, Dot),
)

# Operations for which NumPy has functions of whole arrays, which are fast enough for large ones.
_FOLDED_IF_LARGE = (Elementwise, BitcastConvert, Reshape, Reverse, Slice, Transpose, Reduce)

# The smallest normal numbers of F32 and F64.
_SMALLEST = (2.0**-126, 2.0**-1022)
# Operations whose results have elements of the operands as they are.
_MOVES = (
    *(DataMovement, BitcastConvert, GetTupleElement, Concatenate, Pad, Select),
    *(DynamicSlice, DynamicUpdateSlice, Gather),
)

# No operation that is folded draws random numbers.
_NO_RANDOM = RandomState()
_NO_MODULE = HloModule(
    "constants", Computation.from_root("constants", Instruction(Tuple(), (), make_tuple_shape([]), "nothing"))
)

# The operands together may have so many times the elements that a result may have.
_OPERANDS_TO_RESULT = 4
# The most elements of a folded constant.
_MOST_ELEMENTS = 4096
# The most instructions of an expression that is evaluated for each device.
_MOST_INSTRUCTIONS = 32
# The most elements of operands if the result is no larger than they are: some milliseconds for each operation.
_MOST_OF_LARGE = 1 << 21


@_rule("constant")
def constant_of_one_number(x: Instruction, make: Rewriter) -> Instruction | None:
    """constant({c, c, c}) -> broadcast(c): all of its elements have the same bits."""
    array = literal(x)
    if array is None or array.size < 2:
        return None
    first = array.reshape(-1)[:1]
    # Most constants already differ in the first two elements; only the others are compared as a whole.
    if array.reshape(-1)[1:2].tobytes() != first.tobytes():
        return None
    flat = np.ascontiguousarray(array).reshape(-1).view(f"V{array.dtype.itemsize}")
    if not (flat == flat[0]).all():
        return None
    return make.broadcast(make.scalar(first.reshape(()), x.shape.element_type), x.shape.dimensions)


@_rule(ANY)
def fold(x: Instruction, make: Rewriter) -> Instruction | None:
    """f(constants) -> constant, of at most 4,096 elements; random numbers and loops are left alone.

    An operand may be a broadcast of a constant or an iota, too. The result of an element-wise operation, a movement or
    a reduction may have more elements, if it has no more bytes than a constant among its operands.
    """
    if not _is_folded(type(x.op)):
        return None
    for operand in x.operands:
        if not _is_known(operand):
            return None
    operands = sum(_elements(o.shape) for o in x.operands)
    is_large = _elements(x.shape) > _MOST_ELEMENTS or operands > _MOST_ELEMENTS * _OPERANDS_TO_RESULT
    if is_large and (operands > _MOST_OF_LARGE or not _is_no_larger(x)):
        return None
    try:
        value = value_of(x)
    except XlakitError:
        # The program raises the error when it runs.
        return None
    # NumPy keeps subnormal numbers, which the program takes for zero where it computes with them.
    if current().flush_subnormals and not isinstance(x.op, _MOVES) and _any_subnormal(x, value):
        return None
    return _constant(value, x.shape.without_layout(), make)


def _is_no_larger(x: Instruction) -> bool:
    """Whether NumPy takes nanoseconds per element, and the result is no larger than one of the constants."""
    if not isinstance(x.op, _FOLDED_IF_LARGE) or not x.shape.is_array:
        return False
    if isinstance(x.op, Expensive) and any(o.shape.element_type.is_complex for o in x.operands):
        # The interpreter takes up to a microsecond for each element.
        return False
    if isinstance(x.op, Reduce) and applied_op(x.op.to_apply) is None:
        return False
    return any(isinstance(o.op, Constant) and o.shape.byte_size >= x.shape.byte_size for o in x.operands)


@cache
def _is_folded(kind: type[Op]) -> bool:
    return issubclass(kind, _FOLDED) and not issubclass(kind, Copy)


def _is_known(x: Instruction) -> bool:
    if isinstance(x.op, Broadcast):
        x = x.operands[0]
    return isinstance(x.op, (Constant, Iota))


def _any_subnormal(x: Instruction, value: Value) -> bool:
    """Whether an operand of a folded operation, or its result, has a number that is too small to be normal."""
    arrays: list[Value] = [value]
    for operand in x.operands:
        known = operand.operands[0] if isinstance(operand.op, Broadcast) else operand
        arrays.append(literal(known))
    while arrays:
        array = arrays.pop()
        if isinstance(array, tuple):
            arrays += array
        elif isinstance(array, np.ndarray) and array.dtype.kind not in "biu" and _has_subnormal(array):
            return True
    return False


def _has_subnormal(array: Array) -> bool:
    if array.dtype.kind == "c":
        return _has_subnormal(np.real(array)) or _has_subnormal(np.imag(array))
    # All narrower floats are calculated in F32, in which most of their own subnormal numbers are normal.
    magnitudes, smallest = np.abs(array.astype(np.float64)), _SMALLEST[array.dtype == np.float64]
    return bool(((magnitudes > 0) & (magnitudes < smallest)).any())


def _elements(shape: Shape) -> int:
    return shape.num_elements if shape.is_array else sum(_elements(s) for s in shape.tuple_shapes)


@cache
def _no_calls() -> CustomCalls:
    """A registry without functions: no folded operation is a custom call."""
    return CustomCalls(None)


@cache
def _nothing_to_wait_for() -> ExecutionContext:
    """An execution context that all devices here share, since no folded operation communicates."""
    return ExecutionContext()


def _device() -> Device:
    """A new device of a program without instructions, on which operations are evaluated."""
    program = Program(_NO_MODULE, Grid(1, 1), _no_calls())
    execution_context = _nothing_to_wait_for()
    run = start_run(program, execution_context, shares_context=False)
    return Device(run, execution_context, 0, _NO_RANDOM)


@cache
def _lasting_device() -> Device:
    """One device for all operations that call no computation; a device caches data of called computations."""
    return _device()


def value_of(x: Instruction, given: Mapping[Instruction, Value] | None = None) -> Value:
    """The value of an expression of folded operations; ``given`` has those of its other leaves.

    Raises what the operations raise when the program runs.
    """
    # Imported here, because most small programs have nothing to fold.
    from xlakit.interpreter.evaluate import Context

    context = Context(_device() if x.op.can_call else _lasting_device(), x)
    values: dict[Instruction, Value] = dict(given or {})

    def evaluated(known: Instruction) -> Value:
        if known not in values:
            operands = [evaluated(o) for o in known.operands]
            context.instruction = known
            values[known] = known.op.evaluate(context, *operands)
        return values[known]

    return evaluated(x)


def computed_from(x: Instruction, leaves: tuple[type[Op], ...]) -> list[Instruction] | None:
    """The instructions of some kinds that a small expression of folded operations and constants is computed from.

    None if it depends on anything else, or is not small.
    """
    found: dict[Instruction, bool] = {}
    waiting = [x]
    while waiting:
        own = waiting.pop()
        if own in found:
            continue
        is_leaf = isinstance(own.op, leaves)
        is_small = own.shape.is_array and not own.shape.is_dynamic and own.shape.num_elements <= _MOST_ELEMENTS
        is_known = isinstance(own.op, (Constant, Iota, Broadcast)) or (_is_folded(type(own.op)) and not own.op.can_call)
        if not is_small or len(found) >= _MOST_INSTRUCTIONS or not (is_leaf or is_known):
            return None
        found[own] = is_leaf
        waiting.extend(own.operands)
    return [own for own, is_leaf in found.items() if is_leaf]


def _constant(value: Value, shape: Shape, make: Rewriter) -> Instruction | None:
    if shape.is_tuple:
        elements = [_constant(v, s, make) for v, s in zip(value, shape.tuple_shapes, strict=True)]
        return make.tuple(*(e for e in elements if e is not None)) if None not in elements else None
    if not shape.is_array or value.shape != shape.dimensions:
        return None
    return make.add(Constant(literal=Literal(shape, np.ascontiguousarray(value).reshape(shape.dimensions))))
