"""The loop of the operation semantics' While section: add a constant vector 1,000 times.

python examples/while_loop.py
"""

import numpy as np

import xlakit as xla

builder = xla.XlaBuilder("thousand_additions")
counter = xla.constant(builder, np.int32(0))
total = xla.broadcast(xla.constant(builder, np.float32(0)), (10,))


# Where an operation calls a computation, it takes an XlaComputation, or a Python function on handles as here. The
# loop's state is one value, so a state of several parts is a tuple.
def condition(state):
    return xla.get_tuple_element(state, 0) < 1000


def body(state):
    iteration = xla.get_tuple_element(state, 0) + 1
    step = xla.iota(state.builder, xla.make_shape(xla.F32, (10,)), 0)
    return iteration, xla.get_tuple_element(state, 1) + step


xla.while_(condition, body, xla.tuple_(counter, total))

iterations, vector = xla.compile(builder.build(), backend="interpreter")()
print(f"after {iterations} iterations: {vector}")
