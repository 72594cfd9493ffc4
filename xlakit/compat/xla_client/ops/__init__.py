"""The operations of XlaBuilder, by the names that C++ gives them: for each xlakit's function, and its parameters."""

from __future__ import annotations

from xlakit.compat.xla_client.enums import (
    CustomCallApiVersion as CustomCallApiVersion,
    RandomAlgorithm as RandomAlgorithm,
    TriangularSolveOptions_Transpose as TriangularSolveOptions_Transpose,
)
from xlakit.compat.xla_client.ops import composed, kinds as k, math_library, operations as o
from xlakit.compat.xla_client.ops.math_library import ApproxTopKReductionOutputSize as ApproxTopKReductionOutputSize
from xlakit.ir.enums import CustomCallSchedule as CustomCallSchedule
from xlakit.lib import linear_algebra, special
from xlakit.ops import (
    control,
    convolution,
    custom_call,
    data,
    dot,
    dynamic,
    fft,
    gather,
    linear_algebra as factors,
    movement,
    random,
    reduction,
    scatter,
    windows,
)
from xlakit.ops.communication import collective_moves, collectives, transfer
from xlakit.ops.elementwise import binary, compare, convert, elementary, math_library as math, unary

# -- elements: one operand -------------------------------------------------------------------------

Abs = o.operation(unary.abs, arg=k.Op)
Acos = o.operation(composed.acos, arg=k.Op)
Acosh = o.operation(composed.acosh, arg=k.Op)
Asin = o.operation(composed.asin, arg=k.Op)
Asinh = o.operation(composed.asinh, arg=k.Op)
Atan = o.operation(binary.atan, arg=k.Op)
Atanh = o.operation(composed.atanh, arg=k.Op)
BesselI0e = o.operation(special.bessel_i0e, arg=k.Op)
BesselI1e = o.operation(special.bessel_i1e, arg=k.Op)
Ceil = o.operation(unary.ceil, arg=k.Op)
Clz = o.operation(unary.clz, arg=k.Op)
Conj = o.operation(composed.conj, arg=k.Op)
Cosh = o.operation(composed.cosh, arg=k.Op)
Digamma = o.operation(special.digamma, arg=k.Op)
ErfInv = o.operation(special.erf_inv, arg=k.Op)
Erfc = o.operation(special.erfc, arg=k.Op)
Floor = o.operation(unary.floor, arg=k.Op)
Imag = o.operation(unary.imag, arg=k.Op)
IsFinite = o.operation(unary.is_finite, arg=k.Op)
Lgamma = o.operation(special.lgamma, arg=k.Op)
Neg = o.operation(unary.neg, arg=k.Op)
Not = o.operation(unary.not_, arg=k.Op)
PopulationCount = o.operation(unary.population_count, arg=k.Op)
Real = o.operation(unary.real, arg=k.Op)
Reciprocal = o.operation(composed.reciprocal, arg=k.Op)
Round = o.operation(unary.round, arg=k.Op)
Sign = o.operation(unary.sign, arg=k.Op)
Sinh = o.operation(composed.sinh, arg=k.Op)
Square = o.operation(math.square, arg=k.Op)

_ELEMENTARY = {"operand": k.Op, "result_accuracy": k.Accuracy}

Cbrt = o.operation(elementary.cbrt, **_ELEMENTARY)
Cos = o.operation(elementary.cos, **_ELEMENTARY)
Erf = o.operation(elementary.erf, **_ELEMENTARY)
Exp = o.operation(elementary.exp, **_ELEMENTARY)
Expm1 = o.operation(elementary.expm1, **_ELEMENTARY)
Log = o.operation(elementary.log, **_ELEMENTARY)
Log1p = o.operation(elementary.log1p, **_ELEMENTARY)
Logistic = o.operation(elementary.logistic, **_ELEMENTARY)
Rsqrt = o.operation(elementary.rsqrt, **_ELEMENTARY)
Sin = o.operation(elementary.sin, **_ELEMENTARY)
Sqrt = o.operation(elementary.sqrt, **_ELEMENTARY)
Tan = o.operation(elementary.tan, **_ELEMENTARY)
Tanh = o.operation(elementary.tanh, **_ELEMENTARY)

