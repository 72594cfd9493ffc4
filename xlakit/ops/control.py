"""Control flow: computations called once, in a loop, by choice, along a dimension, or fused.

Source: XLA's document "Operation semantics", sections Call, Conditional and While; Scan, Fusion and CompositeCall are
operations of today's HLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from xlakit.arguments import converting
from xlakit.data.nesting import leaves_of
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ir.attributes import OutputOperandAliasing
from xlakit.ir.enums import FusionKind, TriState
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array, Evaluation, Kind, Value, attribute, operation
from xlakit.ops.data import ArgumentLike, as_argument
from xlakit.ops.handle import (
    Builder,
    ComputationLike,
    OperandLike,
    XlaOp,
    as_op,
    as_sequence,
    building,
    common_builder,
    emit,
)
from xlakit.ops.shared.calling import Calling, agree, check_aliasing, check_arguments, join_dynamic
from xlakit.ops.shared.hints import below


@operation("call", documents=("Call", "CompositeCall"))
class Call(Calling):
    """Run ``to_apply`` on the operands; a composite is a call whose computation stands for a named operation."""

    to_apply: Computation = attribute(Kind.COMPUTATION)
    is_composite: bool = attribute(Kind.BOOL, default=False)

    @property
    def is_pointwise(self) -> bool:
        return self.to_apply.is_pointwise

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        return check_arguments(self.to_apply, operands)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return context.call(self.to_apply, *operands)


@building
def call(builder: Builder, computation: ComputationLike, args: Sequence[OperandLike] = ()) -> XlaOp:
    """Run a computation on arguments.

    computation: (T_0, .., T_{N-1}) -> S, or a Python function on handles.
    args: N values of types T_0 .. T_{N-1}.

    Gives an S. Raises ShapeError. Source: Operation semantics, Call.
    """
    operands = [as_op(builder, a) for a in args]
    return builder.append(Call(to_apply=builder.subcomputation(computation, [o.shape for o in operands])), operands)


@building
def composite_call(
    builder: Builder,
    computation: ComputationLike,
    operands: Sequence[OperandLike],
    name: str,
    *,
    attributes: str | None = None,
    version: int | None = None,
) -> XlaOp:
    """A call that stands for the operation ``name``, which a compiler may replace it by.

    attributes: text of a dictionary, ``{}`` by default. version: of the operation's meaning, 0 by default.

    Gives what ``computation`` gives. Raises ShapeError. Source: Operation semantics, CompositeCall.
    """
    if not name:
        raise ArgumentError("a composite needs a name", hint='name it as dialect.operation, such as "my.gelu"')
    if version is not None and version < 0:
        raise ArgumentError(f"version {version} is negative", hint="give 0 or more, or leave it out")
    ops = [as_op(builder, o) for o in operands]
    called = builder.subcomputation(computation, [o.shape for o in ops])
    composite = (
        ("composite.attributes", attributes or "{}"),
        ("composite.name", name),
        ("composite.version", str(version or 0)),
    )
    return builder.append(Call(to_apply=called, is_composite=True), ops, frontend_attributes=composite)


@operation("while", arity=1, documents=("While",))
class While(Calling):
    """Replace the value by ``body`` of it as long as ``condition`` of it is true."""

    condition: Computation = attribute(Kind.COMPUTATION)
    body: Computation = attribute(Kind.COMPUTATION)

    @property
    def called_computations(self) -> tuple[Computation, ...]:
        # The proto lists the body first.
        return self.body, self.condition

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (init,) = operands
        verdict = check_arguments(self.condition, operands, "condition")
        if not (verdict.is_scalar and verdict.element_type is PrimitiveType.PRED):
            raise ShapeError(
                f"condition {self.condition.name} must give pred[], gives {verdict}",
                hint="end it with a comparison of scalars",
            )
        result = check_arguments(self.body, operands, "body")
        if not agree(result, init):
            raise ShapeError(
                f"body {self.body.name} gives {result} for {init.without_layout()}",
                hint="the body's result has the shape of its parameter and of init, in all iterations",
            )
        return init.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        (state,) = operands
        while context.call(self.condition, state):
            state = context.call(self.body, state)
        return state


@building
def while_(condition: ComputationLike, body: ComputationLike, init: ArgumentLike) -> XlaOp:
    """Run ``body`` as long as ``condition`` holds.

    condition: T -> PRED. body: T -> T. Both may be Python functions on one handle.
    init: the first T: a handle, or a tuple of them.

    Gives the last T; the shape of T never changes. Raises ShapeError. Source: Operation semantics, While.
    """
    builder = common_builder(leaves_of(init))
    start = as_argument(builder, init)
    op = While(
        condition=builder.subcomputation(condition, [start.shape]), body=builder.subcomputation(body, [start.shape])
    )
    return emit(op, start)


@operation("conditional", documents=("Conditional",))
class Conditional(Calling):
    """Run one of ``branch_computations`` on its own operand.

    The first operand chooses: PRED between the first (true) and the second (false), S32 by number, where a number
    out of range means the last. In HLO text the two of a PRED are ``true_computation`` and ``false_computation``.
    """

    branch_computations: tuple[Computation, ...] = attribute(Kind.COMPUTATION_LIST)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        branches = self.branch_computations
        if not operands or not operands[0].is_scalar:
            raise ShapeError(
                "the first operand must be a scalar that chooses the branch",
                hint="give a pred, or an s32 that numbers the branches",
            )
        chooser = operands[0].element_type
        if chooser not in (PrimitiveType.PRED, PrimitiveType.S32):
            raise ShapeError(
                f"the branch is chosen by a pred or an s32, not {chooser.hlo_name}",
                hint="compare it to get a pred, or convert it to s32",
            )
        if not branches:
            raise ShapeError(
                "at least one branch is needed", hint="give one computation for each value of the branch index"
            )
        if chooser is PrimitiveType.PRED and len(branches) != 2:
            raise ShapeError(
                f"a pred chooses between 2 branches, got {len(branches)}",
                hint=f"give 2 branches, first the one for true, or an s32 to choose among {len(branches)}",
            )
        if len(operands) != len(branches) + 1:
            raise ShapeError(
                f"{len(branches)} branches take one operand each, got {len(operands) - 1}",
                hint=f"give {len(branches)} operands after the first; a tuple stands for several",
            )
        results = [
            check_arguments(branch, [operand], "branch") for branch, operand in zip(branches, operands[1:], strict=True)
        ]
        for number, (branch, result) in enumerate(zip(branches, results, strict=True)):
            if not agree(result, results[0]):
                raise ShapeError(
                    f"branch {number} ({branch.name}) gives {result}, branch 0 ({branches[0].name}) gives {results[0]}",
                    hint="all branches must give the same shape",
                )
        return join_dynamic(results)

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        number = self.branch_taken(operands[0])
        return context.call(self.branch_computations[number], operands[1 + number])

    def branch_taken(self, chooser: Array) -> int:
        """The number of the branch that a scalar chooses: a number, clamped to the last one; or PRED, true for 0."""
        last = len(self.branch_computations) - 1
        if chooser.dtype == np.bool_:
            return 0 if chooser else 1
        return int(chooser) if 0 <= chooser <= last else last


@overload
def conditional(
    pred: OperandLike,
    true_operand: ArgumentLike,
    true_computation: ComputationLike,
    false_operand: ArgumentLike,
    false_computation: ComputationLike,
) -> XlaOp: ...


@overload
def conditional(
    branch_index: XlaOp, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[ArgumentLike]
) -> XlaOp: ...


@building
def conditional(*args: Any, **named: Any) -> XlaOp:
    """Run one of several computations.

    ``conditional(pred, true_operand, true_computation, false_operand, false_computation)``: by a scalar PRED;
    the computations are T_0 -> S and T_1 -> S.
    ``conditional(branch_index, branch_computations, branch_operands)``: by a scalar S32 among N computations
    T_i -> S; where the number is out of range the last one runs.

    Operands may be tuples of handles, computations Python functions on one handle. Gives an S. Raises ShapeError.
    Source: Operation semantics, Conditional.
    """
    count = len(args) + len(named)
    if count not in (3, 5):
        raise ArgumentError(f"takes 3 or 5 arguments, got {count}", hint=f"write {_PRED_FORM} or {_INDEX_FORM}")
    return (_conditional_by_pred if count == 5 else _conditional_by_index)(*args, **named)


_PRED_FORM = "conditional(pred, true_operand, true_computation, false_operand, false_computation)"
_INDEX_FORM = "conditional(branch_index, branch_computations, branch_operands)"


@converting
def _conditional_by_pred(
    pred: OperandLike,
    true_operand: ArgumentLike,
    true_computation: ComputationLike,
    false_operand: ArgumentLike,
    false_computation: ComputationLike,
) -> XlaOp:
    return _conditional_by_index(pred, [true_computation, false_computation], [true_operand, false_operand])


@converting
def _conditional_by_index(
    branch_index: OperandLike, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[ArgumentLike]
) -> XlaOp:
    if len(branch_computations) != len(branch_operands):
        raise ShapeError(
            f"{len(branch_computations)} branches take one operand each, got {len(branch_operands)}",
            hint="one operand that is several values is a tuple",
        )
    builder = common_builder([branch_index, *leaves_of(tuple(branch_operands))])
    operands = [as_argument(builder, v) for v in branch_operands]
    branches = tuple(builder.subcomputation(c, [o.shape]) for c, o in zip(branch_computations, operands, strict=True))
    return emit(Conditional(branch_computations=branches), as_op(builder, branch_index), *operands)


@operation("fusion")
class Fusion(Calling):
    """Run ``calls`` on the operands as one kernel; how it is fused does not change the result."""

    kind: FusionKind = attribute(Kind.ENUM, enum=FusionKind, proto="fusion_kind")
    output_to_operand_aliasing: tuple[OutputOperandAliasing, ...] = attribute(
        Kind.OUTPUT_OPERAND_ALIASING, default=(), proto="output_operand_aliasing"
    )
    calls: Computation = attribute(Kind.COMPUTATION)

    @property
    def is_pointwise(self) -> bool:
        return self.calls.is_pointwise

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        # A fusion may have more operands than its computation has parameters; those are not read.
        result = check_arguments(self.calls, operands[: len(self.calls.parameters)], "fused computation")
        check_aliasing(self.output_to_operand_aliasing, operands, result)
        return result

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return context.call(self.calls, *operands)


@building
def fusion(
    builder: Builder,
    computation: ComputationLike,
    operands: Sequence[OperandLike],
    kind: FusionKind | str = FusionKind.LOOP,
) -> XlaOp:
    """Run a computation as one fused kernel.

    computation: (T_0, .., T_{N-1}) -> S. operands: N values of those types. kind: such as ``"loop"``.

    Gives an S. Raises ShapeError. Source: Operation semantics, Fusion.
    """
    ops = [as_op(builder, o) for o in operands]
    called = builder.subcomputation(computation, [o.shape for o in ops])
    return builder.append(Fusion(kind=FusionKind.of(kind), calls=called), ops)


@operation("scan", documents=("Scan",))
class Scan(Calling):
    """Fold along one dimension and keep every step's output; operands are inputs, then ``num_carries`` carries."""

    dimension: int = attribute(Kind.SINGLE_DIMENSION, text="dimensions", proto="dimensions")
    num_carries: int = attribute(Kind.INT64, always=True)
    is_reverse: bool = attribute(Kind.BOOL, default=False)
    is_associative: TriState = attribute(Kind.ENUM, enum=TriState, default=TriState.TRI_STATE_UNSPECIFIED)
    to_apply: Computation = attribute(Kind.COMPUTATION)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        inputs, inits = self._split(operands)
        slices = [_without_dimension(i, self.dimension) for i in inputs]
        result = check_arguments(self.to_apply, [*slices, *inits])
        parts = result.tuple_shapes_or_self
        count = len(parts) - self.num_carries
        if count < 0:
            raise ShapeError(
                f"{self.to_apply.name} gives {len(parts)} values, fewer than {self.num_carries} carries",
                hint=f"give the outputs first, then the {self.num_carries} carries, as one tuple",
            )
        if not inputs and not count:
            raise ShapeError(
                "a scan needs an input or an output", hint="use while_ for a loop that only carries values on"
            )
        size = self._scan_size(inputs, declared)
        for init, carry in zip(inits, parts[count:], strict=True):
            if not agree(init, carry):
                raise ShapeError(
                    f"{self.to_apply.name} gives {carry} for the carry {init.without_layout()}",
                    hint=f"give a carry of {init.without_layout()}, or start from one of {carry.without_layout()}",
                )
        # The number of outputs is that of the slices, which is dynamic if the dimension is.
        mark = any(i.dynamic_dimensions[self.dimension] for i in inputs)
        shapes = [*(_with_dimension(p, self.dimension, size, mark) for p in parts[:count]), *parts[count:]]
        return make_tuple_shape(shapes) if result.is_tuple else shapes[0]

    def _split(self, operands: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
        if not 0 <= self.num_carries <= len(operands):
            raise ShapeError(
                f"num_carries is {self.num_carries}, there are {len(operands)} operands",
                hint=f"the last num_carries operands are the first carries: give a number from 0 to {len(operands)}",
            )
        inputs = operands[: len(operands) - self.num_carries]
        return inputs, operands[len(inputs) :]

    def _scan_size(self, inputs: Sequence[Shape], declared: Shape | None) -> int:
        if inputs:
            sizes = {array.dimensions[self.dimension] for array in inputs}
            if len(sizes) > 1:
                raise ShapeError(
                    f"inputs have sizes {sorted(sizes)} along dimension {self.dimension}",
                    hint="pad or slice them to one size there",
                )
            return sizes.pop()
        outputs = declared.tuple_shapes if declared is not None and declared.is_tuple else (declared,)
        first = outputs[0] if outputs else None
        if first is None or not first.is_array or not 0 <= self.dimension < first.rank:
            raise ShapeError(
                "without inputs the result shape must say how many steps there are",
                hint=f"declare it with a dimension {self.dimension}, or give scan_dimension_size",
            )
        return first.dimensions[self.dimension]

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        first_carry = len(operands) - self.num_carries
        inputs: list[Array] = [np.moveaxis(x, self.dimension, 0) for x in operands[:first_carry]]
        carries = list(operands[first_carry:])
        declared = context.shape.tuple_shapes_or_self
        outputs = declared[: len(declared) - self.num_carries]
        steps = len(inputs[0]) if inputs else outputs[0].dimensions[self.dimension]
        rows: list[list[Array]] = [[] for _ in outputs]
        for step in reversed(range(steps)) if self.is_reverse else range(steps):
            result = context.call(self.to_apply, *(x[step, ...] for x in inputs), *carries)
            parts = result if isinstance(result, tuple) else (result,)
            for row, part in zip(rows, parts, strict=False):
                row.append(part)
            carries = list(parts[len(outputs) :])  # pyright: ignore[reportUnknownArgumentType]
        stacked = [self._stack(row, shape, steps) for row, shape in zip(rows, outputs, strict=True)]
        results = (*stacked, *carries)
        return results if context.shape.is_tuple else results[0]

    def _stack(self, rows: list[Array], shape: Shape, steps: int) -> Array:
        if not rows:
            sizes = [steps if d == self.dimension else n for d, n in enumerate(shape.dimensions)]
            return np.zeros(sizes, shape.element_type.dtype)
        return np.stack(rows[::-1] if self.is_reverse else rows, axis=self.dimension)


@building
def scan(
    inputs: OperandLike | Sequence[OperandLike],
    inits: OperandLike | Sequence[OperandLike],
    computation: ComputationLike,
    scan_dimension: int,
    *,
    scan_dimension_size: int | None = None,
    is_reverse: bool = False,
    is_associative: TriState | bool | None = None,
) -> XlaOp:
    """Apply a computation to one slice after another, handing carries on.

    inputs: m arrays of the same size along ``scan_dimension``. inits: k first carries.
    computation: (m slices without that dimension, k carries) -> (n outputs, k carries).
    scan_dimension_size: the number of steps, needed where there are no inputs.
    is_reverse: from the last slice to the first. is_associative: a promise that a backend may use.

    Gives a tuple of n stacked outputs and k last carries. Raises ShapeError. Source: Operation semantics, Scan.
    """
    arrays, starts = as_sequence(inputs), as_sequence(inits)
    builder = common_builder([*arrays, *starts])
    ops = [as_op(builder, a) for a in arrays]
    carries = [as_op(builder, c) for c in starts]
    promise = {None: TriState.TRI_STATE_UNSPECIFIED, True: TriState.TRI_STATE_TRUE, False: TriState.TRI_STATE_FALSE}
    associative = is_associative if isinstance(is_associative, TriState) else promise[is_associative]

    slices = [_without_dimension(o.shape, scan_dimension) for o in ops]
    called = builder.subcomputation(computation, [*slices, *(c.shape for c in carries)])
    if scan_dimension_size is not None and any(o.shape.dimensions[scan_dimension] != scan_dimension_size for o in ops):
        raise ShapeError(
            f"scan_dimension_size is {scan_dimension_size}, the inputs have another size there",
            hint="leave scan_dimension_size out; the inputs say it",
        )
    declared = None
    if not ops and scan_dimension_size is not None:
        result = called.root.shape
        parts = result.tuple_shapes_or_self
        count = len(parts) - len(carries)
        stacked = [_with_dimension(p, scan_dimension, scan_dimension_size) for p in parts[:count]]
        declared = make_tuple_shape([*stacked, *parts[count:]]) if result.is_tuple else next(iter(stacked), None)
    op = Scan(
        dimension=scan_dimension,
        num_carries=len(carries),
        is_reverse=is_reverse,
        is_associative=associative,
        to_apply=called,
    )
    return builder.append(op, [*ops, *carries], declared)


def _without_dimension(shape: Shape, dimension: int) -> Shape:
    if not shape.is_array or not 0 <= dimension < shape.rank:
        raise ShapeError(
            f"dimension {dimension} is out of range for the input {shape}",
            hint=below(shape.rank) if shape.is_array else "take the arrays out of the tuple",
        )
    kept = [i for i in range(shape.rank) if i != dimension]
    return shape.with_dimensions([shape.dimensions[i] for i in kept], [shape.dynamic_dimensions[i] for i in kept])


def _with_dimension(shape: Shape, dimension: int, size: int, mark: bool = False) -> Shape:
    if not shape.is_array or not 0 <= dimension <= shape.rank:
        raise ShapeError(
            f"an output {shape} cannot be stacked along dimension {dimension}",
            hint=f"stack along a dimension from 0 to {shape.rank}",
        )
    sizes, marks = list(shape.dimensions), list(shape.dynamic_dimensions)
    sizes.insert(dimension, size)
    marks.insert(dimension, mark)
    return shape.with_dimensions(sizes, marks)
