"""The table of rules that convert the operations of StableHLO, in the form of VHLO, to HLO.

A rule emits the instructions of an operation and gives its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from xlakit.data.shape import Shape
from xlakit.formats.stablehlo.adaptor import Adaptor, Rule
from xlakit.formats.stablehlo.attributes import named, one, precisions_of
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.collectives import COLLECTIVES
from xlakit.formats.stablehlo.custom_calls import custom_call
from xlakit.ir.attributes import (
    ConvolutionDimensionNumbers,
    PaddingDimension,
    SliceDimension,
    Window,
    WindowDimension,
)
from xlakit.ir.enums import ComparisonDirection, ComparisonType
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Op
from xlakit.ops.control import Call
from xlakit.ops.convolution import Convolution
from xlakit.ops.data import Iota
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.elementwise.compare import Compare
from xlakit.ops.elementwise.convert import ReducePrecision
from xlakit.ops.elementwise.select import Select
from xlakit.ops.fft import Fft
from xlakit.ops.gather import Gather
from xlakit.ops.linear_algebra import Cholesky, TriangularSolve
from xlakit.ops.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from xlakit.ops.random import RngBitGenerator
from xlakit.ops.reduction import Reduce
from xlakit.ops.registry import OPERATIONS
from xlakit.ops.scatter import Scatter
from xlakit.ops.sort import Sort, TopK
from xlakit.ops.windows import ReduceWindow, SelectAndScatter


def rule_of(name: str) -> Rule:
    """The rule of an operation. Raises ForeignProgram."""
    found = _RULES.get(name)
    if found is None:
        raise ForeignProgram(f"the operation {name}")
    return found


def _elementwise(opcode: str) -> Rule:
    """The rule of an operation that is a single HLO operation without attributes."""
    op = OPERATIONS[opcode]()

    def rule(x: Adaptor) -> Sequence[Instruction]:
        if any(accuracy.mode for accuracy in x.properties()):
            raise ForeignProgram("a function with an accuracy")
        return [x.emit(op)]

    return rule


# -- movement --------------------------------------------------------------------------------------


def _broadcast(x: Adaptor) -> Sequence[Instruction]:
    """Dimensions of size 1 that StableHLO stretches are removed by a reshape: HLO's broadcast does not stretch."""
    (operand,), (shape,) = x.operands, x.shapes
    dimensions = x.properties()[0].integers()
    if isinstance(operand.op, Broadcast) and operand.operands[0].shape.is_array:
        dimensions = tuple(dimensions[d] for d in operand.op.dimensions)
        operand = operand.operands[0]
    sizes = operand.shape.dimensions
    if sizes == shape.dimensions and dimensions == tuple(range(shape.rank)):
        return [operand]
    if list(dimensions) == sorted(dimensions) and operand.shape.num_elements == shape.num_elements:
        return [x.emit(Reshape(), [operand], shape)]
    stretched = [d for d, size in zip(dimensions, sizes, strict=True) if shape.dimensions[d] != size]
    if not stretched:
        return [x.emit(Broadcast(dimensions=dimensions), [operand], shape)]
    own = dict(zip(dimensions, sizes, strict=True))
    inner = Shape(shape.element_type, tuple(own.get(d, size) for d, size in enumerate(shape.dimensions)))
    operand = x.emit(Broadcast(dimensions=dimensions), [operand], inner)
    left = tuple(d for d in range(shape.rank) if d not in stretched)
    small = Shape(shape.element_type, tuple(shape.dimensions[d] for d in left))
    operand = x.emit(Reshape(), [operand], small)
    return [x.emit(Broadcast(dimensions=left), [operand], shape)]


def _transpose(x: Adaptor) -> Sequence[Instruction]:
    """Merges a transpose of a transpose into one, or none; partial sums over devices are then added after both."""
    (operand,), (shape,) = x.operands, x.shapes
    order: tuple[int, ...] = x.properties()[0].integers()
    if isinstance(operand.op, Transpose):
        order = tuple(operand.op.dimensions[dimension] for dimension in order)
        (operand,) = operand.operands
    if order == tuple(range(shape.rank)):
        return [operand]
    return [x.emit(Transpose(dimensions=order), [operand])]


def _concatenate(x: Adaptor) -> Sequence[Instruction]:
    """Drops operands without elements."""
    (shape,) = x.shapes
    dimension: int = x.properties()[0]
    operands = [operand for operand in x.operands if operand.shape.dimensions[dimension]] or x.operands[:1]
    if len(operands) == 1:
        return operands
    return [x.emit(Concatenate(dimension=dimension), operands, shape)]


