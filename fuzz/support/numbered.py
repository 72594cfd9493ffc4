"""What the commands of fuzz have in common whose programs are told by numbers: their options, and the count.

The environment variable ``XLAKIT_FUZZ_BEGUN`` names a file that always says which program is under way, for the case
that the process dies of it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

BEGUN = "XLAKIT_FUZZ_BEGUN"


@dataclass(frozen=True, slots=True)
class Entry:
    """A program by the options that name it, and the function that describes its fault: "" if it has none.

    keep: what is done with it where something is, behind the line that says so.
    """

    options: str
    judge: Callable[[], str]
    keep: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """How many programs had which outcome: ``"failed"``, ``"unsupported"``, or others, of which nothing is said."""

    counts: Counter[str] = field(default_factory=Counter[str])

    def fault(self, name: str, outcome: str, detail: str) -> str:
        """Count a program, by its command and options; gives its fault in words, or ""."""
        self.counts[outcome] += 1
        if outcome == "unsupported":
            print(f"UNSUPPORTED python -m {name}: {detail}", flush=True)
        return detail if outcome == "failed" else ""

    def summary(self) -> str:
        """What the last line says."""
        return ": " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))


class TooSlowError(BaseException):
    """Raised into what takes too long; no handler of Exception catches it."""


@contextmanager
def time_limit(seconds: float, timer: int = signal.ITIMER_VIRTUAL) -> Generator[None]:
    """Raise TooSlowError into the block after so much time of the process, or of the clock with ITIMER_REAL."""
    alarm = signal.SIGALRM if timer == signal.ITIMER_REAL else signal.SIGVTALRM
    previous = signal.signal(alarm, _too_slow)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(alarm, previous)


def _too_slow(*_: Any) -> None:
    raise TooSlowError


def command(module: str, document: str | None) -> argparse.ArgumentParser:
    """The parser of a command that is a module; the first paragraph of its document describes it."""
    summary = (document or "").split("\n\n", 1)[0]
    return argparse.ArgumentParser(allow_abbrev=False, prog=f"python -m {module}", description=summary)


def names_of(
    made: argparse.ArgumentParser, names: Iterable[str], known: Collection[str], what: str = "name"
) -> list[str]:
    """The names that a command is given, or all that are known; one that is not known is an error of usage."""
    given = list(names)
    unknown = [name for name in given if name not in known]
    if unknown:
        made.error(f"there is no {what} '{unknown[0]}'; there are: {', '.join(known)}")
    return given or list(known)


def parser(module: str, document: str | None, count: int) -> argparse.ArgumentParser:
    """The options that every command has whose programs have numbers."""
    made = command(module, document)
    made.add_argument("--count", type=int, default=count, help=f"how many programs ({count})")
    made.add_argument("--seed", type=int, default=0, help="what they are made from (0)")
    made.add_argument("--seconds", type=float, help="begin no more after this time")
    made.add_argument("--number", type=int, help="one program, by its number, with its text")
    return made


def entries(options: argparse.Namespace, fault_of: Callable[[int], str], more: str = "") -> Iterator[Entry]:
    """The programs that the options ask for, each made when it is its turn; ``fault_of`` judges one by its number.

    more: further options that name them.
    """
    for number in range(options.count) if options.number is None else [options.number]:
        yield Entry(f"--seed {options.seed} --number {number}{more}", partial(fault_of, number))


def show(options: argparse.Namespace, *texts: str) -> None:
    """Print the texts of the one program that is asked for, if one is."""
    if options.number is not None:
        print(*texts)


def net(
    name: str,
    document: str | None,
    count: int,
    fault_of: Callable[[argparse.Namespace, int], str],
    *flags: tuple[str, str],
    summary: Callable[[], str] = lambda: "",
) -> Callable[..., int]:
    """The ``main`` of a command that judges each program by the options and its number; gives the exit status.

    flags: further options without values, each with its help, which name the programs. The rest is as for :func:`run`.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        made = parser(name, document, count)
        for flag, what in flags:
            made.add_argument(flag, action="store_true", help=what)
        options = made.parse_args(arguments)
        more = "".join(f" {flag}" for flag, _ in flags if getattr(options, flag[2:]))
        return run(name, entries(options, partial(fault_of, options), more), options.seconds, summary)

    return main


def run(
    net: str,
    entries: Iterable[Entry],
    seconds: float | None = None,
    summary: Callable[[], str] = lambda: "",
    *,
    first: bool = False,
) -> int:
    """Judge the programs, all or so many as a time allows, and print what is wrong; gives the exit status.

    summary: what the last line says beside the counts. first: whether the first failure is the last program.

    With a time limit, the entries of a sequence are shuffled, since programs of one kind follow each other in it.
    """
    failures, done, start = 0, 0, time.monotonic()
    begun = os.environ.get(BEGUN)
    if seconds is not None and isinstance(entries, Sequence):
        entries = random.Random(0).sample(entries, len(entries))
    for entry in entries:
        if seconds is not None and time.monotonic() - start > seconds:
            break
        done += 1
        if begun:
            Path(begun).write_text(f"python -m {net} {entry.options}")
        try:
            fault = entry.judge()
        except Exception as error:  # any exception is a finding; the programs behind it are judged all the same
            traceback.print_exc()
            fault = f"{type(error).__name__}: {error}"
        if fault:
            failures += 1
            print(f"FAILED python -m {net} {entry.options}: {fault}", flush=True)
            if entry.keep:
                entry.keep()
            if first:
                break
        if done % 100 == 0:
            print(f"{done} programs, {failures} failures, {time.monotonic() - start:.0f} s", file=sys.stderr)
    print(f"{done} programs, {failures} failures{summary()}")
    return 1 if failures else 0
