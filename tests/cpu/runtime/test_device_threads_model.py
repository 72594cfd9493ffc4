"""The threads that devices run on (cpu/runtime/devices/device_threads.py), in all orders of their steps.

The model covers: callers that run programs of two or three devices, one after the other or at once; threads that are
taken from those that wait or made, woken as a tree, and that wait again or end; a caller that finds no more threads;
and ``xlakit_device_threads_stop``, at the end or at any moment. What a thread or a run owns may not be touched when it
has gone. Waits are without limits of time, which would hide lost wake-ups. It leaves out Python, signals and ``fork``,
and what devices say to each other, which is modeled in test_rendezvous_model.py.
"""

import pytest
from interleavings import BLOCKED, END, Fault, explore, parking_slot, sleep

END_OF_LIFE = -1


def give(name, target, value, *, locked=True):
    """Give a thread its work, or its end; ``target(s, me)`` is the number of the thread.

    locked: whether the thread sees it only after its parking slot is unlocked; otherwise it is told first, then woken.
    """

    def there(s, me):
        number = target(s, me)
        assert not s[f"freed{number}"], "memory is touched of a thread that has ended"
        return number

    def lock(s, me):
        number = there(s, me)
        if s[f"mutex{number}"]:
            return BLOCKED
        s[f"mutex{number}"] = 1
        return None

    def tell(s, me):
        number = there(s, me)
        s[f"run{number}"], s[f"device{number}"] = value(s, me)

    def look(s, me):
        return None if s[f"asleep{there(s, me)}"] else f"{name}.given"

    def signal(s, me):
        number = there(s, me)
        if s[f"waits{number}"]:
            s[f"waits{number}"], s[f"signal{number}"] = 0, 1

    def unlock(s, me):
        s[f"mutex{there(s, me)}"] = 0

    steps = [lock, tell, signal, unlock] if locked else [tell, look, lock, signal, unlock]
    return [*((None, step) for step in steps), (f"{name}.given", lambda _, __: None)]


def children(device, devices):
    return [d for d in (2 * device + 1, 2 * device + 2) if d < devices]


def wakes(name, devices, *, locked):
    """``wake_workers``: those below ``me["device"]`` in the tree, for the run ``me["for"]``."""

    def following(s, me):
        below = children(me["device"], devices)
        if me.get("woken", 0) == len(below):
            me.pop("woken", 0)
            return f"{name}.all"
        me["child"] = below[me.get("woken", 0)]
        me["woken"] = me.get("woken", 0) + 1
        return None

    def target(s, me):
        assert not s[f"gone{me['for']}"], "memory is touched of a run that has ended"
        return s[f"workers{me['for']}"][me["child"] - 1]

    given = give(name, target, lambda _, me: (me["for"], me["child"]), locked=locked)
    back = (None, lambda _, me: me.pop("child") and f"{name}.next")
    return [(f"{name}.next", following), *given, back, (f"{name}.all", lambda _, __: None)]


def rests(s, number, most):
    """``join_idle``, which is one step: the list is seen only with the mutex of the device threads."""
    stays = len(s["idle"]) < most and not s["stopping"]
    if stays:
        s["idle"] = (*s["idle"], number)
    return stays


