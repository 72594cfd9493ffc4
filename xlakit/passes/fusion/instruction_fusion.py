"""Instruction fusion: groups the instructions that one loop nest can compute into fusion instructions.

The pass visits the instructions from the results to the parameters. Each joins the cluster of its users if all of them
are in one cluster; a cheap instruction may join several. Any other instruction begins a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xlakit.ir.def_use import users_of
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, Instruction, depth_first
from xlakit.ir.names import unused_name
from xlakit.ops.data import Parameter
from xlakit.ops.movement import Concatenate
from xlakit.options import knob
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.core.computation_builder import Fused, with_fusions, with_results
from xlakit.passes.core.framework import (
    Names,
    PassContext,
    ProgramPass,
    live_instructions,
)
from xlakit.passes.fusion.cluster import Cluster
from xlakit.passes.fusion.fusible import is_cheap, is_free, is_fusible, work_of
from xlakit.passes.fusion.multi_output import Merging
from xlakit.passes.fusion.stacking import pieces_of
from xlakit.passes.fusion.views import Loops

# A cheap instruction is duplicated into at most so many fusions.
_MOST_COPIES = knob("fusion.most_copies", 4, 0, 100)


class Fuse(ProgramPass):
    """Make one fusion of instructions that one loop nest can compute, in all computations that run as programs.

    Side effects keep their order: devices may meet in copies of a collective in other computations
    (:mod:`xlakit.ops.communication.sites`), and the host may wait for one transfer before it begins another.
    """

    name = "fusion"
    left_out_by = "fusion"

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Fuse in one computation."""
        return _ClusterFusion(computation, context).run()


