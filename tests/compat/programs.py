"""Programs on xla_client: functions of the module, a builder and parameters, with the arguments that they run on.

They run on xlakit's module and on that of jaxlib 0.6.0 alike; ``recording.py`` keeps what the latter gives.
"""

from __future__ import annotations

import numpy as np

PROGRAMS = {}
F32, F64, I32, U32, C64 = np.float32, np.float64, np.int32, np.uint32, np.complex64


def program(*arguments, tolerance=1e-5):
    """Enter a function ``(xc, builder, *parameters)`` under its name; its last operation is the result."""

    def enter(function):
        PROGRAMS[function.__name__] = function, arguments, tolerance
        return function

    return enter


def build(xc, name):
    """The computation of a program."""
    function, arguments, _ = PROGRAMS[name]
    builder = xc.XlaBuilder(name)
    shapes = [xc.shape_from_pyval(argument) for argument in arguments]
    function(xc, builder, *[xc.ops.Parameter(builder, i, shape) for i, shape in enumerate(shapes)])
    return builder.build()


def run(xc, client, name):
    """The results of a program, as arrays."""
    module = xc._xla.mlir.xla_computation_to_mlir_module(build(xc, name))
    arguments = [client.buffer_from_pyval(argument) for argument in flat(PROGRAMS[name][1])]
    return [np.asarray(result) for result in client.compile(module).execute(arguments)]


def flat(values):
    return [leaf for value in values for leaf in (flat(value) if isinstance(value, tuple) else [value])]


def computation(xc, dtype, function, count=2, name="inner"):
    """A computation of ``count`` scalars."""
    builder = xc.XlaBuilder(name)
    shape = xc.Shape.scalar_shape(np.dtype(dtype))
    function(*[xc.ops.Parameter(builder, i, shape) for i in range(count)])
    return builder.build()


X = np.array([[0.5, -1.25, 2.0], [3.5, -0.75, 0.25]], F32)
POSITIVE = np.array([0.25, 0.5, 1.5, 3.0], F32)
UNIT = np.array([-0.875, -0.25, 0.0, 0.5], F32)
WHOLE = np.array([[1, -2, 3], [40, 5, -6]], I32)
UNARY = {
    "Abs": X, "Neg": X, "Ceil": X, "Floor": X, "Round": X, "Sign": X, "IsFinite": X, "Not": WHOLE, "Exp": X,
    "Clz": WHOLE, "PopulationCount": WHOLE, "Square": X, "Reciprocal": X, "Expm1": X, "Log": POSITIVE,
    "Log1p": POSITIVE, "Logistic": X, "Sin": X, "Cos": X, "Tan": X, "Tanh": X, "Sqrt": POSITIVE, "Rsqrt": POSITIVE,
    "Cbrt": X, "Acos": UNIT, "Asin": UNIT, "Atan": X, "Acosh": POSITIVE + 1, "Asinh": X, "Atanh": UNIT, "Cosh": X,
    "Sinh": X, "Erf": X, "Real": X + 1j * X[::-1], "Imag": X + 1j * X[::-1], "Conj": X + 1j * X[::-1],
}  # fmt: skip
BINARY = {
    "Add": X, "Sub": X, "Mul": X, "Div": X, "Max": X, "Min": X, "Rem": X, "Atan2": X, "Pow": np.abs(X), "Complex": X,
    "Eq": X, "Ne": X, "Ge": X, "Gt": X, "Le": X, "Lt": X, "And": WHOLE, "Or": WHOLE, "Xor": WHOLE,
    "ShiftLeft": np.abs(WHOLE), "ShiftRightArithmetic": np.abs(WHOLE), "ShiftRightLogical": np.abs(WHOLE),
}  # fmt: skip


def _enter(name, count, array):
    def function(xc, builder, *parameters):
        getattr(xc.ops, name)(*parameters)

    function.__name__ = name
    other = array[::-1] % 7 if array.dtype == I32 else array[::-1]
    program(*[array, np.ascontiguousarray(other)][:count])(function)


for _name, _array in UNARY.items():
    _enter(_name, 1, _array)
for _name, _array in BINARY.items():
    _enter(_name, 2, _array)


@program(X, np.array([1, 2], F32))
def broadcasting(xc, c, x, y):
    xc.ops.Add(x, y, broadcast_dimensions=[0])


@program(X)
def positional_and_keyword(xc, c, x):
    xc.ops.Slice(operand=x, start_indices=[0, 1], limit_indices=[2, 3], strides=[1, 1])


@program(X)
def python_numbers(xc, c, x):
    ops = xc.ops
    parts = [ops.Constant(c, value) for value in (3, 2.5, True, 1j, [1, 2], np.float32(7))]
    ops.Tuple(c, parts)


