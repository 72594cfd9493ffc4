"""Replaces pooling with a large window by pooling with several small windows, one after the other.

A window may combine its elements in any order and with any grouping. The result of the first small window is rounded to
the element type, so sums and products of floats narrower than 32 bits are left alone.
"""

from __future__ import annotations

import dataclasses
import math

from xlakit.ir.attributes import Window, WindowDimension
from xlakit.ir.instruction import Instruction
from xlakit.ir.traits import Idempotent
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.reduction import reducer_op
from xlakit.ops.windows import ReduceWindow
from xlakit.options import knob
from xlakit.passes.core.matching import is_zero, one_type, uniform
from xlakit.passes.core.rewriter import Rewriter
from xlakit.passes.core.rules import Rules
from xlakit.passes.simplify.reductions import is_identity

WINDOWS = Rules("windows")
_rule = WINDOWS.rule

# The largest window that is not split.
_SMALL = knob("windows.small", 16, 0)


def _moving(x: Instruction) -> list[int]:
    """The dimensions along which the window of ``x`` is not trivial (of size 1, without stride and padding)."""
    return [n for n, d in enumerate(x.op_as(ReduceWindow).window.dimensions) if d != WindowDimension(1)]


def _may_regroup(x: Instruction) -> bool:
    """Whether the window of ``x`` is large, and its elements may be combined in groups first."""
    window = x.op_as(ReduceWindow).window
    if len(x.operands) != 2 or not one_type(x) or math.prod(d.size for d in window.dimensions) <= _SMALL.value:
        return False
    op = reducer_op(x.op_as(ReduceWindow).to_apply)
    kind, init = x.shape.element_type, uniform(x.operands[1])
    if isinstance(op, Idempotent):
        return True
    if op is None or kind.is_complex or (kind.is_floating and kind.bit_width < 32):
        return False
    return is_identity(op, init) or (isinstance(op, Add) and init is not None and is_zero(init, negative=None))


@_rule("reduce-window")
def separate_window_dimensions(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce-window(x, a*b) -> reduce-window(reduce-window(x, a), b), where the window has more than 16 elements."""
    axes = _moving(x)
    if len(axes) < 2 or not _may_regroup(x):
        return None
    op = x.op_as(ReduceWindow)
    window = op.window.dimensions
    # The first window is the one that leaves the fewest elements to the second.
    first = max(axes, key=lambda n: (window[n].stride, window[n].size))
    still = WindowDimension(1)
    alone = Window(tuple(d if n == first else still for n, d in enumerate(window)))
    others = Window(tuple(still if n == first else d for n, d in enumerate(window)))
    inner = make.add(dataclasses.replace(op, window=alone), *x.operands)
    return make.add(dataclasses.replace(op, window=others), inner, x.operands[1])


@_rule("reduce-window")
def split_long_window(x: Instruction, make: Rewriter) -> Instruction | None:
    """reduce-window(x, p*q) -> reduce-window(reduce-window(x, p), q with p - 1 holes), along one dimension."""
    axes = _moving(x)
    if len(axes) != 1 or not _may_regroup(x):
        return None
    (axis,) = axes
    op = x.op_as(ReduceWindow)
    d, length = op.window.dimensions[axis], x.operands[0].shape.dimensions[axis]
    # A window as long as the array may be a prefix sum, which has a kernel of its own.
    if d.base_dilation != 1 or d.size >= length:
        return None
    # The cost in combinations for each element of the array: p for the first window, q / stride for the second.
    costs = [(p + d.size / p / d.stride, p) for p in range(2, d.size // 2 + 1) if d.size % p == 0]
    if not costs or min(costs)[0] > 0.6 * d.size / d.stride:
        return None
    inner_size = min(costs)[1]
    inner = dataclasses.replace(d, size=inner_size, stride=1)
    outer = WindowDimension(d.size // inner_size, d.stride, window_dilation=d.window_dilation * inner_size)
    inner_reduction = make.add(_with(op, axis, inner), *x.operands)
    return make.add(_with(op, axis, outer), inner_reduction, x.operands[1])


def _with(op: ReduceWindow, axis: int, dimension: WindowDimension) -> ReduceWindow:
    window = [dimension if n == axis else d for n, d in enumerate(op.window.dimensions)]
    return dataclasses.replace(op, window=Window(tuple(window)))
