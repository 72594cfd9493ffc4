"""Attention of cuDNN and products with scales compute what their operands and backend_config say, on both backends."""

import ml_dtypes
import numpy as np
import pytest
from foreign_programs import check, drawn, program, wide

import xlakit
from xlakit.errors import ShapeError, UnsupportedError

B, N, S, T, D = 2, 2, 5, 4, 3


def numbers(lhs, rhs, lhs_batch=(0, 1), rhs_batch=(0, 1)):
    keys = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    values = ([lhs], [rhs], lhs_batch, rhs_batch)
    return {f"{key}_dimensions": list(map(str, value)) for key, value in zip(keys, values, strict=True)}


def config(heads, **fields):
    """The config of attention; ``heads`` is the dimension of the heads in its operands."""
    at, place = (0, heads), 3 - heads
    found = {
        "fmha_scale": 0.5,
        "dropout_rate": 0,
        "bmm1_dot_dimension_numbers": numbers(3, 3, at, at),
        "bmm2_dot_dimension_numbers": numbers(3, place, rhs_batch=at),
        "bmm1_grad_gemm1_dot_dimension_numbers": numbers(2, place, rhs_batch=at),
        "bmm1_grad_gemm2_dot_dimension_numbers": numbers(3, place, rhs_batch=at),
        "bmm2_grad_gemm2_dot_dimension_numbers": numbers(3, 3, at, at),
        "mask_type": "NO_MASK",
    }
    return {"cudnn_fmha_backend_config": {**found, **fields}}


def moved(array, heads):
    """Operands between [batch, head, place, feature] and the order of a config."""
    return array if heads == 1 else array.swapaxes(1, 2)


def attention(q, k, v, mask, bias=0.0):
    scores = np.where(mask, 0.5 * q @ k.swapaxes(2, 3) + bias, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)))
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300) @ v


ROWS, COLUMNS = np.arange(S)[:, None], np.arange(T)[None, :]
LENGTHS = np.array([5, 2], np.int32), np.array([4, 3], np.int32)
MASKS = {
    "NO_MASK": np.ones((S, T), bool),
    "CAUSAL": COLUMNS <= ROWS,
    "PADDING": np.stack([[(q > ROWS) & (k > COLUMNS)] for q, k in zip(*LENGTHS, strict=True)]),
}


def text_of(shapes, results, target, made, element=0):
    return program(shapes, f"({', '.join(results)})", target, made, element=element)


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize(("heads", "mask"), [(1, "CAUSAL"), (2, "NO_MASK"), (2, "PADDING")])
def test_attention(kind, heads, mask):
    q, k, v = (drawn((B, N, n, D), kind, seed) for seed, n in enumerate((S, T, T)))
    arguments = [moved(x, heads) for x in (q, k, v)] + (list(LENGTHS) if mask == "PADDING" else [])
    shapes = [f"{kind}[{','.join(map(str, x.shape))}]" for x in arguments[:3]] + ["s32[2]"] * (len(arguments) - 3)
    results = [f"{kind}[{B},{N},{S},{D}]", "u8[0]"]
    text = text_of(shapes, results, "__cudnn$fmhaSoftmax", config(heads, mask_type=mask))
    check(text, arguments, attention(wide(q), wide(k), wide(v), MASKS[mask]), kind)


def test_a_window_and_a_bias():
    q, k, v = (drawn((B, N, n, D), "f32", seed) for seed, n in enumerate((S, T, T)))
    bias = drawn((1, N, S, T), "f32", 3)
    shapes = [f"f32[{B},{N},{S},{D}]", *[f"f32[{B},{N},{T},{D}]"] * 2, f"f32[1,{N},{S},{T}]"]
    made = config(1, mask_type="CAUSAL", sliding_window_length=2)
    text = text_of(shapes, [f"f32[{B},{N},{S},{D}]", "u8[0]"], "__cudnn$fmhaScaleBiasSoftmax", made)
    mask = (COLUMNS <= ROWS) & (COLUMNS > ROWS - 2)
    check(text, [q, k, v, bias], attention(wide(q), wide(k), wide(v), mask, bias), "f32")


