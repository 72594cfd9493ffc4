"""Rules for padded arrays in products, norms and matrix algebra: padding becomes zeros, or ones on the diagonal."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.ir.instruction import Instruction
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Dot
from xlakit.ops.fft import Fft
from xlakit.passes.canonicalize.expand_algebra import Features, batch_norm_of
from xlakit.passes.dynamic.padded_values import NoRuleError, Padded, PaddedRules, Padder, array, bundle

ALGEBRA = PaddedRules()
_rule = ALGEBRA.rule


@_rule("dot")
def dot(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Where either operand has padding along contracting dimensions, both are set to zero, so that sums ignore it."""
    op, (x, y) = old.op_as(Dot), operands
    pairs = list(zip(op.lhs_contracting_dims, op.rhs_contracting_dims, strict=True))
    values = [_contracted(x, y, pairs, make), _contracted(y, x, [(b, a) for a, b in pairs], make)]
    rest_x = [d for d in range(x.shape.rank) if d not in (*op.lhs_batch_dims, *op.lhs_contracting_dims)]
    rest_y = [d for d in range(y.shape.rank) if d not in (*op.rhs_batch_dims, *op.rhs_contracting_dims)]
    batch = zip(op.lhs_batch_dims, op.rhs_batch_dims, strict=True)
    sizes = [_in_both(x.dims.get(a), y.dims.get(b), make) for a, b in batch]
    sizes += [x.dims.get(d) for d in rest_x] + [y.dims.get(d) for d in rest_y]
    return array(make.at_bounds(values), {d: size for d, size in enumerate(sizes) if size is not None})


def _in_both(a: Instruction | None, b: Instruction | None, make: Padder) -> Instruction | None:
    """The smaller of two sizes, either of which may be missing."""
    return a or b if a is None or b is None else make.instruction(make.least(a, b))


def _contracted(x: Padded, other: Padded, pairs: Sequence[tuple[int, int]], make: Padder) -> Instruction:
    """The array with zeros where it, or the other operand, has padding along contracting dimensions."""
    own, others = {a: x.dims.get(a) for a, _ in pairs}, {a: other.dims.get(b) for a, b in pairs}
    value = make.zeroed(array(x.value, {d: size for d, size in own.items() if size is not None}))
    rest = {d: size for d, size in others.items() if size is not None and size is not own[d]}
    return make.zeroed(array(value, rest))


@_rule("convolution")
def convolution(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Padding becomes zero, as window padding is; the result's sizes are numbers of window placements."""
    op, (x, kernel) = old.op_as(Convolution), operands[:2]
    numbers = op.dim_labels
    batch, features = numbers.input_batch_dimension, numbers.input_feature_dimension
    kernel_features = numbers.kernel_input_feature_dimension
    grouped = (op.feature_group_count > 1 and features in x.dims) or (op.batch_group_count > 1 and batch in x.dims)
    if grouped or len(operands) > 2 or kernel.dims.keys() - {kernel_features}:
        raise NoRuleError("a convolution with a group or a kernel of dynamic size")
    spatial = {d: n for d, n in x.dims.items() if d in numbers.input_spatial_dimensions}
    values = [
        make.zeroed(array(_contracted(x, kernel, [(features, kernel_features)], make), spatial)),
        _contracted(kernel, x, [(kernel_features, features)], make),
    ]
    dims = {numbers.output_batch_dimension: x.dims[batch]} if batch in x.dims else {}
    dimensions = zip(numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, strict=True)
    for (own, result), window in zip(dimensions, op.window.dimensions, strict=True):
        if own in spatial:
            dims[result] = make.instruction(make.placements(spatial[own], window))
    return array(make.at_bounds(values), dims)


@_rule("cholesky")
def cholesky(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The matrix is extended by a unit matrix, whose Cholesky factor is itself, so the valid part is unchanged."""
    (x,) = operands
    return array(make.at_bounds([_with_unit(x, make)]), x.dims)


@_rule("triangular-solve")
def triangular_solve(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The matrix is extended by a unit matrix, and the right-hand sides by zeros, so the valid part is unchanged."""
    matrix, sides = operands
    return array(make.at_bounds([_with_unit(matrix, make), make.zeroed(sides)]), sides.dims)


def _with_unit(x: Padded, make: Padder) -> Instruction:
    """Matrices whose padding has ones on the diagonal and zeros elsewhere."""
    rank, sizes = x.shape.rank, x.shape.dimensions
    valid = make.valid(sizes, {d: n for d, n in x.dims.items() if d >= rank - 2})
    if valid is None:
        return x.value
    kind = x.shape.element_type
    diagonal = make.compare(make.positions(sizes, rank - 2), make.positions(sizes, rank - 1), "EQ")
    one = make.broadcast(make.scalar(1, kind), sizes)
    unit = make.apply("select", diagonal, one, make.broadcast(make.zero(kind), sizes))
    return make.chosen(valid, x.value, unit)


@_rule("fft")
def fft(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Transforms are independent along the other dimensions, so padding there stays padding."""
    (x,) = operands
    first = x.shape.rank - len(old.op_as(Fft).fft_length)
    if any(d >= first for d in x.dims):
        raise NoRuleError("a Fourier transform along a dynamic dimension")
    return array(make.at_bounds([x.value]), x.dims)


NORMS = PaddedRules()


class _PaddedFeatures(Features):
    """Builds a batch norm of a padded array."""

    def __init__(self, x: Padded, make: Padder) -> None:
        super().__init__(make, x.shape)
        self._x = x
        self._make = make

    def sum(self, x: Instruction) -> Instruction:
        """The sum of valid elements over all dimensions but the feature dimension."""
        return super().sum(self._make.zeroed(array(x, self._x.dims), self._others))

    def counts(self, like: Instruction) -> Instruction:
        """The number of valid elements of each feature."""
        make = self._make
        count = make.instruction(make.product([make.size(self._x, d) for d in self._others]))
        return make.broadcast(make.convert(count, like.shape.element_type), like.shape.dimensions)


@NORMS.rule("batch-norm-training", "batch-norm-inference", "batch-norm-grad")
def batch_norm(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """The batch norm, expanded to sums and counts of the valid elements."""
    x = operands[0]
    features = _PaddedFeatures(x, make)
    value = batch_norm_of([o.value for o in operands], features)
    if not old.shape.is_tuple:
        return array(value, x.dims)
    size = x.dims.get(features.feature)
    own = {} if size is None else {0: size}
    return bundle(value, [x.dims, own, own])
