"""Custom calls: functions from outside the language, by name.

Source: XLA's document "Operation semantics", section CustomCall, and XlaBuilder's forms of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ShapeError
from xlakit.ir.attributes import ConvolutionDimensionNumbers, OutputOperandAliasing, Window
from xlakit.ir.enums import CustomCallApiVersion, CustomCallSchedule, PaddingType, Precision
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Evaluation, Kind, Value, attribute, operation
from xlakit.ir.traits import ForeignMemory
from xlakit.ops.data import ArgumentLike, as_argument
from xlakit.ops.handle import Builder, ComputationLike, XlaOp, building
from xlakit.ops.shared.calling import Calling, agree, check_aliasing
from xlakit.ops.shared.checks import need_declared

# Targets whose result is their operand: hints on its memory, layout or sharding.
HINTS: Final = frozenset(
    {"LayoutConstraint", "MoveToDevice", "MoveToHost", "Sharding", "annotate_device_placement", "xla.sdy.Sharding"}
)
# Targets at which a manual computation begins or ends: those of the older form, and Shardy's.
MANUAL_BOUNDARIES: Final = frozenset(
    {"SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"}
)

# The custom call for an array that is overwritten before it is read; passes make it, and nothing computes it.
UNWRITTEN: Final = "xlakit.Unwritten"


@operation("custom-call", documents=("CustomCall", "CustomCallWithComputation", "CustomCallWithLayout"))
class CustomCall(Calling, ForeignMemory):
    """Call the function registered as ``custom_call_target``; the declared shape is that of its result."""

    window: Window | None = attribute(Kind.WINDOW, default=None)
    dim_labels: ConvolutionDimensionNumbers | None = attribute(
        Kind.CONVOLUTION_DIMENSION_NUMBERS, default=None, proto="convolution_dimension_numbers"
    )
    feature_group_count: int = attribute(Kind.INT64, default=1)
    batch_group_count: int = attribute(Kind.INT64, default=1)
    operand_precision: tuple[Precision, ...] = attribute(
        Kind.PRECISION_LIST, default=(), proto="precision_config.operand_precision"
    )
    padding_type: PaddingType = attribute(Kind.ENUM, enum=PaddingType, default=PaddingType.PADDING_INVALID)
    custom_call_target: str = attribute(Kind.STRING)
    operand_layout_constraints: tuple[Shape, ...] | None = attribute(
        Kind.SHAPE_LIST, default=None, proto="operand_shapes_with_layout"
    )
    custom_call_has_side_effect: bool = attribute(Kind.BOOL, default=False)
    literal: Literal | None = attribute(Kind.LITERAL, default=None)
    output_to_operand_aliasing: tuple[OutputOperandAliasing, ...] = attribute(
        Kind.OUTPUT_OPERAND_ALIASING, default=(), proto="output_operand_aliasing"
    )
    schedule: CustomCallSchedule = attribute(
        Kind.ENUM, enum=CustomCallSchedule, default=CustomCallSchedule.SCHEDULE_NONE, proto="custom_call_schedule"
    )
    api_version: CustomCallApiVersion = attribute(
        Kind.ENUM,
        enum=CustomCallApiVersion,
        default=CustomCallApiVersion.API_VERSION_ORIGINAL,
        proto="custom_call_api_version",
    )
    computations: tuple[Computation, ...] = attribute(Kind.COMPUTATION_LIST, default=(), text="called_computations")

    @property
    def has_side_effect(self) -> bool:
        return self.custom_call_has_side_effect or any(c.has_side_effect for c in self.computations)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        if not self.custom_call_target:
            raise ShapeError(
                "a custom call needs the name of its target", hint="give the name that the function is registered under"
            )
        result = need_declared(declared)
        constraints = self.operand_layout_constraints
        if constraints is not None and self.custom_call_target not in _LAYOUT_FREE:
            if len(constraints) != len(operands):
                raise ShapeError(
                    f"{len(constraints)} operand_layout_constraints for {len(operands)} operands",
                    hint=f"give one shape with a layout for each of the {len(operands)} operands",
                )
            for number, (constraint, operand) in enumerate(zip(constraints, operands, strict=True)):
                if not agree(constraint, operand):
                    raise ShapeError(
                        f"operand_layout_constraints say {constraint} for operand {number}, {operand}",
                        hint=f"give {operand.without_layout()} with the layout that is wanted",
                    )
                if any(leaf.is_array and leaf.layout is None for _, leaf in constraint.leaves()):
                    raise ShapeError(
                        f"operand_layout_constraints give no layout for operand {number}, {constraint}",
                        hint="write the layout after the shape, such as f32[2,3]{1,0}",
                    )
        is_cast = self.custom_call_target in _BUFFER_CASTS
        check_aliasing(self.output_to_operand_aliasing, operands, result, across_buffers=is_cast)
        return result.without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return context.custom_call(self.custom_call_target, *operands)


def is_unwritten(x: Instruction) -> bool:
    """Whether an array has no values, because it is overwritten before it is read."""
    return isinstance(x.op, CustomCall) and x.op.custom_call_target == UNWRITTEN


# These turn an array into a buffer of the same memory and back.
_BUFFER_CASTS = ("Pin", "Unpin")


# Their operand layouts are requests to the compiler, not facts about the operands.
_LAYOUT_FREE = ("LayoutConstraint", "control_dep")


@building
def custom_call(
    builder: Builder,
    target_name: str,
    args: Sequence[ArgumentLike],
    shape: Shape,
    opaque: str = "",
    *,
    has_side_effect: bool = False,
    output_operand_aliasing: Sequence[OutputOperandAliasing] = (),
    literal: Literal | None = None,
    operand_shapes_with_layout: Sequence[Shape] | None = None,
    computation: ComputationLike | None = None,
    schedule: CustomCallSchedule | str = CustomCallSchedule.SCHEDULE_NONE,
    api_version: CustomCallApiVersion | str = CustomCallApiVersion.API_VERSION_ORIGINAL,
) -> XlaOp:
    """Call a function that is registered under a name where the program runs.

    target_name: the name. args: N operands of any type. shape: of the result.
    opaque: text for the function. has_side_effect: whether the call must happen even if its result is not used.
    operand_shapes_with_layout: the layouts in which the function wants its operands; ``shape`` has one then, too.
    output_operand_aliasing: outputs that share the buffers of operands. literal: a value that the function gets, too.
    schedule, api_version: of the call, for the backend, such as ``"SCHEDULE_LATEST"`` and ``"API_VERSION_TYPED_FFI"``.
    computation: what the function may call; it must exist already, a Python function has no shapes to be traced for.

    Gives a value of ``shape``. Raises ShapeError; ArgumentError for a name that begins with ``$``.
    Source: Operation semantics, CustomCall.
    """
    operands = [as_argument(builder, a) for a in args]
    if target_name.startswith("$"):
        raise ArgumentError(
            f"the name {target_name!r} of a custom call begins with $: XLA has such names for calls of its own",
            hint="give another name",
        )
    if operand_shapes_with_layout is not None and any(s.is_array and s.layout is None for _, s in shape.leaves()):
        raise ShapeError(
            f"with operand_shapes_with_layout the result needs a layout too, {shape} has none",
            hint="give shape.with_default_layout()",
        )
    if computation is not None and getattr(computation, "computation", computation).__class__ is not Computation:
        raise ArgumentError(f"{computation!r} is not a built computation", hint="give what XlaBuilder.build returns")
    op = CustomCall(
        custom_call_target=target_name,
        custom_call_has_side_effect=has_side_effect,
        output_to_operand_aliasing=tuple(output_operand_aliasing),
        literal=literal,
        operand_layout_constraints=None if operand_shapes_with_layout is None else tuple(operand_shapes_with_layout),
        computations=() if computation is None else (builder.subcomputation(computation, []),),
        schedule=CustomCallSchedule.of(schedule),
        api_version=CustomCallApiVersion.of(api_version),
    )
    return builder.append(op, operands, shape, backend_config=opaque)
