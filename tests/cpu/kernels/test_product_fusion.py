"""What follows a product is computed block by block: the same numbers as on the interpreter, in every type."""

import re

import numpy as np
import pytest

import xlakit as xla
from fuzz.modules import difference
from fuzz.programs.values import SMALL, make_values
from xlakit.cpu.kernels.product_fusion.tiling import tile_first
from xlakit.passes.fusion.product_chain import chain_of

ADD = "add { a = KIND[] parameter(0) b = KIND[] parameter(1) ROOT r = KIND[] add(a, b) }"
MAX = "max { a = KIND[] parameter(0) b = KIND[] parameter(1) ROOT r = KIND[] maximum(a, b) }"


def run_fused(text):
    """Run a program on both backends; the products' followers must be in their fusions."""
    module = xla.HloModule.from_text(text)
    compiled = xla.compile(module, backend="cpu")
    assert ".after" in compiled.llvm_ir()
    assert not compiled.host_instructions
    rng = np.random.default_rng(3)
    shapes = module.entry.program_shape.parameters
    values = [make_values(rng, s.element_type.hlo_name, s.dimensions, SMALL) for s in shapes]
    actual, expected = compiled(*values), xla.compile(module, backend="interpreter")(*values)
    for a, e in zip(*(r if isinstance(r, tuple) else (r,) for r in (actual, expected)), strict=True):
        parts = [(a, e)] if a.dtype.kind != "c" else [(a.real, e.real), (a.imag, e.imag)]
        assert not any(difference(x, y) for x, y in parts)
    return compiled


def dense(kind, rows, columns, depth, follows, result, operands=""):
    """A product ``s`` with a row ``b``, a column ``c`` and a matrix ``m`` at hand."""
    return f"""HloModule dense
      {ADD.replace("KIND", kind)}
      ENTRY e {{
        x = {kind}[{rows},{depth}] parameter(0)
        y = {kind}[{depth},{columns}] parameter(1)
        row = {kind}[{columns}] parameter(2)
        column = {kind}[{rows}] parameter(3)
        m = {kind}[{rows},{columns}] parameter(4)
        b = {kind}[{rows},{columns}] broadcast(row), dimensions={{1}}
        c = {kind}[{rows},{columns}] broadcast(column), dimensions={{0}}
        s = {kind}[{rows},{columns}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        {follows.replace("T[]", f"{kind}[{rows},{columns}]")}
        ROOT result = {result.replace("T[]", f"{kind}[{rows},{columns}]")}
      }}"""


BIAS = "t = T[] add(s, b) u = T[] maximum(t, c) "
# Rows and columns that fill no tile; several blocks; many rows and columns.
SIZES = [(9, 17, 5), (33, 40, 70), (130, 1030, 20), (200, 160, 100)]


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "s8", "u8", "s32", "s64", "f8e4m3fn", "s4"])
@pytest.mark.parametrize("sizes", SIZES[1:2], ids=str)
def test_elements_follow_in_every_type(kind, sizes):
    run_fused(dense(kind, *sizes, BIAS, "T[] add(u, m)"))


@pytest.mark.parametrize("kind", ["c64", "c128"])
def test_elements_follow_complex_products(kind):
    run_fused(dense(kind, 20, 24, 9, "t = T[] add(s, b) u = T[] multiply(t, c)", "T[] subtract(u, m)"))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_elements_follow_whatever_computes_the_product(sizes):
    run_fused(dense("f32", *sizes, BIAS, "T[] multiply(u, u)"))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_product_may_be_a_result_too(sizes):
    rows, columns, _ = sizes
    shape = f"f32[{rows},{columns}]"
    run_fused(dense("f32", *sizes, BIAS + f"v = bf16[{rows},{columns}] convert(u)", "(T[], T[]) tuple(s, u)"))
    text = dense(
        "f32", *sizes, f"v = bf16[{rows},{columns}] convert(s)", f"(bf16[{rows},{columns}], {shape}) tuple(v, s)"
    )
    run_fused(text)


def test_a_wider_or_a_narrower_type_follows():
    for kind, wide in (("f32", "bf16"), ("bf16", "f32"), ("s8", "f64"), ("f32", "pred")):
        cast = "compare(s, m), direction=LT" if wide == "pred" else "convert(s)"
        run_fused(dense(kind, 40, 50, 30, "", f"{wide}[40,50] {cast}"))


