"""Faults to inject: programs that fail while they run, and what still works in the same execution context afterwards.

A case is a function of a :class:`fuzz.support.fault_bench.Bench`; it gives what goes wrong, and a test of what works
when it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.support.fault_bench import CASES, S32, Bench, Injection, beside_idle_thread, interrupted_soon

_case = CASES.case


def _on_replica(number: int, x: Any, function: Callable[[Any], Any], otherwise: Callable[[Any], Any]) -> Any:
    return xla.conditional(xla.eq(xla.replica_id(x.builder), number), x, function, x, otherwise)


def _total(value: Any) -> Any:
    return xla.all_reduce(value, xla.add)


def _gathered(value: Any) -> Any:
    return xla.reduce_all(xla.all_gather(xla.reshape(value, [1]), 0, 2), 0, xla.add)


def _same(value: Any) -> Any:
    return value


def _all_equal(results: list[Any], expected: int) -> bool:
    return all(int(r) == expected for r in results)


# -- replicas and collectives ------------------------------------------------------------------------


@_case("a replica raises", xla.ExecutionError, "custom call 'fails' raised ZeroDivisionError: on replica two")
def _raises(bench: Bench) -> Injection:
    def fails(x: Any) -> Any:
        if x == 2:
            raise ZeroDivisionError("on replica two")
        return x

    executable = bench.compile(
        lambda b, x: _total(xla.custom_call(b, "fails", [x], S32)), S32, num_replicas=3, custom_calls={"fails": fails}
    )
    return (
        lambda: executable.execute_replicated([[0], [1], [2]]),
        lambda: _all_equal(executable.execute_replicated([[0], [1], [3]]), 4),
    )


@_case("a replica raises while another loops for ever", xla.ExecutionError, "raised ValueError: enough")
def _raises_beside_a_loop(bench: Bench) -> Injection:
    def fails(x: Any) -> Any:
        raise ValueError("enough")

    def run(b: Any, x: Any) -> Any:
        return _on_replica(
            0,
            x,
            lambda v: xla.conditional(v > 0, v, lambda w: xla.custom_call(w.builder, "fails", [w], S32), v, _same),
            lambda v: xla.while_(lambda w: w > 0, _same, v),
        )

    executable = bench.compile(run, S32, num_replicas=2, custom_calls={"fails": fails})
    return lambda: executable(1), lambda: _all_equal(executable(0), 0)


@_case(
    "a collective that some replicas never reach",
    xla.DeadlockError,
    "replica 0 of program waits in all-reduce 'all-reduce.* at .*fault_cases.py:[0-9]+ for replica 1; replica 2",
    "replica 1, replica 2 of program have ended",
)
def _not_reached(bench: Bench) -> Injection:
    def run(b: Any, x: Any, skip: Any) -> Any:
        return xla.conditional(xla.or_(xla.eq(xla.replica_id(b), 0), xla.eq(skip, 0)), x, _total, x, _same)

    executable = bench.compile(run, S32, S32, num_replicas=3)
    return lambda: executable(1, 1), lambda: _all_equal(executable(1, 0), 3)


@_case(
    "collectives in different orders",
    xla.DeadlockError,
    "replica 0 of program waits in all-gather",
    "replica 1 of program waits in all-reduce",
)
def _crossed(bench: Bench) -> Injection:
    def run(b: Any, x: Any, cross: Any) -> Any:
        first = xla.and_(xla.eq(xla.replica_id(b), 0), xla.eq(cross, 1))
        return xla.conditional(first, x, lambda v: _total(_gathered(v)), x, lambda v: _gathered(_total(v)))

    executable = bench.compile(run, S32, S32, num_replicas=2)
    return lambda: executable(1, 1), lambda: _all_equal(executable(1, 0), 4)


@_case(
    "a loop that one replica runs longer",
    xla.DeadlockError,
    "replica 1 of program waits in all-gather",
    "replica 0 of program has ended",
)
def _longer(bench: Bench) -> Injection:
    executable = bench.compile(
        lambda b, x: xla.while_(lambda v: v < 10, lambda v: v + 1 + 0 * _gathered(v), x),
        S32,
        num_replicas=2,
    )
    return (
        lambda: executable.execute_replicated([[9], [0]]),
        lambda: _all_equal(executable.execute_replicated([[8], [8]]), 10),
    )


# -- channels ----------------------------------------------------------------------------------------


def _sends(channel: int) -> Callable[..., Any]:
    return lambda b, x: (xla.send(x, channel), x)[1]


def _receives(channel: int) -> Callable[..., Any]:
    return lambda b: xla.recv(b, S32, channel)


@_case(
    "a send without a recv",
    xla.DeadlockError,
    "replica 0 of program waits in send-done 'send-done.1' at .*:[0-9]+ for a recv on channel 3",
)
def _send_alone(bench: Bench) -> Injection:
    execution_context = bench.execution_context()
    sender = bench.compile(_sends(3), S32, execution_context=execution_context)
    receiver = bench.compile(_receives(3), execution_context=execution_context)
    # Nothing of the program that failed is received.
    return lambda: sender(1), lambda: _all_equal(xla.run_together((receiver, []), (sender, [2])), 2)


@_case(
    "a send that the other replica does not receive",
    xla.DeadlockError,
    "replica 0 of program waits in send-done .* for a recv of replica 1 on channel 3",
    "replica 1 of program waits in all-reduce .* for replica 0",
)
def _not_received(bench: Bench) -> Injection:
    pairs = {"_xla_send_recv_source_target_pairs": "{{0,1}}"}

    def received(v: Any) -> Any:
        with v.builder.frontend_attributes(pairs):
            return xla.recv(v.builder, S32, 3)

    def sent(v: Any) -> Any:
        with v.builder.frontend_attributes(pairs):
            xla.send(v, 3)
        return v

    def run(b: Any, x: Any) -> Any:
        return _total(_on_replica(0, x, sent, lambda v: xla.conditional(v > 0, v, received, v, _same)))

    executable = bench.compile(run, S32, num_replicas=2)
    return (
        lambda: executable.execute_replicated([[1], [0]]),
        lambda: _all_equal(executable.execute_replicated([[5], [1]]), 10),
    )


@_case("a recv without a send", xla.DeadlockError, "waits in recv-done 'recv-done.1' .* for a send on channel 3")
def _recv_alone(bench: Bench) -> Injection:
    execution_context = bench.execution_context()
    sender = bench.compile(_sends(3), S32, execution_context=execution_context)
    receiver = bench.compile(_receives(3), execution_context=execution_context)
    return receiver, lambda: _all_equal(xla.run_together((receiver, []), (sender, [2])), 2)


@_case(
    "a cycle between channels",
    xla.DeadlockError,
    "replica 0 of first waits in recv-done .* for a send on channel 2",
    "replica 0 of second waits in recv-done .* for a send on channel 1",
)
def _cycle(bench: Bench) -> Injection:
    execution_context = bench.execution_context()

    def program(name: str, mine: int, other: int, *, late: bool) -> Any:
        def run(b: Any, x: Any) -> Any:
            if late:
                received = xla.recv(b, S32, other)
                xla.send(received, mine)
                return received
            xla.send(x, mine)
            return xla.recv(b, S32, other)

        return bench.compile(run, S32, name=name, execution_context=execution_context)

    first, second = program("first", 1, 2, late=True), program("second", 2, 1, late=True)
    starter = program("starter", 2, 1, late=False)
    return (
        lambda: xla.run_together((first, [1]), (second, [1])),
        lambda: _all_equal(xla.run_together((first, [1]), (starter, [5])), 5),
    )


@_case("a recv whose sender raises", xla.ExecutionError, "raised OSError: no more")
def _sender_raises(bench: Bench) -> Injection:
    def fails(x: Any) -> Any:
        if x < 0:
            raise OSError("no more")
        return x

    execution_context = bench.execution_context()
    sender = bench.compile(
        lambda b, x: (xla.send(xla.custom_call(b, "fails", [x], S32), 3), x)[1],
        S32,
        execution_context=execution_context,
        custom_calls={"fails": fails},
    )
    receiver = bench.compile(_receives(3), execution_context=execution_context)

    def run(value: int) -> list[Any]:
        return xla.run_together((receiver, []), (sender, [value]))

    return beside_idle_thread(lambda: run(-1)), lambda: _all_equal(run(7), 7)


# -- feeds -------------------------------------------------------------------------------------------


def _fed(executable: Any, value: int) -> bool:
    executable.execution_context.clear()
    executable.execution_context.infeed(0, value)
    return int(executable()) == value


@_case(
    "an infeed that no thread can bring", xla.DeadlockError, r"waits in infeed 'infeed.1' .* for an infeed of s32\[\]"
)
def _no_infeed(bench: Bench) -> Injection:
    executable = bench.compile(lambda b: xla.infeed(b, S32))
    return executable, lambda: _fed(executable, 4)


@_case("an infeed that another thread could bring", xla.DeadlockError, "for an infeed", "XLAKIT_TIMEOUT", waits=True)
def _late_infeed(bench: Bench) -> Injection:
    executable = bench.compile(lambda b: xla.infeed(b, S32))
    return beside_idle_thread(executable), lambda: _fed(executable, 4)


@_case(
    "an infeed beside a collective",
    xla.DeadlockError,
    "replica 0 of program waits in infeed",
    "replica 1 of program waits in all-reduce .* for replica 0",
    waits=True,
)
def _infeed_beside_collective(bench: Bench) -> Injection:
    executable = bench.compile(
        lambda b, x: _total(_on_replica(0, x, lambda v: v + xla.infeed(v.builder, S32), _same)), S32, num_replicas=2
    )

    def again() -> bool:
        executable.execution_context.infeed(0, 5)
        return _all_equal(executable(1), 7)

    return beside_idle_thread(lambda: executable(1)), again


@_case("an infeed of another shape", xla.ArgumentError, r"infeed takes s32\[\], got f32\[3\]", "at: .*fault_cases.py")
def _wrong_infeed(bench: Bench) -> Injection:
    executable = bench.compile(lambda b: xla.infeed(b, S32))

    def run() -> object:
        executable.execution_context.infeed(0, np.zeros(3, np.float32))
        return executable()

    return run, lambda: _fed(executable, 4)


def _outfeeding(bench: Bench) -> Any:
    return bench.compile(
        lambda b, x: xla.while_(lambda v: v > 0, lambda v: (xla.outfeed(v), v - 1)[1], x),
        S32,
        execution_context=bench.execution_context(queue_items=2),
    )


def _outfeeds_again(executable: Any) -> Callable[[], bool]:
    def again() -> bool:
        executable.execution_context.clear()
        executable(2)
        return [int(executable.execution_context.outfeed()) for _ in range(2)] == [2, 1]

    return again


@_case(
    "a full outfeed that no thread can empty",
    xla.DeadlockError,
    "waits in outfeed .* for room in its outfeed, .* 2 val",
)
def _full_outfeed(bench: Bench) -> Injection:
    executable = _outfeeding(bench)
    return lambda: executable(5), _outfeeds_again(executable)


@_case("a full outfeed that another thread could empty", xla.DeadlockError, "for room in its outfeed", waits=True)
def _late_outfeed(bench: Bench) -> Injection:
    executable = _outfeeding(bench)
    return beside_idle_thread(lambda: executable(5)), _outfeeds_again(executable)


@_case("a full infeed that nothing empties", xla.DeadlockError, "no room in the infeed of device 0.* holds 1 value")
def _full_infeed(bench: Bench) -> Injection:
    executable = bench.compile(lambda b: xla.infeed(b, S32), execution_context=bench.execution_context(queue_items=1))

    def run() -> None:
        for number in range(2):
            executable.execution_context.infeed(0, number)

    return run, lambda: _fed(executable, 4)


# With other threads in the process, which may fill it, nothing comes for the time limit.
@_case("an outfeed that nothing fills", xla.DeadlockError, "the outfeed of device 0 (is empty|for [0-9.]+ seconds)")
def _no_outfeed(bench: Bench) -> Injection:
    executable = _outfeeding(bench)
    return executable.execution_context.outfeed, _outfeeds_again(executable)


# -- custom calls ------------------------------------------------------------------------------------


def _calling(bench: Bench, *results: Any) -> Any:
    """A program that calls a function which gives these results, or raises them, one after the other."""
    left = list(results)

    def function(x: Any) -> Any:
        result = left.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    return bench.compile(lambda b, x: xla.custom_call(b, "given", [x], S32), S32, custom_calls={"given": function})


@_case("a custom call that raises", xla.ExecutionError, "custom call 'given' raised KeyError: 'lost'", "at: .*:[0-9]+")
def _call_raises(bench: Bench) -> Injection:
    executable = _calling(bench, KeyError("lost"), np.int32(3))
    return lambda: executable(1), lambda: int(executable(1)) == 3


@_case(
    "a custom call that gives another shape",
    xla.ExecutionError,
    r"custom-call 'custom-call.1': the result of custom call 'given' takes s32\[\], got s32\[2\]",
)
def _wrong_shape(bench: Bench) -> Injection:
    executable = _calling(bench, np.zeros(2, np.int32), np.int32(3))
    return lambda: executable(1), lambda: int(executable(1)) == 3


@_case("a custom call that gives another type", xla.ExecutionError, r"takes s32\[\], got f64\[\]")
def _wrong_type(bench: Bench) -> Injection:
    executable = _calling(bench, np.float64(1), np.int32(3))
    return lambda: executable(1), lambda: int(executable(1)) == 3


@_case(
    "a custom call of an unknown name",
    xla.UnsupportedError,
    "no custom call is registered as 'unknown'",
    "register_custom_call",
)
def _unknown(bench: Bench) -> Injection:
    def compiled(**functions: Any) -> Any:
        return bench.compile(lambda b, x: xla.custom_call(b, "unknown", [x], S32), S32, custom_calls=functions)

    return compiled, lambda: int(compiled(unknown=lambda x: x)(5)) == 5


# -- Ctrl-C ------------------------------------------------------------------------------------------


def _interrupt(name: str) -> Callable[[Callable[[Bench], Injection]], Callable[[Bench], Injection]]:
    return _case(f"Ctrl-C {name}", KeyboardInterrupt)


@_interrupt("in an infeed")
def _stop_infeed(bench: Bench) -> Injection:
    executable = bench.compile(lambda b: xla.infeed(b, S32), execution_context=xla.ExecutionContext(timeout=60))
    return interrupted_soon(executable), lambda: _fed(executable, 4)


@_interrupt("in a full outfeed")
def _stop_outfeed(bench: Bench) -> Injection:
    bench = Bench(bench.backend, 60)
    executable = _outfeeding(bench)
    return interrupted_soon(lambda: executable(5)), _outfeeds_again(executable)


@_interrupt("in a collective")
def _stop_collective(bench: Bench) -> Injection:
    executable = bench.compile(
        lambda b, x: _total(_on_replica(1, x, lambda v: v + xla.infeed(v.builder, S32), _same)),
        S32,
        num_replicas=2,
        execution_context=xla.ExecutionContext(timeout=60),
    )

    def again() -> bool:
        executable.execution_context.infeed(1, 5)
        return _all_equal(executable(1), 7)

    return interrupted_soon(lambda: executable(1)), again


@_interrupt("in channels")
def _stop_channels(bench: Bench) -> Injection:
    return _stopped_channel(bench, first="recv")


@_interrupt("in a send")
def _stop_send(bench: Bench) -> Injection:
    return _stopped_channel(bench, first="send")


def _stopped_channel(bench: Bench, *, first: str) -> Injection:
    execution_context = xla.ExecutionContext(timeout=60)
    sender = bench.compile(_sends(3), S32, execution_context=execution_context)
    receiver = bench.compile(_receives(3), execution_context=execution_context)
    run: Callable[[], object] = receiver if first == "recv" else (lambda: sender(1))
    return interrupted_soon(run), lambda: _all_equal(xla.run_together((receiver, []), (sender, [2])), 2)


@_interrupt("in programs that run together")
def _stop_together(bench: Bench) -> Injection:
    execution_context = xla.ExecutionContext(timeout=60)
    sender = bench.compile(lambda b: (x := xla.infeed(b, S32), xla.send(x, 3))[0], execution_context=execution_context)
    receiver = bench.compile(_receives(3), execution_context=execution_context)

    def run() -> list[Any]:
        return xla.run_together((receiver, []), (sender, []))

    def again() -> bool:
        execution_context.infeed(0, 6)
        return _all_equal(run(), 6)

    return interrupted_soon(run), again


@_interrupt("in a loop that does not end")
def _stop_loop(bench: Bench) -> Injection:
    executable = bench.compile(lambda b, x: xla.while_(lambda v: v > 0, lambda v: v + 1 - 1, x), S32)
    return interrupted_soon(lambda: executable(1)), lambda: int(executable(0)) == 0


@_interrupt("in a custom call")
def _stop_call(bench: Bench) -> Injection:
    over = threading.Event()

    def function(x: Any) -> Any:
        if x > 0:
            while not over.wait(0.02):
                pass
        return x

    executable = bench.compile(lambda b, x: xla.custom_call(b, "f", [x], S32), S32, custom_calls={"f": function})
    return interrupted_soon(lambda: executable(1)), lambda: int(executable(0)) == 0


@_interrupt("while the host waits for an outfeed")
def _stop_host_outfeed(bench: Bench) -> Injection:
    executable = _outfeeding(Bench(bench.backend, 60))
    return interrupted_soon(executable.execution_context.outfeed), _outfeeds_again(executable)


@_interrupt("while the host waits to feed")
def _stop_host_infeed(bench: Bench) -> Injection:
    executable = bench.compile(
        lambda b: xla.infeed(b, S32), execution_context=xla.ExecutionContext(timeout=60, queue_items=1)
    )
    executable.execution_context.infeed(0, 1)
    return interrupted_soon(lambda: executable.execution_context.infeed(0, 2)), lambda: _fed(executable, 4)
