"""The names that ``xlakit`` offers, each with the page that it comes from.

``import xlakit as xla`` gives all of them as ``xla.<name>``.
"""

# pyright: reportUnusedImport=false

from xlakit.api import compile
from xlakit.builder import XlaBuilder, XlaComputation
from xlakit.cpu.threads import thread_count, threads
from xlakit.data.index_util import linear_index_to_multidimensional_index, multidimensional_index_to_linear_index
from xlakit.data.layout import Layout, SplitConfig, Tile
from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import (
    OPAQUE_SHAPE,
    TOKEN_SHAPE,
    ProgramShape,
    Shape,
    make_shape,
    make_tuple_shape,
)
from xlakit.errors import (
    ArgumentError,
    DeadlockError,
    DeletedBufferError,
    ExecutionError,
    FormatError,
    LiteralError,
    Location,
    ParseError,
    RankError,
    ResourceError,
    ShapeError,
    UnsupportedError,
    VerificationError,
    XlakitError,
)
from xlakit.interpreter.custom_calls import register_c_custom_call, register_custom_call
from xlakit.interpreter.executable import Executable, run_together
from xlakit.interpreter.world import World
from xlakit.ir.attributes import (
    AxisRef,
    ConvolutionDimensionNumbers,
    IotaTileAssignment,
    Mesh,
    NamedSharding,
    OpMetadata,
    OutputOperandAliasing,
    PaddingDimension,
    ReplicaGroups,
    ResultAccuracy,
    Sharding,
)
from xlakit.ir.enums import (
    ComparisonDirection,
    ComparisonType,
    CustomCallApiVersion,
    CustomCallSchedule,
    FftType,
    FusionKind,
    Precision,
    PrecisionAlgorithm,
    RandomAlgorithm,
    Transpose,
)
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.asynchronous import async_done, async_start, async_update, copy_done, copy_start
from xlakit.ops.batch_norm import batch_norm_grad, batch_norm_inference, batch_norm_training
from xlakit.ops.collective_moves import (
    all_to_all,
    all_to_all_tuple,
    collective_permute,
    collective_permute_in_place,
    ragged_all_to_all,
)
from xlakit.ops.collectives import (
    all_gather,
    all_reduce,
    collective_broadcast,
    collective_reduce,
    cross_replica_sum,
    partition_id,
    reduce_scatter,
    replica_id,
)
from xlakit.ops.compare import (
    compare,
    eq,
    eq_total_order,
    ge,
    ge_total_order,
    gt,
    gt_total_order,
    le,
    le_total_order,
    lt,
    lt_total_order,
    ne,
    ne_total_order,
)
from xlakit.ops.control import call, composite_call, conditional, fusion, scan, while_
from xlakit.ops.convert import (
    bitcast,
    bitcast_convert_type,
    convert_element_type,
    reduce_precision,
    stochastic_convert_type,
)
from xlakit.ops.convolution import (
    conv,
    conv_general,
    conv_general_dilated,
    conv_with_general_dimensions,
    conv_with_general_padding,
)
from xlakit.ops.custom_call import custom_call
from xlakit.ops.data import (
    add_dependency,
    after_all,
    constant,
    copy,
    create_token,
    get_tuple_element,
    iota,
    optimization_barrier,
    parameter,
    tuple_,
)
from xlakit.ops.dot import DotDimensionNumbers, PrecisionConfig, dot, dot_general
from xlakit.ops.dot_variants import RaggedDotDimensionNumbers, ragged_dot, scaled_dot
from xlakit.ops.dynamic import (
    dynamic_reshape,
    dynamic_slice,
    dynamic_update_slice,
    get_dimension_size,
    remove_dynamic_dimension,
    set_dimension_size,
)
from xlakit.ops.elementary import (
    acos,
    acosh,
    asin,
    asinh,
    atanh,
    cbrt,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    log,
    log1p,
    logistic,
    rsqrt,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from xlakit.ops.elementwise_binary import (
    add,
    and_,
    atan,
    atan2,
    complex,
    div,
    logical_and,
    logical_or,
    max,
    min,
    mul,
    mulhi,
    or_,
    pow,
    rem,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sub,
    xor,
)
from xlakit.ops.elementwise_unary import (
    abs,
    ceil,
    clz,
    conj,
    floor,
    imag,
    is_finite,
    logical_not,
    neg,
    not_,
    population_count,
    real,
    round,
    round_nearest_even,
    sign,
)
from xlakit.ops.fft import fft
from xlakit.ops.gather import GatherDimensionNumbers, gather
from xlakit.ops.handle import XlaOp
from xlakit.ops.linear_algebra import cholesky, triangular_solve
from xlakit.ops.math_library import is_inf, is_nan, is_neg_inf, is_pos_inf, reciprocal, square
from xlakit.ops.movement import (
    broadcast,
    broadcast_in_dim,
    collapse,
    concat_in_dim,
    concatenate,
    pad,
    pad_in_dim,
    reshape,
    rev,
    slice,
    slice_in_dim,
    transpose,
)
from xlakit.ops.random import rng_bit_generator, rng_get_and_update_state, rng_normal, rng_uniform
from xlakit.ops.reduction import map, reduce, reduce_all
from xlakit.ops.scatter import ScatterDimensionNumbers, scatter
from xlakit.ops.select import clamp, select
from xlakit.ops.shared.padding import Padding, make_padding
from xlakit.ops.shuffle import shuffle_permute, shuffle_rotate
from xlakit.ops.sort import sort, top_k
from xlakit.ops.transfer import (
    domain,
    infeed,
    infeed_with_token,
    outfeed,
    outfeed_with_token,
    recv,
    recv_from_host,
    recv_with_token,
    send,
    send_to_host,
    send_with_token,
)
from xlakit.ops.windows import (
    reduce_window,
    reduce_window_with_general_padding,
    select_and_scatter,
    select_and_scatter_with_general_padding,
)
from xlakit.runtime.buffer import Buffer
from xlakit.runtime.client import Client
from xlakit.runtime.device import Device
from xlakit.runtime.executable import LoadedExecutable
from xlakit.runtime.transfer import HostBufferSemantics

PRED = PrimitiveType.PRED
S1, S2, S4, S8 = PrimitiveType.S1, PrimitiveType.S2, PrimitiveType.S4, PrimitiveType.S8
S16, S32, S64 = PrimitiveType.S16, PrimitiveType.S32, PrimitiveType.S64
U1, U2, U4, U8 = PrimitiveType.U1, PrimitiveType.U2, PrimitiveType.U4, PrimitiveType.U8
U16, U32, U64 = PrimitiveType.U16, PrimitiveType.U32, PrimitiveType.U64
F16, BF16, F32, F64 = PrimitiveType.F16, PrimitiveType.BF16, PrimitiveType.F32, PrimitiveType.F64
F8E5M2, F8E4M3, F8E4M3FN = PrimitiveType.F8E5M2, PrimitiveType.F8E4M3, PrimitiveType.F8E4M3FN
F8E4M3B11FNUZ, F8E5M2FNUZ = PrimitiveType.F8E4M3B11FNUZ, PrimitiveType.F8E5M2FNUZ
F8E4M3FNUZ, F8E3M4, F8E8M0FNU = PrimitiveType.F8E4M3FNUZ, PrimitiveType.F8E3M4, PrimitiveType.F8E8M0FNU
F4E2M1FN, F6E2M3FN, F6E3M2FN = PrimitiveType.F4E2M1FN, PrimitiveType.F6E2M3FN, PrimitiveType.F6E3M2FN
C64, C128 = PrimitiveType.C64, PrimitiveType.C128
TOKEN, TUPLE, OPAQUE = PrimitiveType.TOKEN, PrimitiveType.TUPLE, PrimitiveType.OPAQUE
