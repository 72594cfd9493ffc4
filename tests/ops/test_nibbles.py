"""Products of packed operands: each element of eight bits has two numbers of four bits."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.passes.analysis.cost import flops_of

BACKENDS = ["cpu", "interpreter"]
PACKED = "operand_precision={packed_nibble,packed_nibble}"


def program(lhs, rhs, result, rest, opcode="dot", precision=PACKED):
    return f"""HloModule packed
ENTRY main {{
  x = {lhs} parameter(0)
  y = {rhs} parameter(1)
  ROOT r = {result} {opcode}(x, y), {rest}, {precision}
}}"""


def bits(rng, kind, *sizes):
    return rng.integers(0, 256, sizes).astype(np.uint8).view(kind)


def nibbles(array):
    """Low and high nibbles, as wide numbers: with a sign where the type has one."""
    octets = array.view(np.uint8).astype(np.int64)
    unsigned = [octets % 16, octets // 16]
    return unsigned if array.dtype == np.uint8 else [np.where(u < 8, u, u - 16) for u in unsigned]


def sums(formula, *arrays):
    """``einsum`` of the low nibbles plus that of the high ones."""
    return sum(np.einsum(formula, *pair) for pair in zip(*map(nibbles, arrays), strict=True))


def run(text, backend, *arrays):
    module = xla.HloModule.from_text(text)
    module.verify()
    return np.asarray(xla.compile(module, backend=backend)(*arrays))


DOTS = {
    "a matrix": ("ik,kj->ij", (3, 5), (5, 4), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "batches, two sums": (
        "kbil,lbkj->bij",
        (3, 2, 4, 2),
        (2, 2, 3, 5),
        "lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={0,3}, rhs_contracting_dims={2,0}",
    ),
    "an outer product": ("i,j->ij", (3,), (4,), "lhs_contracting_dims={}, rhs_contracting_dims={}"),
    "a batch of products": (
        "b,b->b",
        (6,),
        (6,),
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}",
    ),
    "numbers": (",->", (), (), "lhs_contracting_dims={}, rhs_contracting_dims={}"),
    "no products": ("ik,kj->ij", (2, 0), (0, 3), "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DOTS)
@pytest.mark.parametrize("kinds", [("s8", "s8"), ("u8", "u8")])
def test_a_dot_of_packed_operands_is_the_sum_of_the_nibbles_products(kinds, name, backend):
    formula, *shapes, rest = DOTS[name]
    check_dot(formula, kinds, shapes, rest, "s32", np.int32, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("lhs", "rhs", "result", "dtype"),
    [("s8", "u8", "s32", np.int32), ("u8", "u8", "u8", np.uint8), ("s8", "s8", "f32", np.float32)],
)
def test_a_dot_of_packed_operands_has_the_type_declared(lhs, rhs, result, dtype, backend):
    formula, *shapes, rest = DOTS["a matrix"]
    check_dot(formula, (lhs, rhs), shapes, rest, result, dtype, backend)


def check_dot(formula, kinds, shapes, rest, result, dtype, backend):
    rng = np.random.default_rng(5)
    dtypes = {"s8": np.int8, "u8": np.uint8}
    x, y = (bits(rng, dtypes[kind], *sizes) for kind, sizes in zip(kinds, shapes, strict=True))
    wanted = sums(formula, x, y)
    lhs, rhs = (f"{k}[{','.join(map(str, s))}]" for k, s in zip(kinds, shapes, strict=True))
    found = run(program(lhs, rhs, f"{result}[{','.join(map(str, wanted.shape))}]", rest), backend, x, y)
    # What does not fit into eight bits wraps.
    assert found.dtype == dtype and np.array_equal(found, wanted.astype(dtype))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("kind", "dtype"), [("s8", np.int8), ("u8", np.uint8)])
@pytest.mark.parametrize("groups", [(1, 1), (3, 1), (1, 2)])
def test_a_convolution_of_packed_operands_is_the_sum_of_those_of_the_nibbles(groups, kind, dtype, backend):
    features, batches = groups
    rng = np.random.default_rng(6)
    x, k = bits(rng, dtype, 2, 5, 6), bits(rng, dtype, 3, 6 // features, 6)
    # Each window of three begins one element before the input, and takes every second place.
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    patches = np.stack([padded[:, start : start + 3] for start in range(0, 5, 2)])
    outputs = np.arange(6)
    inputs = [outputs // (6 // features) * (6 // features) + n for n in range(6 // features)]
    wanted = np.zeros((2 // batches, 3, 6), np.int64)
    for b in range(2 // batches):
        for o in outputs:
            row = b if batches == 1 else o // 3
            seen = patches[:, row][:, :, [i[o] for i in inputs]]
            wanted[b, :, o] = sums("pwi,wi->p", seen, k[:, :, o])
    groups_text = f"feature_group_count={features}, batch_group_count={batches}"
    rest = f"window={{size=3 stride=2 pad=1_1}}, dim_labels=b0f_0io->b0f, {groups_text}"
    lhs, rhs = (f"{kind}[{','.join(map(str, a.shape))}]" for a in (x, k))
    text = program(lhs, rhs, f"s32[{','.join(map(str, wanted.shape))}]", rest, "convolution")
    assert np.array_equal(run(text, backend, x, k), wanted)


@pytest.mark.parametrize("disabled", ["expand", "packed-product"])
def test_packed_operands_are_read_as_such_where_no_pass_has_unpacked_them(disabled, monkeypatch):
    monkeypatch.setenv("XLAKIT_DISABLE_PASSES", disabled)
    rng = np.random.default_rng(7)
    x, y = bits(rng, np.int8, 17, 33), bits(rng, np.int8, 33, 18)
    rest = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    found = run(program("s8[17,33]", "s8[33,18]", "s32[17,18]", rest), "cpu", x, y)
    assert np.array_equal(found, sums("ik,kj->ij", x, y))
    k = bits(rng, np.int8, 1, 33, 2)
    rest = "window={size=1}, dim_labels=b0f_0io->b0f"
    found = run(program("s8[1,17,33]", "s8[1,33,2]", "s32[1,17,2]", rest, "convolution"), "cpu", x[None], k)
    assert np.array_equal(found, sums("bpi,wio->bpo", x[None], k))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_sum_of_packed_operands_of_dynamic_size_has_as_many_products_as_both(backend):
    text = f"""HloModule packed
