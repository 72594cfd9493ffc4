"""Pads of an array as it is with elements between those of a row: vectors of elements are spread apart."""

from __future__ import annotations

import math

from xlakit.cpu.llvm import Module, Value, integer
from xlakit.cpu.loops.emit.kernel import Phase, task_function
from xlakit.ir.instruction import Computation
from xlakit.ops.data import Constant
from xlakit.ops.movement import Pad
from xlakit.options import knob, times
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.target import vector_bytes

# A vector is spread over so many at most; elements further apart are few of those that are written.
_MOST_STEP = knob("spread.most_step", 4, 1)
_TASK_BYTES = knob("spread.task_bytes", 1 << 16, 64, 192, tries=(times(0.25), times(4)))


def emit_spread(module: Module, name: str, computation: Computation) -> Phase | None:
    """The kernel of a pad of a parameter between the elements of its rows; None where the computation is another."""
    root = computation.root
    arrays = {parameter: number for number, parameter in enumerate(computation.parameters)}
    if not isinstance(root.op, Pad) or not root.op.padding or root.operands[0] not in arrays:
        return None
    operand, value = root.operands
    types = {root.shape.element_type, operand.shape.element_type, value.shape.element_type}
    if len(types) > 1 or root.shape.element_type.bit_width not in (8, 16, 32, 64):
        return None
    *outer, own = root.op.padding
    step, low, high = own.interior_padding + 1, own.edge_padding_low, own.edge_padding_high
    before = operand.shape.dimensions[-1] - 1
    rows, width = math.prod(root.shape.dimensions[:-1]), root.shape.dimensions[-1]
    is_plain = not any(p.edge_padding_low or p.edge_padding_high or p.interior_padding for p in outer)
    kind = integer(root.shape.element_type.bit_width)
    # All but the last element of a row have others behind them.
    lanes = min(vector_bytes() // kind.bytes, 1 << max(0, before.bit_length() - 1))
    if not is_plain or not 1 < step <= _MOST_STEP.value or min(low, high) < 0 or rows < 2 or lanes < 2 or before < 1:
        return None
    if value not in arrays and not isinstance(value.op, Constant):
        return None
    tasks = max(1, min(rows, rows * width * kind.bytes // _TASK_BYTES.value))
    with task_function(module, name, len(arrays) + 1) as (fn, emitter, begin, end):
        source, target = emitter.arrays[arrays[operand]], emitter.arrays[-1]
        if isinstance(value.op, Constant):
            between = fn.constant(kind, int.from_bytes(value.op.literal.to_numpy().tobytes(), "little"))
        else:
            between = fn.load(kind, emitter.arrays[arrays[value]])
        spread = [lane // step if lane % step == 0 else lanes for lane in range(lanes * step)]
        filled = fn.splat(between, lanes)

        def fill(start: Value, first: int, count: int) -> None:
            with fn.loop(first, first + count, independent=True) as each:
                fn.store(between, fn.at(start, kind, each.index))

        first, last = ((bound * rows).integer("udiv", tasks) for bound in (begin, end))
        with fn.loop(first, last) as row:
            elements, results = fn.at(source, kind, row.index * (before + 1)), fn.at(target, kind, row.index * width)
            fill(results, 0, low)
            with fn.loop(0, before, lanes) as block:
                # The last vector may begin with elements of the one before.
                number = block.index.smin(before - lanes)
                loaded = fn.load(filled.type, fn.at(elements, kind, number), align=kind.bytes)
                there = fn.at(results, kind, number * step + low)
                fn.store(fn.shuffle(loaded, filled, spread), there, align=kind.bytes)
            fn.store(fn.load(kind, fn.at(elements, kind, before)), fn.at(results, kind, before * step + low))
            fill(results, before * step + low + 1, high)
    return Phase(fn.name, tasks, cost_model().cycles(rows * width * kind.bytes * 4 / vector_bytes()))
