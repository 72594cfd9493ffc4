"""The rendezvous of devices (cpu/runtime/devices/rendezvous.py), in all orders of its steps.

The model covers: two devices with two rendezvous in one slot, or three with one, in one step or as an async pair; and
a thread that stops the run at any moment and then closes it, after which no memory of a device may be read. Waits are
without spinning and without limits of time, which would hide lost wake-ups. It leaves out Python, which is asked when
a wait takes long and may stop the run as well; what it does is the stop that is modeled. The threads that devices run
on are modeled in test_device_threads_model.py.
"""

import pytest
from interleavings import END, Fault, explore, parking_slot, sleep, wake

NEVER = -1


class Generation:
    """The steps of one device in one of its rendezvous.

    own, count: the number of the device, and of all. Each change omits a part of the protocol: ``rechecks`` to look
    again before sleeping, ``tells`` to wake the others when a rendezvous is done, ``starts_tell`` to wake them when an
    async start is the last to arrive, ``claims`` the claim by which one device alone computes.
    """

    def __init__(
        self, number, own, count, *, async_pairs=False, rechecks=True, tells=True, starts_tell=True, claims=True
    ):
        self.number, self.own, self.count = number, own, count
        self.async_pairs, self.rechecks = async_pairs, rechecks
        self.tells, self.starts_tell, self.claims = tells, starts_tell, claims

    def program(self):
        n, others = self.number, [d for d in range(self.count) if d != self.own]
        steps = [(None, self.publish), (None, self.arrive)]
        if self.async_pairs and self.starts_tell:
            steps += [(None, lambda s, me: None if self.is_full(s, me) else f"look{n}")]
            steps += [step for d in others for step in wake(f"start{n}.{d}", d)]
        steps += [(f"look{n}", self.look), *sleep(f"linger{n}", self.own, self.is_absent, checks=self.rechecks)]
        steps += [(f"claim{n}", self.see), (None, self.claim)]
        steps += [(None, self.begin), (None, self.end), (None, self.complete)]
        if self.tells:
            steps += [step for d in others for step in wake(f"tell{n}.{d}", d)]
        steps += [(None, lambda _, __: f"met{n}"), (f"wait{n}", self.never), (None, self.unfinished)]
        return [*steps, *sleep(f"rest{n}", self.own, self.is_incomplete, checks=self.rechecks), (f"met{n}", self.met)]

    # -- conditions ------------------------------------------------------------------------------

    def is_full(self, s, _):
        return s["arrived"] >= (self.number + 1) * self.count

    def is_absent(self, s, me):
        return not self.is_full(s, me) and not s["stop"]

    def is_incomplete(self, s, _):
        return s["completed"] <= self.number

    # -- steps -----------------------------------------------------------------------------------

    def publish(self, s, me):
        # Plain stores: no other device may read the arrival meanwhile.
        assert not s["computing"], "an arrival changes while a device computes"
        me["generation"] = s["completed"]
        assert me["generation"] == self.number, "a device is in another generation than it has read"

    def arrive(self, s, _):
        s["arrived"] += 1

    def look(self, s, me):
        return None if self.is_absent(s, me) else f"claim{self.number}"

    def see(self, s, me):
        me["here"] = self.is_full(s, me)

    def claim(self, s, me):
        free = s["claimed"] == self.number or not self.claims
        if not free:
            return f"wait{self.number}"
        s["claimed"] = self.number + 1 if me["here"] else NEVER
        return None if me["here"] else "abandon"

    def begin(self, s, _):
        assert not any(s["left"]), "memory is read of a device that has gone"
        assert not s["closed"], "memory is read after the run was closed"
        assert not s["computing"], "two devices compute"
        assert s["computed"] == self.number, "a rendezvous is held twice"
        s["computing"] = 1

    def end(self, s, _):
        assert not any(s["left"]), "a device has gone while its memory was read"
        assert not s["closed"], "the run was closed while its memory was read"
        s["computing"], s["computed"] = 0, self.number + 1

    def complete(self, s, _):
        s["completed"] = self.number + 1

    def never(self, s, _):
        return "abandon" if s["claimed"] == NEVER else None

    def unfinished(self, s, _):
        return None if s["completed"] <= self.number else f"met{self.number}"

    def met(self, s, me):
        assert s["computed"] > self.number, "a device goes on before the rendezvous was held"
        me.clear()


def device(own, count, generations, **changes):
    """A device that takes part in so many rendezvous; ``changes`` are those of :class:`Generation`."""

    def abandon(s, _):
        s["left"] = tuple(1 if d == own else gone for d, gone in enumerate(s["left"]))
        return END

    def finish(s, _):
        s["finished"] += 1
        return END

    steps = [step for number in range(generations) for step in Generation(number, own, count, **changes).program()]
    return [*steps, (None, finish), ("abandon", abandon)]


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
