"""One process of several, whose programs fail again and again: prints what the communicators have gone through.

Arguments: how often each of the faults is injected. At last something that no repair mends.
"""

import os
import sys

import numpy as np

import xlakit as xla
from xlakit import distributed

times = int(sys.argv[1])
cluster = distributed.initialize(timeout=20.0)
rank, count = cluster.process_index, cluster.process_count
network = cluster._network
NUMBERS = xla.make_shape(xla.F32, (3,))
ONES = [[np.ones(3, np.float32)]]


def compiled(function, **options):
    builder = xla.XlaBuilder("step")
    function(xla.parameter(builder, 0, NUMBERS))
    return xla.compile(
        builder.build(),
        backend="interpreter",
        num_replicas=count,
        execution_context=cluster.new_execution_context(),
        **options,
    )


def total(x):
    return xla.all_reduce(x, xla.add)


def host(x):
    if rank == count - 1:
        raise ValueError("broken")
    return x


def call(x):
    return xla.custom_call(x.builder, "host", [x], NUMBERS, has_side_effect=True)


good = compiled(total)
bad = [
    compiled(lambda x: total(call(x)), custom_calls={"host": host}),
    compiled(lambda x: total(call(total(x))), custom_calls={"host": host}),
    compiled(lambda x: xla.all_reduce(x, xla.mul)) if rank == 1 else good,
]
links = []


def works():
    assert good.execute_replicated(ONES)[0].tolist() == [float(count)] * 3
    links.append({id(link.communicator): link.communicator for link in network._generation.links.values()})
    return len({key for known in links for key in known})


def say(line):
    # At once: the launcher mixes what processes write.
    os.write(1, f"rank {rank}: {line}\n".encode())


def fail(executable):
    try:
        executable.execute_replicated(ONES)
    except xla.XlakitError:
        return
    raise AssertionError("it did not fail")


works()
for _ in range(times):
    for executable in bad:
        fail(executable)
    made = works()
say(f"{len(bad) * times} failures, {made} communicators")

# As if something other than the beginning of a rendezvous were open, in one process.
if rank == 0:
    next(iter(network._generation.links.values())).is_spoilt = True
fail(bad[0])
say(f"then {works()} communicators")
