"""Deadlock detection (execution/wait_graph.py): single graphs, and a model explored in all orders of its steps."""

import itertools
from collections import Counter

import pytest

from xlakit.execution.wait_graph import WaitGraph


def graph(running, **waits):
    """``a="bc"`` waits for any of b and c, ``a="b&c"`` for both."""
    made = WaitGraph(running)
    for node, awaited in waits.items():
        made.add(node, awaited.replace("&", ""), needs_all="&" in awaited)
    return made


@pytest.mark.parametrize(
    ("running", "waits", "dead", "cycle"),
    [
        ("a", {}, "", ""),
        ("a", {"b": "a", "c": "b"}, "", ""),
        ("", {"a": "b", "b": "a"}, "ab", "ab"),
        ("c", {"a": "bc", "b": "a"}, "", ""),
        ("c", {"a": "b&c", "b": "a"}, "ab", "ab"),
        ("bc", {"a": "b&c"}, "", ""),
        ("c", {"a": "b&c"}, "a", ""),
        ("", {"a": "z"}, "a", ""),
        ("", {"a": "b", "b": "z", "c": "d", "d": "ec", "e": "b"}, "abcde", "cd"),
        ("", {"a": "a&"}, "a", "a"),
        ("h", {"a": "h", "b": "&c", "c": "&b"}, "bc", "bc"),
    ],
)
def test_what_can_go_on(running, waits, dead, cycle):
    made = graph(running, **waits)
    assert "".join(made.deadlocked()) == dead
    assert "".join(made.cycle()) == cycle
    assert not made.live().intersection(dead)


# -- a model -------------------------------------------------------------------------------------
#
# Devices run programs of three kinds of steps: a rendezvous of a group, the numbers of its members; "s" sends
# a value that any other device may receive, and never waits; "r" receives one. A state is how far each device is, and
# which have sent values that are not received. All states are visited, and the graph of each is compared with what can
# really happen from there.

DEVICES = 3
GROUPS = [(0, 1), (0, 2), (1, 2), (0, 1, 2)]


def steps_of(device):
    return ["s", "r", *(group for group in GROUPS if device in group)]


def programs(lengths):
    choices = [
        [p for length in range(most + 1) for p in itertools.product(steps_of(device), repeat=length)]
        for device, most in enumerate(lengths)
    ]
    return itertools.product(*choices)


def current(program, state):
    """The step at which each device is; None for those that have ended."""
    return [steps[place] if place < len(steps) else None for steps, place in zip(program, state[0], strict=True)]


def moves(program, state):
    """The states after one step of one device, or of all members of a rendezvous."""
    places, sent = state
    steps = current(program, state)
    for device, step in enumerate(steps):
        forward = [place + (d == device) for d, place in enumerate(places)]
        if step == "s":
            yield tuple(forward), tuple(sorted((*sent, device)))
        elif step == "r":
            for sender in {s for s in sent if s != device}:
                left = Counter(sent) - Counter([sender])
                yield tuple(forward), tuple(sorted(left.elements()))
        elif step is not None and device == step[0] and all(steps[member] == step for member in step):
            yield tuple(place + (d in step) for d, place in enumerate(places)), sent


def wait_graph(program, state):
    """As the execution context builds it: a device that could take its step now does not wait."""
    steps = current(program, state)
    others = {d: [o for o in range(DEVICES) if o != d] for d in range(DEVICES)}
    absent, running = {}, []
    for device, step in enumerate(steps):
        if step == "s" or (step == "r" and any(s != device for s in state[1])):
            running.append(device)
        elif step is not None and step != "r":
            absent[device] = [m for m in step if steps[m] != step]
            if not absent[device]:
                running.append(device)
    made = WaitGraph(running)
    for device, step in enumerate(steps):
        if device in running or step is None:
            continue
        if step == "r":
            made.add(device, others[device])
        else:
            made.add(device, absent[device], needs_all=True)
    return made


def explore(program):
    """All states that can be reached, each with the states after one more step."""
    start = (0,) * DEVICES, ()
    found, left = {}, [start]
    while left:
        state = left.pop()
        if state not in found:
            found[state] = list(dict.fromkeys(moves(program, state)))
            left.extend(found[state])
    return found


def movable(found):
    """For each state the devices that take at least one more step on some way from there."""
    able = {state: set() for state in found}
    changed = True
    while changed:
        changed = False
        for state, after in found.items():
            for other in after:
                step = {d for d, (a, b) in enumerate(zip(state[0], other[0], strict=True)) if a != b}
                more = step | able[other]
                if not more <= able[state]:
                    able[state] |= more
                    changed = True
    return able


def check(program, make=wait_graph):
    found = explore(program)
    able = movable(found)
    for state, after in found.items():
        made = make(program, state)
        dead = set(made.deadlocked())
        waiting = {d for d, step in enumerate(current(program, state)) if step is not None}
        assert not dead & able[state], (program, state, "a device that can go on counts as deadlocked")
        if not after:
            assert dead == waiting, (program, state, "a deadlock is not seen when nothing moves any more")
        cycle = made.cycle()
        assert set(cycle) <= dead
        ended = {d for d in range(DEVICES) if d not in waiting}
        assert cycle or not dead or ended, (program, state, "no cycle, and no device has ended")


def test_every_state_of_all_small_programs():
    count = 0
    for program in programs((2, 2, 1)):
        check(program)
        count += 1
    assert count == 31 * 31 * 6


def test_a_deadlock_that_is_seen_while_another_device_goes_on():
    program = [((0, 1), (0, 2)), ((1, 2), (0, 1)), ("s",)]
    # Device 0 waits for 1, and 1 for 2, which has not ended yet: it may still come.
    assert wait_graph(program, ((0, 0, 0), ())).deadlocked() == []
    assert wait_graph(program, ((0, 0, 1), (2,))).deadlocked() == [0, 1]


def test_a_graph_without_the_edges_of_absent_members_is_found_out():
    def any_of(program, state):
        right = wait_graph(program, state)
        made = WaitGraph(set(range(DEVICES)) - set(right._waits))
        for node, awaited in right._waits.items():
            made.add(node, awaited)
        return made

    # Ended devices count as running here: such a deadlock is never seen.
    with pytest.raises(AssertionError, match="not seen"):
        check((((0, 1),), (), ()), any_of)
