"""Batches of products of small matrices are loops, with the numbers that the dot has."""

import numpy as np
import pytest
from cpu.agreeing import agree_on_small_values

import xlakit as xla
from fuzz.modules import difference
from fuzz.programs.values import SMALL, make_values
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline


def program(lhs, rhs, result, batch, contracting, kind="f32"):
    of = kind if isinstance(kind, tuple) else (kind, kind, kind)
    numbers = ", ".join(
        f"{side}_{what}_dims={{{','.join(map(str, dims))}}}"
        for what, pair in (("batch", batch), ("contracting", contracting))
        for side, dims in zip(("lhs", "rhs"), pair, strict=True)
        if dims
    )
    left, right, made = (f"{k}[{','.join(map(str, s))}]" for k, s in zip(of, (lhs, rhs, result), strict=True))
    return xla.HloModule.from_text(f"""
    HloModule products
    ENTRY e {{
      a = {left} parameter(0)
      b = {right} parameter(1)
      ROOT c = {made} dot(a, b), {numbers}
    }}""")


def opcodes(module):
    return {i.opcode for c in run_pipeline(module).computations for i in c.instructions}


CASES = {
    "matrices": ((5, 4, 4), (5, 4, 4), (5, 4, 4), ([0], [0]), ([2], [1])),
    "transposed": ((4, 5, 3), (2, 3, 5), (5, 4, 2), ([1], [2]), ([2], [1])),
    "two batches": ((2, 6, 3, 3), (6, 3, 2, 3), (6, 2, 3, 3), ([1, 0], [0, 2]), ([3], [1])),
    "two sums": ((7, 2, 3, 4), (7, 3, 2, 2), (7, 4, 2), ([0], [0]), ([1, 2], [2, 1])),
    "a vector": ((6, 3, 4), (6, 4), (6, 3), ([0], [0]), ([2], [1])),
}


@pytest.mark.parametrize("kind", ["f32", "f64", "s32", "u8", "c64", "bf16", "f16", ("s8", "s8", "s32")], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_interpreter(case, kind):
    module = program(*CASES[case], kind)
    assert "dot" not in opcodes(module)
    agree_on_small_values(module, 3, cache=False)


@pytest.mark.parametrize(
    "sizes",
    [
        # One matrix, a long sum, and matrices for which a micro-kernel is faster.
        ((1, 4, 4), (1, 4, 4), (1, 4, 4)),
        ((5, 2, 17), (5, 17, 2), (5, 2, 2)),
        ((5, 7, 7), (5, 7, 7), (5, 7, 7)),
    ],
    ids=str,
)
def test_other_products_stay(sizes):
    assert "dot" in opcodes(program(*sizes, ([0], [0]), ([2], [1])))


def test_the_limit_is_a_knob():
    module = program(*CASES["matrices"])
    with compiling(knobs={"small_products.most_products": 63}):
        assert "dot" in opcodes(module)


def test_a_chain_stays_short():
    text = ["HloModule chain", "ENTRY e {", "  x0 = f32[40,4,4] parameter(0)"]
    numbers = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    text += [f"  x{n + 1} = f32[40,4,4] dot(x{n}, x{n}), {numbers}" for n in range(32)]
    module = xla.HloModule.from_text("\n".join([*text, "  ROOT r = f32[40,4,4] negate(x32)", "}"]))
    # Nothing is computed again for each product that is a sum of others.
    assert sum(len(c.instructions) for c in run_pipeline(module).computations) < 32 * 16


def bags(swapped, uses, kind="f32", width=20):
    """Rows of a table that are gathered, weighted and added up, for each of five bags."""
    rows, weights = f"{kind}[5,7,{width}] rows", f"{kind}[5,7] w"
    numbers = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    return xla.HloModule.from_text(f"""
    HloModule bags
    ENTRY e {{
      table = {kind}[30,{width}] parameter(0)
      at = s32[5,7] parameter(1)
      w = {kind}[5,7] parameter(2)
      rows = {kind}[5,7,{width}] gather(table, at), offset_dims={{2}}, collapsed_slice_dims={{0}},
        start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1,{width}}}
      bags = {kind}[5,{width}] dot({f"{rows}, {weights}" if swapped else f"{weights}, {rows}"}), {numbers}
      ROOT r = ({kind}[5,{width}]{f", {kind}[5,7,{width}]" * (uses - 1)}) tuple(bags{", rows" * (uses - 1)})
    }}""")


@pytest.mark.parametrize("kind", ["f32", "f64", "s32", "bf16"])
@pytest.mark.parametrize("swapped", [False, True])
def test_gathered_rows_are_added_up_where_they_are(swapped, kind):
    module = bags(swapped, 1, kind)
    with compiling(knobs={"small_products.most_products": 0}):
        assert "dot" not in opcodes(module)
    rng = np.random.default_rng(4)
    table, weights = (make_values(rng, kind, sizes, SMALL) for sizes in ((30, 20), (5, 7)))
    at = rng.integers(-2, 32, (5, 7)).astype(np.int32)
    (actual,) = xla.compile(module, backend="cpu", cache=False)(table, at, weights)
    (expected,) = xla.compile(module, backend="interpreter")(table, at, weights)
    assert not difference(actual, expected)


@pytest.mark.parametrize(("uses", "width"), [(2, 20), (1, 8)])
def test_rows_that_are_stored_or_short_are_left_to_a_product(uses, width):
    with compiling(knobs={"small_products.most_products": 0}):
        assert "dot" in opcodes(bags(swapped=False, uses=uses, width=width))
