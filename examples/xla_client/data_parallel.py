"""A neural network on four devices: each has a part of the data, and the gradients are summed by CrossReplicaSum.

python examples/xla_client/data_parallel.py
"""

import numpy as np

from xlakit.compat import xla_client as xc

ops = xc.ops
DEVICES, ROWS, FEATURES, HIDDEN = 4, 64, 2, 16


def scalar(c, value):
    return ops.Constant(c, np.float32(value))


def adder():
    builder = xc.XlaBuilder("add")
    ops.Add(*[ops.Parameter(builder, i, xc.Shape("f32[]")) for i in range(2)])
    return builder.build()


def total(c, x, dimensions):
    return ops.Reduce(c, [x], [scalar(c, 0)], adder(), dimensions)


def transposed_product(x, y):
    """x^T y."""
    return ops.DotGeneral(x, y, xc.make_dot_dimension_numbers((([0], [0]), ([], []))))


def build(rate):
    """One step of gradient descent: new weights and the loss, of weights and the device's part of the data."""
    c = xc.XlaBuilder("step")
    shapes = [(FEATURES, HIDDEN), (HIDDEN,), (HIDDEN,), (), (ROWS, FEATURES), (ROWS,)]
    shapes = [xc.Shape.array_shape(np.dtype(np.float32), sizes) for sizes in shapes]
    w1, b1, w2, b2, x, y = (ops.Parameter(c, i, shape) for i, shape in enumerate(shapes))

    hidden = ops.Tanh(ops.Add(ops.Dot(x, w1), b1, [1]))
    error = ops.Sub(ops.Logistic(ops.Add(ops.Dot(hidden, w2), b2)), y)
    # The derivatives of the cross entropy, from the result back to the weights.
    slope = ops.Sub(scalar(c, 1), ops.Mul(hidden, hidden))
    outer = ops.Mul(ops.BroadcastInDim(error, (ROWS, HIDDEN), (0,)), ops.BroadcastInDim(w2, (ROWS, HIDDEN), (1,)))
    back = ops.Mul(outer, slope)
    gradients = [
        transposed_product(x, back), total(c, back, [0]), transposed_product(hidden, error), total(c, error, [0]),
    ]  # fmt: skip
    results = []
    for weight, gradient in zip((w1, b1, w2, b2), gradients, strict=True):
        together = ops.CrossReplicaSum(gradient)
        results.append(ops.Sub(weight, ops.Mul(together, scalar(c, rate / (DEVICES * ROWS)))))
    loss = ops.CrossReplicaSum(total(c, ops.Mul(error, error), [0]))
    ops.Tuple(c, [*results, ops.Div(loss, scalar(c, DEVICES * ROWS))])
    return c.build()


def main():
    rng = np.random.default_rng(3)
    points = rng.uniform(-1, 1, size=(DEVICES, ROWS, FEATURES)).astype(np.float32)
    inside = (np.square(points).sum(axis=-1) < 0.6).astype(np.float32)
    weights = [
        rng.normal(size=(FEATURES, HIDDEN)), np.zeros(HIDDEN), rng.normal(size=HIDDEN) / 4, np.zeros(()),
    ]  # fmt: skip

    client = xc.make_cpu_client(num_devices=DEVICES)
    options = xc.CompileOptions()
    options.num_replicas = DEVICES
    executable = client.compile(xc._xla.mlir.xla_computation_to_mlir_module(build(0.5)), options)
    devices = executable.local_devices()

    def placed(parts):
        """For one argument, its array on each device."""
        pairs = zip(parts, devices, strict=True)
        return [client.buffer_from_pyval(np.asarray(part, np.float32), device) for part, device in pairs]

    state = [placed([weight] * DEVICES) for weight in weights]
    data = [placed(points), placed(inside)]
    for step in range(201):
        *state, loss = executable.execute_sharded([*state, *data]).disassemble_into_single_device_arrays()
        if step % 50 == 0:
            print(f"step {step}: mean squared error {float(np.asarray(loss[0])):.3f}")
    assert all(np.array_equal(np.asarray(part), np.asarray(state[0][0])) for part in state[0])


main()
