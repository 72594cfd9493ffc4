"""The rendezvous of devices at collectives, in native code.

The devices of a run are in one process, so an arrival at a collective is one address: that of the device's table
(pointers to its operands, then to its results). The first device that sees that all members of its group have arrived,
and claims the slot, computes the collective for all of them with a kernel on the slot, on the thread pool if it is
large; the others sleep, so the processors are free for it. After completion no arrival is read or written.

Each worker of a run, a thread, has a share of the devices (shares.py). A device that is alone in its share waits by
blocking its thread. Several devices of a share are fibers; one that waits leaves the thread to the next one.

A slot serves one rendezvous after another, its generations. Within one generation it passes through these states:

    ============  =====================================================  ==========================================
    state         condition (generation g, group of n)                   next
    ============  =====================================================  ==========================================
    open          arrived < (g + 1) * n                                  a device arrives: ``arrived`` + 1
    full          arrived = (g + 1) * n, claimed = g                     one compare-exchange: ``claimed`` = g + 1
    computing     claimed = g + 1, completed = g                         the kernel is done: ``completed`` = g + 1
    complete      completed = g + 1                                      all wake; generation g + 1 is open
    abandoned     claimed = NEVER, from any state but computing          none: the run has failed
    ============  =====================================================  ==========================================

``xlakit_collective(context, site, table, kernel, tasks, grain, number) -> status`` is a complete rendezvous. An async
pair is ``xlakit_collective_start(context, site, table) -> generation``, which arrives and never waits, and
``xlakit_collective_done(context, site, table, kernel, tasks, grain, number, generation) -> status``.

Each group of a site has a slot of the run. No member can arrive for the next generation before this one is complete,
so counters that only grow tell generations apart. A kernel is ``void(ptr slot, i64 begin, i64 end)``.

A device that has waited for a while waits in Python (a host call of WAIT + number): Python knows whether the missing
members can still arrive, handles signals, and stops the run after a failure. In a run that native code began this
happens only if its devices wait for each other (deadlocks.py). Stopping a run claims its slots with NEVER: then no
kernel reads the memory of a device that has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xlakit.cpu.llvm import I1, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import ALWAYS_INLINE, COLD, NO_INLINE
from xlakit.cpu.runtime import waiting
from xlakit.cpu.runtime.context import CONTEXT, Status
from xlakit.cpu.runtime.devices.fibers import FIBER, FiberState, current_fiber, leave_fiber
from xlakit.cpu.runtime.record import Record

# The state that the devices of a run share. The parking slots of the workers follow, as many as there are devices, then
# TABLES with a word for each device, then the slots. watched: not 0 once Python watches the run. slots, end: the
# offsets of the begin and the end of the slots. left: workers that have not ended, under the mutex of the first parking
# slot. limit: the number of threads that the kernels of each may use. workers: the number of workers. next: the next
# free run. detached: not 0 if Python must never wait for it; deadlocked: not 0 if that run stopped because of a
# deadlock. claimed: of a run without collectives the devices that workers have claimed. origins, arguments, results,
# statuses: tables with a word for each device: context, arrays, and final status.
RUN = Record(
    stop=1, watched=1, devices=1, slots=1, end=1, left=1, limit=1, workers=1,
    origins=1, arguments=1, results=1, statuses=1, next=1, detached=1, deadlocked=1, claimed=1,
)  # fmt: skip
PARKING_SLOT_BYTES = -(-waiting.PARKING_SLOT.size // 64) * 64

# arrived, claimed and completed count over all generations. count: the number of members. faulty: not 0 if a kernel
# found invalid values. An ARRIVAL for each member follows.
SLOT = Record(arrived=1, claimed=1, completed=1, count=1, faulty=1, _line=3)
# The address of the member's table, the number of its arrivals, and the index in the group of the member whose data it
# receives.
ARRIVAL = Record(table=1, times=1, source=1, _fill=1)
# The value of ``claimed`` in a run that has failed.
NEVER = -1

# A device's view of its group at a collective: the offset of its slot in the run, its index in the group, the number of
# members, the offset from here of the members' device numbers, and its ``source``, -1 for none.
SITE = Record(slot=1, index=1, count=1, members=1, source=1)

# The numbers of host calls: WAIT + n, a long wait at collective n; STUCK, a wait of all devices of a share; LEAVE, the
# end of a device of a run that Python watches; FINISH, the end of a run that Python watches or that has failed.
WAIT = 1 << 32
STUCK = 1 << 33
LEAVE = STUCK + 1
FINISH = STUCK + 2
# The arguments of a host call: addresses, the number of the device or of the worker, the generation, and whether an
# exception is set.
NOTICE = Record(run=1, ordinal=1, slot=1, generation=1, site=1, raised=1)

# The tables of a run: threads of the workers, fibers of the devices, and space for the tables that RUN points to. For
# deadlocks.py, of each device: the number of begins and ends of its waits, and the slot and generation of its last
# wait.
TABLES = ("threads", "fibers", "arguments", "results", "statuses", "waits", "waiting_at", "generations")

# How long a device spins until the others arrive before it sleeps, and sleeps before it waits in Python.
SPIN_NANOSECONDS = 20_000
SLEEP_NANOSECONDS = 20_000_000


def run_bytes(devices: int) -> int:
    """The offset of the slots in a run."""
    return RUN.size + devices * PARKING_SLOT_BYTES + -(-8 * len(TABLES) * devices // 64) * 64


def slot_bytes(count: int) -> int:
    """The size in bytes of a slot for ``count`` members."""
    return -(-(SLOT.size + count * ARRIVAL.size) // 64) * 64


def slot_bytes_of(count: Value) -> Value:
    """The same in generated code."""
    return (count * ARRIVAL.size + (SLOT.size + 63)) & -64


def arrival_at(fn: Function, slot: Value, index: Value | int) -> Value:
    """The ARRIVAL of a member."""
    arrivals = fn.at(slot, I64, SLOT.size // 8)
    return fn.at(arrivals, I64, index * (ARRIVAL.size // 8))


def parking_slot_at(fn: Function, run: Value, worker: Value | int) -> Value:
    """The parking slot of a worker."""
    return fn.at(fn.at(run, I64, RUN.size // 8), I64, worker * (PARKING_SLOT_BYTES // 8))


def table_at(fn: Function, run: Value, name: str) -> Value:
    """The table of a run with this name in TABLES."""
    devices = RUN.load(fn, run, "devices")
    return fn.at(parking_slot_at(fn, run, devices), I64, devices * TABLES.index(name))


def worker_of(fn: Function, run: Value, device: Value) -> Value:
    """The worker whose share has a device: the share of worker w of n begins at w / n of all devices."""
    workers, devices = RUN.load(fn, run, "workers"), RUN.load(fn, run, "devices")
    is_alone = workers.eq(devices)
    return fn.if_else(is_alone, lambda: (device,), lambda: (device * workers // devices,))[0]


def first_of(fn: Function, run: Value, worker: Value) -> Value:
    """The first device of a worker's share; for the number of workers, the number of devices."""
    workers, devices = RUN.load(fn, run, "workers"), RUN.load(fn, run, "devices")
    return (worker * devices + workers - 1) // workers


