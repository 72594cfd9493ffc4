"""The rendezvous of devices (cpu/runtime/rendezvous.py), in all orders of its steps.

The model covers: two devices with two rendezvous in one slot, or three with one, in one step or as an async pair; and
a thread that stops the run at any moment and then closes it, after which no memory of a device may be read. Waits are
without spinning and without limits of time, which would hide lost wake-ups. It leaves out Python, which is asked when
a wait takes long and may stop the run as well; what it does is the stop that is modeled. The threads that devices run
on are modeled in test_device_threads_model.py.
"""

import pytest
from interleavings import END, Fault, explore, parking_slot, sleep, wake

NEVER = -1


def device(own, count, generations, *, async_pairs=False, rechecks=True, tells=True, starts_tell=True, claims=True):
    """A device that takes part in so many rendezvous."""
    program = []
    for generation in range(generations):
        n = f"{generation}"

        def publish(s, me, generation=generation):
            # Plain stores: no other device may read the arrival meanwhile.
            assert not s["computing"], "an arrival changes while a device computes"
            me["generation"] = s["completed"]
            assert me["generation"] == generation, "a device is in another generation than it has read"

        def arrive(s, _):
            s["arrived"] += 1

        def full(s, _, generation=generation):
            return s["arrived"] >= (generation + 1) * count

        def absent(s, me, full=full):
            return not full(s, me) and not s["stop"]

        def look(s, me, absent=absent, n=n):
            return None if absent(s, me) else f"claim{n}"

        def here(s, me, full=full):
            me["here"] = full(s, me)

        def claim(s, me, generation=generation, n=n):
            free = s["claimed"] == generation or not claims
            if not free:
                return f"wait{n}"
            s["claimed"] = generation + 1 if me["here"] else NEVER
            return None if me["here"] else "abandon"

        def begin(s, _, generation=generation):
            assert not any(s["left"]), "memory is read of a device that has gone"
            assert not s["closed"], "memory is read after the run was closed"
            assert not s["computing"], "two devices compute"
            assert s["computed"] == generation, "a rendezvous is held twice"
            s["computing"] = 1

        def end(s, _, generation=generation):
            assert not any(s["left"]), "a device has gone while its memory was read"
            assert not s["closed"], "the run was closed while its memory was read"
            s["computing"], s["computed"] = 0, generation + 1

        def complete(s, _, generation=generation):
            s["completed"] = generation + 1

        def told(_, __, n=n):
            return f"met{n}"

        def never(s, _):
            return "abandon" if s["claimed"] == NEVER else None

        def unfinished(s, _, generation=generation, n=n):
            return None if s["completed"] <= generation else f"met{n}"

        def incomplete(s, _, generation=generation):
            return s["completed"] <= generation

        def met(s, me, generation=generation):
            assert s["computed"] > generation, "a device goes on before the rendezvous was held"
            me.clear()

        others = [d for d in range(count) if d != own]
        program += [(None, publish), (None, arrive)]
        if async_pairs and starts_tell:
            program += [(None, lambda s, me, full=full, n=n: None if full(s, me) else f"look{n}")]
            program += [step for d in others for step in wake(f"start{n}.{d}", d)]
        program += [(f"look{n}", look), *sleep(f"linger{n}", own, absent, checks=rechecks)]
        program += [(f"claim{n}", here), (None, claim), (None, begin), (None, end), (None, complete)]
        if tells:
            program += [step for d in others for step in wake(f"tell{n}.{d}", d)]
        program += [(None, told), (f"wait{n}", never), (None, unfinished)]
        program += [*sleep(f"rest{n}", own, incomplete, checks=rechecks), (f"met{n}", met)]

    def abandon(s, _):
        s["left"] = tuple(1 if d == own else gone for d, gone in enumerate(s["left"]))
        return END

    def finish(s, _):
        s["finished"] += 1
        return END

    return [*program, (None, finish), ("abandon", abandon)]


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


def rendezvous(count, generations, *, stops=False, stop_changes=None, **changes):
    shared = {"arrived": 0, "claimed": 0, "completed": 0, "stop": 0, "closed": 0}
    shared |= {"computing": 0, "computed": 0, "left": (0,) * count, "finished": 0}
    for number in range(count):
        shared |= parking_slot(number)
    programs = [device(d, count, generations, **changes) for d in range(count)]

    def ended(s):
        assert stops or s["finished"] == count, "a device gave up though the run was not stopped"
        assert s["finished"] == count or s["stop"], "some went on"

    return explore(shared, [*programs, *([stopper(count, **(stop_changes or {}))] if stops else [])], ended)


@pytest.mark.parametrize(
    ("count", "generations", "stops", "async_pairs"),
    [(2, 2, False, False), (2, 2, False, True), (3, 1, False, False), (2, 1, True, False), (2, 1, True, True)],
)
def test_every_order_of_steps(count, generations, stops, async_pairs):
    assert rendezvous(count, generations, stops=stops, async_pairs=async_pairs) > 100


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("wait for ever", {"rechecks": False}),
        ("wait for ever", {"tells": False}),
        ("wait for ever", {"async_pairs": True, "starts_tell": False, "tells": False}),
        ("held twice|two devices compute", {"claims": False}),
        ("wait for ever", {"stops": True, "stop_changes": {"wakes": False}}),
        ("after the run was closed|while its memory was read", {"stops": True, "stop_changes": {"waits": False}}),
    ],
    ids=[
        "asks no more",
        "generation is not told",
        "async pairs are not told",
        "no claim",
        "stop wakes none",
        "close does not wait",
    ],
)
def test_a_protocol_without_one_of_its_steps_is_found_out(message, changes):
    with pytest.raises(Fault, match=message):
        rendezvous(2, 1, **changes)
