"""One process of several, some of which do something wrong: prints how each of its programs ended.

Without a fault's name it does all after which the others can go on, one after the other.
"""

import os
import signal
import sys
import time

import numpy as np

import xlakit as xla
from xlakit import distributed

fault, timeout = sys.argv[1], float(sys.argv[2])
cluster = distributed.initialize(timeout=timeout)
count, rank = cluster.device_count, cluster.process_index
VECTOR = xla.make_shape(xla.F32, (3,))


def compiled(function, name="total", **options):
    builder = xla.XlaBuilder(name)
    function(xla.parameter(builder, 0, VECTOR, "x"))
    return xla.compile(
        builder.build(),
        backend="interpreter",
        num_replicas=count,
        execution_context=cluster.new_execution_context(),
        **options,
    )


def total(x):
    return xla.all_reduce(x, xla.add)


def through_host(x):
    return total(xla.custom_call(x.builder, "host", [x], VECTOR, has_side_effect=True))


def host(x):
    if rank == 1:
        raise ValueError("the pump is broken")
    return x


def slow(x):
    if rank == 1:
        time.sleep(3 * timeout)
    return x


def crossed(x):
    def gather(v):
        return xla.slice_in_dim(xla.all_gather(v, 0, count), 0, 3, 1, 0)

    first = xla.eq(xla.replica_id(x.builder), 0)
    return xla.conditional(first, x, lambda v: total(gather(v)), x, lambda v: gather(total(v)))


def longer(x):
    """Replica 1 reduces once, the others twice."""
    return xla.conditional(xla.eq(xla.replica_id(x.builder), 1), total(x), lambda v: v, x, total)


def unsent(x):
    """Replica 1 does not send what replica 0 is to get."""
    ring = [(i, (i + 1) % count) for i in range(count)]
    first = xla.eq(xla.replica_id(x.builder), count - 1)
    return xla.conditional(first, x, lambda v: v, x, lambda v: xla.collective_permute(v, ring))


def call(executable, name=""):
    try:
        result = executable.execute_replicated([[np.ones(3, np.float32)]])
        report = f"fine {result[0].tolist()}"
    except xla.XlakitError as error:
        report = f"{type(error).__name__} {error}".replace("\n", "|")
    os.write(1, f"rank {rank}: {name}: {report}\n".encode())


# When one process ends badly, what the others have not said yet, or the launcher not passed on, is lost.
UNTIL_SAID = 1.5

simple = compiled(total)
call(simple)
if fault in ("killed", "exits") and rank == 1:
    time.sleep(UNTIL_SAID)
if fault == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if fault == "exits" and rank == 1:
    os._exit(3)
if fault == "leaves" and rank == 1:
    sys.exit(0)
if fault == "dies" and rank == 1:
    raise RuntimeError("rank one is ill")
if fault == "absent" and rank == 1:
    time.sleep(3 * timeout)
if fault in ("killed", "exits", "leaves", "dies", "absent"):
    call(simple)
    sys.exit(0)
if fault == "hangs":
    # A process that does not answer either: nothing of it runs any more.
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    call(simple)
    time.sleep(UNTIL_SAID)
    os._exit(0)
wrong = {
    "different": compiled(lambda x: xla.all_reduce(x, xla.mul), "product") if rank == 1 else simple,
    "raises": compiled(through_host, custom_calls={"host": host}),
    "slow": compiled(through_host, custom_calls={"host": slow}),
    "crossed": compiled(crossed),
    "longer": compiled(longer),
    "unsent": compiled(unsent),
}
for name, executable in wrong.items():
    call(executable, name)
    call(simple, f"after {name}")
