"""Recognizes products with an epilogue, which is computed on each block of results while the block is in the cache.

A chain is a dot or a convolution with an elementwise epilogue; or a dot with an epilogue over its rows (softmax) and
optionally a second dot that takes the result of this epilogue as its rows (attention):

    scores = f32[64,64] dot(queries, keys)                     the first product
    top = f32[64] reduce(scores), dimensions={1}, max          ROW
    wide = f32[64,64] broadcast(top), dimensions={0}           ELEMENT
    weights = f32[64,64] exponential(subtract(scores, wide))   ELEMENT
    ROOT result = f32[64,32] dot(weights, values)              the second product, of complete rows of weights

The pass that builds such fusions and the code generator both use this module to recognize them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from xlakit.dataclass import dataclass
from xlakit.ir.def_use import users_of
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.traits import Elementwise
from xlakit.ops.convolution import Convolution
from xlakit.ops.data import Constant, Parameter
from xlakit.ops.dot import Dot
from xlakit.ops.dynamic import DynamicSlice
from xlakit.ops.elementwise.convert import BitcastConvert
from xlakit.ops.movement import Broadcast, Reshape, Transpose
from xlakit.ops.reduction import Reduce
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.ops.shared.nibbles import is_packed
from xlakit.options import knob
from xlakit.passes.fusion.fusible import ELEMENTWISE, MOVEMENT, Domain, is_fusible, is_large_reduction

# Products of fewer rows or columns are bound by reading their operands; their epilogues have little to save.
_FEWEST = knob("product_chain.fewest", 8, 1)
# The bytes of the longest row: a block of as many such rows as a product needs stays in the cache.
_LONGEST_ROW = knob("product_chain.longest_row", 1 << 14, 64)
_ALLOWED = (*ELEMENTWISE, *MOVEMENT, Constant, DynamicSlice)
_PRODUCTS = (Dot, Convolution)


@dataclass(frozen=True, slots=True)
class Link:
    """A product, and the value that is stored: the product itself, or a transpose that keeps its rows whole."""

    product: Instruction
    value: Instruction


@dataclass(frozen=True, slots=True)
class Chain:
    """A product with its epilogue.

    roots: the results of the fusion. reduces: the reductions of rows in the epilogue. second: a second product, of
    ``weights`` (a value of the epilogue in the shape of the first product) and another operand. last: the roots that
    are computed from the second product.
    """

    first: Link
    roots: tuple[Instruction, ...]
    reduces: tuple[Instruction, ...] = ()
    weights: Instruction | None = None
    second: Link | None = None
    last: tuple[Instruction, ...] = ()


def is_product(instruction: Instruction) -> bool:
    """Whether this is a dot or convolution that a product kernel computes, with enough rows and columns."""
    if not isinstance(instruction.op, _PRODUCTS) or instruction.control_predecessors:
        return False
    if is_packed(instruction.op):
        return False
    if not instruction.shape.is_array or not instruction.shape.num_elements:
        return False
    if any(o.shape.is_dynamic or not o.shape.is_array for o in (instruction, *instruction.operands)):
        return False
    if isinstance(instruction.op, Dot):
        return (
            len(instruction.operands) == 2
            and not is_fusible(instruction)
            and min(_matrix(instruction)) >= _FEWEST.value
        )
    op = instruction.op
    whole = op.feature_group_count == op.batch_group_count == 1 and op.sparsity_config is None
    return whole and all(d.base_dilation == 1 for d in op.window.dimensions)


def _matrix(dot: Instruction) -> tuple[int, int]:
    """The numbers of rows and columns of a dot's result, for each batch."""
    op = dot.op_as(Dot)
    lhs, rhs = (o.shape.dimensions for o in dot.operands)
    rows = free_dimensions(len(lhs), op.lhs_batch_dims, op.lhs_contracting_dims)
    columns = free_dimensions(len(rhs), op.rhs_batch_dims, op.rhs_contracting_dims)
    return math.prod(lhs[d] for d in rows), math.prod(rhs[d] for d in columns)


