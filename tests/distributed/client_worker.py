"""One process of two with two devices each: a client, its devices, its errors, runs that follow each other."""

import os

import numpy as np

import xlakit as xla
from xlakit import distributed


def refused(kind, text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)


cluster = distributed.initialize(devices=4, timeout=20)
rank = cluster.process_index
# Which one does not matter to MPI.
backend = "interpreter" if "XLAKIT_MPI_THREADS" in os.environ else "cpu"
client = xla.Client(distributed=cluster)
assert (client.device_count(), client.local_device_count(), client.process_index()) == (4, 2, rank)
assert [d.id for d in client.devices()] == [0, 1, 2, 3]
assert [d.process_index for d in client.devices()] == [0, 0, 1, 1]
assert [d.id for d in client.local_devices()] == [2 * rank, 2 * rank + 1]

SHAPE = xla.make_shape(xla.F32, (3,))
builder = xla.XlaBuilder("mean")
x = xla.parameter(builder, 0, SHAPE, "x")
mean = xla.all_reduce(x, xla.add) / 4.0
xla.collective_permute(
    mean + xla.convert_element_type(xla.replica_id(builder), xla.F32), [(i, 3 - i) for i in range(4)]
)
computation = builder.build()
program = client.compile(computation, num_replicas=4, backend=backend)
assert program.num_devices == 4
assert program.local_devices() == client.local_devices()
assert program.device_assignment == [[0], [1], [2], [3]]

remote = client.devices()[3 - 3 * rank]
refused(xla.ArgumentError, f"device {remote.id} is in process {1 - rank}, this is process {rank}", remote.put, 1.0)
refused(xla.ArgumentError, "2 devices of this process, got arguments for 4", program.execute_sharded, [[]] * 4)
refused(xla.ArgumentError, "runs on 4 devices", program.execute, [np.zeros(3, np.float32)])
refused(
    xla.UnsupportedError, "in their order", client.compile, computation, num_replicas=4, device_assignment=[1, 0, 2, 3]
)

# None of these calls waits for the one before.
state = [[device.put(np.full(3, device.id, np.float32))] for device in client.local_devices()]
for _ in range(20):
    state = [[result] for result in program.execute_sharded(state)]
# The mean grows by 1.5 in each turn; what comes is the number of the device across.
for device, (result,) in zip(client.local_devices(), state, strict=True):
    np.testing.assert_array_equal(np.asarray(result), np.full(3, 1.5 * 20 + 3 - device.id, np.float32))

# A program for one device runs in each process on its own.
builder = xla.XlaBuilder("alone")
y = xla.parameter(builder, 0, SHAPE, "y") * 2.0
alone = client.compile(builder.build(), backend=backend)
assert alone.local_devices() == client.local_devices()[:1]
if rank == 1:
    result = alone.execute([client.local_devices()[0].put(np.ones(3, np.float32))])
    np.testing.assert_array_equal(np.asarray(result), np.full(3, 2, np.float32))

other = xla.compile(
    computation, num_replicas=3, execution_context=cluster.new_execution_context(), backend="interpreter"
)
refused(xla.ArgumentError, "the program is for 3 devices", other, np.zeros(3, np.float32))
# What has been asked for is done when a process ends, whether it waits for it or not.
last = program.execute_sharded(state)
if rank == 0:
    np.asarray(last[0])
os.write(1, f"fine:{rank}\n".encode())
