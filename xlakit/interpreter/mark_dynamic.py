"""Rewrites a program so that each dimension that may have fewer elements than declared is declared dynamic.

HLO compares the shapes of arguments and parameters without their dynamic marks. So the body of a loop may set the size
of a dimension that is static in its parameter; from then on the loop's state, and the values computed from it, have
fewer elements than declared. Shapes are inferred anew from there on. ``passes/dynamic/padding.py`` finds the same
dimensions as it pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xlakit.data.shape import Shape
from xlakit.errors import XlakitError
from xlakit.ir.instruction import Computation, HloModule, Instruction, infer_shape
from xlakit.ir.operation import Op
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Parameter
from xlakit.ops.shared.calling import join_dynamic


def mark_dynamic(module: HloModule) -> Computation:
    """The entry of a module with such dimensions declared dynamic; the same object if there are none."""
    if not module.is_dynamic:
        return module.entry
    return _DynamicMarker().computation(module.entry, [p.shape for p in module.entry.parameters])


class _DynamicMarker:
    """Copies of computations for parameters with more dynamic dimensions, one for each set of shapes."""

    def __init__(self) -> None:
        self._made: dict[tuple[Computation, tuple[Shape, ...]], Computation] = {}

    def computation(self, old: Computation, given: Sequence[Shape]) -> Computation:
        """The copy of a computation for arguments of these shapes; the same object if that changes nothing."""
        shapes = tuple(join_dynamic([p.shape, s]) for p, s in zip(old.parameters, given, strict=False))
        key = (old, shapes)
        if key not in self._made:
            self._made[key] = self._remade(old, shapes)
        return self._made[key]

    def _remade(self, old: Computation, shapes: Sequence[Shape]) -> Computation:
        new: dict[Instruction, Instruction] = {}
        for instruction in old.instructions:
            if isinstance(instruction.op, Parameter):
                shape = shapes[instruction.op.number]
                made = instruction if _alike(shape, instruction.shape) else instruction.replace(shape=shape)
            else:
                made = self._instruction(instruction, [new[o] for o in instruction.operands])
            before = [new[p] for p in made.control_predecessors]
            if before != list(made.control_predecessors):
                made = made.replace(control_predecessors=before)
            new[instruction] = made
        if all(a is b for a, b in new.items()):
            return old
        return Computation(old.name, tuple(new.values()), new[old.root], old.execution_thread)

    def _instruction(self, old: Instruction, operands: Sequence[Instruction]) -> Instruction:
        op, state = self._calling(old.op, [o.shape for o in operands])
        if op is old.op and all(a is b for a, b in zip(operands, old.operands, strict=True)) and state is None:
            return old
        if state is None:
            try:
                state = infer_shape(op, [o.shape for o in operands], old.shape)
            except XlakitError:
                # The operation does not take these dynamic dimensions: its declared shape stays, or it raises when run.
                return old.replace(op=op, operands=operands)
        return old.replace(op=op, operands=operands, shape=join_dynamic([old.shape.without_layout(), state]))

    def _calling(self, op: Op, given: Sequence[Shape]) -> tuple[Op, Shape | None]:
        """The operation with the computations copied for these operand shapes, and the new state of a loop, if any."""
        if isinstance(op, While):
            return self._loop(op, given[0])
        made = op
        if isinstance(op, Call):
            made = replace(op, to_apply=self.computation(op.to_apply, given))
        elif isinstance(op, Fusion):
            made = replace(op, calls=self.computation(op.calls, given))
        elif isinstance(op, Conditional):
            branches = zip(op.branch_computations, given[1:], strict=True)
            made = replace(op, branch_computations=tuple(self.computation(b, [s]) for b, s in branches))
        return (op, None) if made.called_computations == op.called_computations else (made, None)

    def _loop(self, op: While, state: Shape) -> tuple[Op, Shape | None]:
        """A loop whose state has every dimension dynamic that any iteration makes dynamic: a fixed point."""
        initial = state
        while True:
            body = self.computation(op.body, [state])
            wider = join_dynamic([state.without_layout(), body.root.shape.without_layout()])
            if _alike(wider, state):
                break
            state = wider
        condition = self.computation(op.condition, [state])
        if body is op.body and condition is op.condition and _alike(state, initial):
            return op, None
        return replace(op, condition=condition, body=body), state


def _alike(a: Shape, b: Shape) -> bool:
    return a.compatible(b)
