"""Operations that XLA's builder composes of others: their instructions are those that jaxlib 0.6.0 prints."""

import re

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

ops = xc.ops


def text_of(function, *shapes):
    builder = xc.XlaBuilder("composed")
    function(builder, *[ops.Parameter(builder, i, xc.Shape(shape)) for i, shape in enumerate(shapes)])
    return builder.build().as_hlo_text()


def names(text):
    return " ".join(re.findall(r"([a-z0-9-]+\.\d+) = ", text))


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        (
            "Acos", "f32[3]", "parameter.1 constant.2 broadcast.3 compare.4 constant.5 broadcast.15 constant.6 "
            "broadcast.8 multiply.7 subtract.9 sqrt.10 constant.11 broadcast.12 add.13 atan2.14 multiply.16 "
            "constant.17 broadcast.18 select.19",
        ),
        (
            "Acosh", "f64[]", "parameter.1 constant.3 compare.18 constant.4 broadcast.5 constant.16 sqrt.17 "
            "compare.19 log.12 constant.13 log.14 add.15 constant.2 add.6 subtract.7 multiply.8 sqrt.9 add.10 log.11 "
            "select.20 select.21",
        ),
        (
            "Acosh", "c64[2]", "constant.3 constant.4 broadcast.5 parameter.1 constant.2 broadcast.6 add.7 "
            "broadcast.8 subtract.9 multiply.10 sqrt.11 add.12 log.13",
        ),
        (
            "Asin", "f16[3]", "constant.4 broadcast.14 parameter.1 convert.2 constant.3 broadcast.11 broadcast.5 "
            "subtract.6 broadcast.7 add.8 multiply.9 sqrt.10 add.12 atan2.13 multiply.15 convert.16",
        ),
        (
            "Asinh", "bf16[2]", "parameter.1 convert.2 sign.29 abs.4 constant.27 sqrt.28 broadcast.30 compare.31 "
            "abs.21 log.22 constant.23 log.24 broadcast.25 add.26 constant.3 broadcast.32 compare.33 multiply.5 "
            "broadcast.10 multiply.6 broadcast.7 add.8 sqrt.9 add.11 divide.12 add.13 log-plus-one.14 multiply.15 "
            "broadcast.16 add.17 sqrt.18 add.19 log.20 select.34 select.35 multiply.36 convert.37",
        ),
        (
            "Atanh", "f32[3]", "parameter.1 abs.11 constant.12 broadcast.13 compare.14 constant.9 broadcast.10 "
            "log-plus-one.2 negate.3 log-plus-one.4 subtract.5 constant.6 broadcast.7 multiply.8 select.15",
        ),
        (
            "Cosh", "c64[2]", "parameter.1 constant.2 log.3 broadcast.4 add.5 exponential.6 negate.7 broadcast.8 "
            "add.9 exponential.10 add.11",
        ),
        (
            "Sinh", "f32[3]", "parameter.1 abs.21 constant.14 broadcast.22 compare.23 constant.2 broadcast.19 "
            "exponential-minus-one.13 broadcast.15 add.16 divide.17 add.18 multiply.20 constant.3 log.4 broadcast.5 "
            "add.6 exponential.7 negate.8 broadcast.9 add.10 exponential.11 subtract.12 select.24",
        ),
    ],
)  # fmt: skip
def test_hyperbolic_functions(name, shape, expected):
    assert names(text_of(lambda _, x: getattr(ops, name)(x), shape)) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_values_at_the_ends(client, dtype):
    x = np.array([0.0, -0.0, 0.25, -0.5, 30, 1, -1, -3e20, np.inf, np.nan], dtype)[: 5 if dtype is np.complex64 else 10]
    builder = xc.XlaBuilder("ends")
    parameter = ops.Parameter(builder, 0, xc.shape_from_pyval(x))
    names = {"Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh", "Atanh": "arctanh",
             "Cosh": "cosh", "Sinh": "sinh"}  # fmt: skip
    ops.Tuple(builder, [getattr(ops, name)(parameter) for name in names])
    results = client.compile(builder.build()).execute([client.buffer_from_pyval(x)])
    for name, result in zip(names.values(), results, strict=True):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x)
        np.testing.assert_allclose(np.asarray(result), expected, rtol=2e-6, atol=1e-6, err_msg=name)


def test_top_k_is_a_stable_sort(client):
    text = text_of(lambda _, x: ops.TopK(x, k=2), "f32[3,5]")
    assert "compare-greater-than.3 {" in text
    assert "compare(p.0.lhs.4, p.0.rhs.5), direction=GT, type=TOTALORDER" in text
    assert "sort(parameter.1, iota.2), dimensions={1}, is_stable=true, to_apply=compare-greater-than.3" in text
    assert "set-dimension-size.13 = f32[3,2]{1,0} set-dimension-size(slice.11, constant.12), dimensions={1}" in text
    builder = xc.XlaBuilder("top")
    ops.TopK(ops.Constant(builder, np.array([3, 1, 3, 7], np.float32)), 3)
    values, positions = client.compile(builder.build()).execute([])
    assert (values.tolist(), positions.tolist()) == ([7, 3, 3], [3, 0, 2])


