"""Async pairs of collectives, start and done; the interpreter does the work at the start.

Source: the opcodes of the same names of today's HLO.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import ShapeError
from xlakit.ir.operation import Evaluation, Op, Value, operation
from xlakit.ir.traits import Done, Start
from xlakit.ops.communication.collective import bundle, bundle_shapes
from xlakit.ops.communication.collective_moves import Permuting
from xlakit.ops.communication.collectives import AllGather, AllReduce
from xlakit.ops.data import Same
from xlakit.ops.shared.calling import zero_value


class _Done(Op, Done):
    """The base of the dones: the result is element 1 of the start's tuple."""

    __slots__ = ()

    @property
    def has_side_effect(self) -> bool:
        return True

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (started,) = operands
        if len(started.tuple_shapes) < 2:
            raise ShapeError(
                f"takes the tuple of operand and result that the start gives, got {started}",
                hint="give what the start gave, as it is",
            )
        return started.tuple_shapes[1].without_layout()

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return operands[0][1]


@operation("all-gather-start")
class AllGatherStart(AllGather, Start):
    """Begin an all-gather; gives (operands, result)."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        result = None
        if declared is not None:
            if len(declared.tuple_shapes) != 2:
                raise ShapeError(
                    f"gives a tuple of operands and result, not {declared}",
                    hint="declare (operands, results); several of them are a tuple each",
                )
            result = declared.tuple_shapes[1]
        return make_tuple_shape([bundle_shapes(operands), self.gathered_shape(operands, result)])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        return bundle(operands), self.gather(context, operands, context.shape.tuple_shapes[1])


@operation("all-gather-done", arity=1)
class AllGatherDone(_Done):
    """The result of an all-gather-start."""


@operation("all-reduce-start")
class AllReduceStart(AllReduce, Start):
    """Begin an all-reduce; gives the result."""


@operation("all-reduce-done", arity=1)
class AllReduceDone(Same, _Done):
    """The result of an all-reduce-start."""


@operation("collective-permute-start")
class CollectivePermuteStart(Permuting, Start):
    """Begin a collective-permute; gives (operands, result, contexts...)."""

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        # As in XLA, several operands need not be arrays.
        self.check_operands(operands, only_arrays=len(operands) == 1)
        sent = operands[0].without_layout() if self.slice_sizes else bundle_shapes(operands)
        contexts = declared.tuple_shapes[2:] if declared is not None else ()
        return make_tuple_shape([sent, self.result_of(operands), *contexts])

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        shapes = context.shape.tuple_shapes
        sent = operands[0] if self.slice_sizes else bundle(operands)
        return (sent, self.move(context, operands, shapes[1]), *(zero_value(s) for s in shapes[2:]))


@operation("collective-permute-done", arity=1)
class CollectivePermuteDone(_Done):
    """The result of a collective-permute-start."""
