"""Collective matmul: products of gathered arrays, and scattered sums of products, in steps beside which data move.

A product can begin with the part of an operand that its device has, while the parts of others arrive; and what a device
adds to the sums of others can leave while it computes the next part. Each step is a product of a part, and the
collectives between the steps need no result of the product beside them, so overlap-collectives makes them async pairs.
There are three forms (:mod:`xlakit.passes.scheduling.product_steps` emits them), of which none changes the order of a
sum:

* ``dot(all-gather(x), w)``, gathered along a dimension that is not contracted: the parts of x go round a ring.
* ``dot(all-gather(x), w)``, gathered along a contracted dimension: x is gathered in slices along another dimension.
  Partial products of a ring's parts would be added in another order on every device.
* ``reduce-scatter(dot(x, w))``: each step computes the block of the result for another device and sends it there. The
  blocks that arrive are added in the order of the group.

All processes must take the same steps, so the estimate uses the link's numbers only, and no machine's own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from xlakit import link
from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collectives import AllGather, ReduceScatter
from xlakit.ops.communication.sites import is_collective, site_of
from xlakit.ops.dot import Dot
from xlakit.ops.elementwise.binary import Add
from xlakit.ops.reduction import reducer_op
from xlakit.ops.shared.contraction import free_dimensions
from xlakit.ops.shared.nibbles import is_packed
from xlakit.options import knob
from xlakit.passes.analysis.sites import sites_met_apart
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, change_programs, with_computations
from xlakit.passes.scheduling.overlap_collectives import collective_nanoseconds, least_hidden_nanoseconds
from xlakit.passes.scheduling.product_steps import Numbers, Ring, Steps, result_dimension

NEVER, ESTIMATED, ALWAYS = 0, 1, 2
_WHEN = knob("collective_matmul.when", ESTIMATED, NEVER, ALWAYS)
# The number of steps bounds the size of the code: each is a product of its own.
_MOST_STEPS = knob("collective_matmul.most_steps", 32, 2)
# The least sizes of parts of a dimension of the result, if it is the last one, and of others: kernels of narrower
# products add in another order.
_LEAST_COLUMNS, _LEAST_ROWS = 128, 16
# The estimates are rough: steps must be estimated to take so much of the time at most.
_MOST_OF_TIME = 0.9
# Nanoseconds for a byte of the results of steps to be copied to its place: memory of most machines moves so much.
_PLACED_BYTE = 0.25


class CollectiveMatmul(Pass):
    """Compute products of gathered arrays, and scattered sums of products, in steps beside which data move.

    The pass changes programs that span processes, where the estimated time of the steps is less by what a collective
    must at least hide. Devices of one process share processors and memory: nothing would be hidden. The knob
    ``collective_matmul.when`` forbids it (0) or forces it (2).
    """

    name = "collective-matmul"

    @property
    def parts(self) -> dict[str, str]:
        """The forms that can be disabled one by one."""
        return {
            "gathered-product": "compute products of a gathered array in steps",
            "scattered-product": "compute a reduce-scatter of a product in steps",
        }

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation that runs as a program."""
        if _WHEN.value == NEVER or (_WHEN.value == ESTIMATED and link.current() is None):
            return module
        context.computation_names = {c.name for c in module.computations}
        numbers, apart = Numbers.of(module), sites_met_apart(module)

        def changed(computation: Computation) -> Computation:
            plan = _planned(computation, module, apart, context)
            return _Rebuilt(computation, plan, numbers, context).build() if plan.is_some else computation

        return with_computations(module, list(change_programs(module, changed).values()))


@dataclass(frozen=True, slots=True)
class _Gather:
    """An all-gather whose users are products.

    gathered: the dimension; cut: the dimension that is sliced instead, if the gathered one is contracted; count: steps.
    """

    ring: Ring
    gathered: int
    cut: int | None
    count: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """The all-gathers in steps; the products of these; and the reduce-scatters, which each have a product."""

    gathers: Mapping[Instruction, _Gather]
    products: Mapping[Instruction, Instruction]
    scatters: Mapping[Instruction, Ring]

    @property
    def is_some(self) -> bool:
        """Whether there is something to change."""
        return bool(self.gathers or self.scatters)


