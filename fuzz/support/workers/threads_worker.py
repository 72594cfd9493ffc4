"""A process of :mod:`fuzz.threads`: threads compile and run the programs of a batch at once, and then one does.

One program of a batch is fed and read by the host while it starts.

``python -m fuzz.support.workers.threads_worker SEED NUMBER`` prints what is wrong, a line each.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from fuzz.programs.composed.carried import carried_program
from fuzz.programs.composed.known import known_program
from fuzz.programs.composed.modules import module as generated
from fuzz.programs.composed.sketch import Sketched

_Results = dict[str, bytes]
# What is made at the first use is made by the first of them; one through JAX takes as long as many others.
_PROGRAMS = 2
_EVERY = 4
# A program that is fed is started so often, in an execution context of its own each time.
_STARTS = 40
# The last is what Python itself has.
_TURNS_SECONDS = (1e-6, 1e-6, 1e-5, 1e-4, 5e-3)
# How often a thread waits where it enters a function, at first and of so many calls later, and for how long at most.
_WAITS, _CALLS_WITH_WAITS, _LONGEST_WAIT_SECONDS = 0.05, 100, 3e-4
# Functions in which things are made at their first use, and how often a thread waits there.
_LOOKUPS, _WAITS_IN_LOOKUPS = ("__get__", "__getattr__", "__missing__"), 0.4
# The batches in which threads do so.
_WITH_WAITS = 0.8


class Case:
    """A program, and how it is read, compiled and run; modules of the package are loaded by the threads."""

    def __init__(self, name: str, run: Callable[[], _Results]) -> None:
        self.name, self.run = name, run


def cases(seed: int, number: int, drawn: random.Random) -> list[Case]:
    """The programs of a batch."""
    if number % _EVERY == _EVERY - 1:
        return [Case(f"JAX program {number}", _through_jax(f"threads{seed}.{number}"))]
    numbers = range(_PROGRAMS * number, _PROGRAMS * (number + 1))
    return [*(_module_case(seed, n, drawn) for n in numbers), _fed_case(number, drawn)]


def _module_case(seed: int, number: int, drawn: random.Random) -> Case:
    family = drawn.choice(("carried", "known", "modules"))
    if family == "modules":
        program = generated(seed, number)
        text, given = program.text, program.arguments[0]
    else:
        sketched: Sketched = (carried_program if family == "carried" else known_program)(seed, number)
        text, given = sketched.module.to_text(), sketched.arguments
    backend = "interpreter" if drawn.random() < 0.2 else "cpu"
    is_kept = drawn.random() < 0.5

    def run() -> _Results:
        from xlakit import compile as compile_program
        from xlakit.ir.instruction import HloModule
        from xlakit.tools.inputs import flatten

        module = HloModule.from_text(text)
        compiled = compile_program(module, backend=backend, cache=is_kept, custom_calls={"record": lambda value: value})
        results = flatten(compiled(*[np.array(a) for a in given]))
        # What the passes print is read, too: they share analyses with the compiler.
        return {**_bits(results), "text": module.to_text().encode()}

    return Case(f"{family} {number} on {backend}", run)


def _fed_case(number: int, drawn: random.Random) -> Case:
    """A program that gives back what it is fed: the host and devices come to their queues at about the same time."""
    devices, values = drawn.randint(1, 3), [drawn.randint(-9, 9) for _ in range(drawn.randint(1, 3))]
    backend = drawn.choice(("interpreter", "cpu"))
    lines = ["t0 = token[] after-all()"]
    for n in range(len(values)):
        lines += [
            f"i{n} = (s32[2], token[]) infeed(t{n})",
            f"v{n} = s32[2] get-tuple-element(i{n}), index=0",
            f"s{n} = token[] get-tuple-element(i{n}), index=1",
            f"t{n + 1} = token[] outfeed(v{n}, s{n}), outfeed_shape=s32[2]",
        ]
    body = "\n".join([*lines, f"ROOT r = (s32[2], token[]) tuple(v{len(values) - 1}, t{len(values)})"])
    text = f"HloModule fed, replica_count={devices}\nENTRY e {{\n{body}\n}}"

    def run() -> _Results:
        from concurrent.futures import ThreadPoolExecutor

        from xlakit import ExecutionContext, compile as compile_program
        from xlakit.ir.instruction import HloModule

        module = HloModule.from_text(text)
        read: list[Any] = []
        for _ in range(_STARTS):
            context = ExecutionContext(timeout=20)
            compiled = compile_program(module, backend=backend, cache=False, execution_context=context)
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(compiled.execute_replicated, [[]] * devices)
                for value in values:
                    for device in range(devices):
                        context.infeed(device, np.array([value, device], np.int32))
                running.result()
            read += [context.outfeed(device) for device in range(devices) for _ in values]
        return _bits(dict(enumerate(read)))

    return Case(f"fed {number} on {backend}", run)


def _through_jax(name: str) -> Callable[[], _Results]:
    def run() -> _Results:
        import jax

        from fuzz.jax_programs.control import program
        from fuzz.jax_programs.worker import values

        found = jax.jit(program(name))(*values(name))
        return _bits(dict(enumerate(found)))

    return run


def _bits(results: Mapping[Any, Any]) -> _Results:
    return {str(name): np.asarray(value).tobytes() for name, value in results.items()}


def attempt(case: Case) -> _Results | str:
    """What a program gives, or the error that it ends with."""
    try:
        return case.run()
    except Exception as error:  # any exception that one thread alone would not meet is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"


def _waiting(drawn: random.Random) -> Callable[[FrameType, str, object], None]:
    """A trace function with which a thread waits here and there where it enters a function of the package.

    What another thread makes at its first use, or replaces, meanwhile: such moments are too short to be met by chance.
    """
    calls: Counter[CodeType] = Counter()

    def enter(frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        code = frame.f_code
        calls[code] += 1
        usual = min(_WAITS, _CALLS_WITH_WAITS / calls[code])
        often = _WAITS_IN_LOOKUPS if code.co_name in _LOOKUPS else usual
        if drawn.random() < often and "xlakit" in code.co_filename:
            time.sleep(drawn.random() * _LONGEST_WAIT_SECONDS)

    return enter


def at_once(orders: Sequence[Sequence[Case]], waits: Sequence[random.Random] = ()) -> list[dict[str, _Results | str]]:
    """What each thread gets of its programs; all begin together, and those that have one of ``waits`` wait often."""
    found: list[dict[str, _Results | str]] = [{} for _ in orders]
    ready = threading.Barrier(len(orders))

    def work(place: int) -> None:
        ready.wait()
        if place < len(waits):
            sys.settrace(_waiting(waits[place]))
        for case in orders[place]:
            found[place][case.name] = attempt(case)

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(orders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def faults(seed: int, number: int) -> Iterator[str]:
    """Describe the fault of the programs of a batch; "" if there is none."""
    drawn = random.Random(f"{seed} {number} threads")
    programs = cases(seed, number, drawn)
    count, is_same_order = drawn.randint(2, 5), drawn.random() < 0.5
    orders = [programs if is_same_order else drawn.sample(programs, len(programs)) for _ in range(count)]
    sys.setswitchinterval(drawn.choice(_TURNS_SECONDS))
    waits = [random.Random(f"{seed} {number} {place}") for place in range(count if drawn.random() < _WITH_WAITS else 0)]
    found = at_once(orders, waits)
    for case in programs:
        alone = attempt(case)
        for place, results in enumerate(found):
            if results[case.name] != alone:
                yield f"{case.name}, thread {place} of {count}: {_difference(results[case.name], alone)}"


def _difference(actual: _Results | str, alone: _Results | str) -> str:
    if isinstance(actual, str) or isinstance(alone, str):
        told = [x if isinstance(x, str) else "results" for x in (actual, alone)]
        return f"{told[0]}, where one thread alone gives {told[1]}"
    wrong = [name for name in alone if actual.get(name) != alone[name]]
    return f"{', '.join(wrong)}: other bits than one thread alone gives"


def main() -> None:
    """The process."""
    for fault in faults(int(sys.argv[1]), int(sys.argv[2])):
        print(" ".join(fault.split()), flush=True)


if __name__ == "__main__":
    main()
