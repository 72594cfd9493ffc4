"""``python -m fuzz.nets``: every net over generated programs for a share of a given time, with one seed.

A net is a command that makes programs from a seed and compares what they give; each goes on for its share of
``--seconds``, and with ``--jobs 2``, where two run at once, for twice as long. The seed is a new one where none is
given, and printed with the command that repeats the run. The exit status is 1 where a net found something: it says
itself which program it was::

    python -m fuzz.nets --seconds 240
    python -m fuzz.nets --seed 7 --only idioms --only plain
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.support.children import Forked, imported
from fuzz.support.numbered import BEGUN, command

# A program that is under way when the time is over may take so much longer on processors of its own.
_PATIENCE_SECONDS = 120.0
# Some nets have no limit where they are given 0 seconds.
_LEAST_SECONDS = 1.0
# These need processes that have run nothing, or measure times and memory of their process. The others are forks of one
# process, which has imported their modules: a second of each net's share. It has imported JAX, but not begun to use it.
_NOT_FORKED = ("fuzz.cached", "fuzz.threads", "fuzz.compile_time")
# What is imported beside the modules of commands.
_WORKERS = {"fuzz.jax_programs": "fuzz.jax_programs.worker"}


@dataclass(frozen=True, slots=True)
class Net:
    """A command that takes ``--seed`` and ``--seconds``, with its part of the time, and what its environment has."""

    name: str
    command: tuple[str, ...]
    share: float
    what: str
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_forked(self) -> bool:
        """Whether its command may run in a fork of a process that has run nothing."""
        return self.command[0] not in _NOT_FORKED

    def arguments(self, seed: int, seconds: float, count: int | None = None) -> list[str]:
        """What Python is given; the seed is the net's own, since many nets make the same programs from one seed.

        count: so many programs, within an hour.
        """
        own = zlib.crc32(f"{self.name} {seed}".encode())
        most = ["--seconds", f"{seconds:.0f}"] if count is None else ["--count", str(count), "--seconds", "3600"]
        return ["-m", *self.command, "--seed", str(own), *most]


def _net(name: str, command: str, share: float, what: str, **environment: str) -> Net:
    return Net(name, tuple(command.split()), share, what, tuple(environment.items()))


NETS: tuple[Net, ...] = (
    _net("idioms", "fuzz.idioms", 4, "loops, branches and algorithms against the interpreter"),
    _net("idioms-plain", "fuzz.idioms --against plain", 2, "the same against plain code"),
    _net("idioms-narrow", "fuzz.idioms", 1, "the same, in vectors of 16 bytes", XLAKIT_VECTOR_BYTES="16"),
    _net("forced", "fuzz.forced", 3, "sizes, costs and vectors drawn at random against plain code and the meaning"),
    _net("idioms-watched", "fuzz.idioms", 2, "the same under the sanitizer", XLAKIT_SANITIZE="1"),
    _net("sanitized", "fuzz.sanitized", 3, "memory watched while modules run step by step, with sizes forced"),
    _net("memory-plans", "fuzz.memory_plans", 2, "memory plans proved from HLO and steps, without running anything"),
    _net("modules", "fuzz.modules", 2, "modules of many operations against the interpreter"),
    _net("modules-fused", "fuzz.modules --fused", 2, "the same with fusions as other compilers make them"),
    _net("forms", "fuzz.forms", 3, "loops of every form in every type, to the bit, for vectors of all widths"),
    _net("attributes", "fuzz.attributes", 1, "attributes that are wrong, or nearly: refused, or the same twice"),
    _net("legal-mutants", "fuzz.legal_mutants", 2, "changed programs that are still legal, on all backends"),
    _net("plain", "fuzz.plain --of modules", 1, "the same against plain code"),
    _net("plain-large", "fuzz.plain --of large", 2, "operations on large arrays against plain code"),
    _net("large", "fuzz.large", 2, "operations on large arrays against the interpreter, on several threads"),
    _net(
        "large-watched",
        "fuzz.large --only vectors",
        3,
        "few rows under the sanitizer",
        XLAKIT_SANITIZE="1",
        XLAKIT_KNOBS="gemm.pairs_of_bf16=1000",
    ),
    _net("products", "fuzz.products", 3, "products and convolutions of larger sizes against the interpreter"),
    _net("layers", "fuzz.large --only layers", 3, "chains of products as networks and their gradients have them"),
    _net("convolutions", "fuzz.convolutions", 5, "dilated convolutions of narrow types in groups, with knobs drawn"),
    _net("compiled", "fuzz.compiled --count 4000", 3, "one operation each, of every type and with special values"),
    _net("specials", "fuzz.specials", 2, "operations on elements at all pairs of special values"),
    _net("math-library", "fuzz.math_library", 1, "functions of xlakit.lib against the interpreter and jaxlib's CPU"),
    _net("dynamic", "fuzz.dynamic", 2, "bounded dynamic dimensions against the interpreter"),
    _net("collectives", "fuzz.collectives", 3, "devices that meet against the interpreter"),
    _net("copies", "fuzz.collectives --copies", 3, "devices that meet in copies of collectives"),
    _net("sharded", "fuzz.sharded", 2, "modules split over partitions against the whole ones"),
    _net("sharded-chains", "fuzz.sharded --chains --count 9000", 2, "chains along split dimensions, to the bit"),
    _net("sharded-products", "fuzz.sharded --products", 1, "products of split arrays, in steps, to the bit"),
    _net("jax-programs", "fuzz.jax_programs --mixed", 6, "JAX programs with exact numbers against jaxlib's CPU"),
    _net("jax-sharded", "fuzz.jax_programs --sharded", 3, "results of JAX programs are split as on jaxlib's CPU"),
    _net("training", "fuzz.jax_programs.training", 5, "steps of training of ordinary networks against the interpreter"),
    _net("cached", "fuzz.cached", 6, "tuned JAX programs run again from the compile cache by other processes"),
    _net("threads", "fuzz.threads", 5, "programs that several threads compile and run at once"),
    _net("compile-time", "fuzz.compile_time --quick", 4, "compiling takes time in proportion to a program's length"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a net: the first fault that it found, after how many seconds, and its last line."""

    fault: str
    seconds: float
    last: str