BitcastConvertType = o.operation(convert.bitcast_convert_type, operand=k.Op, new_element_type=k.Type)
ConvertElementType = o.operation(convert.convert_element_type, operand=k.Op, new_element_type=k.Type)
ReducePrecision = o.operation(convert.reduce_precision, operand=k.Op, exponent_bits=k.Int, mantissa_bits=k.Int)

# -- elements: several operands, which broadcast as in XlaBuilder ------------------------------------

_BINARY = {"lhs": k.Op, "rhs": k.Op, "broadcast_dimensions": k.OptionalInts}

Add = o.operation(binary.add, **_BINARY)
And = o.operation(binary.and_, **_BINARY)
Atan2 = o.operation(binary.atan2, **_BINARY)
Complex = o.operation(composed.complex, **_BINARY)
Div = o.operation(binary.div, **_BINARY)
Eq = o.operation(compare.eq, **_BINARY)
Ge = o.operation(compare.ge, **_BINARY)
Gt = o.operation(compare.gt, **_BINARY)
Le = o.operation(compare.le, **_BINARY)
Lt = o.operation(compare.lt, **_BINARY)
Max = o.operation(binary.max, **_BINARY)
Min = o.operation(binary.min, **_BINARY)
Mul = o.operation(binary.mul, **_BINARY)
Ne = o.operation(compare.ne, **_BINARY)
Or = o.operation(binary.or_, **_BINARY)
Pow = o.operation(binary.pow, **_BINARY)
Rem = o.operation(binary.rem, **_BINARY)
ShiftLeft = o.operation(binary.shift_left, **_BINARY)
ShiftRightArithmetic = o.operation(binary.shift_right_arithmetic, **_BINARY)
ShiftRightLogical = o.operation(binary.shift_right_logical, **_BINARY)
Sub = o.operation(binary.sub, **_BINARY)
Xor = o.operation(binary.xor, **_BINARY)

Clamp = o.operation(composed.clamp, min=k.Op, operand=k.Op, max=k.Op)
Igamma = o.operation(special.igamma, a=k.Op, x=k.Op)
IgammaGradA = o.operation(special.igamma_grad_a, a=k.Op, x=k.Op)
Igammac = o.operation(math_library.igammac, a=k.Op, x=k.Op)
NextAfter = o.operation(special.next_after, from_=k.Op, to=k.Op)
RandomGammaGrad = o.operation(special.random_gamma_grad, a=k.Op, x=k.Op)
RegularizedIncompleteBeta = o.operation(special.regularized_incomplete_beta, a=k.Op, b=k.Op, x=k.Op)
Select = o.operation(composed.select_, pred=k.Op, on_true=k.Op, on_false=k.Op)
Zeta = o.operation(special.zeta, x=k.Op, q=k.Op)

# -- values of the program, and tuples ---------------------------------------------------------------

Parameter = o.operation(
    data.parameter,
    builder=k.Builder,
    parameter_number=k.Int,
    shape=k.LaidOut,
    name=k.Text.or_(""),
    replicated_at_leaf_buffers=k.Bools.or_(()).unused(),
)
Constant = o.operation(composed.constant_of, builder=k.Builder, literal=k.Any_)
ConstantLiteral = o.operation(composed.constant_of_literal, builder=k.Builder, literal=k.Any_)
Iota = o.overloaded(
    o.operation(data.iota, builder=k.Builder, shape=k.ShapeOf, iota_dimension=k.Int),
    o.operation(composed.iota_of_type, builder=k.Builder, type=k.Type, size=k.Int),
)
Tuple = o.operation(data.tuple_, builder=k.Builder, elements=k.Ops)
GetTupleElement = o.operation(data.get_tuple_element, tuple_data=k.Op, index=k.Int)
CreateToken = o.operation(data.create_token, builder=k.Builder)
AfterAll = o.operation(composed.after_all, builder=k.Builder, tokens=k.Ops)
OptimizationBarrier = o.operation(data.optimization_barrier, arg=k.Op)

# -- movement of elements ----------------------------------------------------------------------------

