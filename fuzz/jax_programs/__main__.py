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
from typing import Any

from fuzz.jax_programs import __doc__ as about
from fuzz.support.numbered import command

# A process compiles so many programs, so that what one of them leaves behind is not left for ever.
_BATCH = 200
# A program that takes longer than this on both platforms together hangs.
_LONGEST_SECONDS = 180.0


def reports(prefix: str, first: int, count: int) -> Iterator[dict[str, Any]]:
    """What becomes of each program, those that end their process included.

    A process that dies on jaxlib's CPU is jaxlib's affair where it had run nothing else.
    """
    number, spoiled = first, -1
    while number < first + count:
        batch = min(_BATCH, first + count - number)
        command = [sys.executable, "-m", "fuzz.jax_programs.worker", prefix, str(number), str(batch)]
        environment = {**os.environ, "JAX_PLATFORMS": "xlakit,cpu"}
        if prefix.startswith("sharded"):
            environment |= {"XLAKIT_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
        begun, end, platform = number, number + batch, ""
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=said, text=True)
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
                yield {"seed": f"{prefix}.{number}", kind: end_of_it}
                number += 1
            elif spoiled == begun:
                yield {
                    "seed": f"{prefix}.{begun}",
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
    parser.add_argument("--seconds", type=float, default=600, help="for how long (600)")
    options = parser.parse_args(given)
    begin, counts, times = time.monotonic(), Counter[str](), [0.0, 0.0]
    kinds = ("large", "sharded", "layouts", "batches")
    kind_of_program = next((kind for kind in kinds if getattr(options, kind)), "")
    prefix = kind_of_program + options.seed
    print(f"seed {options.seed}", flush=True)
    for report in reports(prefix, options.first, options.count):
        kind = next((k for k in ("fault", "jaxlib", "refused") if k in report), "agreed")
        counts[kind] += 1
        times = [a + b for a, b in zip(times, report.get("seconds", [0.0, 0.0]), strict=True)]
        if kind in ("fault", "jaxlib"):
            number = report["seed"].rsplit(".", 1)[1]
            repeat = f"python -m fuzz.jax_programs{kind_of_program and ' --' + kind_of_program} --seed {options.seed}"
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