class _Group(subprocess.Popen[str]):
    """A process with those that it starts, all of which end where it is killed, or where an exception is raised."""

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


def run(
    net: Net,
    seed: int,
    seconds: float,
    folder: str | None = None,
    *,
    count: int | None = None,
    stop: bool = False,
    forks: bool = False,
) -> Found:
    """One net for a time; ``folder`` is the tree that it runs in, ``stop`` whether it ends with its first finding.

    count: it makes so many programs, however long they take; what takes ever so much longer than the time hangs.
    forks: whether it is a fork of this process, which has no other threads, where it can be one.
    """
    environment = {**os.environ, **dict(net.environment)}
    if folder is not None:
        environment["PYTHONPATH"] = folder
    command = net.arguments(seed, seconds, count)
    with tempfile.TemporaryDirectory(prefix="nets-") as scratch:
        begun = Path(scratch) / "begun"
        environment[BEGUN] = str(begun)
        if forks and net.is_forked:
            process = Forked(command[1], command[2:], environment)
        else:
            process = _Group(
                [sys.executable, *command],
                process_group=0,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return _watched(process, begun, seconds, stop=stop)


def _watched(process: subprocess.Popen[str] | Forked, begun: Path, seconds: float, *, stop: bool) -> Found:
    """What becomes of a net's process; ``begun`` says which program it was at if it dies."""
    start = time.monotonic()
    fault, last, found_after = "", "", 0.0
    with process:
        # What hangs is ended; it is a finding.
        watch = threading.Timer(seconds + _patience(), process.kill)
        watch.start()
        for line in process.stdout or ():
            last = line.strip() or last
            if line.startswith("FAILED") and not fault:
                fault, found_after = line.strip(), time.monotonic() - start
                if stop:
                    process.kill()
                    break
        code = process.wait()
        watch.cancel()
        # The next net may be a fork of this process.
        watch.join()
    if not fault and code != 0:
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        where = begun.read_text() if begun.exists() else last
        fault, found_after = f"{how}: {where}", time.monotonic() - start
    return Found(fault, found_after or time.monotonic() - start, last)


def _patience() -> float:
    """The seconds for a program under way: more of them where processes wait for processors."""
    return _PATIENCE_SECONDS * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def shares(nets: Sequence[Net], seconds: float) -> dict[Net, float]:
    """Each net's part of a time."""
    total = sum(net.share for net in nets)
    return {net: seconds * net.share / total for net in nets}


def in_turn(nets: Sequence[Net], seconds: float) -> Iterator[tuple[Net, float]]:
    """Each net with its share of the time that is left when its turn comes.

    A net also starts a process, and ends the program that is under way; all nets share what that takes.
    """
    end = time.monotonic() + seconds
    for number, net in enumerate(nets):
        yield net, max(shares(nets[number:], end - time.monotonic())[net], _LEAST_SECONDS)


def rotated(nets: Sequence[Net], seed: int) -> list[Net]:
    """The nets, beginning with another one for each seed: the last ones have what the others leave."""
    first = seed % max(len(nets), 1)
    return [*nets[first:], *nets[:first]]


def chosen(names: Sequence[str]) -> list[Net]:
    """The nets of these names; all where there is none."""
    return [net for net in NETS if not names or net.name in names]


def _prepare(nets: Sequence[Net]) -> None:
    """Import what nets need, and compile and run a program, so that their forks need not."""
    forked = [net.command[0] for net in nets if net.is_forked]
    for module in forked:
        imported(_WORKERS.get(module, module))
    if forked:
        forms = imported("fuzz.forms")
        forms.judge(forms.program_of(0, 0))
    gc.freeze()


def parts(nets: Sequence[Net], count: int) -> list[list[Net]]:
    """The nets in at most so many parts that take about as long, in their order."""
    made: list[list[Net]] = [[] for _ in range(count)]
    for net in nets:
        min(made, key=lambda part: sum(other.share for other in part)).append(net)
    return [part for part in made if part]


def search(nets: Sequence[Net], seed: int, end: float) -> int:
    """Run nets one after another up to a time of the clock; how many of them find something."""
    failed = 0
    for net, seconds in in_turn(nets, end - time.monotonic()):
        found = run(net, seed, seconds, forks=True)
        counted = re.search(r"(\d+) (?:programs|modules|cases)", found.last)
        count = counted.group(1) if counted else "?"
        failed += bool(found.fault)
        setting = "".join(f"{k}={v} " for k, v in net.environment)
        again = f"{setting}python {' '.join(net.arguments(seed, seconds))}"
        said = f"{net.name:14} {count:>5} programs  {'FOUND A FAULT' if found.fault else 'no fault'}  {again}"
        # In one piece: other processes write there, too.
        sys.stdout.write(f"{said}\n    {found.fault}\n" if found.fault else f"{said}\n")
        sys.stdout.flush()
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.nets", __doc__)
    parser.add_argument("--seconds", type=float, default=240.0, help="for all nets together (240)")
    parser.add_argument("--seed", type=int, help="what programs are made from; a new one by default")
    parser.add_argument("--only", action="append", default=[], choices=[n.name for n in NETS], help="these nets alone")
    parser.add_argument("--jobs", type=int, default=1, help="how many nets run at once (1)")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    nets = rotated(chosen(options.only), seed)
    _prepare(nets)
    failed = _at_once(parts(nets, max(options.jobs, 1)), seed, end)
    jobs = f" --jobs {options.jobs}" if options.jobs > 1 else ""
    again = f"python -m fuzz.nets --seconds {options.seconds:.0f} --seed {seed}{jobs}"
    print(f"{failed} nets found something; again: {again}")
    return 1 if failed else 0


def _at_once(parts: Sequence[Sequence[Net]], seed: int, end: float) -> int:
    """How many nets find something, where each part of them is a fork of this process."""
    processes = [
        multiprocessing.get_context("fork").Process(target=lambda part=part: sys.exit(search(part, seed, end)))
        for part in parts
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    # What died has not told of its last net.
    return sum(1 if (process.exitcode or 0) < 0 else process.exitcode or 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main())
