"""A first program: a linear layer with a ReLU, built, printed, compiled and called.

python examples/first_program.py
"""

import numpy as np

import xlakit as xla

# A builder collects the operations of one computation. Parameters say what it will be called with.
builder = xla.XlaBuilder("linear_relu")
x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (4, 3)), "x")
w = xla.parameter(builder, 1, xla.make_shape(xla.F32, (3, 2)), "w")
b = xla.parameter(builder, 2, xla.make_shape(xla.F32, (2,)), "b")

# XLA infers nothing between ranks, so the vector says which dimension of the matrix it matches: 1, the columns.
product = xla.dot(x, w)
shifted = xla.add(product, b, broadcast_dimensions=(1,))
xla.max(shifted, 0.0)

# The last operation is the result. A computation is HLO, and prints as such.
computation = builder.build()
print(computation.to_text())

executable = xla.compile(computation, backend="interpreter")
result = executable(
    np.arange(12, dtype=np.float32).reshape(4, 3),
    np.array([[1, -1], [0, 2], [-1, 1]], dtype=np.float32),
    np.array([0.5, -10], dtype=np.float32),
)
print(result)
