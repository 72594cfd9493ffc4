"""``diff_modules``: classifies the instructions of two modules as same, changed, moved, or only in one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from xlakit.arguments import converting
from xlakit.data.layout import Layout
from xlakit.errors import ArgumentError
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.tools.diff.difference import ComputationDiff, InstructionDiff, ModuleDiff, Status
from xlakit.tools.diff.matching import in_order, matched, operation

# The kinds of differences that can be ignored.
IGNORED = ("names", "layouts", "metadata", "sharding", "attributes", "order")


@converting
def diff_modules(first: HloModule, second: HloModule, *, ignore: Iterable[str] = ()) -> ModuleDiff:
    """What differs between two modules, whose instructions are matched by their structure.

    ignore: some of ``names``, ``layouts``, ``metadata``, ``sharding``, ``attributes`` (those of frontends and backends)
    and ``order``.

    Raises ArgumentError for what cannot be ignored.
    """
    ignored = frozenset(ignore)
    for name in sorted(ignored - set(IGNORED)):
        raise ArgumentError(f"'{name}' cannot be ignored", hint=f"known: {', '.join(IGNORED)}")
    pairs = _computations(first, second)
    numbers: dict[Computation, int] = {}
    for number, (one, other) in enumerate(pairs):
        if one is not None and other is not None:
            numbers[one] = numbers[other] = number
    computations = [_compared(one, other, numbers, ignored) for one, other in pairs]
    return ModuleDiff(first, second, tuple(_header(first, second, ignored)), tuple(computations))


def _header(first: HloModule, second: HloModule, ignored: Collection[str]) -> Iterator[str]:
    asked = ["is_scheduled", "replica_count", "num_partitions", "input_output_alias", "buffer_donor"]
    asked += ["name"] * ("names" not in ignored)
    asked += ["spmd_output_sharding", "spmd_parameters_shardings"] * ("sharding" not in ignored)
    asked += ["frontend_attributes"] * ("attributes" not in ignored)
    asked += ["entry_computation_layout"] * ("layouts" not in ignored)
    yield from (name for name in asked if getattr(first, name) != getattr(second, name))
    own, other = dict(first.header), dict(second.header)
    yield from (name for name in sorted({*own, *other}) if own.get(name) != other.get(name))


# -- computations ----------------------------------------------------------------------------------


def _computations(first: HloModule, second: HloModule) -> list[tuple[Computation | None, Computation | None]]:
    """The computations that correspond: entries, what corresponding callers call, then those of one name."""
    partner_of: dict[Computation, Computation] = {}
    taken: set[Computation] = set()

    def add(one: Computation, other: Computation) -> bool:
        if one in partner_of or other in taken:
            return False
        partner_of[one] = other
        taken.add(other)
        return True

    stack = [(first.entry, second.entry)]
    add(first.entry, second.entry)
    while stack:
        one, other = stack.pop()
        pairs = matched(one, other, {})
        for caller in one.calling_instructions:
            partner = pairs.get(caller)
            if partner is not None and partner.opcode == caller.opcode:
                called = zip(caller.op.called_computations, partner.op.called_computations, strict=False)
                stack.extend((a, b) for a, b in called if add(a, b))
    by_name = {c.name: c for c in second.computations if c not in taken}
    for one in first.computations:
        if one not in partner_of and one.name in by_name:
            add(one, by_name[one.name])
    partners = {other: one for one, other in partner_of.items()}
    only_first = [(c, None) for c in first.computations if c not in partner_of]
    return [*only_first, *((partners.get(c), c) for c in second.computations)]


def _compared(
    first: Computation | None, second: Computation | None, numbers: Mapping[Computation, int], ignored: Collection[str]
) -> ComputationDiff:
    if first is None or second is None:
        only: Status = "only in B" if first is None else "only in A"
        listed = (second if first is None else first) or ()
        lines = [
            InstructionDiff(only, *((None, i) if first is None else (i, None)))
            for i in (listed.instructions if isinstance(listed, Computation) else ())
        ]
        return ComputationDiff(first, second, tuple(lines), (only,))
    what = ["name"] if first.name != second.name and "names" not in ignored else []
    what += ["execution thread"] if first.execution_thread != second.execution_thread else []
    pairs = matched(first, second, numbers)
    lines = _merged(first, second, pairs, lambda a, b: _differences(a, b, pairs, numbers, ignored), ignored)
    root = pairs.get(first.root)
    what += ["root"] if root is not second.root else []
    return ComputationDiff(first, second, tuple(lines), tuple(what))


def _merged(
    first: Computation,
    second: Computation,
    pairs: Mapping[Instruction, Instruction],
    differences: Callable[[Instruction, Instruction], tuple[str, ...]],
    ignored: Collection[str],
) -> list[InstructionDiff]:
    """All instructions, in the order of the second; those that only the first has stand before what they preceded."""
    positions = {i: n for n, i in enumerate(second.instructions)}
    paired = [i for i in first.instructions if i in pairs]
    in_same_order = {paired[place] for place in in_order([positions[pairs[i]] for i in paired])}
    partners = {other: one for one, other in pairs.items()}
    waiting = list(first.instructions)
    lines: list[InstructionDiff] = []
    at = 0

    def leave_first(until: Instruction | None) -> None:
        nonlocal at
        while at < len(waiting) and waiting[at] is not until:
            if waiting[at] not in pairs:
                lines.append(InstructionDiff("only in A", waiting[at], None))
            at += 1

    # Instructions with the same order in both are anchors; between two anchors, those of the first module come first.
    between: list[InstructionDiff] = []
    for other in second.instructions:
        one = partners.get(other)
        if one is None:
            between.append(InstructionDiff("only in B", None, other))
            continue
        what = differences(one, other)
        moved = one not in in_same_order and "order" not in ignored
        found = InstructionDiff("changed" if what else "moved" if moved else "same", one, other, what)
        if one in in_same_order:
            leave_first(one)
            lines += [*between, found]
            between.clear()
        else:
            between.append(found)
    leave_first(None)
    return lines + between


# -- instructions ----------------------------------------------------------------------------------


def _differences(
    a: Instruction,
    b: Instruction,
    pairs: Mapping[Instruction, Instruction],
    numbers: Mapping[Computation, int],
    ignored: Collection[str],
) -> tuple[str, ...]:
    one, other = a.annotations, b.annotations
    checks = {
        "opcode": a.opcode == b.opcode,
        "attributes": a.opcode != b.opcode or operation(a, numbers) == operation(b, numbers),
        "shape": a.shape.without_layout() == b.shape.without_layout(),
        "layout": "layouts" in ignored
        or a.shape.without_layout() != b.shape.without_layout()
        or _layouts(a) == _layouts(b),
        "operands": [pairs.get(o) for o in a.operands] == list(b.operands),
        "control predecessors": {pairs.get(p) for p in a.control_predecessors} == set(b.control_predecessors),
        "name": "names" in ignored or a.name == b.name,
        "metadata": "metadata" in ignored or (one.metadata, one.origin) == (other.metadata, other.origin),
        "sharding": "sharding" in ignored or one.sharding == other.sharding,
        "frontend attributes": "attributes" in ignored or one.frontend_attributes == other.frontend_attributes,
        "backend config": "attributes" in ignored or one.backend_config == other.backend_config,
    }
    return tuple(name for name, is_same in checks.items() if not is_same)


def _layouts(i: Instruction) -> list[Layout]:
    """The layouts of the arrays of a shape; an omitted one is major to minor."""
    return [leaf.layout_or_default for _, leaf in i.shape.leaves() if leaf.is_array]