@program((X, WHOLE))
def tuple_parameter(xc, c, both):
    xc.ops.Tuple(c, [xc.ops.GetTupleElement(both, 1), xc.ops.GetTupleElement(both, 0)])


@program(X)
def movement(xc, c, x):
    ops = xc.ops
    padding = xc.make_padding_config([(1, 0, 0), (0, 2, 1)])
    parts = [
        ops.Broadcast(x, (2,)),
        ops.BroadcastInDim(x, (2, 4, 3), (0, 2)),
        ops.Reshape(x, (3, 2)),
        ops.Transpose(x, (1, 0)),
        ops.Rev(x, (1,)),
        ops.Collapse(x, (0, 1)),
        ops.SliceInDim(x, 0, 3, 2, 1),
        ops.ConcatInDim(c, (x, x), 0),
        ops.Pad(x, ops.Constant(c, np.float32(9)), padding),
    ]
    ops.Tuple(c, parts)


@program(X)
def conversions(xc, c, x):
    ops, kinds = xc.ops, xc.PrimitiveType
    parts = [
        ops.ConvertElementType(x, kinds.S32),
        ops.ConvertElementType(x, new_element_type=kinds.F64),
        ops.BitcastConvertType(x, kinds.U32),
        ops.ReducePrecision(x, exponent_bits=8, mantissa_bits=2),
    ]
    ops.Tuple(c, parts)


@program(X)
def clamp_and_select(xc, c, x):
    ops = xc.ops
    low, high = ops.Constant(c, F32(-1)), ops.Constant(c, F32(1))
    clamped = ops.Clamp(low, x, high)
    ops.Select(ops.Lt(x, clamped), x, ops.Neg(clamped))


@program(WHOLE, I32(1), I32(1))
def dynamic_positions(xc, c, x, i, j):
    ops = xc.ops
    part = ops.DynamicSlice(x, [i, j], [1, 2])
    ops.Tuple(c, [part, ops.DynamicUpdateSlice(x, part, [ops.Sub(i, j), j])])


@program()
def iota_forms(xc, c):
    ops = xc.ops
    one = ops.Iota(c, xc.PrimitiveType.F32, 4)
    ops.Tuple(c, [one, ops.Iota(c, xc.Shape.array_shape(xc.PrimitiveType.S32, (2, 3)), 1)])


@program(X, X.T.copy())
def products(xc, c, x, y):
    ops = xc.ops
    numbers = xc.make_dot_dimension_numbers((([1], [0]), ([], [])))
    ops.Tuple(c, [ops.Dot(x, y), ops.DotGeneral(x, y, numbers), ops.DotGeneral(x, y, dimension_numbers=numbers)])


@program(np.arange(2 * 3 * 4, dtype=F32).reshape(2, 3, 4), np.arange(2 * 4 * 2, dtype=F32).reshape(2, 4, 2))
def batched_product(xc, c, x, y):
    xc.ops.DotGeneral(x, y, xc.make_dot_dimension_numbers((([2], [1]), ([0], [0]))))


@program(np.arange(16, dtype=F32).reshape(1, 1, 4, 4), np.arange(4, dtype=F32).reshape(1, 1, 2, 2))
def convolution(xc, c, lhs, rhs):
    strides = (1, 1)
    padding = xc.window_padding_type_to_pad_values("SAME", (4, 4), (2, 2), strides)
    numbers = xc.make_convolution_dimension_numbers(None, 2)
    xc.ops.ConvGeneralDilated(lhs, rhs, strides, padding, (2, 1), (1, 1), numbers)


@program(np.arange(16, dtype=F32).reshape(1, 4, 4, 1), np.arange(4, dtype=F32).reshape(2, 2, 1, 1))
def convolution_by_strings(xc, c, lhs, rhs):
    numbers = xc.make_convolution_dimension_numbers(("NHWC", "HWIO", "CWNH"), 2)
    xc.ops.ConvGeneralDilated(
        lhs, rhs, [1, 2], [(1, 0), (0, 1)], (1, 1), (1, 2), numbers, window_reversal=[True, False]
    )


@program(np.arange(8, dtype=F32))
def transforms(xc, c, x):
    ops = xc.ops
    spectrum = ops.Fft(x, xc.FftType.RFFT, [8])
    ops.Tuple(c, [spectrum, ops.Fft(spectrum, xc.FftType.IRFFT, [8])])


@program(np.array([[4, 2], [2, 5]], F32), np.array([[1], [2]], F32))
def systems(xc, c, a, b):
    ops = xc.ops
    factor = ops.Cholesky(a)
    kind = ops.TriangularSolveOptions_Transpose.TRANSPOSE
    ops.Tuple(c, [factor, ops.TriangularSolve(factor, b, True, True, False, transpose_a=kind)])


@program(X)
def reduction(xc, c, x):
    ops = xc.ops
    add = computation(xc, F32, ops.Add)
    ops.Reduce(c, [x], [ops.Constant(c, F32(0))], add, [1])


