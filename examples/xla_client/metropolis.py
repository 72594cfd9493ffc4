"""A Markov chain with XLA's random bits: Metropolis' algorithm for a correlated normal distribution.

python examples/xla_client/metropolis.py
"""

import numpy as np

from xlakit.compat import xla_client as xc

ops = xc.ops
CHAINS, STEPS = 512, 400
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]], np.float32)


def uniform(c, state, sizes):
    """The generator's next state, and numbers from 0 to 1: the upper 24 of 32 random bits."""
    shape = xc.Shape.array_shape(np.dtype(np.uint32), sizes)
    both = ops.RngBitGenerator(ops.RandomAlgorithm.RNG_PHILOX, state, shape)
    bits = ops.ShiftRightLogical(ops.GetTupleElement(both, 1), ops.Constant(c, np.uint32(8)))
    numbers = ops.ConvertElementType(bits, xc.PrimitiveType.F32)
    return ops.GetTupleElement(both, 0), ops.Mul(numbers, ops.Constant(c, np.float32(2.0**-24)))


def adder():
    builder = xc.XlaBuilder("add")
    ops.Add(*[ops.Parameter(builder, i, xc.Shape("f32[]")) for i in range(2)])
    return builder.build()


def energy(c, x):
    """Half of x^T P x for each row, with the inverse P of the covariance."""
    product = ops.Dot(x, ops.Constant(c, np.linalg.inv(COVARIANCE).astype(np.float32)))
    total = ops.Reduce(c, [ops.Mul(product, x)], [ops.Constant(c, np.float32(0))], adder(), [1])
    return ops.Mul(total, ops.Constant(c, np.float32(0.5)))


def body(state_shape):
    c = xc.XlaBuilder("body")
    value = ops.Parameter(c, 0, state_shape)
    step, key, x, accepted, sums, products = (ops.GetTupleElement(value, i) for i in range(6))
    key, moves = uniform(c, key, (CHAINS, 2))
    key, chances = uniform(c, key, (CHAINS,))
    width = ops.Constant(c, np.float32(4))
    proposed = ops.Add(x, ops.Mul(ops.Sub(moves, ops.Constant(c, np.float32(0.5))), width))
    taken = ops.Lt(ops.Log(chances), ops.Sub(energy(c, x), energy(c, proposed)))
    x = ops.Select(ops.BroadcastInDim(taken, (CHAINS, 2), (0,)), proposed, x)
    count = ops.ConvertElementType(taken, xc.PrimitiveType.F32)
    zero = ops.Constant(c, np.float32(0))
    accepted = ops.Add(accepted, ops.Reduce(c, [count], [zero], adder(), [0]))
    sums = ops.Add(sums, ops.Reduce(c, [x], [zero], adder(), [0]))
    numbers = xc.make_dot_dimension_numbers((([0], [0]), ([], [])))
    products = ops.Add(products, ops.DotGeneral(x, x, numbers))
    ops.Tuple(c, [ops.Add(step, ops.Constant(c, np.int32(1))), key, x, accepted, sums, products])
    return c.build()


def condition(state_shape):
    c = xc.XlaBuilder("condition")
    ops.Lt(ops.GetTupleElement(ops.Parameter(c, 0, state_shape), 0), ops.Constant(c, np.int32(STEPS)))
    return c.build()


def main():
    client = xc.make_cpu_client()
    initial = (
        np.int32(0), np.array([7, 11], np.uint64), np.zeros((CHAINS, 2), np.float32), np.float32(0),
        np.zeros(2, np.float32), np.zeros((2, 2), np.float32),
    )  # fmt: skip
    shape = xc.shape_from_pyval(initial)
    builder = xc.XlaBuilder("chains")
    parts = [ops.Parameter(builder, i, xc.shape_from_pyval(part)) for i, part in enumerate(initial)]
    ops.While(condition(shape), body(shape), ops.Tuple(builder, parts))
    executable = client.compile(xc._xla.mlir.xla_computation_to_mlir_module(builder.build()))
    state = [client.buffer_from_pyval(part) for part in initial]
    # The first run leaves the start behind; its sums are not used.
    state = executable.execute(state)
    state = [client.buffer_from_pyval(initial[0]), *state[1:3], *map(client.buffer_from_pyval, initial[3:])]
    _, _, _, accepted, sums, products = (np.asarray(part) for part in executable.execute(state))
    count = CHAINS * STEPS
    mean = sums / count
    print("accepted:", round(float(accepted) / count, 2))
    covariance = products / count - np.outer(mean, mean)
    print("covariance:", np.round(covariance.astype(float), 1).tolist())


main()
