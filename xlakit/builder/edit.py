"""Editing programs: instructions of a module replaced by builder calls, shapes and shardings changed, results chosen.

An editor collects edits; ``build`` makes the module that has them all. It copies the computations, callees first, and
infers the shape of every instruction whose operands have other shapes than before::

    x = f32[8] parameter(0)   set_shape("x", f32[4])       x = f32[4] parameter(0)
    y = f32[8] exponential(x)                              y = f32[4] exponential(x)      inferred
    z = f32[8] negate(y)      replace("z", lambda y: -2*y) c = f32[] constant(-2), ...    calls of a builder
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

from xlakit.arguments import converting
from xlakit.builder.xla_builder import XlaBuilder, XlaComputation, laid_out
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.ir.attributes import AliasEntry, Sharding
from xlakit.ir.instruction import (
    Computation,
    HloModule,
    Instruction,
    computations_callees_first,
    infer_shape,
    post_order,
)
from xlakit.ir.operation import Op
from xlakit.ops.control import Call, Fusion
from xlakit.ops.data import Parameter, Tuple, tuple_
from xlakit.ops.handle import XlaOp, as_op

# An instruction, or its name.
Which: TypeAlias = "Instruction | str"
# What an instruction is replaced by: a function of handles, or a computation whose instructions take its place.
Replacement: TypeAlias = "Callable[..., Any] | XlaComputation | Computation"


@converting
def edit(module: HloModule) -> Editor:
    """An editor of a module: its methods collect edits, and ``build()`` makes the edited copy of the module."""
    return Editor(module)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """The replacement of an instruction, and the values that are its arguments."""

    by: Replacement
    using: tuple[Instruction, ...]


@dataclass(slots=True)
class _Edits:
    """The edits of a module, keyed by the instruction that they change."""

    replaced: dict[Instruction, _Replaced] = field(default_factory=dict)
    shapes: dict[Instruction, Shape] = field(default_factory=dict)
    shardings: dict[Instruction, Sharding | None] = field(default_factory=dict)
    results: tuple[Instruction, ...] | None = None


class Editor:
    """Collects edits of a module; :meth:`build` makes the module that has them.

    Instructions are named as in the module that is edited, alone or by the instruction itself. Where several
    computations have an instruction of that name, the name of the computation must be given, too.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._edits = _Edits()

    @converting
    def find(self, name: str, computation: str = "") -> Instruction:
        """The instruction of a name. Raises ArgumentError where there is none, or several computations have one."""
        plain = name.removeprefix("%")
        found = [
            (c.name, i)
            for c in self.module.computations
            if computation.removeprefix("%") in ("", c.name)
            for i in c.instructions
            if i.name == plain
        ]
        if len(found) == 1:
            return found[0][1]
        where = f"computation {computation}" if computation else self.module.name
        if not found:
            raise ArgumentError(f"{where} has no instruction '{plain}'", hint="name an instruction as it is printed")
        raise ArgumentError(
            f"{len(found)} computations have an instruction '{plain}': {', '.join(name for name, _ in found)}",
            hint=f"say which: find('{plain}', computation='{found[-1][0]}')",
        )

    def replace(self, which: Which, by: Replacement, *, using: Sequence[Which] | None = None) -> Self:
        """Replace all uses of an instruction by another value; gives the editor.

        which: the instruction, or its name.
        by: a Python function that :meth:`build` calls with a handle for each operand, and that returns a handle or a
            number; or a computation with a parameter for each operand, whose instructions are inlined.
        using: arguments of ``by`` instead of the operands: instructions defined earlier, or the instruction itself:
            ``replace("x", lambda x: xla.abs(x), using=["x"])`` adds an operation after it.

        Raises ArgumentError where a name is unknown or of another computation, or an instruction is edited twice;
        UnsupportedError where the instruction has control predecessors.
        """
        old = self._instruction(which)
        own = self._computation_of(old)
        if old.control_predecessors:
            raise UnsupportedError(
                f"{old.name} has control predecessors, and what replaces it may be several instructions",
                hint="replace an instruction without control-predecessors",
            )
        if old in self._edits.replaced or old in self._edits.shapes:
            raise ArgumentError(f"{old.name} is edited already", hint="put both edits into one, or edit what is built")
        if not isinstance(by, (Computation, XlaComputation)) and not callable(by):
            raise ArgumentError(
                f"{by!r} cannot replace {old.name}", hint="give a function of handles, or a computation"
            )
        given = old.operands if using is None else tuple(self._instruction(u) for u in using)
        order = {instruction: number for number, instruction in enumerate(own.instructions)}
        for value in given:
            if order.get(value, len(order)) > order[old]:
                raise ArgumentError(
                    f"{value.name} is not defined before {old.name} in computation {own.name}",
                    hint="use values of the same computation that stand before it",
                )
        self._edits.replaced[old] = _Replaced(by, given)
        return self

    @converting
    def inline(self, which: Which) -> Self:
        """Put the instructions of the computation that a call or a fusion calls in its place. Raises ArgumentError."""
        old = self._instruction(which)
        if not isinstance(old.op, (Call, Fusion)):
            raise ArgumentError(f"{old.name} is {old.opcode}, not a call or a fusion", hint="inline one of these")
        return self.replace(old, old.op.called_computations[0])

    @converting
    def set_shape(self, which: Which, shape: Shape) -> Self:
        """Give a parameter of the entry another shape; :meth:`build` infers the shapes of the values computed from it.

        Raises ArgumentError.
        """
        old = self._instruction(which)
        if not isinstance(old.op, Parameter) or self._computation_of(old) is not self.module.entry:
            raise ArgumentError(
                f"{old.name} is not a parameter of the entry",
                hint="the shapes of all other instructions follow from these",
            )
        if old in self._edits.replaced:
            raise ArgumentError(f"{old.name} is edited already", hint="put both edits into one, or edit what is built")
        self._edits.shapes[old] = shape
        return self

    @converting
    def set_sharding(self, which: Which, sharding: Sharding | None) -> Self:
        """Give an instruction another sharding, or none. Raises ArgumentError."""
        self._edits.shardings[self._instruction(which)] = sharding
        return self

    @property
    def results(self) -> tuple[Instruction, ...]:
        """The results of the program as edited: the elements of the entry's tuple, or its root alone."""
        return self.module.entry.results if self._edits.results is None else self._edits.results

    @converting
    def set_results(self, *which: Which) -> Self:
        """Make these instructions of the entry the program's results: several as a tuple, one as the root itself, none
        as the empty tuple.

        ``set_results(*editor.results, "x")`` adds a result. Aliases of outputs that are no longer results are dropped.
        Raises ArgumentError.
        """
        chosen = tuple(self._instruction(w) for w in which)
        for instruction in chosen:
            if self._computation_of(instruction) is not self.module.entry:
                raise ArgumentError(f"{instruction.name} is not in the entry", hint="name an instruction of the entry")
        self._edits.results = chosen
        return self

    def build(self) -> HloModule:
        """The edited module, verified, without dead code.

        Raises ShapeError naming the instruction whose operands no longer fit, VerificationError, and what the functions
        given to :meth:`replace` raise.
        """
        made: dict[Computation, Computation] = {}
        for computation in self.module.computations:
            made[computation] = _Copy(self.module, computation, self._edits, made).result()
        entry = made[self.module.entry]
        # Computations that are not called any more, directly or indirectly, are dropped.
        kept = computations_callees_first([entry])[:-1]
        changes: dict[str, Any] = {"entry": entry, "computations": tuple(kept)}
        if self.module.entry_computation_layout is not None:
            changes["entry_computation_layout"] = _entry_layout(self.module.entry_computation_layout, entry)
        if self._edits.results is not None:
            changes["input_output_alias"] = self._aliases()
            changes["spmd_output_sharding"] = None
        module = self.module.replace(**changes)
        module.verify()
        return module

    def _instruction(self, which: Which) -> Instruction:
        return which if isinstance(which, Instruction) else self.find(which)

    def _computation_of(self, instruction: Instruction) -> Computation:
        for computation in self.module.computations:
            if any(i is instruction for i in computation.instructions):
                return computation
        raise ArgumentError(
            f"{instruction.name} is not an instruction of {self.module.name}",
            hint="name it, or take it from the module that is edited",
        )

    def _aliases(self) -> tuple[AliasEntry, ...]:
        """The aliases of outputs that are still results, with their new output indices."""
        root, new = self.module.entry.root, self.results
        is_tuple = isinstance(root.op, Tuple)
        old = root.operands if is_tuple else (root,)
        kept: list[AliasEntry] = []
        for alias in self.module.input_output_alias:
            index = alias.output_index
            if is_tuple and not index:
                continue
            value, rest = (old[index[0]], index[1:]) if is_tuple else (old[0], index)
            if value in new:
                kept.append(replace(alias, output_index=rest if len(new) == 1 else (new.index(value), *rest)))
        return tuple(kept)


