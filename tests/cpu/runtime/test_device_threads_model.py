"""The threads that devices run on (cpu/runtime/device_threads.py), in all orders of their steps.

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


def thread(number, devices, slots, *, most, locked=True, clears_first=True, rests_first=True, signals=True):
    """``device_worker``: from beginning to end."""

    def born(s, _):
        if s["made"] > number:
            return None
        return END if s["over"] == s["callers"] else BLOCKED

    def own(s):
        assert not s[f"freed{number}"], "memory is touched of a thread that has ended"

    def idle(s, _):
        own(s)
        return s[f"run{number}"] == 0

    def read(s, me):
        own(s)
        me["for"], me["device"] = s[f"run{number}"], s[f"device{number}"]
        return "die" if me["for"] == END_OF_LIFE else None

    def run(s, me):
        assert not s[f"gone{me['for']}"], "memory is touched of a run that has ended"
        ran = list(s[f"ran{me['for']}"])
        ran[me["device"]] += 1
        assert ran[me["device"]] == 1, "a device runs twice"
        s[f"ran{me['for']}"] = tuple(ran)
        del me["device"]

    def clear(s, _):
        own(s)
        s[f"run{number}"] = 0

    def rest(s, me):
        if s["list_locked"]:
            return BLOCKED
        own(s)
        me["stays"] = int(rests(s, number, most))
        return None

    def lock(s, me):
        assert not s[f"gone{me['for']}"], "memory is touched of a run that has ended"
        mutex = f"mutex{slots[me['for']]}"
        if s[mutex]:
            return BLOCKED
        s[mutex] = 1
        return None

    def count(s, me):
        assert not s[f"gone{me['for']}"], "memory is touched of a run that has ended"
        place = slots[me["for"]]
        s[f"left{me['for']}"] -= 1
        if s[f"left{me['for']}"] == 0 and s[f"waits{place}"] and signals:
            s[f"waits{place}"], s[f"signal{place}"] = 0, 1

    def unlock(s, me):
        assert not s[f"gone{me['for']}"], "memory is touched of a run that has ended"
        s[f"mutex{slots[me.pop('for')]}"] = 0

    def stay(_, me):
        return "life" if me.pop("stays") else "die"

    def free(s, _):
        own(s)
        s[f"freed{number}"] = 1

    def die(s, _):
        s["alive"] -= 1
        return END

    waits = [(None, clear), (None, rest)] if clears_first else [(None, rest), (None, clear)]
    counts = [(None, lock), (None, count), (None, unlock)]
    return [
        (None, born),
        ("life", lambda _, __: None),
        *sleep("nap", number, idle),
        (None, read),
        *wakes("wake", devices, locked=locked),
        (None, run),
        *([*waits, *counts] if rests_first else [*counts, *waits]),
        (None, stay),
        ("die", free),
        (None, die),
    ]


def caller(runs, devices, place, *, most, threads, lacks=False, locked=True, lets_go=True):
    """``xlakit_run_devices`` for each of its runs; ``place`` is where it sleeps, ``threads`` how many there can be.

    lacks: whether these may be too few.
    """
    program = []
    for r in runs:

        def take(s, me, r=r):
            if s["list_locked"]:
                return BLOCKED
            if s["idle"]:
                found, s["idle"] = s["idle"][-1], s["idle"][:-1]
            elif s["made"] < threads:
                found, s["made"], s["alive"] = s["made"], s["made"] + 1, s["alive"] + 1
            else:
                return f"too few{r}"
            s[f"workers{r}"] = (*s[f"workers{r}"], found)
            return None

        def start(s, me, r=r):
            s[f"left{r}"] = devices - 1
            me.update({"for": r, "device": 0})

        def work(s, me, r=r):
            s[f"ran{r}"] = (1, *s[f"ran{r}"][1:])
            me.clear()

        def some_left(s, _, r=r):
            return s[f"left{r}"] != 0

        def look(s, me, r=r, some_left=some_left):
            return None if some_left(s, me) else f"last{r}"

        def last(s, _):
            # The mutex is taken and given back.
            return BLOCKED if s[f"mutex{place}"] and lets_go else None

        def gone(s, _, r=r):
            assert s[f"ran{r}"] == (1,) * devices, "a device has not run"
            s[f"gone{r}"] = 1
            return f"end{r}"

        def too_few(s, me, r=r):
            assert lacks, "a thread that waits is not found"
            me["back"] = me.get("back", 0) + 1
            if me["back"] > len(s[f"workers{r}"]):
                me.clear()
                return f"end{r}"
            return None

        def put_back(s, me, r=r):
            if s["list_locked"]:
                return BLOCKED
            return f"too few{r}" if rests(s, s[f"workers{r}"][me["back"] - 1], most) else None

        def target(s, me, r=r):
            return s[f"workers{r}"][me["back"] - 1]

        program += [(None, take)] * (devices - 1)
        program += [(None, start), *wakes(f"wake{r}", devices, locked=locked), (None, work), (None, look)]
        program += [*sleep(f"await{r}", place, some_left), (f"last{r}", last), (None, gone)]
        program += [(f"too few{r}", too_few), (None, put_back)]
        program += give(f"back{r}", target, lambda _, __: (END_OF_LIFE, 0), locked=locked)
        program += [(None, lambda _, __, r=r: f"too few{r}"), (f"end{r}", lambda _, __: None)]

    def over(s, _):
        s["over"] += 1

    return [*program, (None, over)]


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
