"""Padded values in batch norms: sums over the valid elements, divided by their number."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.passes.canonicalize.expand_algebra import Features, batch_norm_of
from xlakit.passes.dynamic.padded_values import Padded, PaddedRules, Padder, array, bundle

NORMS = PaddedRules()


class _PaddedFeatures(Features):
    """The parts of a batch norm of an array that is not full."""

    def __init__(self, x: Padded, make: Padder) -> None:
        super().__init__(make.old, x.shape, make.builder, make.context)
        self._x = x
        self._make = make

    def sum(self, x: Instruction) -> Instruction:
        """The sum of valid elements over all dimensions but the features."""
        return super().sum(self._make.zeroed(array(x, self._x.dims), self._others))

    def counts(self, like: Instruction) -> Instruction:
        """How many elements each feature has now."""
        make = self._make
        count = make.instruction(make.product([make.size(self._x, d) for d in self._others]))
        return make.broadcast(make.convert(count, like.shape.element_type), like.shape.dimensions)


@NORMS.rule("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def batch_norm(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The norm expanded to sums and counts of the valid elements."""
    x = operands[0]
    features = _PaddedFeatures(x, make)
    value = batch_norm_of(old, [o.value for o in operands], features)
    if not old.shape.is_tuple:
        return array(value, x.dims)
    size = x.dims.get(features.feature)
    own = {} if size is None else {0: size}
    return bundle(value, [x.dims, own, own])
