"""The names that ``xlakit`` offers, each with the page that it comes from.

``import xlakit as xla`` gives all of them as ``xla.<name>``.
"""

from xlakit.api import compile
from xlakit.builder import XlaBuilder, XlaComputation
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
    ExecutionError,
    FormatError,
    LiteralError,
    Location,
    ParseError,
    ResourceError,
    ShapeError,
    UnsupportedError,
    VerificationError,
    XlakitError,
)
from xlakit.ir.attributes import OpMetadata, ReplicaGroups, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
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
from xlakit.ops.handle import XlaOp
from xlakit.ops.reduction import map, reduce

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