def emit_rendezvous(module: Module) -> None:
    """Write the functions into a module that has the functions of the pool, of contexts and of host calls."""
    module.global_data("rendezvous_processors", 8)
    _emit_start(module)
    _emit_stop(module)
    _emit_close(module)
    _emit_wake_members(module)
    _emit_claim(module)
    _emit_perform(module)
    _emit_arrive(module)
    _emit_linger(module)
    _emit_wait_in_python(module)
    _emit_await(module)
    _emit_collective(module)
    _emit_sleep(module)


def emit_rendezvous_start(fn: Function, processors: Value) -> None:
    """Set the number of processors."""
    fn.store(processors, fn.address("rendezvous_processors"))


def _get(fn: Function, record: Record, base: Value, name: str) -> Value:
    return fn.atomic_load(I64, record.at(fn, base, name), "seq_cst")


def _emit_start(module: Module) -> None:
    """``xlakit_run_start(ptr run, i64 devices, i64 slots, i64 end)``: initialize memory, zero but for slots' counts."""
    fn, run, devices, slots, end = module.begin("xlakit_run_start", VOID, [PTR, I64, I64, I64], external=True)
    for name, value in (("devices", devices), ("workers", devices), ("slots", slots), ("end", end)):
        RUN.store(fn, run, name, value)
    with fn.loop(0, devices) as each:
        waiting.make_parking_slot(fn, parking_slot_at(fn, run, each.index))