class Worker:
    """``device_worker``, from beginning to end.

    slots: the parking slot of the caller of each run. most: how many threads may wait. The changes are other orders of
    the protocol's steps, or leave one out.
    """

    def __init__(self, number, devices, slots, *, most, locked=True, clears_first=True, rests_first=True, signals=True):
        self.number, self.devices, self.slots, self.most = number, devices, slots, most
        self.locked, self.clears_first, self.rests_first, self.signals = locked, clears_first, rests_first, signals

    def program(self):
        waits = [(None, self.clear), (None, self.rest)]
        if not self.clears_first:
            waits.reverse()
        counts = [(None, self.lock), (None, self.count), (None, self.unlock)]
        return [
            (None, self.born),
            ("life", lambda _, __: None),
            *sleep("nap", self.number, self.is_idle),
            (None, self.read),
            *wakes("wake", self.devices, locked=self.locked),
            (None, self.run),
            *([*waits, *counts] if self.rests_first else [*counts, *waits]),
            (None, lambda _, me: "life" if me.pop("stays") else "die"),
            ("die", self.free),
            (None, self.die),
        ]

    def check_own(self, s):
        assert not s[f"freed{self.number}"], "memory is touched of a thread that has ended"

    def check_run(self, s, me):
        assert not s[f"gone{me['for']}"], "memory is touched of a run that has ended"

    def born(self, s, _):
        if s["made"] > self.number:
            return None
        return END if s["over"] == s["callers"] else BLOCKED

    def is_idle(self, s, _):
        self.check_own(s)
        return s[f"run{self.number}"] == 0

    def read(self, s, me):
        self.check_own(s)
        me["for"], me["device"] = s[f"run{self.number}"], s[f"device{self.number}"]
        return "die" if me["for"] == END_OF_LIFE else None

    def run(self, s, me):
        self.check_run(s, me)
        ran = list(s[f"ran{me['for']}"])
        ran[me["device"]] += 1
        assert ran[me["device"]] == 1, "a device runs twice"
        s[f"ran{me['for']}"] = tuple(ran)
        del me["device"]

    def clear(self, s, _):
        self.check_own(s)
        s[f"run{self.number}"] = 0

    def rest(self, s, me):
        if s["list_locked"]:
            return BLOCKED
        self.check_own(s)
        me["stays"] = int(rests(s, self.number, self.most))
        return None

    def lock(self, s, me):
        self.check_run(s, me)
        mutex = f"mutex{self.slots[me['for']]}"
        if s[mutex]:
            return BLOCKED
        s[mutex] = 1
        return None

    def count(self, s, me):
        self.check_run(s, me)
        slot = self.slots[me["for"]]
        s[f"left{me['for']}"] -= 1
        if s[f"left{me['for']}"] == 0 and s[f"waits{slot}"] and self.signals:
            s[f"waits{slot}"], s[f"signal{slot}"] = 0, 1

    def unlock(self, s, me):
        self.check_run(s, me)
        s[f"mutex{self.slots[me.pop('for')]}"] = 0

    def free(self, s, _):
        self.check_own(s)
        s[f"freed{self.number}"] = 1

    def die(self, s, _):
        s["alive"] -= 1
        return END


def thread(number, devices, slots, **changes):
    """The steps of a thread; ``changes`` are those of :class:`Worker`."""
    return Worker(number, devices, slots, **changes).program()


class Call:
    """``xlakit_run_devices`` for one run, whose caller sleeps in a parking slot.

    most: how many threads may wait. threads: how many there can be. lacks: whether these may be too few.
    """

    def __init__(self, run, devices, slot, *, most, threads, lacks=False, locked=True, lets_go=True):
        self.number, self.devices, self.slot, self.most, self.threads = run, devices, slot, most, threads
        self.lacks, self.locked, self.lets_go = lacks, locked, lets_go

    def program(self):
        r, too_few = self.number, f"too few{self.number}"
        return [
            *[(None, self.take)] * (self.devices - 1),
            (None, self.start),
            *wakes(f"wake{r}", self.devices, locked=self.locked),
            (None, self.work),
            (None, self.look),
            *sleep(f"await{r}", self.slot, self.are_some_left),
            (f"last{r}", self.last),
            (None, self.gone),
            (too_few, self.too_few),
            (None, self.put_back),
            *give(f"back{r}", self.target, lambda _, __: (END_OF_LIFE, 0), locked=self.locked),
            (None, lambda _, __: too_few),
            (f"end{r}", lambda _, __: None),
        ]

    def take(self, s, _):
        if s["list_locked"]:
            return BLOCKED
        if s["idle"]:
            found, s["idle"] = s["idle"][-1], s["idle"][:-1]
        elif s["made"] < self.threads:
            found, s["made"], s["alive"] = s["made"], s["made"] + 1, s["alive"] + 1
        else:
            return f"too few{self.number}"
        s[f"workers{self.number}"] = (*s[f"workers{self.number}"], found)
        return None

    def start(self, s, me):
        s[f"left{self.number}"] = self.devices - 1
        me.update({"for": self.number, "device": 0})

    def work(self, s, me):
        s[f"ran{self.number}"] = (1, *s[f"ran{self.number}"][1:])
        me.clear()

    def are_some_left(self, s, _):
        return s[f"left{self.number}"] != 0

    def look(self, s, me):
        return None if self.are_some_left(s, me) else f"last{self.number}"

    def last(self, s, _):
        # The mutex is taken and given back.
        return BLOCKED if s[f"mutex{self.slot}"] and self.lets_go else None

    def gone(self, s, _):
        assert s[f"ran{self.number}"] == (1,) * self.devices, "a device has not run"
        s[f"gone{self.number}"] = 1
        return f"end{self.number}"

    def too_few(self, s, me):
        assert self.lacks, "a thread that waits is not found"
        me["back"] = me.get("back", 0) + 1
        if me["back"] > len(s[f"workers{self.number}"]):
            me.clear()
            return f"end{self.number}"
        return None

    def target(self, s, me):
        return s[f"workers{self.number}"][me["back"] - 1]

    def put_back(self, s, me):
        if s["list_locked"]:
            return BLOCKED
        return f"too few{self.number}" if rests(s, self.target(s, me), self.most) else None