@program(X, WHOLE)
def reduction_of_two(xc, c, x, y):
    ops = xc.ops
    inner = xc.XlaBuilder("both")
    kinds = (F32, I32, F32, I32)
    p = [ops.Parameter(inner, i, xc.Shape.scalar_shape(np.dtype(k))) for i, k in enumerate(kinds)]
    ops.Tuple(inner, [ops.Max(p[0], p[2]), ops.Add(p[1], p[3])])
    inits = [ops.Constant(c, F32(-9)), ops.Constant(c, I32(0))]
    ops.Reduce(c, operands=[x, y], init_values=inits, computation=inner.build(), dimensions_to_reduce=[0])


@program(np.arange(12, dtype=F32).reshape(3, 4))
def windows(xc, c, x):
    ops = xc.ops
    add = computation(xc, F32, ops.Add)
    ops.ReduceWindowWithGeneralPadding(x, ops.Constant(c, F32(0)), add, (2, 2), (1, 2), (), (), [(0, 1), (0, 0)])


@program(np.arange(12, dtype=F32).reshape(3, 4) % 5, np.ones((2, 2), F32))
def select_and_scatter(xc, c, x, source):
    ops = xc.ops
    select, add = computation(xc, F32, ops.Ge), computation(xc, F32, ops.Add)
    zero = ops.Constant(c, F32(0))
    ops.SelectAndScatterWithGeneralPadding(x, select, (2, 2), (1, 2), [(0, 0), (0, 0)], source, zero, add)


@program(X)
def mapping(xc, c, x):
    ops = xc.ops
    ops.Map(c, [x, x], computation(xc, F32, ops.Mul), [0, 1])


@program(np.array([3, 1, 2], F32), np.array([10, 11, 12], I32))
def sorting(xc, c, keys, values):
    ops = xc.ops
    inner = xc.XlaBuilder("more")
    kinds = (F32, F32, I32, I32)
    p = [ops.Parameter(inner, i, xc.Shape.scalar_shape(np.dtype(k))) for i, k in enumerate(kinds)]
    more = inner.build(ops.Gt(p[0], p[1]))
    down = ops.Sort(c, [keys, values], more, dimension=0, is_stable=True)
    up = ops.Sort(c, [keys])
    both = [ops.GetTupleElement(down, 0), ops.GetTupleElement(down, 1), up]
    ops.Tuple(c, both)


@program(np.array([[3, 1, 2, 7], [4, 4, 0, 5]], F32))
def largest(xc, c, x):
    xc.ops.TopK(x, k=2)


@program(np.arange(9, dtype=I32).reshape(3, 3), np.array([[0, 2], [2, 1]], I32))
def gathering(xc, c, a, indices):
    numbers = xc.GatherDimensionNumbers()
    numbers.offset_dims.append(1)
    numbers.collapsed_slice_dims.append(0)
    numbers.start_index_map.extend([0, 1])
    numbers.index_vector_dim = 1
    xc.ops.Gather(a, indices, numbers, slice_sizes=[1, 1], indices_are_sorted=False)


@program(np.arange(9, dtype=I32).reshape(3, 3), np.array([0, 2], I32), np.array([[10, 20, 30], [70, 80, 90]], I32))
def scattering(xc, c, a, indices, updates):
    numbers = xc.ScatterDimensionNumbers()
    numbers.update_window_dims.append(1)
    numbers.inserted_window_dims.append(0)
    numbers.scatter_dims_to_operand_dims.append(0)
    numbers.index_vector_dim = 1
    add = computation(xc, I32, xc.ops.Add)
    xc.ops.Scatter(a, indices, updates, add, numbers, unique_indices=True)


@program(I32(3))
def loop(xc, c, start):
    ops = xc.ops
    inner = xc.XlaBuilder("condition")
    x = ops.Parameter(inner, 0, xc.Shape.scalar_shape(np.dtype(I32)))
    ops.Lt(x, ops.Constant(inner, I32(20)))
    body = computation(xc, I32, lambda x: ops.Add(x, x), 1)
    ops.While(inner.build(), body, start)


@program(np.bool_(True), I32(7), F32(2))
def conditionals(xc, c, predicate, index, x):
    ops = xc.ops
    negate, double = computation(xc, F32, ops.Neg, 1), computation(xc, F32, lambda v: ops.Add(v, v), 1)
    by_predicate = ops.Conditional(predicate, x, negate, x, double)
    by_index = ops.Conditional(index, [negate, double], [x, x])
    named = ops.Conditional(branch_index=index, branch_computations=[double, negate], branch_operands=[x, x])
    ops.Tuple(c, [by_predicate, by_index, named])


