"""Whether a program costs so little that handing it to another thread would take longer than running it."""

from __future__ import annotations

from xlakit.ir.instruction import HloModule
from xlakit.ops.control import While
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.analysis.cost import cost_of
from xlakit.passes.analysis.loops import loop_of, trip_count

# About ten microseconds of one processor: waking another thread costs the caller as much, and waiting for it more.
_LIGHT = 250_000
_MOST_INSTRUCTIONS = 500
# The cost of an elementary function, and of a byte that is moved, in additions.
_TRANSCENDENTAL = 8
_BYTE = 0.125


def is_light(module: HloModule) -> bool:
    """Whether a program costs less than handing it to another thread; False if it has a loop of unknown length."""
    if module.instruction_count() > _MOST_INSTRUCTIONS:
        return False
    for instruction in module.instructions:
        if isinstance(instruction.op, While):
            loop = loop_of(instruction)
            if loop is None or trip_count(loop) is None:
                return False
        elif isinstance(instruction.op, CustomCall) or instruction.op.has_side_effect:
            return False
    cost = cost_of(module)
    return cost.flops + _TRANSCENDENTAL * cost.transcendentals + _BYTE * cost.bytes_accessed <= _LIGHT