class _ClusterFusion:
    """Fuses one computation."""

    def __init__(self, computation: Computation, context: PassContext) -> None:
        self._computation = computation
        self._context = context
        self._names = Names(computation, context)
        # The side effect before each other one.
        effects = [i for i in computation.instructions if i.op.can_have_effect and i.op.has_side_effect]
        self._previous = dict(zip(effects[1:], effects, strict=False))
        self._live = live_instructions(computation)
        self._order = {instruction: i for i, instruction in enumerate(computation.instructions)}
        self._users = users_of(i for i in computation.instructions if i in self._live)
        self._loops = Loops()
        self._has_stacks = any(isinstance(i.op, Concatenate) for i in computation.instructions)
        # By instruction, the clusters that compute it; and by root, which is a result of a cluster, that cluster.
        self._clusters_of: dict[Instruction, list[Cluster]] = {}
        self._by_root: dict[Instruction, Cluster] = {}
        # The nanoseconds of recomputation on the path from an instruction to the results.
        self._recomputed: dict[Instruction, float] = {}

    def run(self) -> Computation:
        """The computation with fusions."""
        for instruction in reversed(self._computation.instructions):
            if instruction in self._live and is_fusible(instruction):
                self._assign(instruction)
        others = [i for i in self._live if i not in self._clusters_of]
        Merging(self._by_root, [(i, self._predecessors(i)) for i in others], self._order, self._computation.root).run()
        chosen = {id(c): c for c in self._by_root.values() if len(c.members) > 1 and self._context.spend("fused")}
        if not chosen:
            return self._computation
        return self._rebuilt({root: c for root, c in self._by_root.items() if id(c) in chosen})

    def _predecessors(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions that must stay before another one, beside its operands."""
        before = self._previous.get(instruction)
        return instruction.control_predecessors if before is None else (*instruction.control_predecessors, before)

    def _assign(self, instruction: Instruction) -> None:
        """Let an instruction join the clusters of its users; it begins one of its own unless all of them accept it.

        An instruction that is also read outside of clusters (``read``) is stored anyway; then the clusters of its users
        recompute it only if it is free.
        """
        users = self._users.get(instruction, [])
        consumers = list({id(c): c for user in users for c in self._clusters_of.get(user, [])}.values())
        read = instruction is self._computation.root or any(user not in self._clusters_of for user in users)
        if consumers and self._may_join(instruction, consumers, read):
            joined = self._join(instruction, consumers, users)
            if joined:
                self._clusters_of[instruction] = joined
            if len(joined) == len(consumers) and not read:
                return
        cluster = Cluster(instruction, self._loops, pieces_of(instruction) if self._has_stacks else {})
        self._by_root[instruction] = cluster
        self._clusters_of.setdefault(instruction, []).append(cluster)

    def _may_join(self, instruction: Instruction, consumers: list[Cluster], read: bool) -> bool:
        if read:
            return is_free(instruction)
        if len(consumers) == 1:
            return True
        return is_free(instruction) or (is_cheap(instruction) and len(consumers) <= _MOST_COPIES.value)

    def _join(self, instruction: Instruction, consumers: list[Cluster], users: list[Instruction]) -> list[Cluster]:
        """The clusters among ``consumers`` that the instruction has joined; none if too much would be recomputed."""
        users_by_cluster = [[u for u in users if u in c.members] for c in consumers]
        demands = [
            c.demand_of(users_in_cluster, instruction)
            for c, users_in_cluster in zip(consumers, users_by_cluster, strict=True)
        ]
        # The cost of recomputation adds up along a path to the results, until a value is stored.
        again = max([self._recomputed.get(u, 0.0) for u in users])
        computed = sum([len(demand.views) * demand.computed for demand in demands if demand is not None])
        more = computed - instruction.shape.num_elements
        if more > 0 and (work := work_of(instruction)) and not is_free(instruction):
            again += work * more
            if again > cost_model().materialization(instruction.shape):
                return []
        if again:
            self._recomputed[instruction] = again
        return [
            c
            for c, users_in_cluster, demand in zip(consumers, users_by_cluster, demands, strict=True)
            if demand is not None and c.join(instruction, users_in_cluster, demand)
        ]

    # -- building --------------------------------------------------------------------------------

    def _rebuilt(self, clusters: dict[Instruction, Cluster]) -> Computation:
        """The computation with each cluster as one instruction, at the position of the last of its roots."""
        nodes = self._ordered(clusters)
        return with_fusions(self._computation, (self._fused(n) if isinstance(n, Cluster) else n for n in nodes))

    def _ordered(self, clusters: dict[Instruction, Cluster]) -> Iterable[Instruction | Cluster]:
        """Instructions and clusters in topological order."""

        def needed(node: Instruction | Cluster) -> Sequence[Instruction | Cluster]:
            operands = node.operands if isinstance(node, Cluster) else {*node.operands, *self._predecessors(node)}
            return [clusters.get(o, o) for o in sorted(operands, key=self._order.__getitem__)]

        live = [i for i in self._computation.instructions if i in self._live]
        return depth_first([clusters.get(i, i) for i in live if i in clusters or self._is_needed(i, clusters)], needed)

    def _is_needed(self, instruction: Instruction, clusters: dict[Instruction, Cluster]) -> bool:
        """Whether an instruction also remains outside of fusions."""
        if instruction in self._by_root or instruction not in self._clusters_of:
            return True
        return any(c.roots[0] not in clusters for c in self._clusters_of[instruction])

    def _fused(self, cluster: Cluster) -> Fused:
        """The fusion of a cluster: operands become parameters, and scalar constants are copied into its computation."""
        order = self._order
        operands = sorted(cluster.operands, key=order.__getitem__)
        inner: dict[Instruction, Instruction] = {}
        body: list[Instruction] = []
        taken = {i.name for member in cluster.members for i in (member, *member.operands)}
        for number, operand in enumerate(operands):
            name = unused_name(f"p{number}", taken)
            inner[operand] = Instruction(Parameter(number=number), (), operand.shape, name)
            body.append(inner[operand])
        for member in sorted(cluster.members, key=order.__getitem__):
            for constant in member.operands:
                if constant not in inner:
                    inner[constant] = constant
                    body.append(constant)
            inner[member] = member.replace(operands=[inner[o] for o in member.operands])
            body.append(inner[member])
        roots = sorted(cluster.roots, key=order.__getitem__)
        name = self._names.new("fusion" if len(cluster.members) > 1 else "alone")
        thread = self._computation.execution_thread
        computation = with_results(f"fused_{name}", body, [inner[r] for r in roots], taken, thread)
        kind = FusionKind.INPUT if cluster.reduced else FusionKind.LOOP
        return Fused(name, kind, computation, operands, roots)
