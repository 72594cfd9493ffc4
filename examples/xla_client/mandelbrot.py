"""Mandelbrot's set with a loop of XLA: the way that programs were written with jaxlib's xla_client.

python examples/xla_client/mandelbrot.py
"""

import numpy as np

from xlakit.compat import xla_client as xc

ops = xc.ops
WIDTH, HEIGHT, STEPS = 64, 24, 60


def computation(name, shapes, function):
    builder = xc.XlaBuilder(name)
    function(builder, *[ops.Parameter(builder, i, shape) for i, shape in enumerate(shapes)])
    return builder.build()


def build():
    points = xc.Shape.array_shape(np.dtype(np.complex64), (HEIGHT, WIDTH))
    counts = xc.Shape.array_shape(np.dtype(np.int32), (HEIGHT, WIDTH))
    # The step, the points, where they have come to, and for how many steps they have stayed near.
    state = xc.Shape.tuple_shape([xc.Shape("s32[]"), points, points, counts])

    def condition(c, value):
        ops.Lt(ops.GetTupleElement(value, 0), ops.Constant(c, np.int32(STEPS)))

    def body(c, value):
        step, point, z, count = (ops.GetTupleElement(value, i) for i in range(4))
        # A point that has left stays where it is, so that nothing overflows.
        near = ops.Le(ops.Add(ops.Square(ops.Real(z)), ops.Square(ops.Imag(z))), ops.Constant(c, np.float32(4)))
        moved = ops.Add(ops.Mul(z, z), point)
        more = ops.ConvertElementType(near, xc.PrimitiveType.S32)
        next_step = ops.Add(step, ops.Constant(c, np.int32(1)))
        ops.Tuple(c, [next_step, point, ops.Select(near, moved, z), ops.Add(count, more)])

    loop = computation("condition", [state], condition), computation("body", [state], body)

    def main(c):
        def axis(dimension, size, low, high):
            numbers = ops.Iota(c, xc.Shape.array_shape(np.dtype(np.float32), (HEIGHT, WIDTH)), dimension)
            scaled = ops.Mul(numbers, ops.Constant(c, np.float32((high - low) / (size - 1))))
            return ops.Add(scaled, ops.Constant(c, np.float32(low)))

        point = ops.Complex(axis(1, WIDTH, -2.2, 0.8), axis(0, HEIGHT, -1.2, 1.2))
        zero = ops.Broadcast(ops.Constant(c, np.complex64(0)), (HEIGHT, WIDTH))
        none = ops.Broadcast(ops.Constant(c, np.int32(0)), (HEIGHT, WIDTH))
        end = ops.While(*loop, ops.Tuple(c, [ops.Constant(c, np.int32(0)), point, zero, none]))
        ops.GetTupleElement(end, 3)

    return computation("mandelbrot", [], main)


def main():
    client = xc.make_cpu_client()
    executable = client.compile(xc._xla.mlir.xla_computation_to_mlir_module(build()))
    (result,) = executable.execute([])
    counts = np.asarray(result)
    shades = " .:-=+*#%@"
    for row in counts:
        print("".join(shades[min(9, int(n) * 10 // STEPS)] for n in row))
    print("points that never leave:", int((counts == STEPS).sum()))


main()
