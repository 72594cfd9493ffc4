"""The thread pool's protocol (cpu/runtime/pool.py), in all orders of its steps.

The model covers: an owner that runs two jobs of two chunks each and then stops the pool, and one worker, or two for
one job of three chunks; a job's opening, joining and closing (``state``), the claims of chunks, waking as a tree and
going to sleep. Waits are without spinning, which only delays, and without limits of time, which would hide lost
wake-ups. It leaves out how workers are made, programs that are given up, and where threads run.
"""

import pytest
from interleavings import BLOCKED, END, Fault, explore, parking_slot, sleep, wake


def shares(chunks, participants):
    return tuple((p * chunks // participants, (p + 1) * chunks // participants) for p in range(participants))


def work(number, participants, name):
    """``work``: one's own chunks, then those of the others; a claim looks first, and then counts on."""

    def begin(s, me):
        # Plain loads: the job must not change while a worker is inside.
        assert s["set_up"], "a worker reads a job that is being made"
        me.update(turn=0, mine=s["job"])

    def look(s, me):
        if me["turn"] == participants:
            return f"{name}.done"
        me["participant"] = (number + me["turn"]) % participants
        following, end = s["participants"][me["participant"]]
        if following >= end:
            me["turn"] += 1
            return f"{name}.look"
        me["end"] = end
        return None

    def claim(s, me):
        participants_data = list(s["participants"])
        following, end = participants_data[me["participant"]]
        participants_data[me["participant"]] = (following + 1, end)
        s["participants"] = tuple(participants_data)
        if following >= me["end"]:
            me["turn"] += 1
            return f"{name}.look"
        me["chunk"] = following
        return None

    def run(s, me):
        assert s["job"] == me["mine"], "a worker is in the job before"
        done = list(s["done"])
        done[me["chunk"]] += 1
        assert done[me["chunk"]] == 1, "a task runs twice"
        s["done"] = tuple(done)
        return f"{name}.look"

    def end(_, me):
        for key in ("turn", "mine", "participant", "end", "chunk"):
            me.pop(key, None)

    return [(None, begin), (f"{name}.look", look), (None, claim), (None, run), (f"{name}.done", end)]


def wake_children(number, participants, name):
    children = range(2 * number + 1, min(2 * number + 3, participants))
    return [step for child in children for step in wake(f"{name}.{child}", child)]


def owner(jobs, chunks, participants, *, rechecks=True, awaits=True):
    """``run_job`` for each job, then ``xlakit_pool_stop``."""
    program = []
    for job in range(1, jobs + 1):

        def set_up(s, _):
            assert s["inside"] == 0, "a job is set up while a worker is inside"
            s["set_up"], s["participants"], s["done"] = 0, shares(chunks, participants), (0,) * chunks

        def opened(s, _, job=job):
            s["set_up"], s["job"], s["open"] = 1, job, 1

        def closed(s, _):
            s["open"] = 0

        def others(s, _, name=f"left{job}"):
            return None if s["inside"] and awaits else name

        def left(s, _):
            assert not s["inside"], "the owner leaves a worker behind"
            assert s["done"] == (1,) * chunks, "a task has not run"

        program += [(None, set_up), (None, opened), *wake_children(0, participants, f"wake{job}")]
        program += [*work(0, participants, f"work{job}"), (None, closed), (None, others)]
        program += [*sleep(f"rest{job}", 0, lambda s, _: s["inside"] != 0, checks=rechecks), (f"left{job}", left)]

    def stop(s, _):
        s["stopping"] = 1

    def tell(s, _):
        s["job"] += 1

    program += [(None, stop), (None, tell)]
    for worker in range(1, participants):
        program += wake(f"stop{worker}", worker)
    return [*program, (None, lambda _, __: END)]


def worker(number, participants, *, rechecks=True, wakes=True, joins_any=False):
    """``worker``: a life."""

    def runs(s, _):
        return END if s["stopping"] else None

    def waits(s, me):
        return s["job"] == me.get("seen", 0)

    def look(s, me):
        return None if waits(s, me) else "join"

    def read(s, me):
        me["found"] = s["job"], s["open"], s["inside"]
        if not s["open"]:
            me["seen"] = me.pop("found")[0]
            return "life"
        return None

    def join(s, me):
        if (s["job"], s["open"], s["inside"]) != me.pop("found") and not joins_any:
            return "join"
        s["inside"] += 1
        me["seen"] = s["job"]
        return None

    def leave(s, _):
        s["inside"] -= 1
        return None if wakes and (s["inside"], s["open"]) == (0, 0) else "life"

    return [
        ("life", runs),
        (None, look),
        *sleep("nap", number, waits, checks=rechecks),
        ("join", read),
        (None, join),
        *wake_children(number, participants, "children"),
        *work(number, participants, "work"),
        (None, leave),
        *wake("owner", 0),
        (None, lambda _, __: "life"),
    ]


def pool(jobs, chunks, participants, owner_changes=None, **changes):
    shared = {"job": 0, "open": 0, "inside": 0, "stopping": 0, "set_up": 0, "participants": (), "done": ()}
    for number in range(participants):
        shared.update(parking_slot(number))
    workers = [worker(n, participants, **changes) for n in range(1, participants)]

    def ended(s):
        assert s["inside"] == 0, "a worker ended inside"

    return explore(shared, [owner(jobs, chunks, participants, **(owner_changes or {})), *workers], ended)


@pytest.mark.parametrize(("jobs", "chunks", "participants"), [(2, 2, 2), (1, 2, 3)])
def test_every_order_of_steps(jobs, chunks, participants):
    assert pool(jobs, chunks, participants) > 500


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("wait for ever", {"rechecks": False}),
        ("wait for ever", {"wakes": False}),
        ("wait for ever", {"owner_changes": {"rechecks": False}}),
        ("leaves a worker behind", {"owner_changes": {"awaits": False}}),
        (
            "leaves a worker behind|a job that is being made|while a worker is inside|in the job before",
            {"joins_any": True},
        ),
    ],
    ids=["worker asks no more", "worker wakes none", "owner asks no more", "owner does not wait", "joins unseen"],
)
def test_a_protocol_without_one_of_its_steps_is_found_out(message, changes):
    with pytest.raises(Fault, match=message):
        pool(2, 2, 2, **changes)


def test_blocked_steps_change_nothing():
    def waits(s, _):
        return None if s["go"] else BLOCKED

    def go(s, _):
        s["go"] = 1
        return END

    assert explore({"go": 0}, [[(None, waits), (None, lambda _, __: END)], [(None, go)]], lambda _: None) == 4