def test_a_result_in_the_place_of_an_argument():
    text = dense("f32", 64, 48, 32, "t = T[] add(s, b)", "T[] subtract(m, t)")
    text = text.replace("HloModule dense", "HloModule dense, input_output_alias={ {}: (4, {}, may-alias) }")
    compiled = run_fused(text)
    rng = np.random.default_rng(5)
    sizes = (64, 32), (32, 48), (48,), (64,), (64, 48)
    values = [rng.standard_normal(size).astype(np.float32) for size in sizes]
    expected = values[4] - (values[0] @ values[1] + values[2])
    actual = compiled(*values, donate=(4,))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(3, 4, 5, 6, 2, 9), (2, 33, 1, 40, 3, 17)], ids=str)
def test_many_dimensions(sizes):
    b, r1, r2, c1, c2, depth = sizes
    out = f"f32[{b},{r1},{r2},{c1},{c2}]"
    run_fused(f"""HloModule many
      ENTRY e {{
        x = f32[{b},{r1},{r2},{depth}] parameter(0)
        y = f32[{b},{c1},{c2},{depth}] parameter(1)
        p = f32[{r1},{c2}] parameter(2)
        q = f32[{b},{r2},{c1}] parameter(3)
        pb = {out} broadcast(p), dimensions={{1,4}}
        qb = {out} broadcast(q), dimensions={{0,2,3}}
        s = {out} dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{3}},
          rhs_contracting_dims={{3}}
        t = {out} add(s, pb)
        u = {out} multiply(t, qb)
        i = s32[{b},{r1},{r2},{c1},{c2}] iota(), iota_dimension=3
        j = s32[{b},{r1},{r2},{c1},{c2}] iota(), iota_dimension=1
        z = pred[{b},{r1},{r2},{c1},{c2}] compare(i, j), direction=LE
        v = {out} select(z, u, s)
        ROOT result = f32[{b * r1 * r2},{c1},{c2}] reshape(v)
      }}""")


def softmax(shape, kind, over="3", kept="0,1,2"):
    rows = shape.rpartition(",")[0]
    return f"""
        low = {kind}[] constant(-inf)
        zero = {kind}[] constant(0)
        top = {kind}[{rows}] reduce(t, low), dimensions={{{over}}}, to_apply=max
        topb = {kind}[{shape}] broadcast(top), dimensions={{{kept}}}
        d = {kind}[{shape}] subtract(t, topb)
        ex = {kind}[{shape}] exponential(d)
        total = {kind}[{rows}] reduce(ex, zero), dimensions={{{over}}}, to_apply=add
        totalb = {kind}[{shape}] broadcast(total), dimensions={{{kept}}}
        w = {kind}[{shape}] divide(ex, totalb)"""


def attention(kind, sizes, result, order="bqhd"):
    b, h, q, k, d = sizes
    scores = f"{b},{h},{q},{k}"
    last = f"{b},{q},{h},{d}"
    return f"""HloModule attention
      {ADD.replace("KIND", kind)}
      {MAX.replace("KIND", kind)}
      ENTRY e {{
        x = {kind}[{b},{h},{q},{d}] parameter(0)
        y = {kind}[{b},{h},{k},{d}] parameter(1)
        z = {kind}[{b},{h},{k},{d}] parameter(2)
        s = {kind}[{scores}] dot(x, y), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}},
          rhs_contracting_dims={{3}}
        least = {kind}[] constant(-50)
        leastb = {kind}[{scores}] broadcast(least), dimensions={{}}
        i = s32[{scores}] iota(), iota_dimension=2
        j = s32[{scores}] iota(), iota_dimension=3
        mask = pred[{scores}] compare(i, j), direction=GE
        t = {kind}[{scores}] select(mask, s, leastb)
        {softmax(scores, kind)}
        o = {kind}[{b},{h},{q},{d}] dot(w, z), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}},
          lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}
        p = {kind}[{last}] transpose(o), dimensions={{0,2,1,3}}
        r = {kind}[{b * q},{h * d}] reshape(p)
        ROOT result = {result}
      }}"""


# Batches and heads of one, too, whose dimensions of size 1 passes leave out of the reductions' results.
ATTENTION = [(1, 2, 37, 45, 16), (2, 1, 150, 70, 20), (2, 2, 33, 40, 16)]


