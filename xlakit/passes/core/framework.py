"""What a pass is, and what all passes of one run share: the fuel, the statistics, what is switched off."""

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
    """What the passes of one run share.

    fuel: how many rewrites may still be made; None for any number. With it a wrong rewrite is found by bisection.
    disabled: names of passes, of tables of rules, and of single rules that are left out.
    check: whether the verifier runs after each pass, and rules that do not come to an end are an error.
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
        # For each pass that has run, in order, how often each of its rules has rewritten something.
        self.statistics: list[tuple[str, Counter[str]]] = []
        # Called with the rewrites of rules and merged instructions; nothing is collected where there is none.
        self.observer: RewriteObserver | None = None
        # The names that computations have, for passes that make new ones.
        self.computation_names: set[str] = set()
        self._current = Counter[str]()
        self._takes_fuel = True
        self._names = 0

    def begin(self, name: str, *, takes_fuel: bool = True) -> None:
        """Attribute the rewrites from here on to the pass of this name; whether they use up fuel."""
        self._current = Counter()
        self._takes_fuel = takes_fuel
        self.statistics.append((name, self._current))

    def spend(self, rule: str, times: int = 1) -> bool:
        """Whether one more rewrite may be made; if so it is counted under ``rule``, as if it were ``times``."""
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
        """How many rewrites all passes have made."""
        return sum(sum(counts.values()) for _, counts in self.statistics)

    def number(self) -> int:
        """A number for a new name, another one each time."""
        self._names += 1
        return self._names

    def computation_name(self, name: str) -> str:
        """A name for a computation made from the one called ``name``; none in ``computation_names`` is the same."""
        stem, _, number = name.rpartition(".")
        base = stem if stem and number.isdigit() else name
        while (new := f"{base}.{self.number()}") in self.computation_names:
            pass
        self.computation_names.add(new)
        return new


class Pass:
    """A step from a module to one that gives the same results. Subclasses say what they do in their docstring."""

    name: ClassVar[str] | str
    # Whether there is no machine code without it. Then it is no improvement that may be wrong, and takes no fuel.
    is_needed: ClassVar[bool] | bool = False
    # What of xlakit.options.PLAIN leaves it out of the pipeline; nothing does where it is empty.
    left_out_by: ClassVar[str] | str = "rewrites"

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """The new module; the same object where there was nothing to do."""
        raise NotImplementedError

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (inspect.getdoc(type(self)) or "").split("\n", 1)[0]

    @property
    def parts(self) -> dict[str, str]:
        """The rewrites of a pass without rules that can be left out one by one, by name, and what each does."""
        return {}

    def __repr__(self) -> str:
        return f"<pass {self.name}>"


class ComputationPass(Pass):
    """A pass that changes one computation at a time, those that are called before those that call."""

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """The new computation, which calls what is already changed; the same object where nothing is to do."""
        raise NotImplementedError

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation."""
        context.computation_names = {c.name for c in module.computations}
        return change_computations(module, lambda computation: self.change(computation, context))


class CalleesPass(ComputationPass):
    """A pass that makes instructions call other computations; those that are not called any more are left out."""

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
    """A pass that changes one computation at a time, of those that run as programs."""

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """The new computation; the same object where nothing is to do."""
        raise NotImplementedError

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change every computation that runs as a program."""
        context.computation_names = {c.name for c in module.computations}
        made = change_programs(module, lambda computation: self.change(computation, context))
        return with_computations(module, list(made.values()))


def change_computations(module: HloModule, change: Callable[[Computation], Computation]) -> HloModule:
    """The module with every computation changed, callees first; callers call the changed ones."""
    made: dict[Computation, Computation] = {}
    for old in module.computations:
        made[old] = change(with_callees(old, made))
    return with_computations(module, [made[c] for c in module.computations])


def change_programs(module: HloModule, change: Callable[[Computation], Computation]) -> dict[Computation, Computation]:
    """What each computation becomes, callees first: those that run as programs are changed, the others call the changed
    ones.
    """
    run_as_programs = programs(module)
    made: dict[Computation, Computation] = {}
    for old in module.computations:
        new = with_callees(old, made)
        made[old] = change(new) if old in run_as_programs else new
    return made


def with_changed(module: HloModule, made: Mapping[Computation, Computation]) -> HloModule:
    """The module with what its computations have become, but for those that only fusions called which are gone."""
    before, after = _called(module.computations), _called(made.values())
    return with_computations(module, [new for old, new in made.items() if new in after or old not in before])


def _called(computations: Iterable[Computation]) -> set[Computation]:
    return {c for computation in computations for i in computation.callers for c in i.op.called_computations}


def with_computations(module: HloModule, computations: Sequence[Computation]) -> HloModule:
    """The module with other computations, callees first, the last being the entry."""
    if len(computations) == len(module.computations) and all(
        new is old for new, old in zip(computations, module.computations, strict=True)
    ):
        return module
    return module.replace(entry=computations[-1], computations=tuple(computations[:-1]))


def with_callees(computation: Computation, made: dict[Computation, Computation]) -> Computation:
    """The computation calling the changed ones; itself where it calls none of those."""
    stale = {i for i in computation.callers if any(made.get(c, c) is not c for c in i.op.called_computations)}
    if not stale:
        return computation

    # Most instructions neither call nor read what does, and stay as they are.
    changed: dict[Instruction, Instruction] = {}
    order: list[Instruction] = []
    for old in computation.instructions:
        new = old
        if old in stale:
            op = old.op.map_computations(lambda c: made.get(c, c))
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
    """The instruction on other operands and, unless None, behind other control predecessors; itself for the same."""
    before = instruction.control_predecessors if predecessors is None else predecessors
    # Tuples compare their elements by identity first, and instructions have no other equality.
    if operands == instruction.operands and before == instruction.control_predecessors:
        return instruction
    return instruction.replace(operands=operands, control_predecessors=before)


def programs(module: HloModule) -> set[Computation]:
    """The computations that run as programs: the entry, and what loops, branches and calls run, but not what is run
    for each element, or is fused.
    """
    found = {module.entry}
    stack = [module.entry]
    while stack:
        for instruction in stack.pop().callers:
            if isinstance(instruction.op, (Call, Conditional, While)):
                fresh = [c for c in instruction.op.called_computations if c not in found]
                found.update(fresh)
                stack.extend(fresh)
    return found


def is_fixed(instruction: Instruction) -> bool:
    """Whether an instruction stays what it is: it has an effect, or it has control dependencies."""
    op = instruction.op
    return bool(instruction.control_predecessors) or (op.can_have_effect and op.has_side_effect)


def live_instructions(computation: Computation) -> set[Instruction]:
    """What the result, an effect or the signature needs; control predecessors of those, too."""
    return mark_live(computation.instructions, computation.root)


def mark_live(instructions: Sequence[Instruction], root: Instruction) -> set[Instruction]:
    """The instructions of a list, operands before users, that are needed."""
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
    """The annotations of an instruction made from another one: metadata and, unless ``metadata_only``, its sharding."""
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
    """New names for the instructions of a computation; of a new one where that is None."""

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
        """A name that no instruction has: ``base`` with a number."""
        taken = self.taken
        while (name := f"{base}.{self._context.number()}") in taken:
            pass
        taken.add(name)
        return name

    def keep_or_new(self, name: str) -> str:
        """``name`` where it is free, else its stem with another number."""
        if name not in self.taken:
            self.taken.add(name)
            return name
        stem, _, number = name.rpartition(".")
        return self.new(stem if stem and number.isdigit() else name)