def _planned(computation: Computation, module: HloModule, apart: Set[str], context: PassContext) -> _Plan:
    """The plan of a computation; collectives of the sites ``apart`` stay, since devices may meet in copies of them."""
    users: defaultdict[Instruction, list[Instruction]] = defaultdict(list)
    for instruction in computation.instructions:
        for operand in dict.fromkeys(instruction.operands):
            users[operand].append(instruction)
    fixed = {p for i in computation.instructions for p in i.control_predecessors}
    fixed |= {
        i for i in computation.instructions if i.control_predecessors or (is_collective(i) and site_of(i) in apart)
    }
    root = computation.root
    gathers: dict[Instruction, _Gather] = {}
    products: dict[Instruction, Instruction] = {}
    scatters: dict[Instruction, Ring] = {}
    own = [i for i in computation.instructions if isinstance(i.op, AllGather) and i not in {*fixed, root}]
    # Of a product whose operands are both gathered, the larger one arrives in steps.
    for old in sorted(own, key=lambda i: -i.shape.byte_size):
        found = _gather(old, users[old], module)
        if found is None or any(user in products or user in fixed for user in users[old]):
            continue
        if context.spend("gathered-product"):
            gathers[old] = found
            products.update(dict.fromkeys(users[old], old))
    for old in computation.instructions:
        if isinstance(old.op, ReduceScatter) and old not in fixed and len(old.operands) == 1:
            (product,) = old.operands
            alone = len(users[product]) == 1 and product not in {*fixed, *products, root}
            ring = _scattered(old, product, module) if alone else None
            if ring is not None and context.spend("scattered-product"):
                scatters[old] = ring
    return _Plan(gathers, products, scatters)


def _is_product(instruction: Instruction) -> bool:
    """Whether an instruction is a product of two different arrays of static sizes, none of them empty."""
    op = instruction.op
    if not isinstance(op, Dot) or is_packed(op) or len(set(instruction.operands)) != 2:
        return False
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    return all(s.is_array and not s.is_dynamic and s.num_elements for s in shapes)


