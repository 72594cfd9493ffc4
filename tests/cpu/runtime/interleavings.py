"""Small models of protocols between threads, and all orders in which their atomic steps can come.

A model is programs of steps: functions ``step(shared, own)`` that change two dictionaries, and say where to go on: a
label, None for the step that follows, BLOCKED where the thread has to wait (nothing is changed then), or END. Memory
is sequentially consistent, as the protocols' own accesses are. A step is what other threads see at once: one atomic
access, or plain accesses that only this thread can make then, which the model asserts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

BLOCKED = object()
END = object()

Step = Callable[[dict[str, Any], dict[str, Any]], object]
# Steps in their order, each with a label or None.
Program = Sequence[tuple[str | None, Step]]


class Fault(AssertionError):
    """An order of steps after which something is wrong; ``trace`` has the numbers of the threads, step by step."""

    def __init__(self, message: str, trace: Sequence[int]) -> None:
        super().__init__(f"{message}, after the steps of threads {list(trace)}")
        self.trace = trace


class _Untouchable(dict[str, Any]):
    """The shared memory of a step that is asked whether it needs any."""

    def _touched(self, *_: object) -> Any:
        raise _Touched

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __or__ = __ior__ = _touched
    get = pop = update = setdefault = items = keys = values = copy = _touched


class _Touched(Exception):
    """A step needs shared memory."""


class _Threads:
    """The programs of all threads, and what their next steps make of a state."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.steps = [[step for _, step in program] for program in programs]
        self.labels = [{label: n for n, (label, _) in enumerate(p) if label} for p in programs]
        # The steps, by thread and place, of which it is known that they touch shared memory.
        self.touching: set[tuple[int, int]] = set()

    def alone(self, state: Any) -> tuple[Any, int] | None:
        """What follows a step that touches its thread's own memory alone, and the thread; None if no next one does.

        Such a step can be taken whenever it comes, changes nothing for the others, and they nothing for it: whatever
        can be reached by taking others first can be reached by taking it first.
        """
        memory, threads = state
        for number, (place, own) in enumerate(threads):
            if place is END or (number, place) in self.touching:
                continue
            mine = dict(own)
            try:
                follows = self.steps[number][place](_Untouchable(), mine)
            except _Touched:
                self.touching.add((number, place))
                continue
            except AssertionError:  # which is told when the step is taken
                continue
            if follows is not BLOCKED:
                return (memory, self._moved(threads, number, follows, mine)), number
        return None

    def step(self, shared: dict[str, Any], threads: Any, number: int) -> Any:
        """The state after a step of one thread; None if it is blocked."""
        place, own = threads[number]
        everything, mine = shared.copy(), dict(own)
        follows = self.steps[number][place](everything, mine)
        return None if follows is BLOCKED else (tuple(everything.values()), self._moved(threads, number, follows, mine))

    def _moved(self, threads: Any, number: int, follows: object, mine: dict[str, Any]) -> Any:
        if follows is END:
            there: tuple[object, Any] = (END, ())
        else:
            place = threads[number][0] + 1 if follows is None else self.labels[number][follows]
            there = (place, tuple(sorted(mine.items())) if mine else ())
        return (*threads[:number], there, *threads[number + 1 :])