@program(F32(2), F32(5))
def calling(xc, c, x, y):
    xc.ops.Call(c, computation(xc, F32, xc.ops.Sub), operands=[x, y])


@program(X)
def collectives_of_one(xc, c, x):
    ops = xc.ops
    groups = xc.make_replica_groups([[0]])
    add = computation(xc, F32, ops.Add)
    parts = [ops.CrossReplicaSum(x), ops.AllReduce(x, add, groups), ops.AllToAll(x, 0, 0, 1, groups), ops.ReplicaId(c)]
    ops.Tuple(c, [*parts, ops.CollectivePermute(x, [(0, 0)])])


@program(X)
def barrier(xc, c, x):
    xc.ops.OptimizationBarrier(x)


@program(np.array([1, 2], np.uint64))
def random_bits(xc, c, state):
    ops = xc.ops
    kind = ops.RandomAlgorithm.RNG_THREE_FRY
    ops.RngBitGenerator(kind, state, xc.Shape.array_shape(xc.PrimitiveType.U32, (4,)))


@program(np.array([3, -4], np.int8), np.array([1, 2], np.uint16))
def small_integers(xc, c, x, y):
    xc.ops.Tuple(c, [xc.ops.Abs(x), xc.ops.Mul(y, y)])


@program(np.array([0.5, 1.5, 4.25, -0.5], F32), tolerance=1e-4)
def gamma_functions(xc, c, x):
    xc.ops.Tuple(c, [xc.ops.Lgamma(x), xc.ops.Digamma(x)])


@program(np.array([-0.75, 0.0, 0.25, 0.9], F32), tolerance=1e-4)
def error_functions(xc, c, x):
    xc.ops.Tuple(c, [xc.ops.Erfc(x), xc.ops.ErfInv(x)])


@program(np.array([-2.0, 0.5, 10.0], F32), tolerance=1e-4)
def bessel_functions(xc, c, x):
    xc.ops.Tuple(c, [xc.ops.BesselI0e(x), xc.ops.BesselI1e(x)])


@program(np.array([0.5, 2.0, 3.5], F32), np.array([0.25, 1.5, 6.0], F32), tolerance=1e-4)
def incomplete_gamma_functions(xc, c, a, x):
    xc.ops.Tuple(c, [xc.ops.Igamma(a, x), xc.ops.Igammac(a, x), xc.ops.Zeta(xc.ops.Add(a, a), x)])


@program(np.array([0.5, 2.0], F32), np.array([0.25, 1.5], F32), np.array([0.1, 0.7], F32), tolerance=1e-4)
def incomplete_beta_function(xc, c, a, b, x):
    xc.ops.RegularizedIncompleteBeta(a, b, x)


@program(
    np.array([0.0, -0.0, 1.0, -1.0, np.inf, np.nan, 1e-45, 2.0], F32),
    np.array([1.0, 1.0, 2.0, 0.0, 0.0, 1.0, 0.0, 2.0], F32),
    tolerance=0,
)
def next_numbers(xc, c, a, b):
    xc.ops.Tuple(c, [xc.ops.NextAfter(a, b), xc.ops.NextAfter(a, to=b)])


@program(np.array([[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 1]], F32), tolerance=1e-4)
def eigenvalues(xc, c, a):
    vectors, values = xc.ops.Eigh(a, sort_eigenvalues=True)
    xc.ops.Tuple(c, [values, xc.ops.Abs(vectors)])


@program(np.array([[1, 2], [3, 4], [5, 7]], F32), tolerance=1e-4)
def qr_factors(xc, c, a):
    q, r = xc.ops.QR(a, False)
    full_q, full_r = xc.ops.QR(a, full_matrices=True)
    ops = xc.ops
    ops.Tuple(c, [ops.Dot(q, r), ops.Dot(full_q, full_r), ops.Abs(r), ops.Abs(q)])


@program(np.array([[1, 2], [3, 4], [5, 7]], F32), tolerance=1e-4)
def singular_values(xc, c, a):
    _, d, v = xc.ops.SVD(a)
    xc.ops.Tuple(c, [d, xc.ops.Abs(v)])


@program(np.array([[3, 1, 2, 7], [4, 4.5, 0, 5]], F32), np.array([[0, 1, 2, 3], [0, 1, 2, 3]], I32))
def approximate_top_k(xc, c, x, positions):
    ops = xc.ops
    inits = [ops.Constant(c, F32(-np.inf)), ops.Constant(c, I32(-1))]
    inner = xc.XlaBuilder("more")
    kinds = (F32, F32, I32, I32)
    p = [ops.Parameter(inner, i, xc.Shape.scalar_shape(np.dtype(k))) for i, k in enumerate(kinds)]
    more = inner.build(ops.Gt(p[0], p[1]))
    ops.ApproxTopKFallback(c, [x, positions], inits, top_k=2, reduction_dim=1, comparator=more)
