"""Edits of modules: some instructions are replaced, the shapes of others inferred anew, and dead ones removed.

The module may be malformed afterwards: the verifier checks whether the edit is valid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError
from xlakit.ir.attributes import Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction, infer_shape
from xlakit.ir.names import unused_name
from xlakit.ir.operation import Op
from xlakit.ops.control import Call, Fusion
from xlakit.ops.data import GetTupleElement, Parameter, Tuple
from xlakit.passes.core.framework import change_computations, mark_live

# An edit of one instruction, called with the draft, the instruction, and its operation and operands after earlier
# edits. Gives the instruction that replaces it, or None to keep the operation.
Change = Callable[["Draft", Instruction, Op, tuple[Instruction, ...]], Instruction | None]


class Draft:
    """A copy of a computation under construction, in which instructions are replaced."""

    def __init__(self, old: Computation, *, is_entry: bool) -> None:
        self.old = old
        self.is_entry = is_entry
        # The new instruction for each old one, so far.
        self.new: dict[Instruction, Instruction] = {}
        self._order: list[Instruction] = []
        self._names: set[str] = {i.name for i in old.instructions}
        self._parameters = len(old.parameters)

    def add(
        self, op: Op, operands: Sequence[Instruction] = (), shape: Shape | None = None, name: str = ""
    ) -> Instruction:
        """Append a new instruction; its shape is inferred. Raises ShapeError."""
        inferred = infer_shape(op, [o.shape for o in operands], shape)
        return self.append(Instruction(op, operands, inferred, self.unused_name(name or op.opcode)))

    def append(self, new: Instruction) -> Instruction:
        """Append an instruction as it is."""
        self._order.append(new)
        return new

    def unused_name(self, base: str) -> str:
        """``base``, with a number where that is taken."""
        name = unused_name(base, self._names)
        self._names.add(name)
        return name

    def parameter(self, shape: Shape, name: str) -> Instruction:
        """A new parameter of the entry, called as what it replaces."""
        if not self.is_entry:
            raise ArgumentError("only the entry takes new parameters")
        number, self._parameters = self._parameters, self._parameters + 1
        return self.append(Instruction(Parameter(number=number), (), shape, name))

    def keep(
        self, old: Instruction, op: Op, operands: tuple[Instruction, ...], before: Sequence[Instruction] = ()
    ) -> Instruction:
        """Append an instruction with its new operation, operands and control predecessors; the shape is inferred where
        it may change.
        """
        return self.append(inferred_again(old, op, operands, old.shape).replace(control_predecessors=before))

    def inline(self, callee: Computation, arguments: Sequence[Instruction]) -> Instruction:
        """Append the instructions of another computation, on arguments; gives its root."""
        inlined: dict[Instruction, Instruction] = {}
        for i in callee.instructions:
            if isinstance(i.op, Parameter):
                inlined[i] = arguments[i.op.number]
            else:
                name = self.unused_name(i.name)
                before = [inlined[p] for p in i.control_predecessors]
                new = i.replace(operands=[inlined[o] for o in i.operands], name=name, control_predecessors=before)
                inlined[i] = self.append(new)
        return inlined[callee.root]

    def build(self, root: Instruction) -> Computation:
        """The new computation."""
        return Computation(self.old.name, tuple(dict.fromkeys(self._order)), root, self.old.execution_thread)


def inferred_again(old: Instruction, op: Op, operands: tuple[Instruction, ...], declared: Shape) -> Instruction:
    """An instruction with a new operation, operands and declared shape; its shape is inferred where it may be another.

    Raises ShapeError.
    """
    same = op is old.op and [o.shape for o in operands] == [o.shape for o in old.operands]
    shape = declared
    if operands and not (same and declared == old.shape):
        inferred = infer_shape(op, [o.shape for o in operands], declared)
        shape = declared if _may_be_declared(inferred, declared) else inferred
    return old.replace(op=op, operands=operands, shape=shape)


def _may_be_declared(inferred: Shape, declared: Shape) -> bool:
    """Whether a declared shape stands for the inferred one: it says a layout, or another precision of floats."""
    if inferred.is_tuple or declared.is_tuple:
        return (
            inferred.is_tuple
            and declared.is_tuple
            and len(inferred.tuple_shapes) == len(declared.tuple_shapes)
            and all(map(_may_be_declared, inferred.tuple_shapes, declared.tuple_shapes))
        )
    if inferred.is_array and declared.is_array and inferred.element_type is not declared.element_type:
        both_float = inferred.element_type.is_floating and declared.element_type.is_floating
        return both_float and inferred.same_dimensions(declared)
    return inferred == declared.without_layout()


def edited(
    module: HloModule,
    change: Change | None = None,
    *,
    results: Sequence[str] | None = None,
    inner_roots: Mapping[str, str] | None = None,
) -> HloModule:
    """The module with its instructions edited by ``change``, and then without dead code.

    results: the names of the instructions of the entry that it gives; by default its root.
    inner_roots: for other computations, by name, the name of the instruction that is the root.

    Raises XlakitError where a change does not fit the shape rules.
    """
    rebuilt: dict[Computation, Computation] = {}
    for old in module.computations:
        new_root = (inner_roots or {}).get(old.name)
        entry_results = results if old is module.entry else None if new_root is None else [new_root]
        rebuilt[old] = _edited(old, rebuilt, change, is_entry=old is module.entry, results=entry_results)
    return cleaned(module, rebuilt[module.entry])


def _edited(
    old: Computation,
    rebuilt: Mapping[Computation, Computation],
    change: Change | None,
    *,
    is_entry: bool,
    results: Sequence[str] | None,
) -> Computation:
    draft = Draft(old, is_entry=is_entry)
    new = draft.new
    for i in old.instructions:
        op = i.op
        if op.can_call and any(rebuilt[c] is not c for c in op.called_computations):
            op = op.map_computations(lambda c: rebuilt[c])
        operands = tuple(new[o] for o in i.operands)
        changed = None if change is None else change(draft, i, op, operands)
        new[i] = draft.keep(i, op, operands, [new[p] for p in i.control_predecessors]) if changed is None else changed
    if results is None:
        return draft.build(new[old.root])
    chosen = [new[i] for i in old.instructions if i.name in set(results)]
    root = chosen[0] if len(chosen) == 1 else draft.add(Tuple(), chosen, name="results")
    return draft.build(root)


def path_of(computation: Computation, i: Instruction) -> str:
    """What an instruction is called among all of a module."""
    return f"{computation.name}\n{i.name}"


def edited_at(module: HloModule, paths: Sequence[str], change: Change) -> HloModule:
    """The module with the instructions of these paths edited; see :func:`edited`."""
    chosen = set(paths)

    def change_chosen(draft: Draft, i: Instruction, op: Op, operands: tuple[Instruction, ...]) -> Instruction | None:
        return change(draft, i, op, operands) if path_of(draft.old, i) in chosen else None

    return edited(module, change_chosen)


# -- what is dead ----------------------------------------------------------------------------------


def cleaned(module: HloModule, entry: Computation) -> HloModule:
    """The module with another entry, without dead instructions, computations and parameters."""
    # Parameters are removed only from computations that only calls and fusions run; other callers fix their signatures.
    order = HloModule(module.name, entry).computations
    callers = [i for c in order for i in c.calling_instructions]
    fixed = {c for i in callers if not isinstance(i.op, (Call, Fusion)) for c in i.op.called_computations}
    rebuilt: dict[Computation, Computation] = {}
    taken: dict[Computation, tuple[int, ...]] = {}
    for old in order:
        rebuilt[old], taken[rebuilt[old]] = _without_dead(old, rebuilt, taken, keeps_parameters=old in fixed)
    return with_entry(module, rebuilt[entry])


def _without_dead(
    old: Computation,
    rebuilt: Mapping[Computation, Computation],
    taken: Mapping[Computation, tuple[int, ...]],
    *,
    keeps_parameters: bool,
) -> tuple[Computation, tuple[int, ...]]:
    """The computation, and which of its parameters it has kept."""
    new: dict[Instruction, Instruction] = {}
    for i in old.instructions:
        op, operands = i.op, tuple(new[o] for o in i.operands)
        if isinstance(op, GetTupleElement) and isinstance(operands[0].op, Tuple):
            new[i] = operands[0].operands[op.index]
            continue
        if op.can_call:
            op = op.map_computations(lambda c: rebuilt[c])
            if isinstance(op, (Call, Fusion)):
                (callee,) = op.called_computations
                operands = tuple(operands[n] for n in taken[callee])
                if isinstance(op, Fusion) and op.output_to_operand_aliasing and len(operands) < len(i.operands):
                    op = dataclasses.replace(op, output_to_operand_aliasing=())
        before = [new[p] for p in i.control_predecessors if p in new]
        new[i] = i.replace(op=op, operands=operands, control_predecessors=before)
    root = new[old.root]
    listed = tuple(dict.fromkeys(new[i] for i in old.instructions))
    live = _live(listed, root, keeps_parameters=keeps_parameters)
    kept_parameters = sorted(i.op.number for i in live if isinstance(i.op, Parameter))
    return renumbered(old, [i for i in listed if i in live], root, kept_parameters), tuple(kept_parameters)


def _live(instructions: Sequence[Instruction], root: Instruction, *, keeps_parameters: bool) -> set[Instruction]:
    if keeps_parameters:
        return mark_live(instructions, root)
    return mark_live([i for i in instructions if not isinstance(i.op, Parameter)], root)


def renumbered(
    old: Computation, order: list[Instruction], root: Instruction, kept_parameters: Sequence[int]
) -> Computation:
    """A computation whose kept parameters are numbered without gaps."""
    numbers = {number: n for n, number in enumerate(kept_parameters)}
    if all(number == n for number, n in numbers.items()):
        return Computation(old.name, tuple(order), root, old.execution_thread)

    def renumber(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        op = Parameter(number=numbers[i.op.number]) if isinstance(i.op, Parameter) else i.op
        return i.replace(op=op, operands=operands)

    return Computation(old.name, tuple(order), root, old.execution_thread).rebuild(renumber)


def with_entry(module: HloModule, entry: Computation) -> HloModule:
    """The module with another entry; its header still says how arguments and results are given where they are alike."""
    before, after = module.entry.program_shape, entry.program_shape
    if before.parameters == after.parameters and before.result == after.result:
        return module.replace(entry=entry, computations=())
    return module.with_entry(entry)


# -- helpers for steps -----------------------------------------------------------------------------


def without_annotations(module: HloModule, *, layouts: bool = False) -> HloModule:
    """The module without metadata, shardings, attributes of frontends and backends, aliases and statistics.

    layouts: keep the layouts of instructions, which a fault may depend on.
    """

    def bare(i: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        shape = i.shape if layouts else i.shape.without_layout()
        return i.replace(operands=operands, shape=shape, annotations=Annotations(), control_predecessors=())

    entry = change_computations(module, lambda computation: computation.rebuild(bare)).entry
    return HloModule(module.name, entry, replica_count=module.replica_count, num_partitions=module.num_partitions)
