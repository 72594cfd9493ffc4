"""The classes of passes, and the context of one run of the pipeline: fuel, statistics, disabled passes and rules."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from xlakit.ir.attributes import Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.data import Parameter

# Called after each rewrite with the rule, the name of the computation, and the names of the instruction that was
# rewritten and of those that the rule made.
RewriteObserver = Callable[[str, str, Iterable[str]], None]


class PassContext:
    """The state that the passes of one run of the pipeline share.

    fuel: how many rewrites may still be made; None for any number. Bisecting over the fuel finds a wrong rewrite.
    disabled: names of passes, of tables of rules, and of single rules that are left out.
    check: whether the verifier runs after each pass, and rules that do not reach a fixed point are an error.
    """

    def __init__(
        self,
        *,
        fuel: int | None = None,
        disabled: Iterable[str] = (),
        check: bool = False,
    ) -> None:
        self.fuel = fuel
        self.disabled = frozenset(disabled)
        self.check = check
        # For each pass that has run, in order, the number of rewrites of each of its rules.
        self.statistics: list[tuple[str, Counter[str]]] = []
        # Called for each rewrite of a rule and each merge of equal instructions; None collects nothing.
        self.observer: RewriteObserver | None = None
        # The names of the module's computations, so that new computations get other ones.
        self.computation_names: set[str] = set()
        self._current = Counter[str]()
        self._takes_fuel = True
        self._names = 0

    def begin(self, name: str, *, takes_fuel: bool = True) -> None:
        """Attribute the rewrites from here on to the pass of this name; ``takes_fuel``: whether they use fuel."""
        self._current = Counter()
        self._takes_fuel = takes_fuel
        self.statistics.append((name, self._current))

    def spend(self, rule: str, times: int = 1) -> bool:
        """Whether one more rewrite may be made; if so it takes one unit of fuel and counts ``times`` under ``rule``."""
        if rule in self.disabled:
            return False
        if self.fuel is not None and self._takes_fuel:
            if self.fuel <= 0:
                return False
            self.fuel -= 1
        self._current[rule] += times
        return True

    @property
    def rewrites(self) -> int:
        """The number of rewrites that all passes have made."""
        return sum(sum(counts.values()) for _, counts in self.statistics)

    def number(self) -> int:
        """A number for a new name; each call gives a different one."""
        self._names += 1
        return self._names

    def computation_name(self, name: str) -> str:
        """A new name, not in ``computation_names``, for a computation made from the one called ``name``."""
        stem, _, number = name.rpartition(".")
        base = stem if stem and number.isdigit() else name
        while (new := f"{base}.{self.number()}") in self.computation_names:
            pass
        self.computation_names.add(new)
        return new


class Pass:
    """A transformation of a module that keeps its results. The docstring of a subclass says what the pass does."""

    name: ClassVar[str] | str
    # Whether code generation requires the pass. It is no optimization that bisection could leave out: it takes no fuel.
    is_needed: ClassVar[bool] | bool = False
    # The word of xlakit.options.PLAIN that leaves the pass out of the pipeline; empty if none does.
    left_out_by: ClassVar[str] | str = "rewrites"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The new module; the same object where there was nothing to do."""
        raise NotImplementedError

    @property
    def summary(self) -> str:
        """What the pass does, in one line."""
        return (inspect.getdoc(type(self)) or "").split("\n", 1)[0]

    @property
    def parts(self) -> dict[str, str]:
        """The rewrites of a pass without rules that can be disabled one by one: what each does, by name."""
        return {}

    def __repr__(self) -> str:
        return f"<pass {self.name}>"


class ComputationPass(Pass):
    """A pass that changes one computation at a time, callees before callers."""

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """The new computation, given one whose callees are changed already; the same object if nothing changes."""
        raise NotImplementedError

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation."""
        context.computation_names = {c.name for c in module.computations}
        return change_computations(module, lambda computation: self.change(computation, context))


class CalleesPass(ComputationPass):
    """A pass that makes instructions call other computations; those no longer called are dropped from the module."""

    def may_change(self, computation: Computation) -> bool:
        """Whether a computation has instructions that the pass may change."""
        raise NotImplementedError

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation."""
        if not any(map(self.may_change, module.computations)):
            return module
        changed = super().run(module, context)
        return changed if changed is module else changed.replace(computations=())


