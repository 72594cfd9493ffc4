"""One of the processes that :mod:`fuzz.support.rank_faults` starts.

It runs a program on all of them, then one that a fault meets.

It prints its rank, waits until a file is there, and says how each of its programs ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import xlakit as xla
from xlakit import distributed

_NUMBERS = xla.make_shape(xla.F32, (3,))


def _say(rank: int, text: str) -> None:
    # In one piece, whatever the others write.
    os.write(1, f"rank {rank}: {text}\n".replace("\n", "|", text.count("\n")).encode())


def main(fault: str, backend: str, timeout: float, go: str) -> None:
    """Join the others and do what the fault says on the last rank, once the file ``go`` is there."""
    cluster = distributed.initialize(timeout=timeout)
    rank, count = cluster.process_index, cluster.process_count
    is_last = rank == count - 1

    def host(x: Any) -> Any:
        if fault == "raises" and is_last:
            raise ValueError("the pump is broken")
        if fault == "computes" and is_last:
            time.sleep(3600)
        return x

    def total(x: xla.XlaOp) -> xla.XlaOp:
        return xla.all_reduce(x, xla.add)

    def through_host(x: xla.XlaOp) -> xla.XlaOp:
        return total(xla.custom_call(x.builder, "host", [x], _NUMBERS, has_side_effect=True))

    def skipped(x: xla.XlaOp) -> xla.XlaOp:
        last = xla.eq(xla.replica_id(x.builder), np.uint32(count - 1))
        return xla.conditional(last, x, lambda v: v, x, total)

    def call(function: Any) -> None:
        builder = xla.XlaBuilder("step")
        result = function(xla.parameter(builder, 0, _NUMBERS, "x"))
        executable: Any = xla.compile(
            builder.build(result),
            backend=backend,
            num_replicas=count,
            execution_context=cluster.new_execution_context(),
            custom_calls={"host": host},
        )
        try:
            (sums,) = executable.execute_replicated([[np.ones(3, np.float32)]])
        except xla.XlakitError as error:
            _say(rank, f"{type(error).__name__}: {error}")
        else:
            _say(rank, f"gives {sums.tolist()}")

    call(total)
    _say(rank, f"is process {os.getpid()}")
    while not Path(go).exists():
        time.sleep(0.01)
    if is_last and fault == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if is_last and fault == "exits":
        os._exit(3)
    if is_last and fault == "dies":
        raise RuntimeError("this rank is ill")
    if is_last and fault == "stays away":
        time.sleep(3 * timeout)
    if is_last and fault == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    call({"skips": skipped, "raises": through_host, "computes": through_host}.get(fault, total))
    if fault == "is stopped":
        # The other one is not woken up; the launcher ends it.
        os._exit(4)
    call(total)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