def keeps_rows(instruction: Instruction) -> bool:
    """Whether this is a transpose that keeps the minor dimension, and so moves whole rows."""
    if not isinstance(instruction.op, Transpose):
        return False
    return instruction.op.dimensions[-1:] == (len(instruction.op.dimensions) - 1,)


def chain_of(computation: Computation) -> Chain | None:
    """Recognize a fused computation as a chain; None if it is none."""
    # A fusion is tried again with each instruction that might join it, so most instructions are passed over quickly.
    products = [i for i in computation.instructions if isinstance(i.op, _PRODUCTS) and is_product(i)]
    if not 1 <= len(products) <= 2:
        return None
    root, roots = computation.root, computation.results
    body = [i for i in computation.instructions if not isinstance(i.op, Parameter) and (i is not root or i in roots)]
    if any(i not in products and not _may_stand(i) for i in body):
        return None
    users = users_of(computation.instructions)
    first = _link(products[0], users, roots)
    moved = {first.value, *(_link(p, users, roots).value for p in products[1:])}
    if any(isinstance(i.op, Transpose) and i not in moved for i in body):
        # Other transposes read with strides, which needs a separate loop nest.
        return None
    reduces = tuple(i for i in body if is_large_reduction(i))
    if len(products) == 1:
        return _single(first, body, roots, reduces)
    return _double(first, _link(products[1], users, roots), body, roots, reduces)


def _may_stand(instruction: Instruction) -> bool:
    """Whether a chain may contain an instruction beside its products."""
    if isinstance(instruction.op, Reduce):
        return is_large_reduction(instruction) and not instruction.shape.is_tuple
    return isinstance(instruction.op, _ALLOWED)


def _link(product: Instruction, users: Mapping[Instruction, list[Instruction]], roots: Iterable[Instruction]) -> Link:
    """The product, with its only user as what is stored if that is a transpose that moves whole rows."""
    only_user, *others = users.get(product, []) or [product]
    is_moved = not others and product not in roots and isinstance(product.op, Dot) and keeps_rows(only_user)
    return Link(product, only_user if is_moved else product)


def _single(
    link: Link, body: Iterable[Instruction], roots: tuple[Instruction, ...], reduces: tuple[Instruction, ...]
) -> Chain | None:
    if reduces:
        if _row_domains(link, body, roots, reduces) is None:
            return None
        return Chain(link, roots, reduces)
    if any(r.shape.num_elements != link.value.shape.num_elements for r in roots):
        return None
    return None if _elements(link.value, body) is None else Chain(link, roots)


# -- epilogues -------------------------------------------------------------------------------------


def _elements(value: Instruction, body: Iterable[Instruction]) -> set[Instruction] | None:
    """The instructions of ``body`` computed from ``value``; None unless all are element-wise or regrouping reshapes."""
    computed = {value}
    for instruction in body:
        if instruction is value or computed.isdisjoint(instruction.operands):
            continue
        if not isinstance(instruction.op, (*ELEMENTWISE, Reshape)):
            return None
        if isinstance(instruction.op, BitcastConvert) or not _is_regrouped(value, instruction):
            return None
        computed.add(instruction)
    return computed


def _is_regrouped(value: Instruction, instruction: Instruction) -> bool:
    """Whether one shape is the other with some adjacent dimensions joined, so that both split rows alike."""
    a, b = ({math.prod(i.shape.dimensions[d:]) for d in range(i.shape.rank + 1)} for i in (value, instruction))
    return value.shape.num_elements == instruction.shape.num_elements and (a <= b or b <= a)