class ProgramPass(Pass):
    """A pass that changes one computation at a time, only of those that run as programs (see :func:`programs`)."""

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """The new computation; the same object where nothing is to do."""
        raise NotImplementedError

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation that runs as a program."""
        context.computation_names = {c.name for c in module.computations}
        changed = change_programs(module, lambda computation: self.change(computation, context))
        return with_computations(module, list(changed.values()))


def change_computations(module: HloModule, change: Callable[[Computation], Computation]) -> HloModule:
    """The module with every computation changed, callees first; callers call the changed ones."""
    changed: dict[Computation, Computation] = {}
    for old in module.computations:
        changed[old] = change(with_callees(old, changed))
    return with_computations(module, [changed[c] for c in module.computations])


def change_programs(module: HloModule, change: Callable[[Computation], Computation]) -> dict[Computation, Computation]:
    """Maps each computation to its new version, callees first.

    Computations that run as programs are changed; the others only call the new versions of their callees.
    """
    run_as_programs = programs(module)
    changed: dict[Computation, Computation] = {}
    for old in module.computations:
        new = with_callees(old, changed)
        changed[old] = change(new) if old in run_as_programs else new
    return changed


def with_changed(module: HloModule, changed: Mapping[Computation, Computation]) -> HloModule:
    """The module with the new versions of its computations, without those that lost their last caller."""
    before, after = _called(module.computations), _called(changed.values())
    return with_computations(module, [new for old, new in changed.items() if new in after or old not in before])


def _called(computations: Iterable[Computation]) -> set[Computation]:
    return {
        c for computation in computations for i in computation.calling_instructions for c in i.op.called_computations
    }


def with_computations(module: HloModule, computations: Sequence[Computation]) -> HloModule:
    """The module with other computations, callees first, the last being the entry."""
    if len(computations) == len(module.computations) and all(
        new is old for new, old in zip(computations, module.computations, strict=True)
    ):
        return module
    return module.replace(entry=computations[-1], computations=tuple(computations[:-1]))


def with_callees(computation: Computation, new_versions: dict[Computation, Computation]) -> Computation:
    """The computation, calling the new versions of its callees; the same object if none of these changed."""
    stale = {
        i
        for i in computation.calling_instructions
        if any(new_versions.get(c, c) is not c for c in i.op.called_computations)
    }
    if not stale:
        return computation

    # Most instructions neither call a changed computation nor depend on such a call, and stay the same objects.
    changed: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []
    for old in computation.instructions:
        new = old
        if old in stale:
            op = old.op.map_computations(lambda c: new_versions.get(c, c))
            new = old.replace(op=op, operands=[changed.get(o, o) for o in old.operands])
        elif changed and not changed.keys().isdisjoint(old.operands):
            new = old.replace(operands=[changed.get(o, o) for o in old.operands])
        if changed and new.control_predecessors:
            new = new.replace(control_predecessors=[changed.get(p, p) for p in new.control_predecessors])
        if new is not old:
            changed[old] = new
        order.append(new)
    root = changed.get(computation.root, computation.root)
    return Computation(computation.name, tuple(order), root, computation.execution_thread)


def with_operands(
    instruction: Instruction, operands: tuple[Instruction, ...], predecessors: tuple[Instruction, ...] | None = None
) -> Instruction:
    """The instruction with other operands and, unless None, other control predecessors; itself if nothing differs."""
    before = instruction.control_predecessors if predecessors is None else predecessors
    # Tuples compare their elements by identity first, and instructions have no other equality.
    if operands == instruction.operands and before == instruction.control_predecessors:
        return instruction
    return instruction.replace(operands=operands, control_predecessors=before)


def programs(module: HloModule) -> set[Computation]:
    """The computations that run as programs: the entry, and the callees of loops, conditionals and calls.

    Computations that are applied to elements (of reductions, sorts, ..), fused ones and those of async starts are not.
    """
    reached = {module.entry}
    stack = [module.entry]
    while stack:
        for instruction in stack.pop().calling_instructions:
            if isinstance(instruction.op, (Call, Conditional, While)):
                fresh = [c for c in instruction.op.called_computations if c not in reached]
                reached.update(fresh)
                stack.extend(fresh)
    return reached


def is_fixed(instruction: Instruction) -> bool:
    """Whether rewrites must leave an instruction alone: it has a side effect, or control predecessors."""
    op = instruction.op
    return bool(instruction.control_predecessors) or (op.can_have_effect and op.has_side_effect)


def live_instructions(computation: Computation) -> set[Instruction]:
    """The instructions that the root, a side effect or a parameter needs, through operands or control predecessors."""
    return mark_live(computation.instructions, computation.root)


def mark_live(instructions: Sequence[Instruction], root: Instruction) -> set[Instruction]:
    """As :func:`live_instructions`, for a list of instructions with operands before users, and its root."""
    live = {root}
    for instruction in reversed(instructions):
        op = instruction.op
        if instruction in live or (op.can_have_effect and op.has_side_effect) or isinstance(op, Parameter):
            live.add(instruction)
            live.update(instruction.operands)
            if instruction.control_predecessors:
                live.update(instruction.control_predecessors)
    return live


def inherited(annotations: Annotations, *, metadata_only: bool = False) -> Annotations:
    """The annotations that an instruction passes on to its replacement.

    With ``metadata_only`` the metadata alone, else also sharding, frontend attributes and origin.
    """
    if metadata_only:
        return _metadata_of(annotations)
    if not annotations.backend_config and not annotations.statistics and not annotations.parameter_replication:
        return annotations
    return Annotations(
        metadata=annotations.metadata,
        sharding=annotations.sharding,
        frontend_attributes=annotations.frontend_attributes,
        origin=annotations.origin,
    )


def _metadata_of(annotations: Annotations) -> Annotations:
    plain = Annotations(metadata=annotations.metadata)
    return annotations if annotations == plain else plain


class Names:
    """New names for the instructions of a computation; None for a computation that is made from nothing."""

    def __init__(self, computation: Computation | None, context: PassContext) -> None:
        self._computation = computation
        self._context = context
        self._taken: set[str] | None = None

    @property
    def taken(self) -> set[str]:
        """The names that are in use."""
        if self._taken is None:
            self._taken = set() if self._computation is None else {i.name for i in self._computation.instructions}
        return self._taken

    def new(self, base: str) -> str:
        """``base`` with a number, which no other instruction has as its name."""
        taken = self.taken
        while (name := f"{base}.{self._context.number()}") in taken:
            pass
        taken.add(name)
        return name

    def keep_or_new(self, name: str) -> str:
        """``name`` if no instruction has it, else its stem with another number."""
        if name not in self.taken:
            self.taken.add(name)
            return name
        stem, _, number = name.rpartition(".")
        return self.new(stem if stem and number.isdigit() else name)