def explore(shared: Mapping[str, Any], programs: Sequence[Program], final: Callable[[dict[str, Any]], None]) -> int:
    """Go through all interleavings but those that differ in when a thread's steps of its own come; counts states.

    Raises Fault where a step or ``final`` (of a state in which all threads have ended) fails, and where threads wait
    for ever. As states are met once, programs may have loops. Values in the dictionaries are numbers and tuples.
    """
    all_threads = _Threads(programs)
    start = tuple(shared.values()), tuple((0, ()) for _ in programs)
    before: dict[Any, Any] = {start: None}
    waiting = [start]

    def trace(state: Any, *last: int) -> list[int]:
        found = list(last)
        while (link := before[state]) is not None:
            state, thread = link
            found.insert(0, thread)
        return found

    def is_new(state: Any, *link: Any) -> bool:
        """Whether a state is met first; then it waits. It has many values, which are hashed once."""
        count = len(before)
        before.setdefault(state, link)
        if len(before) > count:
            waiting.append(state)
            return True
        return False

    while waiting:
        state = waiting.pop()
        # In a circle of such steps the others would never come.
        if (alone := all_threads.alone(state)) is not None and is_new(alone[0], state, alone[1]):
            continue
        moved, memory = False, dict(zip(shared, state[0], strict=True))
        for number, (place, _) in enumerate(state[1]):
            if place is END:
                continue
            try:
                following = all_threads.step(memory, state[1], number)
            except AssertionError as error:
                raise Fault(f"{error}", trace(state, number)) from None
            if following is None:
                continue
            moved = True
            is_new(following, state, number)
        if not moved:
            if any(place is not END for place, _ in state[1]):
                raise Fault("threads wait for ever", trace(state))
            try:
                final(memory)
            except AssertionError as error:
                raise Fault(f"{error}", trace(state)) from None
    return len(before)


# -- parking slots, as in cpu/runtime/waiting.py ---------------------------------------------------


def parking_slot(number: int) -> dict[str, Any]:
    """The state of a parking slot, in which a thread sleeps. ``signal``: whether the thread has been woken."""
    return {f"asleep{number}": 0, f"mutex{number}": 0, f"waits{number}": 0, f"signal{number}": 0}


def sleep(
    name: str, number: int, pending: Callable[[dict[str, Any], dict[str, Any]], bool], *, checks: bool = True
) -> Program:
    """Sleep while something is pending, without a limit of time: what limits would put right is a fault here.

    checks: whether it is asked once more when it is known that the thread sleeps.
    """
    asleep, mutex, waits, signal = (f"{word}{number}" for word in ("asleep", "mutex", "waits", "signal"))

    def lock(s: dict[str, Any], _: dict[str, Any]) -> object:
        if s[mutex]:
            return BLOCKED
        s[mutex] = 1
        return None

    def tell(s: dict[str, Any], _: dict[str, Any]) -> object:
        s[asleep] = 1
        return None

    def look(s: dict[str, Any], me: dict[str, Any]) -> object:
        if not pending(s, me) and (checks or me.pop("woken", 0)):
            return f"{name}.up"
        # A condition gives the mutex back and begins to wait in one step.
        s[waits], s[mutex] = 1, 0
        return None

    def wait(s: dict[str, Any], me: dict[str, Any]) -> object:
        if not s[signal] or s[mutex]:
            return BLOCKED
        s[signal], s[mutex] = 0, 1
        if not checks:
            me["woken"] = 1
        return f"{name}.look"

    def up(s: dict[str, Any], _: dict[str, Any]) -> object:
        s[asleep], s[mutex] = 0, 0
        return None

    return [(None, lock), (None, tell), (f"{name}.look", look), (None, wait), (f"{name}.up", up)]


def wake(name: str, number: int) -> Program:
    """Wake the thread that sleeps in a parking slot, if there is one."""
    asleep, mutex, waits, signal = (f"{word}{number}" for word in ("asleep", "mutex", "waits", "signal"))

    def look(s: dict[str, Any], _: dict[str, Any]) -> object:
        return None if s[asleep] else f"{name}.done"

    def lock(s: dict[str, Any], _: dict[str, Any]) -> object:
        if s[mutex]:
            return BLOCKED
        s[mutex] = 1
        return None

    def tell(s: dict[str, Any], _: dict[str, Any]) -> object:
        if s[waits]:
            s[waits], s[signal] = 0, 1
        s[mutex] = 0
        return None

    return [(None, look), (None, lock), (None, tell), (f"{name}.done", lambda _, __: None)]