def _entry_layout(old: ProgramShape, entry: Computation) -> ProgramShape:
    """The entry layout after editing: as before where a parameter or the result kept its shape, else the program's."""
    program = entry.program_shape
    parameters = [
        old.parameters[n] if n < len(old.parameters) and old.parameters[n].compatible(shape) else shape
        for n, shape in enumerate(program.parameters)
    ]
    return ProgramShape(tuple(parameters), old.result if old.result.compatible(program.result) else program.result)


class _Copy(XlaBuilder):
    """A builder that copies a computation and applies its edits; the names it makes differ from the computation's."""

    def __init__(
        self, module: HloModule, computation: Computation, edits: _Edits, computations: dict[Computation, Computation]
    ) -> None:
        super().__init__(computation.name)
        self._old = computation
        self._edits = edits
        self._is_entry = computation is module.entry
        self._computations = computations
        self._taken = {instruction.name for instruction in computation.instructions}
        self._made: dict[Instruction, Instruction] = {}

    def _unique(self, stem: str, *, numbered: bool) -> str:
        name = super()._unique(stem, numbered=numbered)
        while name in self._taken:
            name = super()._unique(stem, numbered=True)
        self._taken.add(name)
        return name

    def result(self) -> Computation:
        """The edited computation; the original object if no edit affects it."""
        for old in self._old.instructions:
            replaced = self._edits.replaced.get(old)
            if replaced is None or old in replaced.using:
                self._made[old] = self._copied(old)
            if replaced is not None:
                self._made[old] = self._replacement(old, replaced)
        root = self._root()
        if root is self._old.root and tuple(self._instructions) == self._old.instructions:
            return self._old
        effects = [i for i in self._instructions if isinstance(i.op, Parameter) or i.op.has_side_effect]
        live = set(post_order([*effects, root]))
        kept = tuple(i for i in self._instructions if i in live)
        return Computation(self._old.name, kept, root, self._old.execution_thread)

    def _root(self) -> Instruction:
        chosen = self._edits.results if self._is_entry else None
        if chosen is None:
            return self._made[self._old.root]
        results = [XlaOp(self, self._made[i]) for i in chosen]
        return results[0].instruction if len(results) == 1 else tuple_(self, *results).instruction

    def _copied(self, old: Instruction) -> Instruction:
        """The copy of an instruction on its new operands; its shape is inferred anew if theirs changed."""
        operands = tuple(self._made[o] for o in old.operands)
        op, called_changed = old.op, False
        if op.called_computations:
            called_changed = any(self._computations[c] is not c for c in op.called_computations)
            op = op.map_computations(lambda c: self._computations[c]) if called_changed else op
        shape = self._edits.shapes.get(old, old.shape)
        if called_changed or any(n.shape != o.shape for n, o in zip(operands, old.operands, strict=True)):
            shape = self._inferred(old, op, operands)
        new = old
        if operands != old.operands or op is not old.op or shape is not old.shape:
            new = old.replace(op=op, operands=operands, shape=shape)
        if old.control_predecessors:
            predecessors = tuple(dict.fromkeys(self._made[p] for p in old.control_predecessors))
            new = new if predecessors == old.control_predecessors else new.replace(control_predecessors=predecessors)
        if old in self._edits.shardings:
            new = new.replace(annotations=replace(new.annotations, sharding=self._edits.shardings[old]))
        if isinstance(new.op, Parameter):
            self._parameters.add(new.op.number)
        self._instructions.append(new)
        return new

    def _inferred(self, old: Instruction, op: Op, operands: Sequence[Instruction]) -> Shape:
        declared = old.shape.without_layout()
        shapes = [o.shape for o in operands]
        return laid_out(infer_shape(op, shapes, declared, name=old.name, computation=self._old.name), old.shape)

    def _replacement(self, old: Instruction, replaced: _Replaced) -> Instruction:
        values = [self._made[v] for v in replaced.using]
        by = replaced.by
        if isinstance(by, (Computation, XlaComputation)):
            new = self._spliced(old, by if isinstance(by, Computation) else by.computation, values)
        else:
            given = by(*(XlaOp(self, value) for value in values))
            new = as_op(self, given).instruction
            if new not in set(self._instructions):
                raise ArgumentError(
                    f"what replaces {old.name} belongs to another builder", hint="make it of the handles that are given"
                )
        if old in self._edits.shardings and new not in self._made.values():
            sharded = new.replace(annotations=replace(new.annotations, sharding=self._edits.shardings[old]))
            self._instructions[self._instructions.index(new)] = sharded
            new = sharded
        return new

    def _spliced(self, old: Instruction, source: Computation, values: Sequence[Instruction]) -> Instruction:
        """The instructions of a computation, with values instead of its parameters."""
        if len(source.parameters) != len(values):
            raise ArgumentError(
                f"{source.name} has {len(source.parameters)} parameters, {old.name} gives {len(values)} values",
                hint="say with using= which values it gets",
            )
        source = self._computations.get(source, source)
        made: dict[Instruction, Instruction] = {}
        for inner in source.instructions:
            if isinstance(inner.op, Parameter):
                made[inner] = values[inner.op.number]
                continue
            operands = [made[o] for o in inner.operands]
            shape = inner.shape
            if any(n.shape != o.shape for n, o in zip(operands, inner.operands, strict=True)):
                shape = self._inferred(inner, inner.op, operands)
            made[inner] = Instruction(
                inner.op,
                operands,
                shape,
                self._unique(inner.name, numbered=False),
                control_predecessors=[made[p] for p in inner.control_predecessors],
                annotations=inner.annotations,
            )
            self._instructions.append(made[inner])
        return made[source.root]
