"""An XlaOp as the arrays and tuples of Python and NumPy: the same meaning, or an error that says what to write."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def evaluated(make, array=ARRAY):
    builder = xla.XlaBuilder("program")
    x = xla.parameter(builder, 0, xla.make_shape(array.dtype, array.shape))
    make(x)
    return xla.compile(builder.build(make(x)), backend="interpreter")(array)


def handle(shape=(2, 3, 4), kind=xla.F32, **options):
    return xla.parameter(xla.XlaBuilder("program"), 0, xla.make_shape(kind, shape, **options))


INDICES = [
    np.s_[0],
    np.s_[-1],
    np.s_[1, 2],
    np.s_[1, 2, 3],
    np.s_[:, 1],
    np.s_[..., 0],
    np.s_[0, ..., 1:],
    np.s_[:, None, 1:3],
    np.s_[None],
    np.s_[1:, :2, ::2],
    np.s_[::-1],
    np.s_[:, ::-2, 3:0:-2],
    np.s_[:, :, -3:-1],
    np.s_[2:],
    np.s_[1:0:-1, 2:1],
    np.s_[...],
    np.s_[np.int64(1), -2:100],
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices_mean_what_they_mean_in_numpy(index):
    result = evaluated(lambda x: xla.add(x[index], 0.0))
    assert result.shape == ARRAY[index].shape
    assert np.array_equal(result, ARRAY[index])


def test_a_whole_array_is_no_operation():
    x = handle()
    assert x[:] is x
    assert x[...] is x


def test_other_dimensions():
    assert np.array_equal(evaluated(lambda x: x.T), ARRAY.T)
    assert np.array_equal(evaluated(lambda x: x.reshape(4, -1)), ARRAY.reshape(4, -1))
    assert np.array_equal(evaluated(lambda x: x.reshape([3, 8])), ARRAY.reshape(3, 8))
    assert np.array_equal(evaluated(lambda x: x.reshape(-1)), ARRAY.reshape(-1))
    vector = handle((3,))
    assert vector.T is vector


def test_rows_and_lengths():
    assert len(handle()) == 2
    assert [row.shape.dimensions for row in handle()] == [(3, 4), (3, 4)]
    first, second = handle((2,))
    assert first.shape.is_scalar
    assert second.instruction.opcode == "reshape"


def test_tuples():
    x = handle()
    pair = xla.tuple_(x, xla.neg(x))
    assert len(pair) == 2
    first, second = pair
    assert (first.instruction.opcode, second.instruction.op.index) == ("get-tuple-element", 1)
    assert pair[-1].instruction.op.index == 1
    with pytest.raises(xla.ShapeError, match="index 2 is out of range for a tuple of 2"):
        pair[2]
    with pytest.raises(xla.ArgumentError, match="first, second = x"):
        pair[0:1]


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (lambda x: x[2], xla.ShapeError, "index 2 is out of range for dimension 0 of size 2"),
        (lambda x: x[0, 0, 0, 0], xla.ShapeError, "4 indices are given for rank 3"),
        (lambda x: x[..., ...], xla.ArgumentError, "more than one '...'"),
        (lambda x: x[::0], xla.ArgumentError, "the step of a slice is 0"),
        (lambda x: x[xla.constant(x.builder, 1)], xla.ArgumentError, "hint: .*xlakit.dynamic_slice"),
        (lambda x: x[xla.constant(x.builder, 1) :], xla.ArgumentError, "hint: .*xlakit.dynamic_slice"),
        (lambda x: x[[0, 1]], xla.ArgumentError, "hint: .*xlakit.gather"),
        (lambda x: x[np.array([True, False])], xla.ArgumentError, "cannot index with ndarray"),
        (lambda x: x[True], xla.ArgumentError, "cannot index with bool"),
        (lambda x: x.__setitem__(0, 1), xla.ArgumentError, "hint: .*xlakit.dynamic_update_slice"),
        (lambda x: x.shape[0], xla.ArgumentError, "hint: write shape.dimensions"),
        (lambda x: dict(enumerate(x.shape)), TypeError, "hint: write shape.dimensions"),
        (lambda x: xla.tuple_(x, x).shape[0], xla.ArgumentError, "hint: write shape.tuple_shapes"),
        (lambda x: len(x[0, 0, 0]), xla.ArgumentError, "has no length"),
        (lambda x: x.reshape(-1, -1), xla.ShapeError, "more than one size is -1"),
        (lambda x: x.reshape(5, -1), xla.ShapeError, "24 elements do not divide"),
        (np.asarray, xla.ArgumentError, "not known while the program is built"),
        (lambda x: x.sum(), AttributeError, "no attribute 'sum'; write xlakit.reduce"),
        (lambda x: xla.sum(x, 0), AttributeError, r"no attribute 'sum'; write xlakit.reduce\(x, 0"),
        (lambda _: xla.float32, AttributeError, "no attribute 'float32'; write xlakit.F32"),
        (lambda x: xla.reduce(x, 0, max, [0]), xla.ArgumentError, "for max, .* of Python xlakit.max"),
        (lambda x: xla.reduce(x, 0, "add", [0]), xla.ArgumentError, "hint: give a function of XlaOps"),
        (lambda x: xla.reshape(x, [-1]), xla.ShapeError, r"hint: x.reshape\(..\) finds the size"),
        (lambda x: x.astype(np.int32), AttributeError, "xlakit.convert_element_type"),
        (lambda x: x.exp(), AttributeError, r"write xlakit.exp\(x, \.\.\)"),
        (lambda x: x.foo, AttributeError, "'XlaOp' object has no attribute 'foo'$"),
        (lambda x: xla.concat_in_dim(x, 0), xla.ArgumentError, "operands must be a sequence"),
    ],
)
def test_what_has_no_meaning_says_what_to_write(wrong, error, said):
    with pytest.raises(error, match=said):
        wrong(handle())


def test_sizes_that_are_not_known():
    x = handle((4, 2), dynamic_dimensions=(True, False))
    assert x[:] is x
    with pytest.raises(xla.ArgumentError, match="get_dimension_size"):
        len(x)
    with pytest.raises(xla.ShapeError, match=r"xlakit\.dynamic_slice"):
        x[0]


@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [
        (xla.F32, np.ones(3), r"write array.astype\(np.float32\)"),
        (xla.BF16, np.ones(3, np.float32), r"write array.astype\(ml_dtypes.bfloat16\)"),
        (xla.F32, np.float64(2), r"write float\(scalar\)"),
    ],
)
def test_arrays_of_other_floats_are_refused(kind, value, hint):
    x = handle((3,), kind)
    for mixed in (lambda: x + value, lambda: value * x, lambda: xla.max(x, value), lambda: x < value):
        with pytest.raises(xla.ArgumentError, match=hint):
            mixed()
    with pytest.raises(xla.ArgumentError, match=hint):
        xla.concat_in_dim([x, value], 0)
    with pytest.raises(xla.ArgumentError, match=hint):
        xla.dot(x, value)


def test_numbers_and_arrays_of_the_type_are_taken():
    for kind, array in ((xla.F32, np.ones(3, np.float32)), (xla.BF16, np.ones(3, ml_dtypes.bfloat16))):
        x = handle((3,), kind)
        assert (x + 1).shape.element_type is kind
        assert (x * 0.5 + array).shape.element_type is kind


def test_errors_have_the_shapes_of_arrays_too():
    for function in (xla.add, np.add):
        with pytest.raises(xla.ShapeError) as raised:
            function(np.ones(5, np.float32), handle())
        assert raised.value.shapes == ("f32[5]{0}", str(handle().shape))