def _emit_stop(module: Module) -> None:
    """``xlakit_run_stop(ptr run)``: make all devices stop where they wait or loop; ``run_has_stopped(ptr run)``."""
    fn = module.function("run_has_stopped", I1, [PTR])
    fn.ret(_get(fn, RUN, fn.parameters[0], "stop").ne(0))

    # Devices that end from now on notify Python; Python finds those that have ended before in the table of statuses.
    fn = module.function("xlakit_run_watch", VOID, [PTR], external=True)
    fn.atomic_store(fn.i64(1), RUN.at(fn, fn.parameters[0], "watched"), "seq_cst")

    fn, run = module.begin("xlakit_run_stop", VOID, [PTR], external=True)
    fn.atomic_store(fn.i64(1), RUN.at(fn, run, "stop"), "seq_cst")
    with fn.loop(0, RUN.load(fn, run, "workers")) as each:
        waiting.wake(fn, parking_slot_at(fn, run, each.index))


def _emit_close(module: Module) -> None:
    """``xlakit_run_close(ptr run)``: stop, and wait until no kernel reads or writes arrays any more."""
    fn, run = module.begin("xlakit_run_close", VOID, [PTR], external=True, attributes=(NO_INLINE, COLD))
    fn.call("xlakit_run_stop", VOID, run)
    end = RUN.load(fn, run, "end")
    with fn.while_((RUN.load(fn, run, "slots"),), lambda iteration: iteration.carried[0] < end) as iteration:
        slot = fn.at(run, I64, iteration.carried[0] >> 3)
        claimed = SLOT.at(fn, slot, "claimed")

        def busy(slot: Value = slot, claimed: Value = claimed) -> Value:
            """Abandon the slot; gives whether a device computes in it, so that the caller must wait."""
            claim = fn.atomic_load(I64, claimed, "seq_cst")
            free = claim.eq(_get(fn, SLOT, slot, "completed"))

            def kill() -> tuple[Value]:
                return (~fn.compare_exchange(claimed, claim, fn.i64(NEVER))[1],)

            return fn.if_else(free, kill, lambda: (claim.ne(NEVER),))[0]

        with fn.while_((), lambda _, busy=busy: busy()):
            waiting.yield_processor(fn)
        iteration.next(iteration.carried[0] + slot_bytes_of(SLOT.load(fn, slot, "count")))


def _emit_wake_members(module: Module) -> None:
    """``wake_members(ptr run, ptr site)``: wake the workers of all members except the caller."""
    fn, run, site = module.begin("wake_members", VOID, [PTR, PTR])
    members = fn.at(site, I64, SITE.load(fn, site, "members") >> 3)
    caller = SITE.load(fn, site, "index")
    with fn.loop(0, SITE.load(fn, site, "count")) as each:
        with fn.if_(each.index.ne(caller)):
            device = fn.load(I64, fn.at(members, I64, each.index))
            waiting.wake(fn, parking_slot_at(fn, run, worker_of(fn, run, device)))


def _emit_claim(module: Module) -> None:
    """``claim(ptr slot, i64 generation, i64 value) -> i1``: whether the caller decides the outcome of a generation."""
    fn, slot, generation, value = module.begin("claim", I1, [PTR, I64, I64], attributes=(ALWAYS_INLINE,))
    fn.ret(fn.compare_exchange(SLOT.at(fn, slot, "claimed"), generation, value)[1])