def caller(runs, devices, slot, **changes):
    """A caller of runs, one after the other; ``changes`` are those of :class:`Call`."""

    def over(s, _):
        s["over"] += 1

    return [*(step for run in runs for step in Call(run, devices, slot, **changes).program()), (None, over)]


def stopper(*, locked=True, marks=True):
    """``xlakit_device_threads_stop``; it has the list as long as it takes."""

    def lock(s, me):
        if s["list_locked"]:
            return BLOCKED
        s["list_locked"], s["stopping"], me["list"] = 1, int(marks), s["idle"]
        return None

    def following(_, me):
        if not me["list"]:
            return "told"
        me["each"], me["list"] = me["list"][-1], me["list"][:-1]
        return None

    def unlock(s, _):
        s["idle"], s["list_locked"] = (), 0

    def await_all(s, _):
        return BLOCKED if s["alive"] or s["over"] < s["callers"] else END

    given = give("stop", lambda _, me: me["each"], lambda _, __: (END_OF_LIFE, 0), locked=locked)
    back = (None, lambda _, __: "each")
    return [(None, lock), ("each", following), *given, back, ("told", unlock), (None, await_all)]


def device_threads(
    callers=1, runs=1, devices=3, *, threads, most=64, stops="after", caller_changes=None, stop_changes=None, **own
):
    """``threads``: more than these are not needed, or there are no more. ``stops``: after the callers, or any time."""
    count = callers * runs
    slots = {r: threads + (r - 1) // runs for r in range(1, count + 1)}
    shared = {"idle": (), "list_locked": 0, "stopping": 0, "made": 0, "alive": 0, "over": 0, "callers": callers}
    for number in range(threads):
        shared |= parking_slot(number) | {f"run{number}": 0, f"device{number}": 0, f"freed{number}": 0}
    for number in range(callers):
        shared |= parking_slot(threads + number)
    for r in slots:
        shared |= {f"left{r}": 0, f"ran{r}": (0,) * devices, f"gone{r}": 0, f"workers{r}": ()}
    locked = own.get("locked", True)
    programs = [
        caller(
            [r for r in slots if slots[r] == threads + c], devices, threads + c,
            most=most, threads=threads, locked=locked, **(caller_changes or {}),
        )
        for c in range(callers)
    ]  # fmt: skip
    stop = stopper(locked=locked, **(stop_changes or {}))
    last = programs.pop() if stops == "after" else []
    programs = [*([*p, (None, lambda _, __: END)] for p in programs), [*last, *stop]]
    lives = [thread(n, devices, slots, most=most, **own) for n in range(threads)]

    def ended(s):
        assert s["alive"] == 0, "threads stay behind"
        assert not s["idle"], "a thread that has ended is in the list"

    return explore(shared, [*programs, *lives], ended)


def test_threads_are_found_again_and_stopped():
    assert device_threads(runs=2, threads=2) > 500


def test_threads_that_are_enough_end():
    assert device_threads(runs=2, threads=3, most=1) > 500


@pytest.mark.parametrize(("devices", "threads", "most"), [(2, 1, 1), (2, 1, 0), (3, 2, 64)])
def test_a_stop_at_any_moment(devices, threads, most):
    assert device_threads(devices=devices, threads=threads, most=most, stops="any time") > 500


def test_two_callers_at_once():
    assert device_threads(callers=2, devices=2, threads=2, most=0) > 500


@pytest.mark.parametrize("most", [0, 64])
def test_too_few_threads(most):
    assert device_threads(threads=1, most=most, caller_changes={"lacks": True}) > 100


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("thread that has ended", {"runs": 2, "threads": 3, "most": 1, "locked": False}),
        ("wait for ever", {"devices": 2, "threads": 1, "stops": "any time", "clears_first": False}),
        ("a thread that waits is not found", {"runs": 2, "threads": 2, "rests_first": False}),
        ("wait for ever", {"runs": 2, "threads": 2, "signals": False}),
        ("run that has ended", {"threads": 2, "caller_changes": {"lets_go": False}}),
        ("wait for ever", {"devices": 2, "threads": 1, "stops": "any time", "stop_changes": {"marks": False}}),
    ],
    ids=[
        "told before it is woken",
        "cleared when it waits",
        "waits when the caller knows",
        "caller is not told",
        "caller does not ask for the mutex",
        "stop is not known",
    ],
)
def test_a_protocol_without_one_of_its_steps_is_found_out(message, settings):
    with pytest.raises(Fault, match=message):
        device_threads(**settings)