Broadcast = o.operation(movement.broadcast, operand=k.Op, sizes=k.Ints)
BroadcastInDim = o.operation(composed.broadcast_in_dim, operand=k.Op, shape=k.Ints, broadcast_dimensions=k.Ints)
Collapse = o.operation(composed.collapse, operand=k.Op, dimensions=k.Ints)
ConcatInDim = o.operation(movement.concat_in_dim, builder=k.Builder.unused(), operands=k.Ops, dimension=k.Int)
Pad = o.operation(movement.pad, operand=k.Op, padding_value=k.Op, padding_config=k.Padding)
Reshape = o.operation(movement.reshape, operand=k.Op, new_sizes=k.Ints)
Rev = o.operation(movement.rev, operand=k.Op, dimensions=k.Ints)
Slice = o.operation(movement.slice, operand=k.Op, start_indices=k.Ints, limit_indices=k.Ints, strides=k.Ints)
SliceInDim = o.operation(
    movement.slice_in_dim, operand=k.Op, start_index=k.Int, limit_index=k.Int, stride=k.Int, dimno=k.Int
)
Transpose = o.operation(movement.transpose, operand=k.Op, permutation=k.Ints)

# -- dynamic positions and sizes ---------------------------------------------------------------------

DynamicReshape = o.operation(
    dynamic.dynamic_reshape,
    operand=k.Op,
    dim_sizes=k.Ops,
    new_size_bounds=k.Ints,
    dims_are_dynamic=k.Bools,
)
DynamicSlice = o.operation(dynamic.dynamic_slice, operand=k.Op, start_indices=k.Ops, slice_sizes=k.Ints)
DynamicUpdateSlice = o.operation(dynamic.dynamic_update_slice, operand=k.Op, update=k.Op, start_indices=k.Ops)
GetDimensionSize = o.operation(composed.get_dimension_size, operand=k.Op, dimension=k.Int)
SetDimensionSize = o.operation(dynamic.set_dimension_size, operand=k.Op, val=k.Op, dimension=k.Int)
RemoveDynamicDimension = o.operation(dynamic.remove_dynamic_dimension, operand=k.Op, dimension=k.Int)

# -- products, convolutions, transforms, linear systems ----------------------------------------------

_PRECISION = {"precision_config": k.PrecisionOf, "preferred_element_type": k.OptionalType}

Dot = o.operation(dot.dot, lhs=k.Op, rhs=k.Op, **_PRECISION)
DotGeneral = o.operation(dot.dot_general, lhs=k.Op, rhs=k.Op, dimension_numbers=k.DotNumbers, **_PRECISION)
ConvGeneralDilated = o.operation(
    convolution.conv_general_dilated,
    lhs=k.Op,
    rhs=k.Op,
    window_strides=k.Ints,
    padding=k.Pairs,
    lhs_dilation=k.Ints,
    rhs_dilation=k.Ints,
    dimension_numbers=k.ConvolutionNumbers,
    feature_group_count=k.Int.or_(1),
    batch_group_count=k.Int.or_(1),
    **_PRECISION,
    window_reversal=k.OptionalBools,
)
Fft = o.operation(fft.fft, operand=k.Op, fft_type=k.FftKind, fft_length=k.Ints)
Cholesky = o.operation(factors.cholesky, a=k.Op, lower=k.Bool.or_(True))
TriangularSolve = o.operation(
    factors.triangular_solve,
    a=k.Op,
    b=k.Op,
    left_side=k.Bool,
    lower=k.Bool,
    unit_diagonal=k.Bool,
    transpose_a=k.TransposeKind,
)
QR = o.operation(linear_algebra.qr, operand=k.Op, full_matrices=k.Bool)
QrDecomposition = o.operation(linear_algebra.qr_decomposition, operand=k.Op)
ProductOfElementaryHouseholderReflectors = o.operation(
    linear_algebra.product_of_elementary_householder_reflectors,
    a=k.Op,
    taus=k.Op,
)
LU = o.operation(linear_algebra.lu, operand=k.Op)
# LAPACK computes the eigenvalues and singular values: how often and how exactly XLA iterates has no effect.
Eigh = o.operation(
    linear_algebra.eigh,
    a=k.Op,
    lower=k.Bool.or_(True),
    max_iter=k.Int.or_(15).unused(),
    epsilon=k.Float.or_(1e-5).unused(),
    sort_eigenvalues=k.Bool.or_(True),
)
SVD = o.operation(math_library.svd, a=k.Op, max_iter=k.Int.or_(100).unused(), epsilon=k.Float.or_(1e-6).unused())