def _row_domains(
    link: Link,
    body: Iterable[Instruction],
    roots: Iterable[Instruction],
    reduces: Iterable[Instruction],
    until: Instruction | None = None,
) -> dict[Instruction, Domain] | None:
    """The domain of each instruction computed from a dot, without ``until``; None if one cannot work row by row."""
    sizes = link.value.shape.dimensions
    rows = _row_rank(link.product)
    if rows is None or link.value is not link.product:
        return None
    if math.prod(sizes[rows:]) * max(4, link.value.shape.element_type.byte_width) > _LONGEST_ROW.value:
        return None
    over = tuple(range(rows, len(sizes)))
    for reduce in reduces:
        if tuple(sorted(reduce.op_as(Reduce).dimensions)) != over or reduce.operands[0].shape.dimensions != sizes:
            return None
    if any(r.shape.dimensions not in (sizes, sizes[:rows]) for r in roots):
        return None
    domains = {link.value: Domain.ELEMENT}
    for instruction in body:
        if instruction in domains or instruction is until or not any(o in domains for o in instruction.operands):
            continue
        relation = _epilogue_domain(instruction, domains, sizes, rows)
        if relation is None:
            return None
        domains[instruction] = relation
    return domains


def _row_rank(dot: Instruction) -> int | None:
    """The number of dimensions of a dot's result that select the row; None for a convolution."""
    if not isinstance(dot.op, Dot):
        return None
    return dot.operands[0].shape.rank - len(dot.op.lhs_contracting_dims)


def _epilogue_domain(
    instruction: Instruction, domains: Mapping[Instruction, Domain], sizes: tuple[int, ...], rows: int
) -> Domain | None:
    operand_domains = {domains[o] for o in instruction.operands if o in domains}
    if is_large_reduction(instruction):
        return Domain.ROW if instruction.operands[1] not in domains else None
    if len(operand_domains) > 1:
        return None
    (relation,) = operand_domains
    dimensions = instruction.shape.dimensions
    if relation is Domain.ELEMENT:
        return relation if isinstance(instruction.op, Elementwise) and dimensions == sizes else None
    if isinstance(instruction.op, (Elementwise, Reshape)):
        # Dimensions of size 1, such as a batch of one, may be added or dropped.
        return relation if _long(dimensions) == _long(sizes[:rows]) else None
    if isinstance(instruction.op, Broadcast):
        dimensions_reduced = [d for d in instruction.op.dimensions if sizes[d] != 1] if dimensions == sizes else None
        return Domain.ELEMENT if dimensions_reduced == [d for d in range(rows) if sizes[d] != 1] else None
    return None


def _long(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size != 1)


# -- two products ----------------------------------------------------------------------------------


def _double(
    first: Link,
    second: Link,
    body: list[Instruction],
    roots: tuple[Instruction, ...],
    reduces: tuple[Instruction, ...],
) -> Chain | None:
    position = body.index(second.product)
    early, late = body[:position], body[position:]
    last = _elements(second.value, [i for i in late if i is not second.product])
    if last is None or not reduces:
        return None
    epilogue_roots = tuple(r for r in roots if r in last)
    other_roots = tuple(r for r in roots if r not in last)
    domains = _row_domains(first, [i for i in body if i not in last], other_roots, reduces, second.product)
    if (
        domains is None
        or not epilogue_roots
        or any(r.shape.num_elements != second.value.shape.num_elements for r in epilogue_roots)
    ):
        return None
    weights = [o for o in second.product.operands if o in domains]
    if len(weights) != 1 or domains[weights[0]] is not Domain.ELEMENT or weights[0] not in early:
        return None
    if any(o in domains for i in last for o in i.operands if i is not second.product and o not in last):
        return None
    if not _takes_rows(first, weights[0], second.product):
        return None
    return Chain(first, roots, reduces, weights[0], second, epilogue_roots)


def _takes_rows(first: Link, weights: Instruction, dot: Instruction) -> bool:
    """Whether a dot contracts the whole rows of ``weights``, with the same batches as the first product."""
    if not isinstance(dot.op, Dot):
        return False
    op, batches = dot.op, len(first.product.op_as(Dot).lhs_batch_dims)
    rank, rows = weights.shape.rank, _row_rank(first.product)
    left = dot.operands[0] is weights
    batch = op.lhs_batch_dims if left else op.rhs_batch_dims
    contracted = op.lhs_contracting_dims if left else op.rhs_contracting_dims
    return rows is not None and batch == tuple(range(batches)) and contracted == tuple(range(rows, rank))