def test_a_head_of_keys_serves_several_of_queries():
    q, k, v, gradient = (drawn((B, n, S, D), "f32", seed) for seed, n in enumerate((4, 2, 2, 4)))
    many, few = f"f32[{B},4,{S},{D}]", f"f32[{B},2,{S},{D}]"
    text = text_of([many, few, few], [many, "u8[0]"], "__cudnn$fmhaSoftmax", config(1))
    mask = np.ones((S, S), bool)
    output = attention(wide(q), wide(k).repeat(2, 1), wide(v).repeat(2, 1), mask)
    check(text, [q, k, v], output, "f32")
    scores = 0.5 * wide(q) @ wide(k).repeat(2, 1).swapaxes(2, 3)
    statistics = np.log(np.exp(scores).sum(-1))
    shapes = [many, few, few, f"f32[{B},4,{S}]", many, many]
    text = text_of(shapes, [many, few, few, "u8[0]"], "__cudnn$fmhaSoftmaxBackward", config(1), 2)
    weights = np.exp(scores - statistics[..., None])
    wanted = (weights.swapaxes(2, 3) @ wide(gradient)).reshape(B, 2, 2, S, D).sum(2)
    check(text, [q, k, v, statistics.astype("f4"), gradient, output.astype("f4")], wanted, "f32")


def test_gradients_are_those_of_the_attention():
    mask = MASKS["CAUSAL"]
    q, k, v = (drawn((B, N, n, D), "f64", seed) for seed, n in enumerate((S, T, T)))
    bias, gradient = drawn((1, N, S, T), "f64", 3), drawn((B, N, S, D), "f64", 4)
    made = config(2, mask_type="CAUSAL")
    big, small, of_bias = f"f64[{B},{S},{N},{D}]", f"f64[{B},{T},{N},{D}]", f"f64[1,{N},{S},{T}]"
    results = [f"f64[{B},{N},{S},{D}]", f"f64[{B},{N},{S}]", "u8[0]"]
    operands = [moved(x, 2) for x in (q, k, v)]
    values = []
    for element in (0, 1):
        text = text_of([big, small, small, of_bias], results, "__cudnn$fmhaScaleBiasSoftmax", made, element)
        values.append(np.asarray(xlakit.compile(xlakit.HloModule.from_text(text))(*operands, bias)))
    output, statistics = values
    shapes = [big, small, small, results[1], big, of_bias, big]
    given = [*operands, statistics, moved(gradient, 2), bias, moved(output, 2)]
    results = [results[0], *[f"f64[{B},{N},{T},{D}]"] * 2, of_bias, "u8[0]"]
    for element, step in enumerate(drawn(x.shape, "f64", 9) for x in (q, k, v, bias)):
        text = text_of(shapes, results, "__cudnn$fmhaScaleBiasSoftmaxBackward", made, element)
        found = np.asarray(xlakit.compile(xlakit.HloModule.from_text(text))(*given))
        up, down = ([x + h * step if i == element else x for i, x in enumerate((q, k, v, bias))] for h in (1e-5, -1e-5))
        change = (attention(*up[:3], mask, up[3]) - attention(*down[:3], mask, down[3])) / 2e-5
        assert np.isclose((gradient * change).sum(), (found * step).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "error", "rule"),
    [
        ({"dropout_rate": 0.5}, UnsupportedError, "dropout_rate 0.5"),
        ({"mask_type": "ALIBI"}, UnsupportedError, "mask_type 'ALIBI'"),
        ({"mask_type": "PADDING"}, ShapeError, "5 operands"),
        ({"bmm1_dot_dimension_numbers": {}}, ShapeError, "is no operand of attention"),
    ],
)
def test_what_has_no_meaning(fields, error, rule):
    shapes = [f"f32[{B},{N},{S},{D}]"] * 3
    text = text_of(shapes, [shapes[0], "u8[0]"], "__cudnn$fmhaSoftmax", config(1, **fields))
    with pytest.raises(error, match=rule):
        xlakit.compile(xlakit.HloModule.from_text(text))


E4M3, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu


