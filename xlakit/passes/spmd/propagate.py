"""Sharding propagation: derives tilings of values from the shardings of their operands and users.

Shardings of arguments, results and constraints are propagated through operations in both directions. The walk itself
only goes forwards: an optimizer's moment precedes the parameter that it updates, and only the parameter has a sharding.
The result is a hint, which the walk may ignore.

Values are nodes; the correspondence of dimensions in an operation (``correspondences``) is a tie between nodes. A
computation that is called twice has two frames, since it may be split in two ways. A constant has a separate node for
each use: two values that start from the same zeros need not be split alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import DataMovement
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, Iota, OptimizationBarrier, Parameter, Tuple
from xlakit.ops.movement import Concatenate, Pad
from xlakit.passes.spmd.factor_propagation import FactorPropagation, Tie
from xlakit.passes.spmd.program import Frame
from xlakit.passes.spmd.shardings.annotations import (
    BARRIERS,
    CONSTRAINTS,
    GROUP,
    GROUP_NUMBER,
    HINTS,
    IN_SHARDINGS,
    OUT_SHARDINGS,
    Annotations,
    ends_of_calls,
    is_open,
    of_leaves,
    result_shardings,
    with_axes,
)
from xlakit.passes.spmd.shardings.correspondences import alike, correspondence_of
from xlakit.passes.spmd.shardings.tilings import Tiling, divides, is_proper, whole
from xlakit.passes.spmd.shardings.values import errors_located, leaf_shapes

# Operations, beside elementwise ones, whose result counts as a constant if all operands are constants.
_KEEPING = (DataMovement, Concatenate, Pad)

_Nodes = tuple[int, ...]


def propagated(module: HloModule, annotations: Annotations) -> Frame:
    """The hints for the entry of a module and for the computations that it calls."""
    graph, entry = _Graph(module, annotations), module.entry
    frame = graph.frame(entry, [graph.given(p) for p in entry.parameters])
    with errors_located(module, entry.root):
        graph.seed(frame.nodes[entry.root], entry.root.shape, result_shardings(module))
    graph.propagate()
    return frame


class _Graph:
    """Nodes with their tilings, and ties between them."""

    def __init__(self, module: HloModule, annotations: Annotations) -> None:
        self._module = module
        self._annotations = annotations
        self._tilings: list[Tiling] = []
        self._sizes: list[tuple[int, ...]] = []
        self._open: list[tuple[bool, ...]] = []
        self._ties: list[Tie] = []
        # For each sharding group, by its number, the values of its first member.
        self._groups: dict[str, _Nodes] = {}
        # The nodes of static arguments without a sharding.
        self._unsaid: set[int] = set()

    # -- nodes -------------------------------------------------------------------------------------

    def _node(self, shape: Shape) -> int:
        rank = shape.rank if shape.is_array else 0
        self._tilings.append(whole(rank))
        # Values without fixed sizes stay whole.
        free = shape.is_array and not shape.is_dynamic
        self._sizes.append(shape.dimensions if rank else ())
        self._open.append((free,) * rank)
        return len(self._tilings) - 1

    def _new(self, shape: Shape) -> _Nodes:
        return tuple(map(self._node, leaf_shapes(shape)))

    def given(self, parameter: Instruction) -> _Nodes:
        """The nodes of an argument, which has the tiling of its sharding and no other."""
        nodes = self._new(parameter.shape)
        with errors_located(self._module, parameter):
            self.seed(nodes, parameter.shape, of_leaves(parameter))
        for node, sharding in zip(nodes, of_leaves(parameter), strict=True):
            if sharding is None and all(self._open[node]):
                self._unsaid.add(node)
            self._open[node] = (False,) * len(self._open[node])
        return nodes

    def seed(self, nodes: _Nodes, of: Shape, shardings: Sequence[Sharding | None]) -> None:
        """Set the tilings of the values of a shape from their shardings, if they are possible."""
        for node, shape, sharding in zip(nodes, leaf_shapes(of), shardings, strict=True):
            splits = self._annotations.even_splits(sharding, shape.dimensions) if shape.is_array else None
            if splits is None or sharding is None or not all(self._open[node]):
                continue
            if is_proper(splits) and divides(splits, shape.dimensions):
                self._tilings[node] = splits
                self._open[node] = tuple(is_open(sharding, d) for d in range(shape.rank))

    # -- from computations to ties -------------------------------------------------------------------

    def frame(self, computation: Computation, arguments: Sequence[_Nodes]) -> Frame:
        """The frame of a computation, given the nodes of its arguments."""
        found = Frame(self._tilings)
        constants: set[Instruction] = set()
        ends = ends_of_calls(computation)
        # A constant in a sharding group has a node, like the other values of the group.
        grouped = {o for i in computation.instructions if _is_group(i) for o in i.operands}
        for old in computation.instructions:
            if old not in grouped and _is_constant(old, constants):
                constants.add(old)
                continue
            operands = [self._new(o.shape) if o in constants else found.nodes[o] for o in old.operands]
            with errors_located(self._module, old):
                found.nodes[old] = self._nodes_of(old, operands, arguments, found, ends.get(old))
        if computation.root in constants:
            found.nodes[computation.root] = self._new(computation.root.shape)
        return found

    def _nodes_of(
        self,
        old: Instruction,
        operands: list[_Nodes],
        arguments: Sequence[_Nodes],
        frame: Frame,
        end: Instruction | None,
    ) -> _Nodes:
        op = old.op
        if isinstance(op, Parameter):
            return arguments[op.number]
        if isinstance(old.op, (Tuple, OptimizationBarrier)):
            return tuple(node for nodes in operands for node in nodes)
        if isinstance(op, GetTupleElement):
            counts = [len(leaf_shapes(s)) for s in old.operands[0].shape.tuple_shapes]
            start = sum(counts[: op.index])
            return operands[0][start : start + counts[op.index]]
        if isinstance(op, (Call, Fusion)) and not (end is not None and self._annotations.is_manual_over_all(end)):
            return self._inside(frame, old, op.to_apply if isinstance(op, Call) else op.calls, operands)
        nodes = self._new(old.shape)
        if isinstance(op, While):
            self._tie(operands[0], nodes)
            self._tie(self._inside(frame, old, op.body, [nodes]), nodes)
            self._inside(frame, old, op.condition, [nodes])
        elif isinstance(op, Conditional):
            for branch, given in zip(op.branch_computations, operands[1:], strict=True):
                self._tie(self._inside(frame, old, branch, [given]), nodes)
        else:
            self._plain(old, operands, nodes)
        return nodes

    def _inside(self, frame: Frame, old: Instruction, computation: Computation, arguments: Sequence[_Nodes]) -> _Nodes:
        made = frame.inner[old, computation] = self.frame(computation, arguments)
        return made.nodes[computation.root]

    def _plain(self, old: Instruction, operands: list[_Nodes], nodes: _Nodes) -> None:
        if isinstance(old.op, CustomCall):
            target = old.op.custom_call_target
            if target == GROUP:
                self._join(dict(old.annotations.frontend_attributes).get(GROUP_NUMBER, ""), operands[0])
            if target in CONSTRAINTS:
                self.seed(nodes, old.shape, self._annotations.shardings(old))
            if target in (CONSTRAINTS | HINTS) - BARRIERS and [len(o) for o in operands] == [len(nodes)]:
                self._tie(operands[0], nodes)
            self._border(old, operands, nodes)
        else:
            self.seed(nodes, old.shape, of_leaves(old))
        found = correspondence_of(old)
        if found is not None:
            self._ties.append(Tie(tuple(node for one in operands for node in one), nodes, found))

    def _border(self, old: Instruction, operands: list[_Nodes], nodes: _Nodes) -> None:
        """Seed operands and results of an instruction at which a manual computation begins or ends."""
        given = [node for one in operands for node in one]
        if [len(self._sizes[n]) for n in given] != [len(self._sizes[n]) for n in nodes]:
            # The program is malformed; the walk raises the error.
            return
        taken = self._annotations.in_attribute(old, IN_SHARDINGS, len(given))
        if taken is not None:
            whole_ones = make_tuple_shape([o.shape for o in old.operands])
            wanted = self._new(whole_ones)
            self.seed(wanted, whole_ones, taken)
            self._tie(tuple(given), wanted)
            self._cross(old, taken, wanted, nodes)
        left = self._annotations.in_attribute(old, OUT_SHARDINGS, len(nodes))
        if left is not None:
            self.seed(nodes, old.shape, left)
            self._cross(old, left, nodes, given)

    def _cross(
        self, old: Instruction, shardings: Sequence[Sharding], outer: Sequence[int], inner: Sequence[int]
    ) -> None:
        """Tie arrays to the parts of them that the teams of a manual computation have."""
        _, axes = self._annotations.manual_axes(old) or (None, ())
        for sharding, one, other in zip(shardings, outer, inner, strict=True):
            rank = len(self._sizes[one])
            manual = self._annotations.splits(with_axes(sharding, axes), rank)
            if manual is not None and rank:
                self._ties.append(Tie((one,), (other,), alike(rank), manual))

    def _join(self, number: str, nodes: _Nodes) -> None:
        """Tie the values of an instruction to the others of its sharding group."""
        for node in self._unsaid.intersection(nodes):
            # The argument itself is replicated; but its users may be split as the group is.
            self._open[node] = (True,) * len(self._open[node])
        self._tie(self._groups.setdefault(number, nodes), nodes)

    def _tie(self, one: _Nodes, other: _Nodes) -> None:
        """Let each two nodes of the same dimensions have the same tiling."""
        for a, b in zip(one, other, strict=True):
            if self._sizes[a] == self._sizes[b]:
                self._ties.append(Tie((a,), (b,), alike(len(self._tilings[a]))))

    def propagate(self) -> None:
        """Propagate tilings along ties."""
        FactorPropagation(
            self._tilings, self._sizes, self._open, self._ties, self._annotations.is_along_axes
        ).propagate()


def _is_group(old: Instruction) -> bool:
    return isinstance(old.op, CustomCall) and old.op.custom_call_target == GROUP


def _is_constant(old: Instruction, constants: set[Instruction]) -> bool:
    """Whether a value is computed from constants only, by elementwise operations."""
    if old.annotations.sharding is not None:
        return False
    if isinstance(old.op, (Constant, Iota)):
        return True
    return (
        bool(old.operands)
        and (old.is_pointwise or isinstance(old.op, _KEEPING))
        and all(o in constants for o in old.operands)
    )
