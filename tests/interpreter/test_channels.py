"""Channels that several pairs of programs use: pairs that run together keep to themselves, others wait their turn."""

import threading
import time

import pytest
from evaluating import build, ints, shape

import xlakit as xla

S32 = shape(xla.S32)


@pytest.fixture(params=["interpreter", "cpu"])
def pair(request):
    """A program that sends its argument on channel 1 of an execution context, and one that receives there."""
    execution_context = xla.ExecutionContext(timeout=10)
    builder = xla.XlaBuilder("receives")
    receives = builder.build(xla.recv(builder, S32, 1))
    return tuple(
        xla.compile(program, backend=request.param, execution_context=execution_context)
        for program in (build(lambda x: (xla.send(x, 1), x)[1], S32), receives)
    )


def test_pairs_that_run_together_at_one_time_do_not_mix(pair):
    sends, receives = pair
    wrong = []

    def run(first):
        for number in range(first, first + 20):
            got, _ = xla.run_together((receives, []), (sends, [ints(number)]))
            wrong.extend([number] * (int(got) != number))

    threads = [threading.Thread(target=run, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_programs_at_one_end_are_an_error(pair):
    sends, receives = pair
    with pytest.raises(xla.ExecutionError, match="'receives' and 'receives' run at one time, and both receive on chan"):
        # Were something sent, one of them might have it and be gone before the other begins.
        xla.run_together((receives, []), (receives, []))
    got = []
    waiting = threading.Thread(target=lambda: got.append(int(receives())))
    waiting.start()
    while not receives.execution_context._waits:
        time.sleep(0.001)
    with pytest.raises(xla.ExecutionError, match="both receive on channel 1"):
        receives()
    # The first one does not mind.
    sends(ints(5))
    waiting.join()
    assert got == [5]


class Slow:
    """An executable whose errors come late."""

    def __init__(self, executable, told):
        self.executable, self.told = executable, told

    def __getattr__(self, name):
        return getattr(self.executable, name)

    def __call__(self, *arguments, donate=()):
        try:
            return self.executable(*arguments)
        finally:
            self.told.set()
            time.sleep(0.1)


@pytest.mark.parametrize(("late", "expected"), [("the reason", "the reason"), (None, "all wait")])
def test_an_error_is_raised_and_not_the_deadlock_that_it_makes(late, expected):
    text = 'ENTRY e { ROOT x = s32[] custom-call(), custom_call_target="acts", custom_call_has_side_effect=true }'
    module = xla.HloModule.from_text(text)
    told = threading.Event()

    def waits():
        told.wait()
        raise xla.DeadlockError("all wait")

    def ends():
        if late is not None:
            raise xla.ExecutionError(late)
        return 0

    first, second = (
        xla.compile(module, backend="interpreter", custom_calls={"acts": function}) for function in (waits, ends)
    )
    with pytest.raises(xla.ExecutionError, match=expected):
        xla.run_together((first, []), (Slow(second, told), []))
