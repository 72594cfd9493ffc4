"""Reductions that are cut into parts, which threads fold apart, and rows whose values do not fit on the stack.

See loops/nests/reduced.py, columns.py and rows.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from cpu.agreeing import agree, numbers

import xlakit as xla
import xlakit.cpu.loops.nests.columns
import xlakit.cpu.loops.nests.rows
from xlakit import machine
from xlakit.options import compiling

PROGRAM = """HloModule reduction
step {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] {operation}(a, b)
}}
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  start = {kind}[] {start}
  ROOT r = {kind}[] reduce(x, start), dimensions={{0}}, to_apply=step
}}"""


@pytest.mark.parametrize(
    ("kind", "operation", "start", "expected"),
    [
        ("f64", "add", "constant(0)", np.sum),
        ("s32", "maximum", "constant(-2147483648)", np.max),
        ("f32", "minimum", "constant(inf)", np.min),
    ],
)
def test_alone_with_its_constant(kind, operation, start, expected):
    text = PROGRAM.format(kind=kind, operation=operation, start=start, n=3_000_001)
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    assert "r.parts" in executable.llvm_ir()
    dtype = executable.module.entry.root.shape.element_type.dtype
    x = np.random.default_rng(0).integers(-1000, 1000, 3_000_001).astype(dtype)
    with xla.threads(1):
        once = executable(x)
    assert once == executable(x) == expected(x)


def test_a_start_that_counts_is_counted_once():
    for start in ("constant(7)", "parameter(1)"):
        text = PROGRAM.format(kind="s64", operation="add", start=start, n=1_000_000)
        executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
        arguments = [np.arange(1_000_000), np.int64(7)][: 1 + (start != "constant(7)")]
        assert executable(*arguments) == 499_999_500_007


def test_constants_tell_kernels_apart():
    text = """HloModule two
    step {
      a = f64[] parameter(0)
      b = f64[] parameter(1)
      ROOT s = f64[] add(a, b)
    }
    ENTRY e {
      x = f64[1000] parameter(0)
      y = f64[1000] parameter(1)
      one = f64[] constant(1)
      two = f64[] constant(2)
      r = f64[] reduce(x, one), dimensions={0}, to_apply=step
      s = f64[] reduce(y, two), dimensions={0}, to_apply=step
      ROOT t = (f64[], f64[]) tuple(r, s)
    }"""
    x = np.ones(1000)
    assert xla.compile(xla.HloModule.from_text(text), backend="cpu")(x, x) == (1001, 1002)


JUMPING = """HloModule jumping
add {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT s = {kind}[] add(a, b)
}}
larger {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT m = {kind}[] maximum(a, b)
}}
ENTRY e {{
  x = {kind}[{sizes}] parameter(0)
  zero = {kind}[] constant(0)
  least = {kind}[] constant({least})
  d = {kind}[{sizes}] multiply(x, x)
  sum = {kind}[{kept}] reduce(d, zero), dimensions={{{over}}}, to_apply=add
  top = {kind}[{kept}] reduce(x, least), dimensions={{{over}}}, to_apply=larger
  both = {kind}[{kept}] add(sum, top)
  ROOT r = ({kind}[{kept}], {kind}[{kept}]) tuple(both, top)
}}"""


@pytest.mark.parametrize(
    ("kind", "sizes", "over"),
    [
        ("f32", (5, 9, 33), (0, 2)),
        ("f64", (4, 3, 5, 64), (0, 3)),
        ("bf16", (3, 4, 5, 6, 17), (1, 4)),
        ("s32", (7, 11, 2, 40), (0, 2, 3)),
    ],
)
def test_rows_that_jump_are_reduced_run_by_run(kind, sizes, over):
    kept = [size for d, size in enumerate(sizes) if d not in over]
    text = JUMPING.format(
        kind=kind,
        sizes=",".join(map(str, sizes)),
        kept=",".join(map(str, kept)),
        over=",".join(map(str, over)),
        least="-2147483648" if kind == "s32" else "-inf",
    )
    module = xla.HloModule.from_text(text)
    x = np.random.default_rng(0).integers(-9, 9, sizes).astype(module.entry.parameters[0].shape.element_type.dtype)
    if kind != "s32":
        x[0, 0, 0] = np.nan
    with compiling(knobs={"rows.far_bytes": 0, "rows.most_streams": 1}):
        executable = xla.compile(module, backend="cpu")
    assert ".parts" in executable.llvm_ir()
    for found, expected in zip(executable(x), xla.compile(module, backend="interpreter")(x), strict=True):
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(
    ("sizes", "in_parts"),
    [((64, 129, 255), True), ((16, 516, 255), False), ((64, 12, 255), False), ((64, 12, 2550), False)],
)
def test_rows_of_many_runs_beyond_the_second_level_cache_are_reduced_run_by_run(monkeypatch, sizes, in_parts):
    described = replace(machine.current(), l2=1 << 20, l3=1 << 28)
    monkeypatch.setattr(machine, "current", lambda: described)
    kept = sizes[1]
    text = JUMPING.format(kind="f32", sizes=",".join(map(str, sizes)), kept=kept, over="0,2", least="-inf")
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    assert (".parts" in executable.llvm_ir()) is in_parts


@pytest.mark.parametrize(
    ("sizes", "over"), [((3, 400, 20), [1]), ((2, 3, 100, 3, 20), [2, 3]), ((30, 5, 40, 20), [0, 2])]
)
@pytest.mark.parametrize("strip", [1, 1024])
def test_columns_of_several_arrays_are_added_in_parts(sizes, over, strip):
    x = numbers(np.float32, *sizes)
    with compiling(knobs={"columns.strip_bytes": strip, "kernel.task_nanoseconds": 1.0}):
        agree(lambda x: xla.reduce(x + x, np.float32(1), xla.add, over), x)


def test_a_row_keeps_its_values_beside_the_stack():
    def scaled(x):
        rooted = xla.sqrt(x)
        total = xla.reduce(rooted, np.float32(0), xla.add, [1])
        return xla.sub(rooted, total, broadcast_dimensions=[0])

    x = numbers(np.float32, 5, 200) ** 2
    with compiling(knobs={"rows.stack_bytes": 0}):
        agree(scaled, x)


# Long rows are read in several parts side by side.
_LONG = 1 << 17
_SUM = """  zero = f32[] constant(0)
  ROOT s = f32[] reduce(x0, zero), dimensions={0}, to_apply=add"""


def _long_rows(body, sizes, result="f32[]"):
    operands = ", ".join(f"x{n}: f32[{size}]" for n, size in enumerate(sizes))
    parameters = "".join(f"  x{n} = f32[{size}]{{0}} parameter({n})\n" for n, size in enumerate(sizes))
    return xla.HloModule.from_text(f"""HloModule streams

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