def _select(x: Adaptor) -> Sequence[Instruction]:
    """Broadcasts a scalar predicate to the shape of the arrays."""
    chooser, *values = x.operands
    if chooser.shape.dimensions != x.shapes[0].dimensions:
        shape = Shape(chooser.shape.element_type, x.shapes[0].dimensions)
        chooser = x.emit(Broadcast(dimensions=()), [chooser], shape)
    return [x.emit(Select(), [chooser, *values])]


def _iota(x: Adaptor) -> Sequence[Instruction]:
    (shape,) = x.shapes
    dimension: int = x.properties()[0]
    if shape.rank == 1:
        return [x.emit(Iota(iota_dimension=0), (), shape)]
    row = x.emit(Iota(iota_dimension=0), (), Shape(shape.element_type, (shape.dimensions[dimension],)))
    return [x.emit(Broadcast(dimensions=(dimension,)), [row], shape)]


def _slice(limits: Any, starts: Any, strides: Any) -> Op:
    ranges = zip(starts.integers(), limits.integers(), strides.integers(), strict=True)
    return Slice(slice=tuple(SliceDimension(*each) for each in ranges))


def _pad(high: Any, low: Any, interior: Any) -> Op:
    sizes = zip(low.integers(), high.integers(), interior.integers(), strict=True)
    return Pad(padding=tuple(PaddingDimension(*each) for each in sizes))


def _unless_same(rule: Rule) -> Rule:
    """The rule of an operation that is the identity if the operand has the result's shape."""
    return lambda x: x.operands if x.operands[0].shape == x.shapes[0] else rule(x)


def _convert(x: Adaptor) -> Sequence[Instruction]:
    (operand,), (shape,) = x.operands, x.shapes
    if operand.shape.element_type.is_complex and not shape.element_type.is_complex:
        part = operand.shape.with_element_type(operand.shape.element_type.real_part)
        x.operands = [x.emit(OPERATIONS["real"](), shape=part)]
    return _unless_same(_elementwise("convert"))(x)


# -- elements ----------------------------------------------------------------------------------------


def _compare(kind: int, direction: int) -> Op:
    return Compare(direction=ComparisonDirection(direction), type=ComparisonType(kind - 1) if kind else None)


# -- products ----------------------------------------------------------------------------------------


def _convolution(x: Adaptor) -> Sequence[Instruction]:
    (
        batch_groups, groups, input_batch, input_feature, input_spatial, kernel_input, kernel_output, kernel_spatial,
        lhs_dilation, output_batch, output_feature, output_spatial, padding, precisions, rhs_dilation, reversal,
        strides,
    ) = x.properties()  # fmt: skip
    spatial = kernel_spatial.integers()
    kernel = x.operands[1].shape.dimensions
    window = _window(
        [kernel[d] for d in spatial], strides, padding, lhs_dilation, rhs_dilation, _reversed(reversal, len(spatial))
    )
    numbers = ConvolutionDimensionNumbers(
        input_batch, input_feature, input_spatial.integers(), kernel_input, kernel_output, spatial,
        output_batch, output_feature, output_spatial.integers(),
    )  # fmt: skip
    op = Convolution(
        window=window,
        dim_labels=numbers,
        feature_group_count=groups,
        batch_group_count=batch_groups,
        operand_precision=precisions_of(precisions),
    )
    return [x.emit(op)]


def _reversed(dense: Any, rank: int) -> Sequence[bool]:
    if dense.data.strip(b"\0"):
        raise ForeignProgram("a convolution that reverses its kernel")
    return [False] * rank


def _window(
    sizes: Sequence[int],
    strides: Any,
    padding: Any,
    base_dilations: Any = None,
    window_dilations: Any = None,
    reversal: Sequence[bool] = (),
) -> Window:
    """The window of these lists, one number for each dimension; ``padding`` has two."""
    ones = (1,) * len(sizes)
    edges = padding.integers()
    return Window(
        tuple(
            WindowDimension(*each)
            for each in zip(
                sizes,
                strides.integers(),
                edges[::2],
                edges[1::2],
                window_dilations.integers() if window_dilations is not None else ones,
                base_dilations.integers() if base_dilations is not None else ones,
                reversal or [False] * len(sizes),
                strict=True,
            )
        )
    )


# -- regions -----------------------------------------------------------------------------------------


def _reduce_window(body: Computation, base: Any, padding: Any, window: Any, sizes: Any, strides: Any) -> Op:
    return ReduceWindow(window=_window(sizes.integers(), strides, padding, base, window), to_apply=body)


def _select_and_scatter(select: Computation, scatter: Computation, padding: Any, sizes: Any, strides: Any) -> Op:
    return SelectAndScatter(window=_window(sizes.integers(), strides, padding), select=select, scatter=scatter)


def _call(x: Adaptor) -> Sequence[Instruction]:
    return x.results(Call(to_apply=x.module.function(x.properties()[0])))


