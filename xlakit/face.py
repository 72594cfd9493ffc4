"""The public names of ``xlakit``, each imported from its module.

``import xlakit as xla`` gives all of them as ``xla.<name>``. Type checkers read this file; the package finds here the
module of a name, and imports only this module. Each name is imported ``as`` itself, which tells type checkers that it
is public.
"""

from xlakit.api import compile as compile, register_backend as register_backend
from xlakit.builder import XlaBuilder as XlaBuilder, XlaComputation as XlaComputation
from xlakit.builder.edit import Editor as Editor, edit as edit
from xlakit.child_process import Limits as Limits
from xlakit.cpu.threads import thread_count as thread_count, threads as threads
from xlakit.data.index_util import (
    linear_index_to_multidimensional_index as linear_index_to_multidimensional_index,
    multidimensional_index_to_linear_index as multidimensional_index_to_linear_index,
)
from xlakit.data.layout import Layout as Layout, SplitConfig as SplitConfig, Tile as Tile
from xlakit.data.literal import Literal as Literal
from xlakit.data.primitive import (
    PrimitiveType as PrimitiveType,
    BF16 as BF16,
    C128 as C128,
    C64 as C64,
    F16 as F16,
    F32 as F32,
    F4E2M1FN as F4E2M1FN,
    F64 as F64,
    F6E2M3FN as F6E2M3FN,
    F6E3M2FN as F6E3M2FN,
    F8E3M4 as F8E3M4,
    F8E4M3 as F8E4M3,
    F8E4M3B11FNUZ as F8E4M3B11FNUZ,
    F8E4M3FN as F8E4M3FN,
    F8E4M3FNUZ as F8E4M3FNUZ,
    F8E5M2 as F8E5M2,
    F8E5M2FNUZ as F8E5M2FNUZ,
    F8E8M0FNU as F8E8M0FNU,
    OPAQUE as OPAQUE,
    PRED as PRED,
    S1 as S1,
    S16 as S16,
    S2 as S2,
    S32 as S32,
    S4 as S4,
    S64 as S64,
    S8 as S8,
    TOKEN as TOKEN,
    TUPLE as TUPLE,
    U1 as U1,
    U16 as U16,
    U2 as U2,
    U32 as U32,
    U4 as U4,
    U64 as U64,
    U8 as U8,
)
from xlakit.data.shape import (
    OPAQUE_SHAPE as OPAQUE_SHAPE,
    TOKEN_SHAPE as TOKEN_SHAPE,
    ProgramShape as ProgramShape,
    Shape as Shape,
    make_shape as make_shape,
    make_tuple_shape as make_tuple_shape,
)
from xlakit.errors import (
    ArgumentError as ArgumentError,
    DeadlockError as DeadlockError,
    DeletedBufferError as DeletedBufferError,
    ExecutionError as ExecutionError,
    FormatError as FormatError,
    HandlerError as HandlerError,
    LiteralError as LiteralError,
    Location as Location,
    ParseError as ParseError,
    RankError as RankError,
    ResourceError as ResourceError,
    ShapeError as ShapeError,
    UnsupportedError as UnsupportedError,
    VerificationError as VerificationError,
    XlakitError as XlakitError,
)
from xlakit.execution.calls.custom_calls import (
    register_c_custom_call as register_c_custom_call,
    register_custom_call as register_custom_call,
    register_ffi_handler as register_ffi_handler,
)
from xlakit.execution.executable import Executable as Executable
from xlakit.interpreter.executable import run_together as run_together
from xlakit.execution.context import ExecutionContext as ExecutionContext
from xlakit.ir.attributes import (
    AxisRef as AxisRef,
    ConvolutionDimensionNumbers as ConvolutionDimensionNumbers,
    IotaTileAssignment as IotaTileAssignment,
    Mesh as Mesh,
    NamedSharding as NamedSharding,
    OpMetadata as OpMetadata,
    OutputOperandAliasing as OutputOperandAliasing,
    PaddingDimension as PaddingDimension,
    ReplicaGroups as ReplicaGroups,
    ResultAccuracy as ResultAccuracy,
    Sharding as Sharding,
)
from xlakit.ir.enums import (
    ComparisonDirection as ComparisonDirection,
    ComparisonType as ComparisonType,
    CustomCallApiVersion as CustomCallApiVersion,
    CustomCallSchedule as CustomCallSchedule,
    FftType as FftType,
    FusionKind as FusionKind,
    Precision as Precision,
    PrecisionAlgorithm as PrecisionAlgorithm,
    RandomAlgorithm as RandomAlgorithm,
    Transpose as Transpose,
)
from xlakit.ir.instruction import Computation as Computation, HloModule as HloModule, Instruction as Instruction
from xlakit.ops.communication.asynchronous import (
    async_done as async_done,
    async_start as async_start,
    async_update as async_update,
    copy_done as copy_done,
    copy_start as copy_start,
)
from xlakit.ops.batch_norm import (
    batch_norm_grad as batch_norm_grad,
    batch_norm_inference as batch_norm_inference,
    batch_norm_training as batch_norm_training,
)
from xlakit.ops.communication.collective_moves import (
    all_to_all as all_to_all,
    all_to_all_tuple as all_to_all_tuple,
    collective_permute as collective_permute,
    collective_permute_in_place as collective_permute_in_place,
    ragged_all_to_all as ragged_all_to_all,
)
from xlakit.ops.communication.collectives import (
    all_gather as all_gather,
    all_reduce as all_reduce,
    collective_broadcast as collective_broadcast,
    collective_reduce as collective_reduce,
    cross_replica_sum as cross_replica_sum,
    partition_id as partition_id,
    reduce_scatter as reduce_scatter,
    replica_id as replica_id,
)
from xlakit.ops.elementwise.compare import (
    compare as compare,
    eq as eq,
    eq_total_order as eq_total_order,
    ge as ge,
    ge_total_order as ge_total_order,
    gt as gt,
    gt_total_order as gt_total_order,
    le as le,
    le_total_order as le_total_order,
    lt as lt,
    lt_total_order as lt_total_order,
    ne as ne,
    ne_total_order as ne_total_order,
)
from xlakit.ops.control import (
    call as call,
    composite_call as composite_call,
    conditional as conditional,
    fusion as fusion,
    scan as scan,
    while_ as while_,
)
from xlakit.ops.elementwise.convert import (
    bitcast as bitcast,
    bitcast_convert_type as bitcast_convert_type,
    convert_element_type as convert_element_type,
    reduce_precision as reduce_precision,
    stochastic_convert_type as stochastic_convert_type,
)
from xlakit.ops.convolution import (
    conv as conv,
    conv_general as conv_general,
    conv_general_dilated as conv_general_dilated,
    conv_with_general_dimensions as conv_with_general_dimensions,
    conv_with_general_padding as conv_with_general_padding,
)
from xlakit.ops.custom_call import custom_call as custom_call
from xlakit.ops.data import (
    add_dependency as add_dependency,
    after_all as after_all,
    constant as constant,
    copy as copy,
    create_token as create_token,
    get_tuple_element as get_tuple_element,
    iota as iota,
    optimization_barrier as optimization_barrier,
    parameter as parameter,
    tuple_ as tuple_,
)
from xlakit.ops.dot import (
    DotDimensionNumbers as DotDimensionNumbers,
    PrecisionConfig as PrecisionConfig,
    dot as dot,
    dot_general as dot_general,
)
from xlakit.ops.dot_variants import (
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    ragged_dot as ragged_dot,
    scaled_dot as scaled_dot,
)
from xlakit.ops.dynamic import (
    dynamic_reshape as dynamic_reshape,
    dynamic_slice as dynamic_slice,
    dynamic_update_slice as dynamic_update_slice,
    get_dimension_size as get_dimension_size,
    remove_dynamic_dimension as remove_dynamic_dimension,
    set_dimension_size as set_dimension_size,
)
from xlakit.ops.elementwise.elementary import (
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atanh as atanh,
    cbrt as cbrt,
    cos as cos,
    cosh as cosh,
    erf as erf,
    exp as exp,
    expm1 as expm1,
    log as log,
    log1p as log1p,
    logistic as logistic,
    rsqrt as rsqrt,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
)
from xlakit.ops.elementwise.binary import (
    add as add,
    and_ as and_,
    atan as atan,
    atan2 as atan2,
    complex as complex,
    div as div,
    logical_and as logical_and,
    logical_or as logical_or,
    max as max,
    min as min,
    mul as mul,
    mulhi as mulhi,
    or_ as or_,
    pow as pow,
    rem as rem,
    shift_left as shift_left,
    shift_right_arithmetic as shift_right_arithmetic,
    shift_right_logical as shift_right_logical,
    sub as sub,
    xor as xor,
)
from xlakit.ops.elementwise.unary import (
    abs as abs,
    ceil as ceil,
    clz as clz,
    conj as conj,
    floor as floor,
    imag as imag,
    is_finite as is_finite,
    logical_not as logical_not,
    neg as neg,
    not_ as not_,
    population_count as population_count,
    real as real,
    round as round,
    round_nearest_even as round_nearest_even,
    sign as sign,
)
from xlakit.ops.fft import fft as fft
from xlakit.ops.gather import GatherDimensionNumbers as GatherDimensionNumbers, gather as gather
from xlakit.ops.handle import XlaOp as XlaOp
from xlakit.ops.linear_algebra import cholesky as cholesky, triangular_solve as triangular_solve
from xlakit.ops.elementwise.math_library import (
    is_inf as is_inf,
    is_nan as is_nan,
    is_neg_inf as is_neg_inf,
    is_pos_inf as is_pos_inf,
    reciprocal as reciprocal,
    square as square,
)
from xlakit.ops.movement import (
    broadcast as broadcast,
    broadcast_in_dim as broadcast_in_dim,
    collapse as collapse,
    concat_in_dim as concat_in_dim,
    concatenate as concatenate,
    pad as pad,
    pad_in_dim as pad_in_dim,
    reshape as reshape,
    rev as rev,
    slice as slice,
    slice_in_dim as slice_in_dim,
    transpose as transpose,
)
from xlakit.ops.random import (
    rng_bit_generator as rng_bit_generator,
    rng_get_and_update_state as rng_get_and_update_state,
    rng_normal as rng_normal,
    rng_uniform as rng_uniform,
)
from xlakit.ops.reduction import map as map, reduce as reduce, reduce_all as reduce_all
from xlakit.ops.scatter import ScatterDimensionNumbers as ScatterDimensionNumbers, scatter as scatter
from xlakit.ops.elementwise.select import clamp as clamp, select as select
from xlakit.ops.shared.padding import Padding as Padding, make_padding as make_padding
from xlakit.ops.shuffle import shuffle_permute as shuffle_permute, shuffle_rotate as shuffle_rotate
from xlakit.ops.sort import sort as sort, top_k as top_k
from xlakit.ops.communication.transfer import (
    domain as domain,
    infeed as infeed,
    infeed_with_token as infeed_with_token,
    outfeed as outfeed,
    outfeed_with_token as outfeed_with_token,
    recv as recv,
    recv_from_host as recv_from_host,
    recv_with_token as recv_with_token,
    send as send,
    send_to_host as send_to_host,
    send_with_token as send_with_token,
)
from xlakit.ops.windows import (
    reduce_window as reduce_window,
    reduce_window_with_general_padding as reduce_window_with_general_padding,
    select_and_scatter as select_and_scatter,
    select_and_scatter_with_general_padding as select_and_scatter_with_general_padding,
)
from xlakit.runtime.buffer import Buffer as Buffer
from xlakit.runtime.client import Client as Client
from xlakit.runtime.device import Device as Device
from xlakit.runtime.executable import LoadedExecutable as LoadedExecutable
from xlakit.runtime.transfer import HostBufferSemantics as HostBufferSemantics
from xlakit.tools.bisect import Bisection as Bisection, bisect_module as bisect_module
from xlakit.tools.diff.difference import ModuleDiff as ModuleDiff
from xlakit.tools.diff.modules import diff_modules as diff_modules
from xlakit.tools.elided import fill_elided as fill_elided
from xlakit.tools.lint.linter import LintWarning as LintWarning, lint as lint
from xlakit.tools.reduce.extract import Extraction as Extraction, extract_instruction as extract_instruction
from xlakit.tools.reduce.extract import extract_computation as extract_computation
from xlakit.tools.numerics.reports import find_divergence as find_divergence
from xlakit.tools.numerics.shadow import shadow_errors as shadow_errors
from xlakit.tools.numerics.trace import trace_values as trace_values
from xlakit.tools.oracles.oracle import (
    ExternalTest as ExternalTest,
    Crash as Crash,
    Disagreement as Disagreement,
    Slowness as Slowness,
)
from xlakit.tools.profile import profile as profile
from xlakit.tools.reduce.reducer import Reduction as Reduction, reduce_module as reduce_module
from xlakit.tools.view.comparison import view_difference as view_difference
from xlakit.tools.view.stages import View as View, view_module as view_module