def _emit_perform(module: Module) -> None:
    """``perform(ptr run, ptr site, ptr slot, i64 generation, ptr kernel, i64 tasks, i64 grain)``: compute, wake all."""
    fn = module.function("perform", VOID, [PTR, PTR, PTR, I64, PTR, I64, I64])
    run, site, slot, generation, kernel, tasks, grain = fn.parameters
    fn.call("compute", VOID, kernel, slot, tasks, grain)
    fn.atomic_store(generation + 1, SLOT.at(fn, slot, "completed"), "seq_cst")
    fn.call("wake_members", VOID, run, site)

    fn, kernel, slot, tasks, grain = module.begin("compute", VOID, [PTR, PTR, I64, I64])
    with fn.if_(grain < tasks):
        fn.call("xlakit_parallel", VOID, kernel, slot, tasks, grain)
    with fn.if_(grain >= tasks):
        fn.call_pointer(kernel, VOID, slot, fn.i64(0), tasks)


def _emit_arrive(module: Module) -> None:
    """``arrive(ptr site, ptr slot, ptr table) -> i64``, which gives the generation, and ``xlakit_collective_start``."""
    fn, site, slot, table = module.begin("arrive", I64, [PTR, PTR, PTR], attributes=(ALWAYS_INLINE,))
    # All earlier generations of this device are complete, and this one cannot complete without it.
    generation = _get(fn, SLOT, slot, "completed")
    arrival = arrival_at(fn, slot, SITE.load(fn, site, "index"))
    fn.store(table, ARRIVAL.at(fn, arrival, "table"))
    ARRIVAL.store(fn, arrival, "source", SITE.load(fn, site, "source"))
    fn.atomic_store(generation + 1, ARRIVAL.at(fn, arrival, "times"))
    fn.atomic_update("add", SLOT.at(fn, slot, "arrived"), fn.i64(1))
    fn.ret(generation)

    fn, context, site, table = module.begin("xlakit_collective_start", I64, [PTR, PTR, PTR], external=True)
    count = SITE.load(fn, site, "count")
    fn.return_if(count <= 1, fn.i64(0))
    run = CONTEXT.pointer(fn, context, "run")
    slot = _slot(fn, run, site)
    generation = fn.call("arrive", I64, site, slot, table)
    # The last arrival wakes the members that sleep; one of them computes, while this device continues.
    with fn.if_(_all_arrived(fn, slot, site, generation)):
        fn.call("wake_members", VOID, run, site)
    fn.ret(generation)


def _slot(fn: Function, run: Value, site: Value) -> Value:
    return fn.at(run, I64, SITE.load(fn, site, "slot") >> 3)


def _all_arrived(fn: Function, slot: Value, site: Value, generation: Value) -> Value:
    return _get(fn, SLOT, slot, "arrived") >= (generation + 1) * SITE.load(fn, site, "count")


def _emit_linger(module: Module) -> None:
    """``linger(ptr run, ptr site, ptr slot, i64 generation, i64 number, ptr parking) -> i1``: wait briefly.

    Waits for arrivals, and gives whether members are still missing after that; a fiber leaves until all have arrived or
    the run stops. ``absent`` and ``incomplete`` are the conditions of waits; ``await_completion`` waits on the second.
    """
    fn, run, site, slot, generation = module.begin("absent", I1, [PTR, PTR, PTR, I64], attributes=(ALWAYS_INLINE,))
    fn.ret(~_all_arrived(fn, slot, site, generation) & _get(fn, RUN, run, "stop").eq(0))

    fn, slot, generation = module.begin("incomplete", I1, [PTR, I64], attributes=(ALWAYS_INLINE,))
    fn.ret(_get(fn, SLOT, slot, "completed") <= generation)

    fn, run, site, slot, generation, number, parking = module.begin("linger", I1, [PTR, PTR, PTR, I64, I64, PTR])

    def absent() -> Value:
        return fn.call("absent", I1, run, site, slot, generation)

    fiber = current_fiber(fn)
    with fn.if_(fiber.ne(fn.null())):
        fn.store(site, FIBER.at(fn, fiber, "site"))
        fn.store(slot, FIBER.at(fn, fiber, "slot"))
        FIBER.store(fn, fiber, "generation", generation)
        FIBER.store(fn, fiber, "number", number)
        leave_fiber(fn, fiber, FiberState.AWAITS_MEMBERS)
        fn.ret(fn.constant(I1, 0))
    spin_briefly(fn, run, absent)
    late = absent()
    fn.return_if(~late, late)
    waiting.sleep(fn, parking, absent, fn.i64(SLEEP_NANOSECONDS))
    fn.ret(absent())

    fn, run, slot, generation, parking = module.begin("await_completion", VOID, [PTR, PTR, I64, PTR])

    def incomplete() -> Value:
        return fn.call("incomplete", I1, slot, generation)

    fn.return_if(~incomplete())
    fiber = current_fiber(fn)
    with fn.if_(fiber.ne(fn.null())):
        fn.store(slot, FIBER.at(fn, fiber, "slot"))
        FIBER.store(fn, fiber, "generation", generation)
        leave_fiber(fn, fiber, FiberState.AWAITS_RESULT)
    spin_briefly(fn, run, incomplete)
    with fn.if_(incomplete()):
        waiting.sleep(fn, parking, incomplete)


