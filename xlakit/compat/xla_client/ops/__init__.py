"""The operations of XlaBuilder, by the names that C++ gives them."""

from __future__ import annotations

from xlakit.compat.xla_client.enums import (
    CustomCallApiVersion as CustomCallApiVersion,
)
from xlakit.compat.xla_client.enums import (
    CustomCallSchedule as CustomCallSchedule,
)
from xlakit.compat.xla_client.enums import (
    RandomAlgorithm as RandomAlgorithm,
)
from xlakit.compat.xla_client.enums import (
    TriangularSolveOptions_Transpose as TriangularSolveOptions_Transpose,
)
from xlakit.compat.xla_client.ops.algebra import (
    Cholesky as Cholesky,
)
from xlakit.compat.xla_client.ops.algebra import (
    ConvGeneralDilated as ConvGeneralDilated,
)
from xlakit.compat.xla_client.ops.algebra import (
    Dot as Dot,
)
from xlakit.compat.xla_client.ops.algebra import (
    DotGeneral as DotGeneral,
)
from xlakit.compat.xla_client.ops.algebra import (
    Fft as Fft,
)
from xlakit.compat.xla_client.ops.algebra import (
    TriangularSolve as TriangularSolve,
)
from xlakit.compat.xla_client.ops.communication import (
    AllGather as AllGather,
)
from xlakit.compat.xla_client.ops.communication import (
    AllReduce as AllReduce,
)
from xlakit.compat.xla_client.ops.communication import (
    AllToAll as AllToAll,
)
from xlakit.compat.xla_client.ops.communication import (
    CollectivePermute as CollectivePermute,
)
from xlakit.compat.xla_client.ops.communication import (
    CrossReplicaSum as CrossReplicaSum,
)
from xlakit.compat.xla_client.ops.communication import (
    InfeedWithToken as InfeedWithToken,
)
from xlakit.compat.xla_client.ops.communication import (
    MultiCollectivePermute as MultiCollectivePermute,
)
from xlakit.compat.xla_client.ops.communication import (
    OutfeedWithToken as OutfeedWithToken,
)
from xlakit.compat.xla_client.ops.communication import (
    RecvFromHost as RecvFromHost,
)
from xlakit.compat.xla_client.ops.communication import (
    ReduceScatter as ReduceScatter,
)
from xlakit.compat.xla_client.ops.communication import (
    ReplicaId as ReplicaId,
)
from xlakit.compat.xla_client.ops.communication import (
    RngBitGenerator as RngBitGenerator,
)
from xlakit.compat.xla_client.ops.communication import (
    RngNormal as RngNormal,
)
from xlakit.compat.xla_client.ops.communication import (
    RngUniform as RngUniform,
)
from xlakit.compat.xla_client.ops.communication import (
    SendToHost as SendToHost,
)
from xlakit.compat.xla_client.ops.control import (
    Call as Call,
)
from xlakit.compat.xla_client.ops.control import (
    Conditional as Conditional,
)
from xlakit.compat.xla_client.ops.control import (
    Gather as Gather,
)
from xlakit.compat.xla_client.ops.control import (
    Map as Map,
)
from xlakit.compat.xla_client.ops.control import (
    Reduce as Reduce,
)
from xlakit.compat.xla_client.ops.control import (
    ReduceWindowWithGeneralPadding as ReduceWindowWithGeneralPadding,
)
from xlakit.compat.xla_client.ops.control import (
    Scatter as Scatter,
)
from xlakit.compat.xla_client.ops.control import (
    SelectAndScatterWithGeneralPadding as SelectAndScatterWithGeneralPadding,
)
from xlakit.compat.xla_client.ops.control import (
    Sort as Sort,
)
from xlakit.compat.xla_client.ops.control import (
    TopK as TopK,
)
from xlakit.compat.xla_client.ops.control import (
    While as While,
)
from xlakit.compat.xla_client.ops.custom_calls import (
    CustomCall as CustomCall,
)
from xlakit.compat.xla_client.ops.custom_calls import (
    CustomCallWithAliasing as CustomCallWithAliasing,
)
from xlakit.compat.xla_client.ops.custom_calls import (
    CustomCallWithComputation as CustomCallWithComputation,
)
from xlakit.compat.xla_client.ops.custom_calls import (
    CustomCallWithLayout as CustomCallWithLayout,
)
from xlakit.compat.xla_client.ops.data import (
    AfterAll as AfterAll,
)
from xlakit.compat.xla_client.ops.data import (
    Broadcast as Broadcast,
)
from xlakit.compat.xla_client.ops.data import (
    BroadcastInDim as BroadcastInDim,
)
from xlakit.compat.xla_client.ops.data import (
    Collapse as Collapse,
)
from xlakit.compat.xla_client.ops.data import (
    ConcatInDim as ConcatInDim,
)
from xlakit.compat.xla_client.ops.data import (
    Constant as Constant,
)
from xlakit.compat.xla_client.ops.data import (
    ConstantLiteral as ConstantLiteral,
)
from xlakit.compat.xla_client.ops.data import (
    CreateToken as CreateToken,
)
from xlakit.compat.xla_client.ops.data import (
    DynamicReshape as DynamicReshape,
)
from xlakit.compat.xla_client.ops.data import (
    DynamicSlice as DynamicSlice,
)
from xlakit.compat.xla_client.ops.data import (
    DynamicUpdateSlice as DynamicUpdateSlice,
)
from xlakit.compat.xla_client.ops.data import (
    GetDimensionSize as GetDimensionSize,
)
from xlakit.compat.xla_client.ops.data import (
    GetTupleElement as GetTupleElement,
)
from xlakit.compat.xla_client.ops.data import (
    Iota as Iota,
)
from xlakit.compat.xla_client.ops.data import (
    OptimizationBarrier as OptimizationBarrier,
)
from xlakit.compat.xla_client.ops.data import (
    Pad as Pad,
)
from xlakit.compat.xla_client.ops.data import (
    Parameter as Parameter,
)
from xlakit.compat.xla_client.ops.data import (
    RemoveDynamicDimension as RemoveDynamicDimension,
)
from xlakit.compat.xla_client.ops.data import (
    Reshape as Reshape,
)
from xlakit.compat.xla_client.ops.data import (
    Rev as Rev,
)
from xlakit.compat.xla_client.ops.data import (
    SetDimensionSize as SetDimensionSize,
)
from xlakit.compat.xla_client.ops.data import (
    Slice as Slice,
)
from xlakit.compat.xla_client.ops.data import (
    SliceInDim as SliceInDim,
)
from xlakit.compat.xla_client.ops.data import (
    Transpose as Transpose,
)
from xlakit.compat.xla_client.ops.data import (
    Tuple as Tuple,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Abs as Abs,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Acos as Acos,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Acosh as Acosh,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Add as Add,
)
from xlakit.compat.xla_client.ops.elementwise import (
    And as And,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Asin as Asin,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Asinh as Asinh,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Atan as Atan,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Atan2 as Atan2,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Atanh as Atanh,
)
from xlakit.compat.xla_client.ops.elementwise import (
    BitcastConvertType as BitcastConvertType,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Cbrt as Cbrt,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Ceil as Ceil,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Clamp as Clamp,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Clz as Clz,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Complex as Complex,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Conj as Conj,
)
from xlakit.compat.xla_client.ops.elementwise import (
    ConvertElementType as ConvertElementType,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Cos as Cos,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Cosh as Cosh,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Div as Div,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Eq as Eq,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Erf as Erf,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Exp as Exp,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Expm1 as Expm1,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Floor as Floor,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Ge as Ge,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Gt as Gt,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Imag as Imag,
)
from xlakit.compat.xla_client.ops.elementwise import (
    IsFinite as IsFinite,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Le as Le,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Log as Log,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Log1p as Log1p,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Logistic as Logistic,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Lt as Lt,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Max as Max,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Min as Min,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Mul as Mul,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Ne as Ne,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Neg as Neg,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Not as Not,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Or as Or,
)
from xlakit.compat.xla_client.ops.elementwise import (
    PopulationCount as PopulationCount,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Pow as Pow,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Real as Real,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Reciprocal as Reciprocal,
)
from xlakit.compat.xla_client.ops.elementwise import (
    ReducePrecision as ReducePrecision,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Rem as Rem,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Round as Round,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Rsqrt as Rsqrt,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Select as Select,
)
from xlakit.compat.xla_client.ops.elementwise import (
    ShiftLeft as ShiftLeft,
)
from xlakit.compat.xla_client.ops.elementwise import (
    ShiftRightArithmetic as ShiftRightArithmetic,
)
from xlakit.compat.xla_client.ops.elementwise import (
    ShiftRightLogical as ShiftRightLogical,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Sign as Sign,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Sin as Sin,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Sinh as Sinh,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Sqrt as Sqrt,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Square as Square,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Sub as Sub,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Tan as Tan,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Tanh as Tanh,
)
from xlakit.compat.xla_client.ops.elementwise import (
    Xor as Xor,
)
from xlakit.compat.xla_client.ops.math_library import (
    LU as LU,
)
from xlakit.compat.xla_client.ops.math_library import (
    QR as QR,
)
from xlakit.compat.xla_client.ops.math_library import (
    SVD as SVD,
)
from xlakit.compat.xla_client.ops.math_library import (
    ApproxTopK as ApproxTopK,
)
from xlakit.compat.xla_client.ops.math_library import (
    ApproxTopKFallback as ApproxTopKFallback,
)
from xlakit.compat.xla_client.ops.math_library import (
    ApproxTopKReductionOutputSize as ApproxTopKReductionOutputSize,
)
from xlakit.compat.xla_client.ops.math_library import (
    BesselI0e as BesselI0e,
)
from xlakit.compat.xla_client.ops.math_library import (
    BesselI1e as BesselI1e,
)
from xlakit.compat.xla_client.ops.math_library import (
    Digamma as Digamma,
)
from xlakit.compat.xla_client.ops.math_library import (
    Eigh as Eigh,
)
from xlakit.compat.xla_client.ops.math_library import (
    Erfc as Erfc,
)
from xlakit.compat.xla_client.ops.math_library import (
    ErfInv as ErfInv,
)
from xlakit.compat.xla_client.ops.math_library import (
    Igamma as Igamma,
)
from xlakit.compat.xla_client.ops.math_library import (
    Igammac as Igammac,
)
from xlakit.compat.xla_client.ops.math_library import (
    IgammaGradA as IgammaGradA,
)
from xlakit.compat.xla_client.ops.math_library import (
    Lgamma as Lgamma,
)
from xlakit.compat.xla_client.ops.math_library import (
    NextAfter as NextAfter,
)
from xlakit.compat.xla_client.ops.math_library import (
    ProductOfElementaryHouseholderReflectors as ProductOfElementaryHouseholderReflectors,
)
from xlakit.compat.xla_client.ops.math_library import (
    QrDecomposition as QrDecomposition,
)
from xlakit.compat.xla_client.ops.math_library import (
    RandomGammaGrad as RandomGammaGrad,
)
from xlakit.compat.xla_client.ops.math_library import (
    RegularizedIncompleteBeta as RegularizedIncompleteBeta,
)
from xlakit.compat.xla_client.ops.math_library import (
    Zeta as Zeta,
)