def _gather(old: Instruction, products: Sequence[Instruction], module: HloModule) -> _Gather | None:
    """How an all-gather is done in steps; None if it stays."""
    op = old.op_as(AllGather)
    if len(old.operands) != 1 or not products or not all(map(_is_product, products)):
        return None
    ring = ring_of(op, module, op.use_global_device_ids)
    gathered, sizes = op.all_gather_dimension, old.operands[0].shape.dimensions
    if ring is None or old.shape.dimensions[gathered] != ring.size * sizes[gathered]:
        return None
    contracted = [gathered in contracting_dims(p.op_as(Dot), p.operands.index(old)) for p in products]
    if any(contracted) and not all(contracted):
        return None
    sent = float(old.shape.byte_size * (ring.size - 1)) / ring.size
    if not any(contracted):
        steps = _Estimate(ring.size, sent, _ring_nanoseconds)
        return _Gather(ring, gathered, None, ring.size) if steps.pay(old, gathered, sizes[gathered], products) else None
    free = [set(free_dimensions(old.shape.rank, *_taken(p.op_as(Dot), p.operands.index(old)))) for p in products]
    cut = max(set.intersection(*free), key=lambda d: (sizes[d], -d), default=None)
    if cut is None or sizes[cut] < 2:
        return None
    count = min(_MOST_STEPS.value, ring.size, sizes[cut])
    if _WHEN.value == ESTIMATED:
        work = sum(map(product_nanoseconds, products))
        count = min(range(2, count + 1), key=lambda n: _slices_nanoseconds(n, sent, work))
    steps = _Estimate(count, sent, _slices_nanoseconds)
    return _Gather(ring, gathered, cut, count) if steps.pay(old, cut, sizes[cut] // count, products) else None


def _scattered(old: Instruction, product: Instruction, module: HloModule) -> Ring | None:
    """The members that send each other blocks of a product, if a reduce-scatter of it is done in steps."""
    op, kind = old.op_as(ReduceScatter), old.shape.element_type
    scalars = {i.shape.element_type for i in (*op.to_apply.parameters, op.to_apply.root)}
    is_number = kind.is_floating or kind.is_complex or (kind.is_integral and kind.bit_width >= 8)
    if not is_number or scalars != {kind} or not isinstance(reducer_op(op.to_apply), Add) or not _is_product(product):
        return None
    ring = ring_of(op, module, op.use_global_device_ids)
    part, whole = (i.shape.dimensions[op.scatter_dimension] for i in (old, product))
    if ring is None or part * ring.size != whole:
        return None
    sent = float(product.shape.byte_size * (ring.size - 1)) / ring.size
    steps = _Estimate(ring.size, sent, _ring_nanoseconds)
    return ring if steps.pay_at([(product, op.scatter_dimension)], part) else None


def ring_of(op: Collective, module: HloModule, global_ids: bool) -> Ring | None:
    """The groups of a collective as those of a collective-permute; None if its pairs cannot express them."""
    replicas, partitions = module.replica_count, module.num_partitions
    groups = op.replica_groups.groups
    is_of_devices = op.channel_id is not None and global_ids
    if op.channel_id is None or (not global_ids and partitions == 1):
        by_partition, count = False, replicas
    elif not is_of_devices:
        return None
    else:
        by_partition, count = replicas == 1, replicas * partitions
        if not by_partition and partitions > 1:
            # Groups of devices, the same among the partitions of each replica.
            own = {tuple(d % partitions for d in g) for g in groups if {d // partitions for d in g} == {0}}
            alike = {tuple(r * partitions + p for p in g) for r in range(replicas) for g in own}
            if alike != set(groups):
                return None
            groups, by_partition, count = tuple(sorted(own)), True, partitions
    groups = groups or (tuple(range(count)),)
    if sorted(i for g in groups for i in g) != list(range(count)) or len(groups[0]) < 2:
        return None
    if len({len(g) for g in groups}) > 1 or len(groups[0]) > _MOST_STEPS.value:
        return None
    return Ring(tuple(map(tuple, groups)), by_partition)


def contracting_dims(op: Dot, side: int) -> Sequence[int]:
    """The contracting dimensions of an operand of a product."""
    return (op.lhs_contracting_dims, op.rhs_contracting_dims)[side]


def _taken(op: Dot, side: int) -> Iterator[Sequence[int]]:
    yield contracting_dims(op, side)
    yield (op.lhs_batch_dims, op.rhs_batch_dims)[side]


# -- the estimate ----------------------------------------------------------------------------------


def product_nanoseconds(product: Instruction) -> float:
    """The time of a product on the processors of one device, by the link's rate; wider types take longer."""
    op, lhs = product.op_as(Dot), product.operands[0].shape
    contracted = math.prod(lhs.dimensions[d] for d in op.lhs_contracting_dims)
    width = max(1.0, product.shape.element_type.byte_width / 4)
    return product.shape.num_elements * contracted * width / (link.current() or link.DEFAULT_LINK).products


def _ring_nanoseconds(count: int, sent: float, work: float) -> float:
    """The time of a product in steps of which the first needs nothing from others."""
    return work / count + (count - 1) * max(collective_nanoseconds(sent / (count - 1)), work / count)


def _slices_nanoseconds(count: int, sent: float, work: float) -> float:
    """The time of a product in steps that each need a slice from all others."""
    moved = collective_nanoseconds(sent / count)
    return moved + (count - 1) * max(moved, work / count) + work / count


@dataclass(frozen=True, slots=True)
class _Estimate:
    """Steps: their number, the bytes that a device sends in all of them, and the function that gives their time."""

    count: int
    sent: float
    nanoseconds: Callable[[int, float, float], float]

    def pay(self, gather: Instruction, dimension: int, part: int, products: Sequence[Instruction]) -> bool:
        """Whether to compute products of parts, which have ``part`` elements of a dimension of a gathered array."""
        places = [(p, result_dimension(p, p.operands.index(gather), dimension)) for p in products]
        return self.pay_at(places, part)

    def pay_at(self, places: Sequence[tuple[Instruction, int]], part: int) -> bool:
        """Whether to compute products in parts, of which each has ``part`` elements of a dimension of its result.

        They must take less time than the collective and the products one after the other, and have the same bits.
        """
        if _WHEN.value == ALWAYS:
            return True
        for product, dimension in places:
            if part < (_LEAST_COLUMNS if dimension == product.shape.rank - 1 else _LEAST_ROWS):
                return False
        work = sum(product_nanoseconds(product) for product, _ in places)
        placed = sum(product.shape.byte_size for product, _ in places) * _PLACED_BYTE
        together = collective_nanoseconds(self.sent) + work
        steps = self.nanoseconds(self.count, self.sent, work) + placed
        return steps + least_hidden_nanoseconds() <= _MOST_OF_TIME * together


# -- the new computation ---------------------------------------------------------------------------


class _Rebuilt:
    """A computation with some of its products in steps."""

    def __init__(self, computation: Computation, plan: _Plan, numbers: Numbers, context: PassContext) -> None:
        self._computation = computation
        self._plan = plan
        self._cloner = ComputationCloner(computation, context)
        self._steps = Steps(self._cloner, numbers)
        # The parts of each all-gather, in the order in which they are there.
        self._parts: dict[Instruction, list[Instruction]] = {}

    def build(self) -> Computation:
        """The new computation."""
        scattered = {old.operands[0] for old in self._plan.scatters}
        for old in self._computation.instructions:
            if old in self._plan.gathers:
                self._gather(old, self._plan.gathers[old])
            elif old in self._plan.products:
                self._product(old, self._plan.products[old])
            elif old in self._plan.scatters:
                (product,) = old.operands
                given = [self._cloner.clones[o] for o in product.operands]
                made = self._steps.scattered(old, product, given, self._plan.scatters[old])
                self._cloner.substitute(old, made)
            elif old not in scattered:
                self._cloner.clone(old)
        return self._cloner.build()

    def _gather(self, old: Instruction, found: _Gather) -> None:
        own = self._cloner.clones[old.operands[0]]
        if found.cut is None:
            self._parts[old] = self._steps.ring(old, own, found.ring)
        else:
            self._parts[old] = self._steps.slices(old, own, found.cut, found.count)

    def _product(self, old: Instruction, gather: Instruction) -> None:
        found, side = self._plan.gathers[gather], old.operands.index(gather)
        other, parts = self._cloner.clones[old.operands[1 - side]], self._parts[gather]
        if found.cut is None:
            made = self._steps.of_ring(old, side, found.gathered, parts, other, found.ring)
        else:
            along = result_dimension(old, side, found.cut)
            made = self._steps.of_slices(old, side, along, parts, other)
        self._cloner.substitute(old, made)