def test_eight_bit_products_and_their_scales():
    a, b = drawn((4, 3), "f32", 0).astype(E4M3), drawn((5, 3), "f32", 1).astype(E4M3)
    bias = drawn((5,), "bf16", 2)
    made = {
        "alpha_real": 2,
        "beta": 0,
        "dot_dimension_numbers": numbers(1, 1, (), ()),
        "epilogue": "BIAS",
    }
    shapes = ["f8e4m3fn[4,3]", "f8e4m3fn[5,3]", "f32[]", "f32[]", "bf16[5]"]
    text = program(shapes, "(bf16[4,5], s8[64])", "__cublas$lt$matmul$f8", {"gemm_backend_config": made})
    wanted = 2 * 0.5 * 3 * wide(a) @ wide(b).T + wide(bias)
    check(text, [a, b, np.float32(0.5), np.float32(3), bias], wanted, "bf16")


@pytest.mark.parametrize("scaled", [1, 2, 3])
def test_products_with_scales_of_blocks(scaled):
    a, b = drawn((2, 4, 64), "f32", 0).astype(E4M3), drawn((2, 3, 64), "f32", 1).astype(E4M3)
    scales = [np.exp2(np.arange(n).reshape(2, -1, 2) % 3 - 1).astype(E8M0) for n in (16, 12)][:scaled]
    of_all = [np.float32(3)] if scaled == 3 else []
    shapes = ["f8e4m3fn[2,4,64]", "f8e4m3fn[2,3,64]", "f8e8m0fnu[2,4,2]", "f8e8m0fnu[2,3,2]", "f32[]"][: 2 + scaled]
    text = program(shapes, "f32[2,4,3]", "__op$block_scaled_dot", {})
    lhs, rhs = wide(a) * wide(scales[0]).repeat(32, -1), wide(b) * (wide(scales[1]).repeat(32, -1) if scales[1:] else 1)
    wanted = np.einsum("bmk,bnk->bmn", lhs, rhs) * (3 if of_all else 1)
    check(text, [a, b, *scales, *of_all], wanted, "f32")


def test_blocks_are_quantized_by_their_largest_values():
    x = drawn((3, 64), "f32", 0)
    scales = (np.abs(x).reshape(3, 2, 32).max(-1) / 256).astype(E8M0)
    values = (x / scales.astype("f4").repeat(32, -1)).astype(E4M3)
    for element, wanted in enumerate((values, scales)):
        text = program(["f32[3,64]"], "(f8e4m3fn[3,64], f8e8m0fnu[3,2])", "__op$quantize", {}, element=element)
        for backend in ("interpreter", "cpu"):
            found = xlakit.compile(xlakit.HloModule.from_text(text), backend=backend)(x)
            np.testing.assert_array_equal(wide(found), wide(wanted))
    with pytest.raises(ShapeError, match="cannot be quantized with the scales"):
        xlakit.compile(xlakit.HloModule.from_text(text.replace("f8e8m0fnu[3,2]", "f8e8m0fnu[3,5]")))
    with pytest.raises(UnsupportedError, match="values and scales are floats"):
        xlakit.compile(xlakit.HloModule.from_text(text.replace("f8e4m3fn", "s8")))
    text = program(["f32[3,64]"], "((f32[]), f8e8m0fnu[3,2])", "__op$quantize", {}, element=1)
    with pytest.raises(ShapeError, match="the result must be an array"):
        xlakit.compile(xlakit.HloModule.from_text(text))


def test_padded_scales_need_the_size_of_a_block():
    value, scales = drawn((4, 32), "f32", 0).astype(E4M3), np.exp2(np.arange(16).reshape(4, 4) % 2).astype(E8M0)
    made = {"block_scaled_dot_backend_config": {"block_size": 16}}
    text = program(["f8e4m3fn[4,32]", "f8e8m0fnu[4,4]"], "f32[4,32]", "__op$dequantize", made)
    check(text, [value, scales], wide(value) * wide(scales)[:, :2].repeat(16, -1), "f32")
    with pytest.raises(ShapeError, match="cannot have the scales"):
        bad = program(["f8e4m3fn[4,30]", "f8e8m0fnu[4,4]"], "f32[4,30]", "__op$dequantize", {})
        xlakit.compile(xlakit.HloModule.from_text(bad))