@pytest.mark.parametrize(
    ("value", "instructions"),
    [
        (np.full((2, 3), np.nan, np.float32), "constant.1 broadcast.2"),
        (np.array([0.0, -0.0]), "constant.1"),
        (np.array([[2]]), "constant.1"),
        (np.zeros((0, 2)), "constant.1"),
        (np.array([True, True]), "constant.1 broadcast.2"),
        (np.array([1 + 1j] * 2), "constant.1 broadcast.2"),
    ],
)
def test_constants_of_one_number(client, value, instructions):
    builder = xc.XlaBuilder("one_number")
    ops.Constant(builder, value)
    built = builder.build()
    assert names(built.as_hlo_text()) == instructions
    (found,) = client.compile(built).execute([])
    assert np.asarray(found).tobytes() == value.tobytes()


def test_only_the_broadcast_of_a_constant_is_sharded():
    builder, sharding = xc.XlaBuilder("sharded"), xc.OpSharding()
    sharding.type = xc.OpSharding.Type.REPLICATED
    builder.set_sharding(sharding)
    ops.Constant(builder, np.zeros((2, 2), np.float32))
    lines = [line for line in builder.build().as_hlo_text().split("\n") if " = " in line]
    assert ["sharding={replicated}" in line for line in lines] == [False, True]


def test_broadcasts_in_two_steps():
    text = text_of(lambda _, x: ops.BroadcastInDim(x, (2, 1, 3), (0, 2)), "f32[1,1]")
    assert "broadcast.2 = f32[1,1,1]{2,1,0} broadcast(parameter.1), dimensions={0,2}" in text
    assert "broadcast.4 = f32[2,1,3]{2,1,0} broadcast(reshape.3), dimensions={1}" in text


@pytest.mark.parametrize(("kind", "bits"), [("s32", "u32"), ("f64", "u64"), ("s8", "u8"), ("u16", "u16")])
def test_random_bits_are_unsigned(kind, bits):
    algorithm = ops.RandomAlgorithm.RNG_PHILOX
    text = text_of(lambda _, s: ops.RngBitGenerator(algorithm, s, xc.Shape(f"{kind}[4]")), "u64[2]")
    assert f"(u64[2]{{0}}, {bits}[4]{{0}}) rng-bit-generator" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((129, 2, 2, 0.5, False, 258), (256, 0)),
        ((129, 2, 10, 0.95, False, 258), (129, 0)),
        ((1000, 2, 2, 0.9, False, 2000), (128, 3)),
        ((5000, 2, 10, 0.95, False), (384, 4)),
        ((5000, 2, 1, 0.5, False, 100000), (128, 10)),
        ((100000, 1, 10, 0.9, True), (10, -1)),
    ],
)
def test_sizes_of_partial_reductions(arguments, expected):
    assert ops.ApproxTopKReductionOutputSize(*arguments) == expected


def _scalar_negation():
    builder = xc.XlaBuilder("negation")
    ops.Neg(ops.Parameter(builder, 0, xc.Shape("f32[]")))
    return builder.build()


def _text_of(make):
    builder = xc.XlaBuilder("text")
    make(builder, ops.Parameter(builder, 0, xc.Shape("f32[3]")))
    return builder.build().as_hlo_text()


def test_an_index_of_branches_is_a_number():
    negation = _scalar_negation()
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: .*s32\[\], not pred\[\]"):
        _text_of(lambda b, x: ops.Conditional(ops.Constant(b, np.bool_(True)), [negation] * 2, [x, x]))
    for shape in (xc.Shape("s32[]"), xc.Shape.array_shape(np.dtype("int32"), (), ())):
        builder = xc.XlaBuilder("indexed")
        number, index = ops.Constant(builder, np.float32(1)), ops.Parameter(builder, 0, shape)
        ops.Conditional(index, [negation] * 2, [number] * 2)
        assert "branch_computations={" in builder.build().as_hlo_text()


def test_maps_have_no_static_operands():
    negation = _scalar_negation()
    with pytest.raises(xc.XlaRuntimeError, match="UNIMPLEMENTED"):
        _text_of(lambda b, x: ops.Map(b, [x], negation, [0], [x]))


def test_an_operand_without_a_precision_has_the_default_one():
    config = xc.PrecisionConfig()
    config.operand_precision = [xc.PrecisionConfig.Precision.HIGH]
    assert "operand_precision={high,default}" in _text_of(lambda _, x: ops.Dot(x, x, config))


def test_the_default_accuracy_is_no_tolerance():
    text = _text_of(lambda _, x: ops.Exp(x, xc.ResultAccuracy()))
    assert "result_accuracy={tolerance={atol=0,rtol=0,ulps=0}}" in text
