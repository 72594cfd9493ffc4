"""Random bits of JAX's programs for GPUs."""

from __future__ import annotations

from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.ops.handle import XlaOp
from xlakit.ops.shared.random_bits import threefry_rounds


def threefry2x32(foreign: Foreign) -> XlaOp:
    """Two words of bits for each pair of words of a key and of a counter."""
    operands = foreign.need_operands(["key0", "key1", "counter0", "counter1"])
    kinds = {(o.shape.element_type, o.shape.dimensions) for o in operands}
    if len(kinds) != 1 or operands[0].shape.element_type != PrimitiveType.U32:
        raise ShapeError(
            f"takes four arrays of u32 of one shape, got {', '.join(str(o.shape) for o in operands)}",
            hint="compare them with the text that XLA printed",
        )
    return foreign.all_finished(threefry_rounds(*operands))
