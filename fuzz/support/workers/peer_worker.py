"""One of several processes of JAX, of which the last meets a fault; see :mod:`fuzz.support.peer_faults`.

Lines that begin with "process" say what this one has seen.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

_LARGE = 1 << 22
# How long after the others a process asks for its devices.
_LATE_SECONDS = 2.0


def main(fault: str, rank: int, count: int, coordinator: str, timeout: str) -> None:
    """Run a program well, wait for a line, and run it again while the last process meets the fault.

    timeout: how many seconds a process waits for another one then; to start together takes longer.
    """
    from xlakit.jax import initialize

    initialize()
    import jax

    jax.distributed.initialize(coordinator, num_processes=count, process_id=rank)
    is_ill = rank == count - 1
    if fault == "never joins":
        # What the answer takes is to be the waiting alone.
        importlib.import_module("xlakit.jax.devices")
        importlib.import_module("xlakit.distributed.zeromq")
        _say(rank, f"is process {os.getpid()}")
        sys.stdin.readline()
        os.environ["XLAKIT_TIMEOUT"] = timeout
        if is_ill:
            time.sleep(600)
        _try(rank, lambda: len(jax.devices()))
        _say(rank, "is over")
        os._exit(0)
    if fault == "joins late" and is_ill:
        time.sleep(_LATE_SECONDS)
    if fault == "is in another job":
        _program(count)(8)
        _change_jobs(rank, count)
    everyone, some = _program(count), _program(count - 1) if count > 2 and not is_ill else None
    everyone(8)
    if some is not None:
        some(8)
    another = _another(count) if fault == "runs another program" else None
    _say(rank, f"is process {os.getpid()}")
    for _ in sys.stdin:
        os.environ["XLAKIT_TIMEOUT"] = timeout
        if is_ill and another is not None:
            _try(rank, another)
            time.sleep(600)
        if is_ill:
            _meet(fault)
        _try(rank, partial(everyone, _LARGE if fault == "is killed while data move" else 8, fault))
        if some is not None:
            _try(rank, partial(some, 8))
        _say(rank, "is over")
    os._exit(0)


def _over_processes(function: Callable[[Any], Any], count: int) -> tuple[Any, Callable[[int], Any]]:
    """A program of the first processes, each with its part of an array; and ones for it, so many for each process."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh, spec = Mesh(np.array(jax.devices()[:count]), ("x",)), PartitionSpec("x")

    def ones(size: int) -> Any:
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback((size * count,), sharding, lambda index: np.ones(size, np.float32))

    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec)), ones


def _program(count: int) -> Callable[..., float]:
    """The sum over the first processes: a function of the number of elements."""
    import jax

    def total(x: Any) -> Any:
        return jax.lax.psum(x, "x")

    program, ones = _over_processes(total, count)

    def run(size: int, fault: str = "") -> float:
        x = ones(size)
        times = 1000 if fault == "is killed while data move" else 1
        for _ in range(times):
            x = program(x) / count
        return float(np.asarray(x.addressable_data(0))[0]) * count

    return run


def _change_jobs(rank: int, count: int) -> None:
    """Leave the job, and join another one; raises RuntimeError if the old network is still open."""
    import jax
    import jax.extend

    distributed: Any = importlib.import_module("jax._src.distributed")
    client = distributed.global_state.client
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            client.key_value_set("next job", str(probe.getsockname()[1]))
    port = client.blocking_key_value_get("next job", 60_000)
    jax.distributed.shutdown()
    jax.extend.backend.clear_backends()
    jax.distributed.initialize(f"localhost:{port}", num_processes=count, process_id=rank)
    jax.devices()
    networks = sum(thread.name == "xlakit-network" for thread in threading.enumerate())
    if networks != 1:
        raise RuntimeError(f"{networks} networks are open")


def _meet(fault: str) -> None:
    if fault == "is killed":
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "is killed while data move":
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    elif fault == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "raises":
        raise RuntimeError("this process is ill")
    elif fault == "leaves":
        sys.exit(0)
    elif fault == "stays away":
        time.sleep(600)


def _another(count: int) -> Callable[[], float]:
    """Another program, compiled."""
    import jax

    def largest(x: Any) -> Any:
        return jax.lax.pmax(x * x, "x")

    program, ones = _over_processes(largest, count)
    x = ones(8)
    compiled = program.lower(x).compile()
    return lambda: float(np.asarray(compiled(x).addressable_data(0))[0])


def _try(rank: int, run: Callable[[], float]) -> None:
    start = time.monotonic()
    try:
        _say(rank, f"gives {run():g}")
    except (Exception, KeyboardInterrupt) as error:  # it is what is looked for
        _say(rank, f"{_in_a_line(error)} (after {time.monotonic() - start:.1f} s)")


def _in_a_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return f"{type(error).__name__}: " + " | ".join(line for line in lines if not line.startswith("hint:"))


def _say(rank: int, text: str) -> None:
    print(f"process {rank}: {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