# -- computations that are called, windows, and orders -----------------------------------------------

Call = o.operation(control.call, builder=k.Builder, computation=k.Computation, operands=k.Ops)
Conditional = o.overloaded(
    o.operation(
        composed.indexed_conditional,
        branch_index=k.Op,
        branch_computations=k.Computations,
        branch_operands=k.Ops,
    ),
    o.operation(
        control.conditional,
        predicate=k.Op,
        true_operand=k.Op,
        true_computation=k.Computation,
        false_operand=k.Op,
        false_computation=k.Computation,
    ),
)
While = o.operation(control.while_, condition=k.Computation, body=k.Computation, init=k.Op)
Map = o.operation(
    composed.map_elements,
    builder=k.Builder.unused(),
    operands=k.Ops,
    computation=k.Computation,
    dimensions=k.Ints,
    static_operands=k.Ops.or_(()),
)
Reduce = o.operation(
    reduction.reduce,
    builder=k.Builder.unused(),
    operands=k.Ops,
    init_values=k.Ops,
    computation=k.Computation,
    dimensions_to_reduce=k.Ints,
)

_WINDOWS = {
    "computation": k.Computation,
    "window_dimensions": k.Ints,
    "window_strides": k.Ints,
    "base_dilations": k.Ints,
    "window_dilations": k.Ints,
    "padding": k.Pairs,
}

ReduceWindowWithGeneralPadding = o.overloaded(
    o.operation(windows.reduce_window_with_general_padding, operand=k.Op, init_value=k.Op, **_WINDOWS),
    o.operation(windows.reduce_window_with_general_padding, operands=k.Ops, init_values=k.Ops, **_WINDOWS),
)
SelectAndScatterWithGeneralPadding = o.operation(
    windows.select_and_scatter_with_general_padding,
    operand=k.Op,
    select=k.Computation,
    window_dimensions=k.Ints,
    window_strides=k.Ints,
    padding=k.Pairs,
    source=k.Op,
    init_value=k.Op,
    scatter=k.Computation,
)
Gather = o.operation(
    gather.gather,
    a=k.Op,
    start_indices=k.Op,
    dimension_numbers=k.GatherNumbers,
    slice_sizes=k.Ints,
    indices_are_sorted=k.Bool.or_(False),
)

_SCATTER = {
    "update_computation": k.Computation,
    "dimension_numbers": k.ScatterNumbers,
    "indices_are_sorted": k.Bool.or_(False),
    "unique_indices": k.Bool.or_(False),
}

Scatter = o.overloaded(
    o.operation(scatter.scatter, input=k.Op, scatter_indices=k.Op, updates=k.Op, **_SCATTER),
    o.operation(scatter.scatter, inputs=k.Ops, scatter_indices=k.Op, updates=k.Ops, **_SCATTER),
)
Sort = o.operation(
    composed.sort_,
    builder=k.Builder.unused(),
    operands=k.Ops,
    comparator=k.OptionalComputation,
    dimension=k.Int.or_(-1),
    is_stable=k.Bool.or_(False),
)
TopK = o.operation(composed.top_k, input=k.Op, k=k.Int)

_APPROX_TOP_K = {
    "builder": k.Builder,
    "operands": k.Ops,
    "init_values": k.Ops,
    "top_k": k.Int,
    "reduction_dim": k.Int,
    "comparator": k.Computation,
    "recall_target": k.Float.or_(0.9),
    "aggregate_to_topk": k.Bool.or_(True),
    "reduction_input_size_override": k.Int.or_(-1),
}

ApproxTopK = o.operation(math_library.approx_top_k, **_APPROX_TOP_K)
ApproxTopKFallback = o.operation(math_library.approx_top_k_fallback, **_APPROX_TOP_K)

# -- collectives, feeds and transfers, random numbers ------------------------------------------------

_GLOBAL_IDS = k.OptionalBool.named()

