"""Words that programs and tests look for in errors. What is expected is a part of what jaxlib 0.6.0 says."""

import re

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops, S = xc.ops, xc.Shape


def called(make, *shapes):
    builder = xc.XlaBuilder("called")
    make(*[ops.Parameter(builder, number, S(shape)) for number, shape in enumerate(shapes)])
    return builder.build()


ADD = called(ops.Add, "f32[]", "f32[]")
NEGATE = called(ops.Neg, "f32[]")
EQUAL = called(lambda x: ops.Eq(x, x), "f32[]")
NUMBERS = xc.make_dot_dimension_numbers((([1], [1]), ([0], [0])))

# What is built of parameters with these shapes, and what jaxlib says.
FAULTS = [
    (lambda b, x, y: ops.Add(x, y, [0]), "f32[2,3] f32[3]", "dimension 0 mismatch: 3 != 2; f32[3] and f32[2,3]"),
    (lambda b, x, y: ops.Add(x, y, [0, 1]), "f32[2,3] f32[3]", "Size of broadcast_dimensions has to match lower-rank"),
    (lambda b, x: ops.Add(ops.Tuple(b, [x]), x), "f32[2]", "Expected array argument for lhs of binary operation add"),
    (lambda b, x: ops.Sub(x, x), "pred[2]", "shape to be arithmetic type for operation subtract"),
    (lambda b, x: ops.Exp(x), "s32[2]", "shape to be floating or complex for exponential operation; got S32"),
    (lambda b, x: ops.Floor(x), "s32[2]", "Expected element type in shape to be floating for floor operation; got S32"),
    (lambda b, x: ops.And(x, x), "f32[2]", "Expected pred or integral type in argument to and/or operation; got F32"),
    (lambda b, x: ops.Lgamma(x), "s32[2]", "Operands to Lgamma must be real-valued floating-point, but got S32"),
    (lambda b, x: ops.Reshape(x, [5]), "f32[2,3]", "Reshape operation has mismatched element counts"),
    (lambda b, x: ops.Transpose(x, [0, 0]), "f32[2,3]",
     "Transpose dimensions [0,0] are not a permutation of the operand dimensions (operand shape is f32[2,3])."),
    (lambda b, x: ops.Slice(x, [0], [5], [1]), "f32[3]",
     "limit index (5) must be less than or equal to dimension size (3) in slice operation; argument shape: f32[3]"),
    (lambda b, x, y: ops.ConcatInDim(b, [x, y], 0), "f32[3] s32[3]", "with different element types: F32 vs S32"),
    (lambda b, x: ops.ConcatInDim(b, [], 0), "f32[3]", "Concatenate expects at least one argument"),
    (lambda b, x: ops.GetTupleElement(x, 0), "f32[3]", "Operand to GetTupleElement() is not a tuple; got f32[3]"),
    (lambda b, x: ops.Parameter(b, 0, S("f32[]")), "f32[]", "parameter 0 already registered"),
    (lambda b, x, y: ops.Dot(x, y), "f32[2,3] f32[4,2]",
     "Cannot infer shape for dot operation: f32[2,3] <dot> f32[4,2]. Contracting dimension sizes are not compatible."),
    (lambda b, x, y: ops.DotGeneral(x, y, NUMBERS), "f32[2,3] f32[4,3]", "Batch dimension sizes are not compatible"),
    (lambda b, x: ops.While(NEGATE, NEGATE, x), "f32[]", "Condition must return a boolean"),
    (lambda b, x: ops.While(EQUAL, EQUAL, x), "f32[]", "the result of the body, and init must all have the same shape"),
    (lambda b, x: ops.Conditional(x, x, NEGATE, x, NEGATE), "f32[]", "is not a scalar of PRED type (f32[])"),
    (lambda b, x: ops.Call(b, NEGATE, [x]), "s32[]", "got parameter 0 shape: f32[], argument shape: s32[]"),
    (lambda b, x: ops.Map(b, [x], ADD, [0]), "f32[3]", "must match number of arguments; got: arity: 2, arguments: 1"),
    (lambda b, x: ops.Reduce(b, [x], [x], ADD, [0]), "f32[3]", "shape at index 0 differs from the init_value shape"),
    (lambda b, x: ops.Reduce(b, [x], [x], ADD, [1]), "f32[3]", "Reducing out-of-bounds dimension 1"),
    (lambda b, x: ops.Fft(x, xc.FftType.FFT, [3]), "f32[3]", "FFT requires complex input type, found F32"),
    (lambda b, x: ops.Cholesky(x), "f32[2,3]", "minor dimensions of 'a' must have compatible size, got f32[2,3]"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "shapes", "words"), FAULTS)
def test_operations_that_are_not_well_formed(make, shapes, words):
    builder = xc.XlaBuilder("fault")
    operands = [ops.Parameter(builder, number, S(shape)) for number, shape in enumerate(shapes.split())]
    make(builder, *operands)
    with pytest.raises(xc.XlaRuntimeError, match=rf"^INVALID_ARGUMENT: .*{re.escape(words)}"):
        builder.build()


def test_texts_that_cannot_be_read():
    for read in (S, xc._xla.hlo_module_from_text, xc.HloSharding.from_string):
        with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT: Syntax error"):
            read("?")


def test_programs_and_arrays_that_a_client_refuses():
    client = xc.make_cpu_client()
    builder = xc.XlaBuilder("calls")
    ops.CustomCall(builder, b"unknown_target", [], S("f32[2]{0}"))
    with pytest.raises(xc.XlaRuntimeError, match="implementation for untyped custom call to unknown_target"):
        client.compile(builder.build())
    with pytest.raises(xc.XlaRuntimeError, match=r"Not supported: The C\+\+ jax jit execution path, only accepts"):
        client.buffer_from_pyval([1, 2])
    with pytest.raises(xc.XlaRuntimeError, match="Unable to convert Python scalar to S64"):
        client.buffer_from_pyval(2**63)
    with pytest.raises(xc.XlaRuntimeError, match=r"UNIMPLEMENTED: .* is only implemented for GPU"):
        xc._xla.buffer_to_dlpack_managed_tensor(client.buffer_from_pyval(np.float32(1)), stream=0)