def spin_briefly(fn: Function, run: Value, pending: Callable[[], Value]) -> None:
    """Wait briefly: spinning if each worker has a processor, else yielding to the other threads."""
    crowded = RUN.load(fn, run, "workers") > fn.load(I64, fn.address("rendezvous_processors"))
    waiting.spin(fn, pending, fn.i64(SPIN_NANOSECONDS), crowded)


def _emit_wait_in_python(module: Module) -> None:
    """``wait_in_python(ptr context, ptr site, ptr slot, i64 generation, i64 number) -> i64``: a host call; its status.

    A run that native code began looks for a deadlock first, and makes the host call only if it finds one.
    """
    fn = module.function("wait_in_python", I64, [PTR, PTR, PTR, I64, I64], attributes=(NO_INLINE, COLD))
    context, site, slot, generation, number = fn.parameters
    notice = fn.alloca(I64, NOTICE.size // 8)
    run = CONTEXT.load(fn, context, "run")
    fn.return_if(~fn.call("needs_python", I1, run.cast("inttoptr", PTR)), fn.i64(Status.DONE))
    for name, value in (
        ("run", run),
        ("ordinal", CONTEXT.load(fn, context, "ordinal")),
        ("slot", slot.cast("ptrtoint", I64)),
        ("generation", generation),
        ("site", site.cast("ptrtoint", I64)),
    ):
        NOTICE.store(fn, notice, name, value)
    fn.ret(fn.call("xlakit_host_call", I64, context, number + WAIT, notice))


def _ret_together_or_alone(fn: Function, together: Callable[[], tuple[Value]], alone: Sequence[Value]) -> None:
    """Return the status of a collective: of several members, or of a single member that computes it with ``alone``."""
    several = SITE.load(fn, alone[0], "count") > 1
    fn.ret(*fn.if_else(several, together, lambda: (fn.call("alone", I64, *alone),)))


def _emit_await(module: Module) -> None:
    """``xlakit_collective_done`` and ``conclude``, the part of a rendezvous after the arrival."""
    fn = module.function("xlakit_collective_done", I64, [PTR, PTR, PTR, PTR, I64, I64, I64, I64], external=True)
    context, site, table, kernel, tasks, grain, number, generation = fn.parameters

    def together() -> tuple[Value]:
        run = CONTEXT.pointer(fn, context, "run")
        return (
            fn.call("conclude", I64, context, site, _slot(fn, run, site), generation, kernel, tasks, grain, number),
        )

    _ret_together_or_alone(fn, together, (site, table, kernel, tasks, grain))

    fn = module.function("conclude", I64, [PTR, PTR, PTR, I64, PTR, I64, I64, I64])
    context, site, slot, generation, kernel, tasks, grain, number = fn.parameters
    run = CONTEXT.pointer(fn, context, "run")
    parking = parking_slot_at(fn, run, worker_of(fn, run, CONTEXT.load(fn, context, "ordinal")))

    # Until all members have arrived, or Python gives a status other than DONE.
    device, waits = CONTEXT.load(fn, context, "ordinal"), fn.call("absent", I1, run, site, slot, generation)
    with fn.if_(waits):
        fn.call("begin_wait", VOID, run, device, slot, generation)
    start = waits, fn.i64(Status.DONE)
    with fn.while_(start, lambda iteration: iteration.carried[0] & iteration.carried[1].eq(Status.DONE)) as iteration:
        late = fn.call("linger", I1, run, site, slot, generation, number, parking)

        def ask() -> tuple[Value]:
            return (fn.call("wait_in_python", I64, context, site, slot, generation, number),)

        (status,) = fn.if_else(late, ask, lambda: (fn.i64(Status.DONE),))
        iteration.next(fn.call("absent", I1, run, site, slot, generation), status)
    status = iteration.results[1]
    with fn.if_(waits):
        fn.call("end_wait", VOID, run, device)
    all_arrived = _all_arrived(fn, slot, site, generation) & status.eq(Status.DONE)
    claimed = fn.call("claim", I1, slot, generation, fn.select(all_arrived, generation + 1, fn.i64(NEVER)))

    def perform() -> tuple[Value]:
        fn.call("perform", VOID, run, site, slot, generation, kernel, tasks, grain)
        return (_outcome(fn, slot),)

    def abandon() -> tuple[Value]:
        return (fn.select(status.eq(Status.DONE), fn.i64(Status.INTERRUPTED), status),)

    def wait() -> tuple[Value, ...]:
        is_abandoned = _get(fn, SLOT, slot, "claimed").eq(NEVER)
        with fn.if_(~is_abandoned):
            fn.call("await_completion", VOID, run, slot, generation, parking)

        def complete() -> tuple[Value]:
            return (fn.select(status.eq(Status.DONE), _outcome(fn, slot), status),)

        return fn.if_else(is_abandoned, abandon, complete)

    fn.ret(*fn.if_else(claimed, lambda: fn.if_else(all_arrived, perform, abandon), wait))


def _outcome(fn: Function, slot: Value) -> Value:
    """The status of a collective after its kernel."""
    return fn.select(SLOT.load(fn, slot, "faulty").ne(0), fn.i64(Status.FAULTY), fn.i64(Status.DONE))


def _emit_collective(module: Module) -> None:
    """``xlakit_collective``, described above, and ``alone`` for a device whose group has no other member."""
    fn = module.function("alone", I64, [PTR, PTR, PTR, I64, I64], attributes=(NO_INLINE,))
    site, table, kernel, tasks, grain = fn.parameters
    slot = fn.alloca(I64, slot_bytes(1) // 8)
    SLOT.store(fn, slot, "count", fn.i64(1))
    arrival = arrival_at(fn, slot, 0)
    fn.store(table, ARRIVAL.at(fn, arrival, "table"))
    ARRIVAL.store(fn, arrival, "source", SITE.load(fn, site, "source"))
    SLOT.store(fn, slot, "faulty", fn.i64(0))
    fn.call("compute", VOID, kernel, slot, tasks, grain)
    fn.ret(_outcome(fn, slot))

    fn = module.function("xlakit_collective", I64, [PTR, PTR, PTR, PTR, I64, I64, I64], external=True)
    context, site, table, kernel, tasks, grain, number = fn.parameters

    def together() -> tuple[Value]:
        run = CONTEXT.pointer(fn, context, "run")
        slot = _slot(fn, run, site)
        generation = fn.call("arrive", I64, site, slot, table)
        return (fn.call("conclude", I64, context, site, slot, generation, kernel, tasks, grain, number),)

    _ret_together_or_alone(fn, together, (site, table, kernel, tasks, grain))


def _emit_sleep(module: Module) -> None:
    """``xlakit_rendezvous_sleep(ptr notice, i64 nanoseconds)``: for Python, sleep until all arrive or the run stops.

    It is called on the thread of a device that is alone in its share.
    """
    fn, notice, nanoseconds = module.begin("xlakit_rendezvous_sleep", VOID, [PTR, I64], external=True)
    run, slot, site = (NOTICE.pointer(fn, notice, name) for name in ("run", "slot", "site"))
    generation = NOTICE.load(fn, notice, "generation")

    def absent() -> Value:
        return fn.call("absent", I1, run, site, slot, generation)

    parking = parking_slot_at(fn, run, worker_of(fn, run, NOTICE.load(fn, notice, "ordinal")))
    with fn.if_(absent()):
        waiting.sleep(fn, parking, absent, nanoseconds)