ENTRY main {{
  x = s8[2,6] parameter(0)
  y = s8[6,3] parameter(1)
  n = s32[] parameter(2)
  short = s8[2,<=6] set-dimension-size(x, n), dimensions={{1}}
  ROOT r = s32[2,3] dot(short, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {PACKED}
}}"""
    rng = np.random.default_rng(8)
    x, y = bits(rng, np.int8, 2, 6), bits(rng, np.int8, 6, 3)
    found = run(text, backend, x, y, np.int32(4))
    assert np.array_equal(found, sums("ik,kj->ij", x[:, :4], y[:4]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("lhs", "precision", "message"),
    [
        ("s8", "operand_precision={packed_nibble,default}", "packed_nibble of one operand alone"),
        ("s8", "operand_precision={default,packed_nibble}", "packed_nibble of one operand alone"),
        ("s16", PACKED, "packed_nibble of an operand of type s16"),
        ("f32", PACKED, "packed_nibble of an operand of type f32"),
    ],
)
def test_packed_operands_without_a_meaning_are_refused(lhs, precision, message, backend):
    rest = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    module = xla.HloModule.from_text(program(f"{lhs}[2,4]", "s8[4,3]", "s32[2,3]", rest, precision=precision))
    module.verify()
    assert "packed_nibble" in xla.HloModule.from_proto(module.to_proto()).to_text()
    with pytest.raises(xla.UnsupportedError, match=message):
        xla.compile(module, backend=backend)


def test_the_cost_counts_both_numbers_of_an_element():
    def flops(*arguments):
        return flops_of(xla.HloModule.from_text(program(*arguments)).entry)

    dot = ("s8[3,5]", "s8[5,4]", "s32[3,4]", DOTS["a matrix"][3])
    assert flops(*dot) == 2 * flops(*dot, "dot", "operand_precision={highest,highest}") == 2 * (2 * 3 * 5 * 4)
    conv = ("s8[1,6,2]", "s8[3,2,4]", "s32[1,4,4]", "window={size=3}, dim_labels=b0f_0io->b0f", "convolution")
    assert flops(*conv) == 2 * flops(*conv, "operand_precision={highest,highest}") == 2 * (2 * 4 * 4 * 3 * 2)
