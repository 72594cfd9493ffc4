"""Rules for annotations of instructions that affect their meaning, and for layouts.

Source: the checks of OpenXLA's HLO verifier for composite calls, known custom calls, original values and sparse arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Instruction
from xlakit.ops.control import Call
from xlakit.ops.custom_call import CustomCall
from xlakit.verifier.faults import Fault, Program

# The hint of the error, by the opcode of the instruction.
_REMEDIES = {
    "call": 'give frontend attributes such as {composite.name="my.gelu",composite.attributes={},composite.version="1"}',
    "custom-call": "declare it as u64[] custom-call()",
}


def annotation_faults(program: Program) -> Iterator[Fault]:
    """Faults of composite calls, of the custom call GetRngSeed, of original values, and arrays that are not dense."""
    for computation, instruction in program.instructions():
        if _is_sparse(instruction.shape):
            yield Fault(computation, instruction, f"{instruction.shape} is sparse", "leave out D(...) of its layout")
            continue
        op: Any = instruction.op
        if isinstance(instruction.op, Call) and op.is_composite:
            rule = _composite_fault(instruction)
        elif isinstance(instruction.op, CustomCall) and op.custom_call_target == "GetRngSeed":
            rule = _seed_fault(instruction)
        else:
            rule = ""
        rule = rule or _origin_fault(instruction)
        if rule:
            yield Fault(
                computation,
                instruction,
                rule,
                _REMEDIES.get(instruction.opcode, "give one part for each array in its shape, at its ShapeIndex"),
            )


def _is_sparse(shape: Shape) -> bool:
    return bool(shape.layout is not None and shape.layout.level_types) or any(map(_is_sparse, shape.tuple_shapes))


def _composite_fault(call: Instruction) -> str:
    attributes = dict(call.annotations.frontend_attributes)
    if not attributes.get("composite.name"):
        return "a composite call needs the frontend attribute composite.name"
    if attributes.get("composite.attributes") == "":
        return "composite.attributes is empty; without attributes it is {}"
    version = attributes.get("composite.version", "0")
    if not version.isdecimal():
        return f"composite.version is {version}, it must be an integer of at least 0"
    return ""


def _seed_fault(call: Instruction) -> str:
    if call.operands:
        return f"GetRngSeed takes no operands, got {len(call.operands)}"
    if not call.shape.is_scalar or call.shape.element_type is not PrimitiveType.U64:
        return f"GetRngSeed gives u64[], not {call.shape}"
    return ""


def _origin_fault(instruction: Instruction) -> str:
    origin = instruction.annotations.origin
    if origin is None or origin.is_synthetic_call:
        return ""
    known = {index for index, _ in origin.elements}
    leaves = {index for index, _ in instruction.shape.leaves()}
    if known == leaves:
        return ""
    return f"its original value has {len(known)} parts, its shape {len(leaves)}, or they have other indices"
