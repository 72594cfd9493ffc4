"""Inlining: calls, composites, fusions, and maps of element-wise operations are replaced by their callees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ir.attributes import Annotations
from xlakit.ir.enums import FusionKind
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Fusion
from xlakit.ops.data import Constant, Parameter
from xlakit.ops.reduction import Map
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, with_callees, with_computations
from xlakit.passes.core.rewriter import same_layouts

# Nested calls can grow a program exponentially: inlining stops at this size, or this multiple of the original size if
# that is more.
_MOST_INSTRUCTIONS = 100_000
_MOST_GROWTH = 10
# What jaxlib writes into the configuration of fusions that its libraries compute, which mean what they call.
_OF_LIBRARIES = ("__ynn_fusion", "__onednn_fusion")


class InlineCalls(Pass):
    """Replace calls, fusions, and maps of plain operations by the instructions of their computations.

    wanted: which of them; all by default.
    """

    name = "inline-calls"
    left_out_by = "inline"

    def __init__(self, wanted: Callable[[Instruction], bool] | None = None) -> None:
        self._wanted = wanted

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation that remains afterwards, callees first.

        A computation that is only inlined is not changed itself: its original instructions, and those of its callees,
        are copied into each remaining caller. So each final copy is made once, however deep calls are nested.
        """
        if not any(c.calling_instructions for c in module.computations):
            return module
        context.computation_names = {c.name for c in module.computations}
        calls = _Calls(context, max(_MOST_INSTRUCTIONS, _MOST_GROWTH * module.instruction_count()), self._wanted)
        needed = {module.entry, *(c for old in module.computations for c in calls.remaining_callees(old))}
        made: dict[Computation, Computation] = {}
        for old in module.computations:
            new = with_callees(old, made)
            made[old] = _inlined(new, calls) if old in needed else new
        return with_computations(module, [made[c] for c in module.computations])


def _inlined(computation: Computation, calls: _Calls) -> Computation:
    """The computation with its calls inlined; the same object if none is."""
    if not calls.chosen(computation):
        return computation
    body = _Body(computation, calls)
    for instruction in computation.instructions:
        callee = calls.spend(instruction, computation)
        if callee is None:
            body.clone(instruction)
        else:
            body.inline(instruction, callee)
    return body.build() if body.has_inlined else computation


class _Calls:
    """Chooses the calls that are inlined, within a number of instructions that inlining may add (``room``).

    wanted: which calls may be; all by default.
    """

    def __init__(self, context: PassContext, room: int, wanted: Callable[[Instruction], bool] | None = None) -> None:
        self.context = context
        self._room = room
        self._wanted = wanted
        self._chosen: dict[Computation, frozenset[Instruction]] = {}

    def chosen(self, computation: Computation) -> frozenset[Instruction]:
        """The calls of a computation that can be replaced."""
        found = self._chosen.get(computation)
        if found is None:
            wanted = self._wanted
            inlined = [
                i for i in computation.calling_instructions if (wanted is None or wanted(i)) and _can_be_inlined(i)
            ]
            if inlined:
                ordered = {p for i in computation.instructions for p in i.control_predecessors}
                inlined = [i for i in inlined if i not in ordered]
            found = self._chosen[computation] = frozenset(inlined)
        return found

    def remaining_callees(self, computation: Computation) -> Iterator[Computation]:
        """The computations that a computation may still call when its calls have been inlined."""
        chosen = self.chosen(computation)
        for instruction in computation.calling_instructions:
            # A map is only inlined if its computation has no calls, which is known later; so its callee is kept.
            if instruction not in chosen or isinstance(instruction.op, Map):
                yield from instruction.op.called_computations

    def spend(self, instruction: Instruction, computation: Computation) -> Computation | None:
        """The callee that replaces a call in a computation; None if the call stays."""
        if instruction not in self.chosen(computation):
            return None
        callee = _callee(instruction)
        if callee is None or len(callee.instructions) > self._room or not self.context.spend(instruction.opcode):
            return None
        self._room -= len(callee.instructions)
        return callee


def _callee(instruction: Instruction) -> Computation | None:
    op = instruction.op
    if isinstance(op, (Call, Map)):
        return op.to_apply
    return op.calls if isinstance(op, Fusion) else None


def _can_be_inlined(instruction: Instruction) -> bool:
    callee = _callee(instruction)
    if callee is None or instruction.control_predecessors:
        return False
    if isinstance(instruction.op, Map):
        return all(i.op.pointwise and i.shape.is_array for i in callee.instructions)
    if isinstance(instruction.op, Fusion) and (_is_custom(instruction) or instruction.op.output_to_operand_aliasing):
        return False
    if ("inlineable", "false") in instruction.annotations.frontend_attributes:
        return False
    # A fusion may have more operands than its computation takes.
    pairs = [*zip(callee.parameters, instruction.operands, strict=False), (callee.root, instruction)]
    return callee.execution_thread == "main" and all(_same(a.shape, b.shape) for a, b in pairs)


def _is_custom(fusion: Instruction) -> bool:
    """Whether a fusion stands for code of its own; XLA's for processors also marks what a library computes so."""
    config = fusion.annotations.backend_config
    is_of_library = any(f'"{kind}"' in config for kind in _OF_LIBRARIES)
    return fusion.op_as(Fusion).kind is FusionKind.CUSTOM and not is_of_library


def _same(a: Shape, b: Shape) -> bool:
    return a == b or (a.without_layout() == b.without_layout() and same_layouts(a, b))


