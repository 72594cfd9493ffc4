"""Async operations around a computation or a copy: start, any number of updates, done.

Source: the opcodes of the same names of today's HLO. The interpreter does the work as soon as all arguments are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import ShapeError, VerificationError
from xlakit.ir.attributes import OutputOperandAliasing
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ir.traits import Distinct, Done, Start
from xlakit.ops.handle import Builder, ComputationLike, OperandLike, XlaOp, as_op, building, emit
from xlakit.ops.shared.calling import Calling, agree, check_aliasing, zero_value
from xlakit.ops.shared.checks import need_declared


def _check_state(shape: Shape) -> tuple[Shape, ...]:
    """The parts of an asynchronous value: ((arguments...), result, contexts...); raises ShapeError."""
    parts = shape.tuple_shapes
    if len(parts) < 2 or not parts[0].is_tuple:
        raise ShapeError(
            f"the shape is ((arguments...), result, contexts...), not {shape}",
            hint="declare ((the arguments' shapes), the result's shape, u32[])",
        )
    return parts


def _check_prefix(parts: Sequence[Shape], computation: Computation, arguments: Sequence[Shape]) -> None:
    """Raise ShapeError unless the first parameters are the arguments, and the result is the computation's.

    As long as arguments are missing, the result may be declared as (), for a result that is not known yet.
    """
    program = computation.program_shape
    if len(arguments) > len(program.parameters):
        raise ShapeError(
            f"{computation.name} takes {len(program.parameters)} arguments, got {len(arguments)}",
            hint=f"give async-start the first {len(program.parameters)} only, and no more to its updates",
        )
    for number, (argument, parameter) in enumerate(zip(arguments, program.parameters, strict=False)):
        if not agree(argument, parameter):
            raise ShapeError(
                f"{computation.name} takes {parameter} as parameter {number}, got {argument}",
                hint=f"give {parameter.without_layout()}, or a computation that takes {argument.without_layout()}",
            )
    if len(parts[0].tuple_shapes) != len(arguments):
        raise ShapeError(
            f"the shape says {len(parts[0].tuple_shapes)} arguments, there are {len(arguments)}",
            hint="declare one shape for each argument that the chain has so far",
        )
    if not _starts_with(parts[1], program.result):
        raise ShapeError(
            f"{computation.name} gives {program.result}, the shape says {parts[1]}",
            hint=f"declare {program.result.without_layout()}, or () as long as it is open",
        )


def _starts_with(part: Shape, whole: Shape) -> bool:
    """Whether ``part`` is ``whole``, or a tuple without some of its last elements, () standing for any."""
    if not part.is_tuple or agree(part, whole):
        return agree(part, whole)
    if not part.tuple_shapes:
        return True
    return (
        whole.is_tuple
        and len(part.tuple_shapes) <= len(whole.tuple_shapes)
        and all(_starts_with(p, w) for p, w in zip(part.tuple_shapes, whole.tuple_shapes, strict=False))
    )


def _check_start_aliasing(op: AsyncStart, parts: Sequence[Shape]) -> None:
    """Raise ShapeError unless each pair names a parameter of the computation and an equal part of the whole value."""
    program = op.calls.program_shape
    whole = make_tuple_shape([make_tuple_shape(program.parameters), program.result, *parts[2:]])
    if any(not pair.output_index for pair in op.output_to_operand_aliasing):
        raise ShapeError(
            "output_to_operand_aliasing must name a part of the asynchronous value, not all of it",
            hint="name the result as {1}, a context as {2}",
        )
    check_aliasing(op.output_to_operand_aliasing, program.parameters, whole, across_buffers=True)


def _check_update_aliasing(op: AsyncUpdate, before: Shape, after: Shape) -> None:
    """Raise ShapeError unless each pair names contexts: elements from index 2 on, before and after."""
    for pair in op.output_to_operand_aliasing:
        if pair.operand_number or pair.operand_index[:1] != (2,) or pair.output_index[:1] != (2,):
            raise ShapeError(
                "output_to_operand_aliasing of async-update can only join the contexts, {2}: (0, {2})",
                hint="leave out the pairs of arguments and results; they are those of the start",
            )
    check_aliasing(op.output_to_operand_aliasing, [before], after, across_buffers=True)


def _state(computation: Computation, context: Evaluation, arguments: Sequence[Value]) -> Value:
    """The asynchronous value: with the result if all arguments are bound, else with zeros in its place."""
    parts = context.shape.tuple_shapes
    complete = len(arguments) == len(computation.parameters)
    result = context.call(computation, *arguments) if complete else zero_value(parts[1])
    return (tuple(arguments), result, *(zero_value(s) for s in parts[2:]))


class Async(Calling):
    """The base of the start, the updates and the done of an asynchronous computation."""

    __slots__ = ()


@operation("async-start")
class AsyncStart(Async, Start, Distinct):
    """Begin to run ``calls``; the arguments may be given here, or later by async-update."""

    async_execution_thread: str = attribute(Kind.STRING, default="main")
    output_to_operand_aliasing: tuple[OutputOperandAliasing, ...] = attribute(
        Kind.OUTPUT_OPERAND_ALIASING, default=(), proto="output_operand_aliasing"
    )
    calls: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if declared is None:
            declared = make_tuple_shape([make_tuple_shape(operands), self.calls.root.shape, Shape(PrimitiveType.U32)])
        parts = _check_state(declared)
        _check_prefix(parts, self.calls, operands)
        _check_start_aliasing(self, parts)
        arguments = make_tuple_shape([o.without_layout() for o in operands])
        return make_tuple_shape([arguments, *(p.without_layout() for p in parts[1:])])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return _state(self.calls, context, operands)


class _Continuing(Async):
    """The base of updates and done: their computation is that of the start, whether or not they name it."""

    __slots__ = ()

    calls: Computation | None

    @property
    def has_side_effect(self) -> bool:
        # Without ``calls`` the computation is not known here and may have effects; then its start is kept, and needs
        # this end.
        return self.calls is None or self.calls.has_side_effect

    def computation(self, instruction: Instruction) -> Computation:
        """The computation that runs; raises VerificationError where neither this nor the start names it."""
        if self.calls is not None:
            return self.calls
        start = instruction.operands[0]
        while start.operands and not isinstance(start.op, AsyncStart):
            start = start.operands[0]
        return start.op_as(AsyncStart).calls


@operation("async-update")
class AsyncUpdate(_Continuing, Distinct):
    """Continue an asynchronous operation, and bind more of its arguments."""

    output_to_operand_aliasing: tuple[OutputOperandAliasing, ...] = attribute(
        Kind.OUTPUT_OPERAND_ALIASING, default=(), proto="output_operand_aliasing"
    )
    calls: Computation | None = attribute(Kind.COMPUTATION, default=None)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not operands:
            raise ShapeError(
                "takes an asynchronous value and further arguments",
                hint="give what async-start or another async-update gave first",
            )
        state, *more = operands
        parts = _check_state(state)
        arguments = [*parts[0].tuple_shapes, *more]
        result = _check_state(need_declared(declared)) if more or declared is not None else parts
        if not _starts_with(parts[1], result[1]):
            raise ShapeError(
                f"its operand has the result {parts[1]}, it declares the result {result[1]}",
                hint=f"declare {parts[1]}; only tuples may get further elements",
            )
        if self.calls is not None:
            _check_prefix(result, self.calls, arguments)
        after = make_tuple_shape([make_tuple_shape(arguments), *result[1:]]).without_layout()
        _check_update_aliasing(self, state, after)
        return after

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        state, *more = operands
        # Without new arguments there is nothing to do; with them all may be bound now, and the computation can run.
        return _state(self.computation(context.instruction), context, [*state[0], *more]) if more else state


@operation("async-done", arity=1)
class AsyncDone(_Continuing, Done, Distinct):
    """The result of an asynchronous operation."""

    calls: Computation | None = attribute(Kind.COMPUTATION, default=None)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        parts = _check_state(operands[0])
        if self.calls is not None:
            _check_prefix(parts, self.calls, parts[0].tuple_shapes)
            if len(parts[0].tuple_shapes) < len(self.calls.parameters):
                raise ShapeError(
                    f"{self.calls.name} has not got all its arguments yet", hint="give the rest to async-update before"
                )
        # A start or an update may have been declared with an incomplete result.
        known = declared is not None and _starts_with(parts[1], declared)
        return (declared if declared is not None and known else parts[1]).without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        arguments, result, *_ = operands[0]
        computation = self._known(context.instruction)
        if computation is not None and len(arguments) < len(computation.parameters):
            raise VerificationError(
                f"{computation.name} has not got all its arguments yet", hint="give the rest to async-update before"
            )
        return result

    def _known(self, instruction: Instruction) -> Computation | None:
        try:
            return self.computation(instruction)
        except VerificationError:
            # The chain begins with a parameter; the start is checked in the computation that has it.
            return None


@building
def async_start(
    builder: Builder, computation: ComputationLike, operands: Sequence[OperandLike], execution_thread: str = "main"
) -> XlaOp:
    """Begin to run a computation; gives ((operands...), result, u32[]) for async_update and async_done.

    Raises ShapeError. Source: Operation semantics, Async.
    """
    ops = [as_op(builder, o) for o in operands]
    called = builder.subcomputation(computation, [o.shape for o in ops])
    if called.execution_thread != execution_thread:
        called = dataclasses.replace(called, execution_thread=execution_thread)
    return builder.append(AsyncStart(async_execution_thread=execution_thread, calls=called), ops)


@building
def async_update(operand: XlaOp) -> XlaOp:
    """Go on with what async_start began; gives the same. Raises ShapeError. Source: Operation semantics, Async."""
    return emit(AsyncUpdate(), operand)


@building
def async_done(operand: XlaOp) -> XlaOp:
    """Wait for what async_start began and give its result. Raises ShapeError. Source: Operation semantics, Async."""
    return emit(AsyncDone(), operand)


# -- copies ----------------------------------------------------------------------------------------


@operation("copy-start", arity=1)
class CopyStart(Op, Start, Distinct):
    """Begin to copy, possibly to another memory; gives (copy, operand, u32[])."""

    cross_program_prefetch_index: int | None = attribute(Kind.INT64, default=None)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        own = operands[0].without_layout()
        return make_tuple_shape([own, own, Shape(PrimitiveType.U32)])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return (operands[0], operands[0], np.zeros((), np.uint32))


@operation("copy-done", arity=1)
class CopyDone(Op, Done, Distinct):
    """The copy that a copy-start began."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        parts = operands[0].tuple_shapes
        if len(parts) != 3 or not agree(parts[0], parts[1]):
            raise ShapeError(
                f"takes (copy, operand, u32[]) of copy-start, got {operands[0]}", hint="give what copy-start gave"
            )
        return parts[0].without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return operands[0][0]


@building
def copy_start(operand: XlaOp) -> XlaOp:
    """Begin to copy a value; gives (copy, operand, u32[]) for copy_done. Source: Operation semantics, Copy."""
    return emit(CopyStart(), operand)


@building
def copy_done(operand: XlaOp) -> XlaOp:
    """The copy that copy_start began. Raises ShapeError. Source: Operation semantics, Copy."""
    return emit(CopyDone(), operand)
