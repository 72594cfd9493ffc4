"""Data-parallel training: each device has its share of the data, and gradients are averaged with an all-reduce.

python examples/data_parallel.py                            # four devices in this process
mpiexec -n 4 python examples/data_parallel.py               # four processes with a device each
mpiexec -n 2 python examples/data_parallel.py --devices 8   # two processes with four devices each

The losses are the same, digit for digit, however the devices are spread over processes. See docs/distributed.md.
"""

import argparse
import time

import numpy as np

import xlakit as xla
from xlakit import distributed

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--devices", type=int, default=4, help="in all processes together")
parser.add_argument("--steps", type=int, default=60)
options = parser.parse_args()

cluster = distributed.initialize(devices=options.devices)
client = xla.Client(distributed=cluster)

ROWS = 256  # of each device
INPUTS, HIDDEN = 16, 64


def mean_over_devices(arrays):
    """The mean of each array over all devices: one all-reduce for all of them."""
    total = xla.all_reduce(arrays, xla.add)
    return [xla.get_tuple_element(total, i) / float(options.devices) for i in range(len(arrays))]


def linear_step(x, y, w, b, *, rate):
    """A step of gradient descent on the squared error of x w + b."""
    error = xla.dot(x, w) + b - y
    loss = xla.reduce_all(error * error, 0.0, xla.add) / float(ROWS)
    slope = error * (2.0 / ROWS)
    gradients = [xla.dot(xla.transpose(x, [1, 0]), slope), xla.reduce_all(slope, 0.0, xla.add)]
    loss, dw, db = mean_over_devices([loss, *gradients])
    return loss, w - dw * rate, b - db * rate


def mlp_step(x, y, w1, b1, w2, b2, *, rate):
    """The same for a perceptron: tanh(x w1 + b1) w2 + b2."""
    hidden = xla.tanh(xla.add(xla.dot(x, w1), b1, broadcast_dimensions=[1]))
    error = xla.dot(hidden, w2) + b2 - y
    loss = xla.reduce_all(error * error, 0.0, xla.add) / float(ROWS)
    # Backwards: from the error to the second layer, and through tanh to the first.
    slope = error * (2.0 / ROWS)
    through = xla.mul(xla.broadcast_in_dim(slope, [ROWS, HIDDEN], [0]), w2, broadcast_dimensions=[1])
    through = through * (1.0 - hidden * hidden)
    gradients = [
        xla.dot(xla.transpose(x, [1, 0]), through),
        xla.reduce(through, 0.0, xla.add, dimensions=[0]),
        xla.dot(xla.transpose(hidden, [1, 0]), slope),
        xla.reduce_all(slope, 0.0, xla.add),
    ]
    loss, *means = mean_over_devices([loss, *gradients])
    return loss, *(p - g * rate for p, g in zip((w1, b1, w2, b2), means, strict=True))


def compile_step(name, step, values, **settings):
    """The program of a step, for arguments such as ``values``."""
    builder = xla.XlaBuilder(name)
    handles = [xla.parameter(builder, i, xla.make_shape(v.dtype, v.shape)) for i, v in enumerate(values)]
    xla.tuple_(builder, *step(*handles, **settings))
    return client.compile(builder.build(), num_replicas=options.devices)


def train(name, step, target, parameters, **settings):
    """Train on data that each device makes for itself, and print how the loss goes down."""
    shards = []
    for device in client.local_devices():
        random = np.random.default_rng(device.id)
        x = random.normal(size=(ROWS, INPUTS)).astype(np.float32)
        shards.append((x, target(x).astype(np.float32)))
    program = compile_step(name, step, [*shards[0], *parameters], **settings)
    data = [[device.put(v) for v in shard] for device, shard in zip(client.local_devices(), shards, strict=True)]
    state = [[device.put(p) for p in parameters] for device in client.local_devices()]
    began = time.perf_counter()
    for number in range(options.steps + 1):
        # Buffers stay on their devices from step to step; the host sees the loss only where it prints it.
        results = program.execute_sharded([[*d, *s] for d, s in zip(data, state, strict=True)])
        state = [new for _, *new in results]
        if number % 20 == 0 and cluster.process_index == 0:
            loss = float(np.asarray(results[0][0]))
            spent = (time.perf_counter() - began) / (number + 1)
            print(f"{name}: step {number:3}, loss {loss:.9f}, {spent * 1e3:.2f} ms a step", flush=True)


random = np.random.default_rng(7)
truth = random.normal(size=INPUTS).astype(np.float32)
zeros = np.zeros(INPUTS, np.float32), np.float32(0)
train("linear regression", linear_step, lambda x: x @ truth + 0.5, zeros, rate=0.1)

layers = (
    random.normal(size=(INPUTS, HIDDEN)).astype(np.float32) / np.float32(4),
    np.zeros(HIDDEN, np.float32),
    random.normal(size=HIDDEN).astype(np.float32) / np.float32(8),
    np.float32(0),
)
train("perceptron", mlp_step, lambda x: np.sin(x @ truth), layers, rate=0.1)
