"""Rewrites programs over batches of small arrays so that the batch is the minor dimension."""

from __future__ import annotations

from collections.abc import Mapping

from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.traits import DataMovement, Elementwise
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.data import Constant, GetTupleElement, Iota, OptimizationBarrier, Parameter, Tuple
from xlakit.ops.gather import Gather
from xlakit.ops.movement import Broadcast, Concatenate, Pad
from xlakit.ops.reduction import Reduce
from xlakit.passes.analysis.loops import Loop
from xlakit.passes.batches.forms import Batch, batch_of_programs, minor_shape, order
from xlakit.passes.batches.plans import Plan, plans_of
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, inherited
from xlakit.passes.core.matching import permutation_inverse

# Instructions that are made at their first use, in the form (original or batch-minor) that the user needs.
_ON_DEMAND = (Constant, Iota, Tuple)
# Operations that fusion would fuse with a transpose of their result.
_FUSIBLE = (Concatenate, DataMovement, Elementwise, Gather, Pad, Reduce)


class BatchMinor(Pass):
    """Make the dimension of a batch the minor one, where a program computes on batches of small arrays.

    An operation that does not work along the batch dimension is made in batch-minor form; others stay, and their
    operands and results are transposed. Loops carry their state in batch-minor form.
    """

    name = "batch-minor"
    left_out_by = "fusion"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The module with the computations changed whose plans have a gain."""
        own, batch = batch_of_programs(module)
        if batch is None:
            return module
        plans = plans_of(own, batch)
        count = sum(1 for plan in plans.values() if plan.gain > 0)
        if not count or not context.spend("batch-minor", count):
            return module
        context.computation_names = {c.name for c in module.computations}
        entry = _Mover(module.entry, batch, plans, context, name=module.entry.name).result()
        return module.replace(entry=entry, computations=())


class _Mover(ComputationCloner):
    """A copy of a computation, in which operations are made in batch-minor form.

    An instruction has a clone, a batch-minor form, or both. state: the new shape of the only parameter, if the
    computation is the body or condition of a loop that carries batch-minor forms. name: a new one by default.
    """

    def __init__(
        self,
        computation: Computation,
        batch: Batch,
        plans: Mapping[Computation, Plan],
        context: PassContext,
        *,
        state: Shape | None = None,
        name: str = "",
    ) -> None:
        super().__init__(computation, context)
        self._batch = batch
        self._plans = plans
        self._state = state
        self._name = name
        self._minor: dict[Instruction, Instruction] = {}
        # Tuples whose elements with a batch dimension are in batch-minor form.
        self._tuples: dict[Instruction, Instruction] = {}
        plan = plans[computation]
        self._makers = plan.makers if plan.carries == (state is not None) else {}
        self._loops = plan.loops

    def result(self) -> Computation:
        """The new computation."""
        old = self._computation
        for x in old.instructions:
            if isinstance(x.op, Parameter) and self._state is not None:
                annotations = inherited(x.annotations, metadata_only=True)
                self._tuples[x] = self.append(
                    Instruction(Parameter(number=0), (), self._state, x.name, annotations=annotations)
                )
            elif x in self._loops:
                self._tuples[x] = self._loop(x, self._loops[x])
            elif x in self._makers and not self._is_on_demand(x):
                self._make_minor(x)
            elif not self._is_on_demand(x):
                self._clone(x)
        carries = self._state is not None and old.root.shape.is_tuple
        root = self._state_tuple(old.root) if carries else self._normal(old.root)
        return self.build(root, name=self._name or self.context.computation_name(old.name))

    def _is_on_demand(self, x: Instruction) -> bool:
        if x.control_predecessors:
            return False
        if isinstance(x.op, GetTupleElement):
            return x.operands[0] in self._tuples
        is_number = isinstance(x.op, Broadcast) and not x.operands[0].shape.dimensions
        return isinstance(x.op, _ON_DEMAND) or is_number

    # -- forms -------------------------------------------------------------------------------------

    def _normal(self, x: Instruction) -> Instruction:
        """The new instruction for ``x``, in the original form."""
        if x in self.clones:
            return self.clones[x]
        if x in self._tuples:
            parts = self._tuples[x].shape.tuple_shapes
            made = self.at(x).tuple(*[self._element(x, n, x.shape.tuple_shapes[n]) for n in range(len(parts))])
        elif isinstance(x.op, GetTupleElement) and x.operands[0] in self._tuples:
            made = self._element(x.operands[0], x.op.index, x.shape)
        elif x in self._minor:
            made = self._from_minor(self._minor[x], x.shape, x)
        else:
            return self._clone(x)
        self.substitute(x, made)
        return made

    def _element(self, whole: Instruction, number: int, shape: Shape) -> Instruction:
        """An element, in the original form, of a tuple that is in batch-minor form."""
        part = self.at(whole).element(self._tuples[whole], number)
        return part if self._batch.dimension(shape) is None else self._from_minor(part, shape, whole)

    def _in_minor(self, x: Instruction) -> Instruction:
        """An array with a batch dimension, in batch-minor form."""
        if x in self._minor:
            return self._minor[x]
        if isinstance(x.op, GetTupleElement) and x.operands[0] in self._tuples:
            made = self.at(x).element(self._tuples[x.operands[0]], x.op.index)
        elif x in self._makers:
            return self._make_minor(x)
        else:
            made = self._to_minor(self._normal(x), x)
        self._minor[x] = made
        return made

    def _to_minor(self, made: Instruction, x: Instruction) -> Instruction:
        dimension = self._batch.dimension(x.shape)
        if dimension is None:
            return made
        make = self.at(x)
        if not self._batch.is_moved(x.shape):
            return make.reshape(made, minor_shape(x.shape, dimension).dimensions)
        return make.transpose(self._stored(made, x), order(x.shape.rank, dimension))

    def _from_minor(self, made: Instruction, shape: Shape, x: Instruction) -> Instruction:
        dimension = self._batch.dimension(shape)
        if dimension is None:
            return made
        make = self.at(x)
        if not self._batch.is_moved(shape):
            return make.reshape(made, shape.dimensions)
        return make.transpose(self._stored(made, x), permutation_inverse(order(shape.rank, dimension)))

    def _stored(self, made: Instruction, x: Instruction) -> Instruction:
        """The operand of a transpose, behind a barrier if fusion would compute it in the order of the transpose."""
        return self.at(x).add(OptimizationBarrier(), made) if isinstance(made.op, _FUSIBLE) else made

    def _given(self, x: Instruction) -> Instruction:
        """An operand of an instruction in batch-minor form: batch-minor if it has a batch dimension."""
        return self._normal(x) if self._batch.dimension(x.shape) is None else self._in_minor(x)

    # -- instructions ------------------------------------------------------------------------------

    def _clone(self, x: Instruction) -> Instruction:
        for needed in (*x.operands, *x.control_predecessors):
            self._normal(needed)
        if not isinstance(x.op, (Call, Conditional, While)):
            return self.clone(x)
        made = {c: self._callee(c) for c in x.op.called_computations}
        op = x.op.map_computations(lambda c: made[c])
        operands = [self.clones[o] for o in x.operands]
        predecessors = [self.clones[p] for p in x.control_predecessors]
        self.substitute(x, x.replace(op=op, operands=operands, control_predecessors=predecessors))
        return self.append(self.clones[x])

    def _callee(self, computation: Computation) -> Computation:
        """The new version of a called computation whose parameters keep the original form."""
        if not _has_gain(computation, self._plans):
            return computation
        return _Mover(computation, self._batch, self._plans, self.context).result()

    def _make_minor(self, x: Instruction) -> Instruction:
        made = self._makers[x]([self._given(o) for o in x.operands], self.at(x))
        if x.shape.is_tuple:
            self._tuples[x] = made
        else:
            self._minor[x] = made
        return made

    def _state_tuple(self, x: Instruction) -> Instruction:
        """The state of a loop in batch-minor form: its initial value, or the root of its body."""
        make = self.at(x)
        if isinstance(x.op, Tuple) and not x.control_predecessors:
            return make.tuple(*[self._given(o) for o in x.operands])
        if x in self._tuples:
            return self._tuples[x]
        whole = self._normal(x)
        parts: list[Instruction] = []
        for number, shape in enumerate(x.shape.tuple_shapes):
            part = make.element(whole, number)
            dimension = self._batch.dimension(shape)
            parts.append(part if dimension is None else make.transpose(part, order(shape.rank, dimension)))
        return make.tuple(*parts)

    def _loop(self, x: Instruction, loop: Loop) -> Instruction:
        """A loop that carries its state in batch-minor form."""
        start = self._state_tuple(x.operands[0])
        batch, plans, context = self._batch, self._plans, self.context
        body, condition = (
            _Mover(c, batch, plans, context, state=start.shape).result() for c in (loop.body, loop.condition)
        )
        return self.add(While(condition=condition, body=body), start, like=x)


def _has_gain(computation: Computation, plans: Mapping[Computation, Plan]) -> bool:
    """Whether a computation, or one that it calls, has operations in batch-minor form."""
    plan = plans.get(computation)
    if plan is None:
        return False
    callees = (c for i in computation.calling_instructions for c in i.op.called_computations)
    return bool(plan.loops or (plan.makers and not plan.carries)) or any(_has_gain(c, plans) for c in callees)