def _composite(x: Adaptor) -> Sequence[Instruction]:
    """An HLO operation for a function of CHLO, or a call of the composite's decomposition."""
    attributes, decomposition, name, _ = x.properties()
    if name == "chlo.erf":
        return [x.emit(OPERATIONS["erf"]())]
    if name == "chlo.top_k":
        return x.results(TopK(k=attributes["k"]))
    if any(shape.element_type.is_complex for shape in x.shapes):
        # Left to jaxlib, whose conversion expands it to more accurate functions of real numbers.
        raise ForeignProgram(f"the composite {name} of complex numbers")
    return x.results(Call(to_apply=x.module.function(decomposition)))


def _barrier(x: Adaptor) -> Sequence[Instruction]:
    op = OPERATIONS["opt-barrier"]()
    if len(x.operands) == 1:
        return [x.emit(op)]
    return x.results(op, [x.draft.bundle(x.operands, x.annotations)])


# Elementwise operations: those of version 1 in VHLO have no attributes, those of version 2 have an accuracy.
_ELEMENTWISE: Final = {
    1: (
        "abs", "add", "after_all", "and", "atan2", "ceil", "clamp", "complex", "count_leading_zeros", "divide",
        "dynamic_update_slice", "floor", "imag", "is_finite", "maximum", "minimum", "multiply", "negate", "not", "or",
        "partition_id", "popcnt", "power", "real", "remainder", "replica_id", "round_nearest_afz", "round_nearest_even",
        "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "subtract", "xor",
    ),
    2: (
        "cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "rsqrt", "sine",
        "sqrt", "tan", "tanh",
    ),
}  # fmt: skip
# Operations that are a single one of HLO, whose computations and properties, in VHLO's order, are these attributes.
_NAMED: Final[dict[str, tuple[type[Op], tuple[str | None, ...]]]] = {
    "cholesky_v1": (Cholesky, ("lower",)),
    # None are the parts of an algorithm.
    "dot_general_v2": (Dot, (
        None, None, "lhs_batch_dims", None, "lhs_contracting_dims", None, None, "operand_precision", "rhs_batch_dims",
        None, "rhs_contracting_dims", None,
    )),
    "dynamic_slice_v1": (DynamicSlice, ("dynamic_slice_sizes",)),
    "fft_v1": (Fft, ("fft_length", "fft_type")),
    "gather_v2": (Gather, (
        "collapsed_slice_dims", "index_vector_dim", "indices_are_sorted", "offset_dims", "operand_batching_dims",
        "slice_sizes", "start_index_map", "start_indices_batching_dims",
    )),
    "reduce_precision_v1": (ReducePrecision, ("exponent_bits", "mantissa_bits")),
    "reduce_v1": (Reduce, ("to_apply", "dimensions")),
    "reverse_v1": (Reverse, ("dimensions",)),
    "rng_bit_generator_v1": (RngBitGenerator, ("algorithm",)),
    "scatter_v2": (Scatter, (
        "to_apply", "index_vector_dim", "indices_are_sorted", "input_batching_dims", "inserted_window_dims",
        "scatter_dims_to_operand_dims", "scatter_indices_batching_dims", "unique_indices", "update_window_dims",
    )),
    "sort_v1": (Sort, ("to_apply", "dimension", "is_stable")),
    "triangular_solve_v1": (TriangularSolve, ("left_side", "lower", "transpose_a", "unit_diagonal")),
}  # fmt: skip
_RULES: Final[dict[str, Rule]] = (
    {
        f"vhlo.{name}_v{version}": _elementwise(name.replace("_", "-"))
        for version, names in _ELEMENTWISE.items()
        for name in names
    }
    | {f"vhlo.{name}": named(cls, *attributes) for name, (cls, attributes) in _NAMED.items()}
    | COLLECTIVES
    | {
        "vhlo.convert_v1": _convert,
        "vhlo.reshape_v1": _unless_same(_elementwise("reshape")),
        "vhlo.bitcast_convert_v1": _unless_same(_elementwise("bitcast-convert")),
        "vhlo.select_v1": _select,
        "vhlo.broadcast_in_dim_v1": _broadcast,
        "vhlo.iota_v1": _iota,
        "vhlo.slice_v1": _unless_same(one(_slice)),
        "vhlo.pad_v1": one(_pad),
        "vhlo.transpose_v1": _transpose,
        "vhlo.concatenate_v1": _concatenate,
        "vhlo.compare_v1": one(_compare),
        "vhlo.convolution_v1": _convolution,
        "vhlo.reduce_window_v1": one(_reduce_window),
        "vhlo.select_and_scatter_v1": one(_select_and_scatter),
        "vhlo.call_v1": _call,
        "vhlo.composite_v1": _composite,
        "vhlo.composite_v2": _composite,
        "vhlo.custom_call_v1": custom_call,
        "vhlo.optimization_barrier_v1": _barrier,
    }
)
