"""The meeting of devices (cpu/runtime/meeting.py), in all orders of its steps.

The model covers: two devices that meet twice in one slot, or three that meet once, in one step or in two halves; and
a thread that stops the run at any moment and then closes it, after which no memory of a device may be read. Waits are
without spinning and without limits of time, which would hide lost wake-ups. It leaves out Python, which is asked when
a wait takes long and may stop the run as well; what it does is the stop that is modeled. The threads that devices run
on are modeled in test_crew_model.py.
"""

import pytest
from interleavings import END, Fault, bed, explore, sleep, wake

NEVER = -1


def device(own, count, visits, *, halves=False, rechecks=True, tells=True, posts_tell=True, claims=True):
    """A device that meets the others so many times."""
    program = []
    for visit in range(visits):
        n = f"{visit}"

        def post(s, me, visit=visit):
            # Plain stores: no other device may read the post meanwhile.
            assert not s["computing"], "a post changes while a device computes"
            me["visit"] = s["completed"]
            assert me["visit"] == visit, "a device comes to another visit than it thinks"

        def arrive(s, _):
            s["arrived"] += 1

        def full(s, _, visit=visit):
            return s["arrived"] >= (visit + 1) * count

        def absent(s, me, full=full):
            return not full(s, me) and not s["stop"]

        def look(s, me, absent=absent, n=n):
            return None if absent(s, me) else f"claim{n}"

        def here(s, me, full=full):
            me["here"] = full(s, me)

        def claim(s, me, visit=visit, n=n):
            free = s["claimed"] == visit or not claims
            if not free:
                return f"wait{n}"
            s["claimed"] = visit + 1 if me["here"] else NEVER
            return None if me["here"] else "withdraw"

        def begin(s, _, visit=visit):
            assert not any(s["left"]), "memory is read of a device that has gone"
            assert not s["closed"], "memory is read after the run was closed"
            assert not s["computing"], "two devices compute"
            assert s["computed"] == visit, "a meeting is held twice"
            s["computing"] = 1

        def end(s, _, visit=visit):
            assert not any(s["left"]), "a device has gone while its memory was read"
            assert not s["closed"], "the run was closed while its memory was read"
            s["computing"], s["computed"] = 0, visit + 1

        def complete(s, _, visit=visit):
            s["completed"] = visit + 1

        def told(_, __, n=n):
            return f"met{n}"

        def never(s, _):
            return "withdraw" if s["claimed"] == NEVER else None

        def unfinished(s, _, visit=visit, n=n):
            return None if s["completed"] <= visit else f"met{n}"

        def incomplete(s, _, visit=visit):
            return s["completed"] <= visit

        def met(s, me, visit=visit):
            assert s["computed"] > visit, "a device goes on before the meeting was held"
            me.clear()

        others = [d for d in range(count) if d != own]
        program += [(None, post), (None, arrive)]
        if halves and posts_tell:
            program += [(None, lambda s, me, full=full, n=n: None if full(s, me) else f"look{n}")]
            program += [step for d in others for step in wake(f"post{n}.{d}", d)]
        program += [(f"look{n}", look), *sleep(f"linger{n}", own, absent, checks=rechecks)]
        program += [(f"claim{n}", here), (None, claim), (None, begin), (None, end), (None, complete)]
        if tells:
            program += [step for d in others for step in wake(f"tell{n}.{d}", d)]
        program += [(None, told), (f"wait{n}", never), (None, unfinished)]
        program += [*sleep(f"rest{n}", own, incomplete, checks=rechecks), (f"met{n}", met)]

    def withdraw(s, _):
        s["left"] = tuple(1 if d == own else gone for d, gone in enumerate(s["left"]))
        return END

    def finish(s, _):
        s["finished"] += 1
        return END

    return [*program, (None, finish), ("withdraw", withdraw)]


def stopper(count, *, waits=True, wakes=True):
    """``xlakit_run_close``, at any moment."""

    def stop(s, _):
        s["stop"] = 1

    def read(s, me):
        me["found"] = s["claimed"]
        return "closed" if me["found"] == NEVER else None

    def free(s, me):
        return None if me["found"] == s["completed"] or not waits else "read"

    def kill(s, me):
        if s["claimed"] != me["found"]:
            return "read"
        s["claimed"] = NEVER
        return None

    def closed(s, _):
        s["closed"] = 1
        return END

    told = [step for d in range(count) for step in wake(f"stop{d}", d)] if wakes else []
    return [(None, stop), *told, ("read", read), (None, free), (None, kill), ("closed", closed)]


def meet(count, visits, *, stops=False, stop_changes=None, **changes):
    shared = {"arrived": 0, "claimed": 0, "completed": 0, "stop": 0, "closed": 0}
    shared |= {"computing": 0, "computed": 0, "left": (0,) * count, "finished": 0}
    for number in range(count):
        shared |= bed(number)
    programs = [device(d, count, visits, **changes) for d in range(count)]

    def ended(s):
        assert stops or s["finished"] == count, "a device gave up though the run was not stopped"
        assert s["finished"] == count or s["stop"], "some went on"

    return explore(shared, [*programs, *([stopper(count, **(stop_changes or {}))] if stops else [])], ended)


@pytest.mark.parametrize(
    ("count", "visits", "stops", "halves"),
    [(2, 2, False, False), (2, 2, False, True), (3, 1, False, False), (2, 1, True, False), (2, 1, True, True)],
)
def test_every_order_of_steps(count, visits, stops, halves):
    assert meet(count, visits, stops=stops, halves=halves) > 100


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("wait for ever", {"rechecks": False}),
        ("wait for ever", {"tells": False}),
        ("wait for ever", {"halves": True, "posts_tell": False, "tells": False}),
        ("held twice|two devices compute", {"claims": False}),
        ("wait for ever", {"stops": True, "stop_changes": {"wakes": False}}),
        ("after the run was closed|while its memory was read", {"stops": True, "stop_changes": {"waits": False}}),
    ],
    ids=[
        "asks no more",
        "arrival is not told",
        "halves are not told",
        "no claim",
        "stop wakes none",
        "close does not wait",
    ],
)
def test_a_protocol_without_one_of_its_steps_is_found_out(message, changes):
    with pytest.raises(Fault, match=message):
        meet(2, 1, **changes)
