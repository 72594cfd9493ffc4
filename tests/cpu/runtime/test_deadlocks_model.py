"""Deadlocks that a run finds itself (cpu/runtime/devices/deadlocks.py), in all orders of the steps of its threads.

The model covers: devices, each a thread, that come to slots in an order of their own; and a thread that looks at all of
them, one after the other, while they go on.
"""

import pytest
from interleavings import BLOCKED, END, Fault, explore


def device(number, slots, members):
    """A device that comes to slots; ``members``: for each slot how many do."""

    def steps_at(slot):
        def arrive(s, _):
            s[slot] += 1

        def begin(s, _):
            if s[slot] < members[slot]:
                s[f"waits{number}"] += 1
                s[f"at{number}"] = slot

        def end(s, _):
            if s[slot] < members[slot]:
                return "leave" if s["told"] else BLOCKED
            s[f"waits{number}"] += s[f"waits{number}"] & 1
            return None

        return [(None, arrive), (None, begin), (None, end)]

    def leave(s, _):
        s[f"ended{number}"] = 1
        return END

    return [*(step for slot in slots for step in steps_at(slot)), ("leave", leave)]


def watcher(devices, members, *, looks=2, counts=True):
    """The thread that looks, until all have ended or wait for ever; it leaves out a part where it is told to."""

    def is_over(s, number):
        missing = (s[f"waits{number}"] & 1) and s[s[f"at{number}"]] < members[s[f"at{number}"]]
        return s[f"ended{number}"] or missing

    def count(name, number):
        def add(s, me):
            me[name] = me.get(name, 0) + s[f"waits{number}"]

        return add

    def again(me):
        me.clear()
        return "begin"

    def have_ended(s, _):
        return END if all(s[f"ended{number}"] for number in range(devices)) else None

    def look(number):
        return lambda s, me: None if is_over(s, number) else again(me)

    def tell(s, me):
        if counts and me["after"] != me["before"]:
            return again(me)
        assert all(is_over(s, number) for number in range(devices)), "a device could go on"
        s["told"] = 1
        return END

    steps = [count("before", n) for n in range(devices)]
    steps += [look(n) for _ in range(looks) for n in range(devices)]
    steps += [count("after", n) for n in range(devices)]
    return [("begin", have_ended), *((None, step) for step in (*steps, have_ended, tell))]


def watched(*orders, is_deadlock=0, **changes):
    members = {slot: sum(slot in slots for slots in orders) for slots in orders for slot in slots}
    shared = {"told": 0, **dict.fromkeys(members, 0)}
    for n in range(len(orders)):
        shared |= {f"waits{n}": 0, f"at{n}": "", f"ended{n}": 0}
    programs = [device(n, slots, members) for n, slots in enumerate(orders)]

    def check(s):
        assert s["told"] == is_deadlock

    return explore(shared, [*programs, watcher(len(orders), members, **changes)], check)


# The last one waits for the second, which then waits for the first.
WELL = (["a"], ["z", "a"], ["z"])


def test_devices_that_meet_are_no_deadlock():
    assert watched(*WELL) > 100


@pytest.mark.parametrize("changes", [{"looks": 1}, {"counts": False}], ids=["looks once", "does not count waits"])
def test_a_look_without_one_of_its_parts_is_found_out(changes):
    with pytest.raises(Fault, match="a device could go on"):
        watched(*WELL, **changes)


def test_devices_that_wait_for_each_other_are_found():
    assert watched(["a", "b"], ["b", "a"], is_deadlock=1) > 20
