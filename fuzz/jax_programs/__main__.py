"""The command: ``python -m fuzz.jax_programs --seed S --seconds N``.

Programs run in a process of their own, which begins anew behind one that ends it. Printed is each fault, with the
command that repeats it; the exit status is 1 if there was one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any

from fuzz.jax_programs import __doc__ as about
from fuzz.jax_programs.names import name_of
from fuzz.support.children import Forked, may_fork
from fuzz.support.numbered import command

KINDS = ("large", "sharded", "layouts", "batches")
_MIXED = ("", "large", "", "batches", "", "layouts")
# A process compiles so many programs, so that what one of them leaves behind is not left for ever.
_BATCH = 200
_WORKER = "fuzz.jax_programs.worker"
# A program that takes longer than this on both platforms together hangs.
_LONGEST_SECONDS = 180.0


def _begun(command: list[str], said: IO[str]) -> subprocess.Popen[str] | Forked:
    """A process of programs, which is a fork of this one where that may be; ``said`` is what it tells of its end."""
    environment = {**os.environ, "JAX_PLATFORMS": "xlakit,cpu"}
    if command[0].startswith("sharded"):
        environment |= {"XLAKIT_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    if may_fork():
        return Forked(_WORKER, command, environment, said)
    return subprocess.Popen(
        [sys.executable, "-m", _WORKER, *command], env=environment, stdout=subprocess.PIPE, stderr=said, text=True
    )


def reports(prefix: str, first: int, count: int) -> Iterator[dict[str, Any]]:
    """What becomes of each program, those that end their process included.

    A process that dies on jaxlib's CPU is jaxlib's affair where it had run nothing else.
    """
    number, spoiled = first, -1
    while number < first + count:
        batch = min(_BATCH, first + count - number)
        begun, end, platform = number, number + batch, ""
        with tempfile.TemporaryFile("w+") as said:
            process = _begun([prefix, str(number), str(batch)], said)
            hangs = threading.Timer(0, process.kill)
            try:
                for line in process.stdout or ():
                    hangs.cancel()
                    report = json.loads(line)
                    if "begin" in report:
                        number = report["begin"]
                        hangs = threading.Timer(_LONGEST_SECONDS, process.kill)
                        hangs.start()
                    elif "on" in report:
                        platform = report["on"]
                    else:
                        number += 1
                        yield report
            finally:
                hangs.cancel()
                if hangs.is_alive():
                    # The next process may be a fork of this one.
                    hangs.join()
                process.kill()
                status = process.wait()
            if number < end:
                said.seek(0)
                end_of_it = f"the process ended with {status} (-9: after {_LONGEST_SECONDS} s): {said.read()[-400:]}"
                if platform == "cpu" and number > begun and number != spoiled:
                    # Alone it shows whether programs before it, on xlakit, have to do with it.
                    spoiled = number
                    continue
                kind = "jaxlib" if platform == "cpu" and number == begun else "fault"
                yield {"seed": name_of(prefix, number), kind: end_of_it}
                number += 1
            elif spoiled == begun:
                yield {
                    "seed": name_of(prefix, begun),
                    "fault": "a process died on jaxlib's CPU that had run others before",
                }


def main(given: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.jax_programs", about)
    parser.add_argument("--seed", default=str(random.randrange(10**6)), help="what programs are made from (by chance)")
    parser.add_argument("--count", type=int, default=10**9, help="how many programs at most")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program (0)")
    of_kind = parser.add_mutually_exclusive_group()
    of_kind.add_argument("--large", action="store_true", help="arrays that are computed in tasks, strips and blocks")
    of_kind.add_argument("--sharded", action="store_true", help="programs over eight devices: results are split alike")
    of_kind.add_argument("--layouts", action="store_true", help="arguments and results in orders that are drawn")
    of_kind.add_argument("--batches", action="store_true", help="the programs over the dimension of a batch")
    of_kind.add_argument("--mixed", action="store_true", help="in turn, some of all these but the sharded ones")
    parser.add_argument("--seconds", type=float, default=600, help="for how long (600)")
    options = parser.parse_args(given)
    begin, counts, times = time.monotonic(), Counter[str](), [0.0, 0.0]
    asked = next((kind for kind in KINDS if getattr(options, kind)), "")
    prefix = ",".join(kind + options.seed for kind in (_MIXED if options.mixed else [asked]))
    print(f"seed {options.seed}", flush=True)
    for report in reports(prefix, options.first, options.count):
        kind = next((k for k in ("fault", "jaxlib", "refused") if k in report), "agreed")
        counts[kind] += 1
        times = [a + b for a, b in zip(times, report.get("seconds", [0.0, 0.0]), strict=True)]
        if kind in ("fault", "jaxlib"):
            made_from, number = report["seed"].rsplit(".", 1)
            of = made_from.removesuffix(options.seed)
            repeat = f"python -m fuzz.jax_programs{of and ' --' + of} --seed {options.seed}"
            whose = "FAILED" if kind == "fault" else "wrong on jaxlib's CPU, not here:"
            print(f"{whose} {repeat} --first {number} --count 1\n  {report[kind]}", flush=True)
        if time.monotonic() - begin > options.seconds:
            break
    counts["wrong on jaxlib's CPU"] = counts.pop("jaxlib", 0)
    said = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()) if n)
    print(f"{sum(counts.values())} programs: {said}; first results in {times[0]:.0f} s, jaxlib's in {times[1]:.0f} s")
    return 1 if counts["fault"] else 0


if __name__ == "__main__":
    sys.exit(main())