def run_attention(text):
    """Run an attention, all of which must be one fusion."""
    compiled = run_fused(text)
    kernels = re.findall(r"define void @hlo\.([\w.]+?)(?:\.after|\.last)?\(", compiled.llvm_ir())
    assert len(set(kernels)) == 1
    return compiled


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("sizes", ATTENTION, ids=str)
def test_attention(kind, sizes):
    b, h, q, k, d = sizes
    run_attention(attention(kind, sizes, f"{kind}[{b * q},{h * d}] negate(r)"))
    # The weights and the sums leave the fusion, too.
    shapes = [f"{kind}[{b},{q},{h},{d}]", f"{kind}[{b},{h},{q},{k}]", f"{kind}[{b},{h},{q}]"]
    run_attention(attention(kind, sizes, f"({', '.join(shapes)}) tuple(p, w, total)"))


def test_weights_go_through_the_caches():
    # The rectangle that they stand in is read at once, by the second product.
    compiled = run_attention(attention("f32", (2, 1, 300, 256, 16), "f32[600,16] negate(r)"))
    assert "nontemporal" not in compiled.llvm_ir()


@pytest.mark.usefixtures("usual_machine")
@pytest.mark.parametrize(("keys", "rows"), [(128, 512), (1024, 256), (4096, 64)])
def test_rectangles_of_rows_stay_in_the_second_level_cache(keys, rows):
    # Of 512 KiB; many rows may take some more, so that the other operand is packed for each of a few rectangles only.
    text = attention("f32", (1, 1, 8192, keys, 64), "f32[8192,64] negate(r)")
    chain = chain_of(xla.HloModule.from_text(text).entry)
    assert chain is not None
    assert rows <= tile_first(chain, reads_beside=False).most < rows + 12


def test_attention_that_sums_in_a_wider_type():
    text = attention("f32", (1, 2, 40, 50, 16), "bf16[40,32] negate(r)")
    for old, new in (
        ("f32[1,2,40,16] parameter", "bf16[1,2,40,16] parameter"),
        ("f32[1,2,50,16] parameter", "bf16[1,2,50,16] parameter"),
        ("o = f32[1,2,40,16] dot(w, z)", "n = bf16[1,2,40,50] convert(w)  o = bf16[1,2,40,16] dot(n, z)"),
        ("  p = f32", "  p = bf16"),
        ("  r = f32[40", "  r = bf16[40"),
    ):
        assert old in text
        text = text.replace(old, new)
    run_fused(text)


def test_rows_follow_a_product():
    for kind, rows, columns, depth in (("f32", 100, 90, 60), ("bf16", 70, 33, 20), ("f32", 130, 257, 129)):
        text = dense(
            kind,
            rows,
            columns,
            depth,
            "t = T[] add(s, b) " + softmax(f"{rows},{columns}", kind, "1", "0"),
            "T[] add(w, m)",
        )
        run_fused(text.replace("ENTRY", MAX.replace("KIND", kind) + " ENTRY"))


CONVOLUTIONS = {
    "last": ("2,9,11,6", "3,3,6,20", "2,9,11,20", "b01f_01io->b01f", 3),
    "first": ("2,6,9,37", "20,6,3,3", "2,20,9,37", "bf01_oi01->bf01", 1),
}


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_elements_follow_a_convolution(kind, name):
    lhs, rhs, out, labels, feature = CONVOLUTIONS[name]
    run_fused(f"""HloModule convolution
      ENTRY e {{
        x = {kind}[{lhs}] parameter(0)
        y = {kind}[{rhs}] parameter(1)
        bias = {kind}[20] parameter(2)
        m = {kind}[{out}] parameter(3)
        s = {kind}[{out}] convolution(x, y), window={{size=3x3 pad=1_1x1_1}}, dim_labels={labels}
        b = {kind}[{out}] broadcast(bias), dimensions={{{feature}}}
        t = {kind}[{out}] add(s, b)
        zero = {kind}[] constant(0)
        z = {kind}[{out}] broadcast(zero), dimensions={{}}
        u = {kind}[{out}] maximum(t, z)
        v = {kind}[{out}] add(u, m)
        ROOT result = ({kind}[{out}], {kind}[{out}]) tuple(u, v)
      }}""")
