"""Shares of devices (cpu/runtime/devices/shares.py), in all orders of the steps of their threads.

The model covers: workers that run one device or several in turn, which meet in one slot as in test_rendezvous_model.py,
where the protocol of a rendezvous is modeled; and a thread that stops the run at any moment. A worker enters a device
until it has ended or waits, and sleeps where none can go on. Waits are without limits of time, which would hide lost
wake-ups.
"""

import pytest
from interleavings import END, Fault, explore, parking_slot, sleep, wake

READY, AWAITS_MEMBERS, AWAITS_RESULT, ENDED = range(4)
NEVER = -1


class Worker:
    """A worker with its share of the devices.

    shares: for each worker its devices. The changes leave out a part: ``rechecks`` to look again before sleeping,
    ``tells`` to wake the others when a rendezvous is done.
    """

    def __init__(self, number, shares, generations, *, rechecks=True, tells=True):
        self.number, self.shares, self.generations = number, shares, generations
        self.own, self.count = shares[number], sum(map(len, shares))
        self.rechecks, self.tells = rechecks, tells

    def program(self):
        others = [w for w in range(len(self.shares)) if w != self.number]
        return [
            ("turn", self.turn),
            *sleep("idle", self.number, self.is_stuck, checks=self.rechecks),
            (None, lambda _, __: "turn"),
            ("publish", self.publish),
            (None, self.arrive),
            ("look", self.look),
            ("claim", self.see),
            (None, self.claim),
            (None, self.begin),
            (None, self.end),
            (None, self.complete),
            *(step for w in others if self.tells for step in wake(f"tell{w}", w)),
            (None, lambda _, __: "met"),
            ("wait", self.wait),
            ("met", self.met),
        ]

    # -- what the worker does --------------------------------------------------------------------

    def can_go(self, s, device):
        state, generation = s["state"][device], s["generation"][device]
        if state == AWAITS_MEMBERS:
            return s["arrived"] >= (generation + 1) * self.count or s["stop"]
        if state == AWAITS_RESULT:
            return s["completed"] > generation
        return state == READY

    def is_stuck(self, s, _):
        return not any(self.can_go(s, device) for device in self.own)

    def turn(self, s, me):
        for device in self.own:
            if self.can_go(s, device):
                me["device"] = device
                return {READY: "publish", AWAITS_MEMBERS: "claim", AWAITS_RESULT: "met"}[s["state"][device]]
        if all(s["state"][device] == ENDED for device in self.own):
            return END
        return None

    def leave(self, s, me, state):
        device = me.pop("device")
        s["state"] = tuple(state if d == device else old for d, old in enumerate(s["state"]))
        me.clear()
        return "turn"

    # -- what a device does, until it leaves -----------------------------------------------------

    def publish(self, s, _):
        assert not s["computing"], "an arrival changes while a device computes"

    def arrive(self, s, _):
        s["arrived"] += 1

    def look(self, s, me):
        is_absent = s["arrived"] < (s["generation"][me["device"]] + 1) * self.count and not s["stop"]
        return self.leave(s, me, AWAITS_MEMBERS) if is_absent else None

    def see(self, s, me):
        me["here"] = s["arrived"] >= (s["generation"][me["device"]] + 1) * self.count

    def claim(self, s, me):
        if s["claimed"] != s["generation"][me["device"]]:
            return "wait"
        s["claimed"] = s["claimed"] + 1 if me["here"] else NEVER
        return None if me["here"] else self.leave(s, me, ENDED)

    def begin(self, s, _):
        assert not s["computing"], "two devices compute"
        s["computing"] = 1

    def end(self, s, _):
        s["computing"] = 0

    def complete(self, s, _):
        s["completed"] += 1

    def wait(self, s, me):
        if s["claimed"] == NEVER:
            return self.leave(s, me, ENDED)
        return self.leave(s, me, AWAITS_RESULT) if s["completed"] <= s["generation"][me["device"]] else None

    def met(self, s, me):
        device = me["device"]
        s["generation"] = tuple(g + (d == device) for d, g in enumerate(s["generation"]))
        assert s["completed"] >= s["generation"][device], "a device goes on before the rendezvous was held"
        if s["generation"][device] < self.generations:
            return "publish"
        s["finished"] += 1
        return self.leave(s, me, ENDED)


def stopper(workers, *, wakes=True):
    def stop(s, _):
        s["stop"] = 1

    told = [step for w in range(workers) if wakes for step in wake(f"stop{w}", w)]
    return [(None, stop), *told, (None, lambda _, __: END)]


def shares(*counts, generations=1, stops=False, wakes=True, **changes):
    firsts = [sum(counts[:w]) for w in range(len(counts))]
    own = [list(range(first, first + count)) for first, count in zip(firsts, counts, strict=True)]
    devices = sum(counts)
    shared = {"arrived": 0, "claimed": 0, "completed": 0, "stop": 0, "computing": 0, "finished": 0}
    shared |= {"state": (READY,) * devices, "generation": (0,) * devices}
    for number in range(len(counts)):
        shared |= parking_slot(number)
    programs = [Worker(w, own, generations, **changes).program() for w in range(len(counts))]

    def ended(s):
        assert stops or s["finished"] == devices, "a device gave up though the run was not stopped"
        assert s["finished"] == devices or s["stop"], "some went on"

    return explore(shared, [*programs, *([stopper(len(counts), wakes=wakes)] if stops else [])], ended)


@pytest.mark.parametrize(("counts", "generations"), [((3,), 2), ((2, 1), 2), ((2, 2), 1)])
def test_every_order_of_steps(counts, generations):
    assert shares(*counts, generations=generations) > 20


@pytest.mark.parametrize("counts", [(3,), (2, 1)])
def test_a_stop_at_any_moment(counts):
    assert shares(*counts, stops=True) > 20


@pytest.mark.parametrize(
    "changes",
    [{"tells": False}, {"rechecks": False}, {"stops": True, "wakes": False}],
    ids=["others are not told", "asks no more", "stop wakes none"],
)
def test_a_protocol_without_one_of_its_steps_is_found_out(changes):
    with pytest.raises(Fault, match="wait for ever"):
        shares(2, 2, **changes)