@dataclass(slots=True)
class _Call:
    """A call that is being inlined.

    values: the copies of the callee's instructions so far. rest: the instructions that are not copied yet.
    """

    instruction: Instruction
    callee: Computation
    annotations: Annotations
    values: dict[Instruction, Instruction]
    rest: Iterator[Instruction]


class _Body(ComputationCloner):
    """Builds a copy of a computation with its calls inlined."""

    def __init__(self, computation: Computation, calls: _Calls) -> None:
        super().__init__(computation, calls.context)
        self.has_inlined = False
        self._calls = calls
        # The copies of callees' constants, which all calls share.
        self._constants: dict[Instruction, Instruction] = {}
        # What was made of annotations, by their identity and the op_name of the call; with them, so that they stay.
        self._named: dict[tuple[int, str], tuple[Annotations, Annotations]] = {}

    def inline(self, call: Instruction, callee: Computation) -> None:
        """Append the instructions of a callee instead of its call."""
        self.has_inlined = True
        self.clones[call] = (
            self._map(call, callee, self.clones) if isinstance(call.op, Map) else self._copy(call, callee)
        )

    def _copy(self, call: Instruction, callee: Computation) -> Instruction:
        """Copy the instructions of a callee and of its own callees, without parameters; gives the copy of its root.

        A stack of calls replaces recursion.
        """
        stack = [self._begun(call, callee, call.annotations, self.clones)]
        while True:
            top = stack[-1]
            nested = self._until_call(top)
            if nested is not None:
                old, inner = nested
                stack.append(self._begun(old, inner, self._inlined_annotations(old, top), top.values))
                continue
            stack.pop()
            result = top.values[top.callee.root]
            if not stack:
                return result
            stack[-1].values[top.instruction] = result

    @staticmethod
    def _begun(
        call: Instruction, callee: Computation, annotations: Annotations, values: Mapping[Instruction, Instruction]
    ) -> _Call:
        """The beginning of a call: its parameters have the values of the operands."""
        inside = dict(zip(callee.parameters, [values[o] for o in call.operands], strict=False))
        return _Call(call, callee, annotations, inside, iter(callee.instructions))

    def _until_call(self, call: _Call) -> tuple[Instruction, Computation] | None:
        """Copy instructions up to the next call that is inlined; gives that call and its callee, or None at the end."""
        inside, constants = call.values, self._constants
        chosen = self._calls.chosen(call.callee)
        for old in call.rest:
            if isinstance(old.op, Parameter):
                continue
            if old in chosen:
                callee = self._calls.spend(old, call.callee)
                if callee is not None and isinstance(old.op, Map):
                    inside[old] = self._map(old, callee, inside)
                    continue
                if callee is not None:
                    return old, callee
            known = constants.get(old)
            if known is not None:
                inside[old] = known
                continue
            new = Instruction(
                old.op,
                [inside[o] for o in old.operands],
                old.shape,
                self.names.keep_or_new(old.name),
                control_predecessors=[inside[p] for p in old.control_predecessors],
                annotations=self._inlined_annotations(old, call),
            )
            inside[old] = self.append(new)
            if isinstance(old.op, Constant) and not old.control_predecessors:
                constants[old] = new
        return None

    def _inlined_annotations(self, old: Instruction, call: _Call) -> Annotations:
        """The annotations of an inlined instruction, in the computation that has the call.

        The op_name of an instruction in a function of JAX is relative to the function, so the op_name of the call is
        put before it, as in XLA. An op_name that begins with the same component as that of the call is absolute, and
        stays.
        """
        annotations = old.annotations
        own, caller = annotations.metadata, call.annotations.metadata
        if own is None or caller is None or not isinstance(call.instruction.op, Call):
            return _located(annotations, call.annotations)
        name, prefix = own.op_name, caller.op_name
        if not name or not prefix or name.partition("/")[0] == prefix.partition("/")[0]:
            return annotations
        key = id(annotations), prefix
        if key not in self._named:
            metadata = dataclasses.replace(own, op_name=f"{prefix}/{name}")
            self._named[key] = annotations, dataclasses.replace(annotations, metadata=metadata)
        return self._named[key][1]

    def _map(self, call: Instruction, callee: Computation, values: Mapping[Instruction, Instruction]) -> Instruction:
        """Append the operations of a map's computation, applied to whole arrays."""
        sizes, make = call.shape.dimensions, self.at(call)
        inside = {
            parameter: make.broadcast(make.convert(values[operand], parameter.shape.element_type), sizes)
            for parameter, operand in zip(callee.parameters, call.operands, strict=True)
        }
        for old in callee.instructions:
            if isinstance(old.op, Parameter):
                continue
            made = self.append(
                Instruction(
                    old.op,
                    [inside[o] for o in old.operands],
                    old.shape.with_dimensions(tuple(sizes)) if old.operands else old.shape,
                    self.names.keep_or_new(old.name),
                    control_predecessors=[inside[p] for p in old.control_predecessors],
                    annotations=_located(old.annotations, call.annotations),
                )
            )
            inside[old] = made if old.operands else make.broadcast(made, sizes)
        return make.convert(inside[callee.root], call.shape.element_type)


def _located(own: Annotations, call: Annotations) -> Annotations:
    """The annotations of an inlined instruction; without metadata of its own it takes the metadata of the call."""
    if own.metadata is not None or call.metadata is None:
        return own
    return dataclasses.replace(own, metadata=call.metadata)
