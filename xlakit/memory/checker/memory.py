"""The memory of a program in the checker: contents, accesses of pending async operations, and the last writers."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.dataclass import dataclass
from xlakit.ir.instruction import Instruction
from xlakit.memory.checker.contents import NOTHING, Contents, Held, Value
from xlakit.memory.checker.faults import MemoryPlanError

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of the address space. text: its name in the plan; is_read_only: whether no step may write to it."""

    begin: int
    end: int
    text: str
    is_read_only: bool = False

    def overlaps(self, other: Slice) -> bool:
        """Whether two slices overlap."""
        return self.begin < other.end and other.begin < self.end and self.begin < self.end and other.begin < other.end

    def is_at(self, other: Slice) -> bool:
        """Whether two slices are the same range."""
        return self.begin == other.begin and self.end == other.end


@dataclass(frozen=True, slots=True)
class Actor:
    """The step that accesses memory, and the instruction that it implements."""

    text: str
    instruction: Instruction | None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Pending:
    """A slice that other devices read or write until an asynchronous operation is done."""

    slice: Slice
    is_written: bool
    actor: Actor


class Lines:
    """Assigns an address range to every object outside of the arena."""

    def __init__(self, arena_bytes: int) -> None:
        self.arena_bytes = arena_bytes
        self._end = _next(arena_bytes)
        self._begins: dict[tuple[str, int], tuple[int, int]] = {}

    def add(self, space: str, number: int, size: int) -> None:
        """A new object."""
        self._begins[space, number] = self._end, size
        self._end = _next(self._end + size)

    def donate(self, argument: int, result: int) -> None:
        """Give a result the memory of an argument."""
        self._begins["result", result] = self._begins["argument", argument]

    def range_of(self, space: str, number: int) -> tuple[int, int] | None:
        """The address of an object, and its size; None if it was not added."""
        return self._begins.get((space, number))


def _next(end: int) -> int:
    """The first aligned address after ``end`` with a gap before it."""
    return (end // ALIGNMENT + 2) * ALIGNMENT


class Memory:
    """The contents of all slices during the walk."""

    def __init__(self) -> None:
        self.contents = Contents()
        self._pending: list[_Pending] = []
        # The writes in order, only for the texts of faults.
        self._writers: list[tuple[int, int, Actor]] = []

    @property
    def pending(self) -> int:
        """The number of slices in use by pending operations."""
        return len(self._pending)

    def begin(self, slices: Sequence[Slice], actor: Actor, *, is_written: bool) -> None:
        """Mark slices as read, or written, by other devices from now on."""
        for slice_ in slices:
            self._check_pending(slice_, actor, is_write=is_written)
        self._pending += [_Pending(slice_, is_written, actor) for slice_ in slices]

    def end(self, actor: Actor) -> None:
        """End the accesses that ``actor`` has begun."""
        self._pending = [p for p in self._pending if p.actor is not actor]

    def read(self, slice_: Slice, value: Value, actor: Actor, what: str = "reads") -> None:
        """Check that a slice that a step reads holds a value."""
        if not value.bytes:
            return
        self._check_pending(slice_, actor, is_write=False)
        if value not in self.contents.held(slice_.begin, slice_.end):
            raise self.fault(f"{what} {value} in {slice_.text}", slice_, actor, value)

    def write(self, slice_: Slice, held: Held, actor: Actor) -> None:
        """Record that a step writes a whole slice."""
        if slice_.begin == slice_.end:
            return
        if slice_.is_read_only:
            raise MemoryPlanError(f"writes to {slice_.text}", step=str(actor), instruction=actor.instruction)
        self._check_pending(slice_, actor, is_write=True)
        self.contents.write(slice_.begin, slice_.end, held)
        self._writers.append((slice_.begin, slice_.end, actor))

    def copy(self, source: Slice, target: Slice, actor: Actor) -> None:
        """Record a copy of bytes, with all values that they hold."""
        if source.is_at(target):
            return
        if source.overlaps(target):
            rule = f"copies {source.text} to {target.text}, which overlap"
            raise MemoryPlanError(rule, step=str(actor), instruction=actor.instruction)
        self._check_pending(source, actor, is_write=False)
        moved = self.contents.inside(source.begin, source.end)
        self.write(target, NOTHING, actor)
        for begin, end, held in moved:
            self.contents.write(begin - source.begin + target.begin, end - source.begin + target.begin, held)

    def _check_pending(self, slice_: Slice, actor: Actor, *, is_write: bool) -> None:
        for use in self._pending:
            if use.slice.overlaps(slice_) and (is_write or use.is_written):
                what = "writes to" if is_write else "reads"
                verb = "writes" if use.is_written else "reads"
                rule = f"{what} {slice_.text}, which overlaps {use.slice.text}, while {use.actor} still {verb} that"
                raise MemoryPlanError(rule, step=str(actor), instruction=actor.instruction)

    def fault(self, rule: str, slice_: Slice, actor: Actor, expected: Value) -> MemoryPlanError:
        """The error for a slice that does not hold the expected value."""
        late = [writer for begin, end, writer in self._writers if begin < slice_.end and slice_.begin < end]
        whole = self.contents.held(slice_.begin, slice_.end)
        held = whole or self.contents.around(slice_.begin, slice_.end)
        text = " = ".join(sorted(map(str, held)))
        return MemoryPlanError(
            rule,
            step=str(actor),
            instruction=actor.instruction,
            expected=str(expected),
            held=text if whole or not held else f"parts of {text}",
            writer=str(late[-1]) if late else "",
        )