larger {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}

ENTRY main ({operands}) -> {result} {{
{parameters}{body}
}}
""")


def _whole_numbers(size, seed):
    return np.random.default_rng(seed).integers(-3, 4, size).astype(np.float32)


@pytest.mark.parametrize("vector", [16, 32, 64])
@pytest.mark.parametrize("size", [_LONG, _LONG + 64, _LONG + 77, 40_961, 3])
@pytest.mark.parametrize("bytes", [64, 4096, 1 << 40])
def test_sums_of_long_rows(vector, size, bytes):
    made = _long_rows(_SUM, [size])
    x = _whole_numbers(size, size)
    with compiling(vector_bytes=vector, knobs={"rows.stream_bytes": bytes}):
        assert float(xla.compile(made)(x)) == x.astype(np.float64).sum()


@pytest.mark.parametrize("size", [_LONG, _LONG + 77])
def test_several_reductions_and_operands(size):
    body = f"""  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  product = f32[{size}]{{0}} multiply(x0, x1)
  s = f32[] reduce(product, zero), dimensions={{0}}, to_apply=add
  m = f32[] reduce(x0, least), dimensions={{0}}, to_apply=larger
  ROOT t = (f32[], f32[]) tuple(s, m)"""
    made = _long_rows(body, [size, size], result="(f32[], f32[])")
    x, y = _whole_numbers(size, 1), _whole_numbers(size, 2)
    with compiling(knobs={"rows.stream_bytes": 64}):
        total, most = xla.compile(made)(x, y)
    assert float(total) == (x * y).astype(np.float64).sum()
    assert float(most) == x.max()


@pytest.mark.parametrize(("size", "streams"), [(1 << 22, 4), (1 << 12, 1)])
def test_parts_of_long_rows_are_read_side_by_side(size, streams):
    with compiling(vector_bytes=32):
        text = xla.compile(_long_rows(_SUM, [size]), cache=False).llvm_ir()
    # Each part has registers of its own; one part's are one vector, which LLVM divides.
    assert text.count("load <8 x float>") == (4 if streams == 4 else 0)
    assert text.count("load <32 x float>") == (1 if streams == 1 else 0)


@pytest.mark.parametrize("vector", [16, 32, 64])
@pytest.mark.parametrize("size", [*range(3, 18), 21, 33, 47, 63, 101])
def test_columns_of_truth_values(vector, size):
    """Loops over the columns are divided into vectors in different ways, of which the last may overlap others."""

    def each(x):
        return [xla.reduce(x, start, f, [0]) for start, f in ((False, xla.or_), (True, xla.and_), (False, xla.xor))]

    def is_anywhere(x):
        return xla.reduce(xla.gt(x, xla.constant(x.builder, np.float32(1))), False, xla.or_, [0])

    rng = np.random.default_rng(size)
    for rows in (5, 47):
        with compiling(vector_bytes=vector):
            agree(each, rng.random((rows, size)) < rng.random(size))
            agree(is_anywhere, numbers(np.float32, rows, size))