ReplicaId = o.operation(collectives.replica_id, builder=k.Builder)
CrossReplicaSum = o.operation(composed.cross_replica_sum, operand=k.Op, replica_groups=k.Groups)
AllReduce = o.operation(
    collectives.all_reduce,
    operand=k.Op,
    computation=k.Computation,
    replica_groups=k.Groups,
    channel_id=k.Channel,
    shape_with_layout=k.Any_.or_(None).unused(),
    use_global_device_ids=_GLOBAL_IDS,
)
AllGather = o.operation(
    collectives.all_gather,
    operand=k.Op,
    all_gather_dimension=k.Int,
    shard_count=k.Int,
    replica_groups=k.Groups,
    channel_id=k.Channel,
    shape_with_layout=k.Any_.or_(None).unused(),
    use_global_device_ids=_GLOBAL_IDS,
)
ReduceScatter = o.operation(
    collectives.reduce_scatter,
    operand=k.Op,
    computation=k.Computation,
    scatter_dimension=k.Int,
    shard_count=k.Int,
    replica_groups=k.Groups,
    channel_id=k.Channel.named(),
    layout=k.Any_.or_(None).unused(),
    use_global_device_ids=_GLOBAL_IDS,
)
AllToAll = o.operation(
    collective_moves.all_to_all,
    operand=k.Op,
    split_dimension=k.Int,
    concat_dimension=k.Int,
    split_count=k.Int,
    replica_groups=k.Groups,
    layout=k.Any_.or_(None).unused(),
    channel_id=k.Channel.named(),
)
_PERMUTE = {
    "source_target_pairs": k.Pairs,
    "channel_id": k.Channel,
    "inplace": k.InPlace,
}
CollectivePermute = o.operation(collective_moves.collective_permute, operand=k.Op, **_PERMUTE)
MultiCollectivePermute = o.operation(collective_moves.collective_permute, operands=k.Ops, **_PERMUTE)
InfeedWithToken = o.operation(transfer.infeed_with_token, token=k.Op, shape=k.ShapeOf, config=k.Text.or_(""))
OutfeedWithToken = o.operation(
    transfer.outfeed_with_token,
    operand=k.Op,
    token=k.Op,
    shape_with_layout=k.ShapeOf,
    outfeed_config=k.Text.or_(""),
)
SendToHost = o.operation(
    transfer.send_to_host,
    operand=k.Op,
    token=k.Op,
    shape_with_layout=k.ShapeOf.unused(),
    handle=k.ChannelToHost,
)
RecvFromHost = o.operation(transfer.recv_from_host, token=k.Op, shape=k.ShapeOf, handle=k.ChannelToHost)
RngBitGenerator = o.operation(composed.rng_bit_generator, algorithm=k.Algorithm, initial_state=k.Op, shape=k.ShapeOf)
RngNormal = o.operation(random.rng_normal, mu=k.Op, sigma=k.Op, shape=k.ShapeOf)
RngUniform = o.operation(random.rng_uniform, a=k.Op, b=k.Op, shape=k.ShapeOf)

# -- custom calls ------------------------------------------------------------------------------------

_CALLED = {"builder": k.Builder, "call_target_name": k.TargetName, "operands": k.Ops}
_LAYOUTS = {"shape_with_layout": k.LaidOut, "operand_shapes_with_layout": k.LaidOuts.named()}
_OPAQUE = {"opaque": k.Opaque, "has_side_effect": k.Bool.or_(False).named()}
_ALIASING = {"output_operand_aliasing": k.Aliasing, "literal": k.LiteralOf}
_VERSION = {"schedule": k.Schedule, "api_version": k.ApiVersion}

CustomCall = o.operation(custom_call.custom_call, **_CALLED, shape=k.LaidOut, **_OPAQUE, **_VERSION)
CustomCallWithLayout = o.operation(custom_call.custom_call, **_CALLED, **_LAYOUTS, **_OPAQUE, **_VERSION)
CustomCallWithAliasing = o.operation(custom_call.custom_call, **_CALLED, **_LAYOUTS, **_OPAQUE, **_ALIASING, **_VERSION)
CustomCallWithComputation = o.operation(
    custom_call.custom_call,
    **_CALLED,
    computation=k.Computation.named(),
    shape=k.LaidOut,
    **_OPAQUE,
    **_ALIASING,
    **_VERSION,
)

o.name_functions(globals())
