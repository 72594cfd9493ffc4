"""Products of gathered arrays and scattered sums of products in steps: the same bits, on every device."""

import math
import zlib

import numpy as np
import pytest

import xlakit as xla
from fuzz.programs.values import EDGES, SMALL, make_values
from xlakit import link
from xlakit.options import compiling
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import run_pipeline

ALWAYS = {"collective_matmul.when": 2}
NEVER = {"collective_matmul.when": 0}
ADD = "add {{ a = {0}[] parameter(0)\n b = {0}[] parameter(1)\n ROOT r = {0}[] add(a, b) }}\n"
# Devices: all in one group, sub-meshes, in other orders than that of numbers, uneven.
GROUPS = {
    "of 2": [[0, 1]],
    "of 3": [[0, 1, 2]],
    "of 4 turned": [[2, 0, 3, 1]],
    "rows": [[0, 1, 2], [3, 4, 5]],
    "columns": [[0, 2, 4], [1, 3, 5]],
    "mixed": [[5, 0], [1, 3], [4, 2]],
}
# Dimension numbers, and the sizes of both operands, with G where the array is gathered: G elements for each member.
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={1}, "
PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
GATHERED = {
    "free of lhs": (PLAIN, (2, 5), (5, 7), 0, 0),
    "free of rhs": (PLAIN, (4, 5), (5, 3), 1, 1),
    "contracted of lhs": (PLAIN, (4, 2), ("G", 7), 0, 1),
    "contracted of rhs": (PLAIN, (4, "G"), (3, 5), 1, 0),
    "batch of lhs": (BATCHED + "lhs_contracting_dims={2}, rhs_contracting_dims={0}", (2, 3, 5), (5, "G", 7), 0, 0),
    "batch of rhs": (BATCHED + "lhs_contracting_dims={2}, rhs_contracting_dims={0}", ("G", 3, 5), (5, 2, 7), 1, 1),
    "free of batched rhs": (BATCHED + "lhs_contracting_dims={2}, rhs_contracting_dims={0}", (2, 3, 5), (5, 2, 3), 1, 2),
    "of outer products": ("lhs_contracting_dims={}, rhs_contracting_dims={}", (3,), (2, 4), 1, 1),
}


def shape(kind, sizes):
    return f"{kind}[{','.join(map(str, sizes))}]"


def result_sizes(lhs, rhs, numbers):
    found = {}
    for part in numbers.replace("}", "").split(", "):
        name, _, dims = part.partition("={")
        found[name] = [int(d) for d in dims.split(",") if d]
    batch = found.get("lhs_batch_dims", [])
    left = [n for d, n in enumerate(lhs) if d not in (*batch, *found["lhs_contracting_dims"])]
    right = [
        n for d, n in enumerate(rhs) if d not in (*found.get("rhs_batch_dims", []), *found["rhs_contracting_dims"])
    ]
    return [*(lhs[d] for d in batch), *left, *right]


def said(groups, mode):
    """The attributes of a collective, and the header of its module, for a kind of ids."""
    count = sum(map(len, groups))
    if mode == "replicas":
        return f"replica_groups={text_of(groups)}", f"replica_count={count}", count
    if mode == "partitions":
        return (
            f"replica_groups={text_of(groups)}, channel_id=3, use_global_device_ids=true",
            f"num_partitions={count}",
            count,
        )
    groups = [[r * count + p for p in group] for r in (0, 1) for group in groups]
    return (
        f"replica_groups={text_of(groups)}, channel_id=3, use_global_device_ids=true",
        f"replica_count=2, num_partitions={count}",
        2 * count,
    )


def text_of(groups):
    return "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"


def gathered(kind, case, groups, mode="partitions", result=None):
    """A program whose product has a gathered operand, and its number of devices."""
    numbers, lhs, rhs, side, dimension = GATHERED[case]
    attributes, header, count = said(groups, mode)
    sizes = [list(lhs), list(rhs)]
    size = sizes[side][dimension] * len(groups[0])
    sizes = [[size if s == "G" else s for s in own] for own in sizes]
    whole = [list(own) for own in sizes]
    whole[side][dimension] = size
    operands = ["g" if n == side else "xy"[n] for n in (0, 1)]
    text = (
        f"HloModule m, {header}\nENTRY e {{\n"
        f"x = {shape(kind, sizes[0])} parameter(0)\ny = {shape(kind, sizes[1])} parameter(1)\n"
        f"g = {shape(kind, whole[side])} all-gather({'xy'[side]}), dimensions={{{dimension}}}, {attributes}\n"
        f"ROOT d = {shape(result or kind, result_sizes(*whole, numbers))} dot({', '.join(operands)}), {numbers}\n}}\n"
    )
    return xla.HloModule.from_text(text), count


def scattered(kind, case, groups, mode="partitions"):
    """A program whose product is added up and scattered along the dimension that comes of a gathered one."""
    numbers, lhs, rhs, side, dimension = GATHERED[case]
    attributes, header, count = said(groups, mode)
    sizes = [list(lhs), list(rhs)]
    sizes[side][dimension] *= len(groups[0])
    size = sizes[side][dimension]
    sizes = [[size if s == "G" else s for s in own] for own in sizes]
    whole = result_sizes(*sizes, numbers)
    along = next(d for d, n in enumerate(whole) if n == size)
    block = [n // len(groups[0]) if d == along else n for d, n in enumerate(whole)]
    text = (
        f"HloModule m, {header}\n{ADD.format(kind)}ENTRY e {{\n"
        f"x = {shape(kind, sizes[0])} parameter(0)\ny = {shape(kind, sizes[1])} parameter(1)\n"
        f"d = {shape(kind, whole)} dot(x, y), {numbers}\n"
        f"ROOT r = {shape(kind, block)} reduce-scatter(d), dimensions={{{along}}}, to_apply=add, {attributes}\n}}\n"
    )
    return xla.HloModule.from_text(text), count


def results(module, values, knobs, backend):
    with compiling(knobs=knobs):
        if backend == "interpreter":
            module = run_pipeline(module, ["collective-matmul"], context=PassContext(check=True))
        return xla.compile(module, backend=backend).execute_replicated(values)


def check(module, count, style=EDGES, backend="interpreter"):
    """Steps give the same bits; gives the stepped module."""
    rng = np.random.default_rng(zlib.crc32(module.to_text().encode()))
    shapes = [p.shape for p in module.entry.parameters]
    values = [[make_values(rng, s.element_type.hlo_name, s.dimensions, style) for s in shapes] for _ in range(count)]
    one, other = (results(module, values, knobs, backend) for knobs in (NEVER, ALWAYS))
    for device, (a, b) in enumerate(zip(one, other, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "fc" and (a.dtype.itemsize > 4 or backend == "cpu"):
            # NumPy's products and those of machine code add in another order where sizes are small.
            epsilon = np.finfo(a.dtype).eps
            np.testing.assert_allclose(b, a, rtol=0, atol=64 * epsilon, err_msg=f"device {device}")
            continue
        nans = [np.isnan(v.astype(np.complex128)) for v in (a, b)]
        np.testing.assert_array_equal(*nans, err_msg=f"device {device}")
        kept = np.broadcast_to(~nans[0], a.shape)
        assert a[kept].tobytes() == b[kept].tobytes(), f"device {device}: {a} is {b}"
    with compiling(knobs=ALWAYS):
        return run_pipeline(module, ["collective-matmul"])


def opcodes(module):
    return [i.opcode for i in module.entry.instructions]


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("case", GATHERED)
def test_a_gathered_operand(case, groups):
    made = check(*gathered("f32", case, groups))
    steps = len(groups[0])
    if "contracted" not in case:
        assert opcodes(made).count("collective-permute") == steps - 1
        assert opcodes(made).count("dot") == steps
        assert "all-gather" not in opcodes(made)
    else:
        assert opcodes(made).count("all-gather") == opcodes(made).count("dot") == steps


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("case", [c for c in GATHERED if "contracted" not in c])
def test_a_scattered_sum(case, groups):
    made = check(*scattered("f32", case, groups), style=SMALL)
    assert "reduce-scatter" not in opcodes(made)
    assert opcodes(made).count("dot") == len(groups[0])


TYPES = ["f64", "bf16", "f16", "f8e5m2", "f8e4m3fn", "s8", "u16", "s32", "s64", "c64", "c128", "pred", "s4"]


@pytest.mark.parametrize("kind", TYPES)
def test_types(kind):
    groups = GROUPS["columns"]
    for case in ("free of lhs", "contracted of rhs", "batch of lhs"):
        made = check(*gathered(kind, case, groups), style=SMALL if kind in ("f64", "c64", "c128") else EDGES)
        assert opcodes(made).count("dot") == 3
    if kind not in ("pred", "s4"):
        made = check(*scattered(kind, "free of rhs", groups), style=SMALL)
        assert opcodes(made).count("dot") == 3


@pytest.mark.parametrize("mode", ["replicas", "partitions", "devices"])
def test_numbers_of_devices(mode):
    for groups in (GROUPS["mixed"], GROUPS["of 4 turned"]):
        for program in (gathered, scattered):
            made = check(*program("f32", "free of lhs", groups, mode), style=SMALL)
            assert opcodes(made).count("dot") == len(groups[0])


@pytest.mark.parametrize("program", [gathered, scattered])
def test_machine_code(program):
    for case in ("free of lhs", "free of batched rhs", "batch of lhs"):
        for kind in ("f32", "bf16", "s32"):
            check(*program(kind, case, GROUPS["columns"]), style=SMALL, backend="cpu")
    check(*gathered("f32", "contracted of lhs", GROUPS["rows"]), style=SMALL, backend="cpu")


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
def test_machine_code_has_the_same_bits_where_parts_are_large_enough(kind):
    attributes = "channel_id=1, replica_groups={{0,2},{3,1}}, use_global_device_ids=true"
    module = xla.HloModule.from_text(
        f"HloModule m, num_partitions=4\n{ADD.format(kind)}ENTRY e {{\n"
        f"x = {kind}[32,300] parameter(0)\ny = {kind}[150,256] parameter(1)\nz = {kind}[256,300] parameter(2)\n"
        f"g = {kind}[64,300] all-gather(x), dimensions={{0}}, {attributes}\n"
        f"h = {kind}[300,256] all-gather(y), dimensions={{0}}, {attributes.replace('=1', '=2')}\n"
        f"a = {kind}[64,256] dot(g, z), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n"
        f"b = {kind}[32,256] dot(x, h), {PLAIN}\n"
        f"c = {kind}[32,300] dot(b, z), {PLAIN}\n"
        f"d = {kind}[16,300] reduce-scatter(c), dimensions={{0}}, to_apply=add, {attributes.replace('=1', '=3')}\n"
        f"ROOT r = ({kind}[64,256], {kind}[32,256], {kind}[16,300]) tuple(a, b, d)\n}}\n"
    )
    rng = np.random.default_rng(5)
    shapes = [p.shape for p in module.entry.parameters]
    values = [[rng.standard_normal(s.dimensions).astype(s.element_type.dtype) for s in shapes] for _ in range(4)]
    one, other = (results(module, values, knobs, "cpu") for knobs in (NEVER, ALWAYS))
    for parts in zip(one, other, strict=True):
        for a, b in zip(*parts, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with compiling(knobs=ALWAYS):
        made = run_pipeline(module, ["collective-matmul"])
    assert opcodes(made).count("dot") == 6


def test_a_wider_result():
    check(*gathered("bf16", "free of lhs", GROUPS["rows"], result="f32"))
    check(*gathered("s8", "contracted of lhs", GROUPS["rows"], result="s32"))


def program(lines, count=2):
    text = (
        f"HloModule m, num_partitions={count}\n{ADD.format('f32')}ENTRY e {{\nx = f32[2,4] parameter(0)\n{lines}\n}}\n"
    )
    return xla.HloModule.from_text(text)


GATHER = "all-gather(x), dimensions={0}, channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"


def test_products_share_a_gathered_operand():
    module = program(
        f"y = f32[4,3] parameter(1)\nz = f32[5,4] parameter(2)\ng = f32[4,4] {GATHER}\n"
        f"a = f32[4,3] dot(g, y), {PLAIN}\n"
        "b = f32[5,4] dot(z, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        "ROOT r = (f32[4,3], f32[5,4]) tuple(a, b)"
    )
    with compiling(knobs=ALWAYS):
        made = run_pipeline(module, ["collective-matmul"])
    assert opcodes(made).count("collective-permute") == 1
    assert opcodes(made).count("dot") == 4


def test_both_operands_gathered():
    module = program(
        f"y = f32[4,3] parameter(1)\ng = f32[4,4] {GATHER}\n"
        "h = f32[4,6] all-gather(y), dimensions={1}, channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true\n"
        f"ROOT a = f32[4,6] dot(g, h), {PLAIN}"
    )
    made = check(module, 2)
    # The larger one comes in steps.
    assert [i.shape.dimensions for i in made.entry.instructions if i.opcode == "all-gather"] == [(4, 4)]
    assert opcodes(made).count("collective-permute") == 1


def test_in_a_loop():
    module = xla.HloModule.from_text(
        f"""HloModule m, num_partitions=2
cond {{ s = (s32[], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }}
body {{ s = (s32[], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2,4] get-tuple-element(s), index=1
  g = f32[4,4] {GATHER}
  d = f32[2,4] dot(x, g), {PLAIN}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[2,4]) tuple(j, d) }}
ENTRY e {{ x = f32[2,4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[2,4]) tuple(z, x)
  w = (s32[], f32[2,4]) while(t), condition=cond, body=body
  ROOT r = f32[2,4] get-tuple-element(w), index=1 }}
"""
    )
    made = check(module, 2, style=SMALL)
    assert made.to_text().count(" all-gather(") == 2


@pytest.mark.parametrize(
    "lines",
    [
        f"g = f32[4,4] {GATHER}\nROOT r = (f32[4,4], f32[4,4]) tuple(g, g)",
        f"g = f32[4,4] {GATHER}\nROOT d = f32[4,4] dot(g, g), {PLAIN}",
        f"g = f32[4,4] {GATHER}\ny = f32[4,3] parameter(1)\nd = f32[4,3] dot(g, y), {PLAIN}\n"
        "ROOT r = (f32[4,3], f32[4,4]) tuple(d, g)",
        f"g = f32[4,4] {GATHER}\ny = f32[4] parameter(1)\n"
        "ROOT d = f32[4] dot(y, g), lhs_contracting_dims={0}, rhs_contracting_dims={0}, control-predecessors={x}",
        f"y = f32[4,3] parameter(1)\nd = f32[2,3] dot(x, y), {PLAIN}\n"
        "s = f32[1,3] reduce-scatter(d), dimensions={0}, to_apply=add, "
        "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true\n"
        "ROOT r = (f32[1,3], f32[2,3]) tuple(s, d)",
    ],
    ids=["no product", "of itself", "another use", "control dependencies", "the whole sum is used"],
)
def test_what_stays(lines):
    with compiling(knobs=ALWAYS):
        module = program(lines)
        assert run_pipeline(module, ["collective-matmul"]) is module


def test_devices_that_the_header_does_not_count_stay():
    module = program(f"y = f32[4,3] parameter(1)\ng = f32[4,4] {GATHER}\nROOT d = f32[4,3] dot(g, y), {PLAIN}", count=4)
    with compiling(knobs=ALWAYS):
        assert run_pipeline(module, ["collective-matmul"]) is module


# -- where it is worth it --------------------------------------------------------------------------


def large(rows, columns, inner):
    attributes = "dimensions={0}, channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
    return xla.HloModule.from_text(
        f"HloModule m, num_partitions=4\nENTRY e {{\nx = f32[{rows // 4},{inner}] parameter(0)\n"
        f"y = f32[{inner},{columns}] parameter(1)\ng = f32[{rows},{inner}] all-gather(x), {attributes}\n"
        f"ROOT d = f32[{rows},{columns}] dot(g, y), {PLAIN}\n}}\n"
    )


def is_stepped(module, between):
    with link.compiling_for(between):
        return "all-gather" not in opcodes(run_pipeline(module, ["collective-matmul"]))


@pytest.mark.parametrize(
    ("between", "sizes", "expected"),
    [
        # 12 MB at 0.1 GB/s take 120 ms, the product 134 ms.
        (link.Link(5e5, 10.0, 32.0), (4096, 1024, 1024), True),
        # The link is as fast as memory: less than the wake-ups of the steps.
        (link.Link(5e5, 1 / 32, 32.0), (4096, 1024, 1024), False),
        # Messages take longer than the product.
        (link.Link(5e8, 10.0, 32.0), (4096, 1024, 1024), False),
        (link.Link(5e5, 10.0, 32.0), (64, 64, 64), False),
        # The product of a row takes no time beside which data could move.
        (link.Link(5e5, 10.0, 32.0), (4096, 1, 1024), False),
        # In one process devices share the processors.
        (None, (4096, 1024, 1024), False),
    ],
)
def test_the_link_decides(between, sizes, expected):
    assert is_stepped(large(*sizes), between) is expected
    with compiling(knobs=NEVER):
        assert not is_stepped(large(*sizes), between)


def test_the_machine_does_not_decide(monkeypatch):
    # All processes must take the same steps, whatever machines they run on.
    module, between = large(4096, 1024, 1024), link.Link(5e5, 10.0, 32.0)
    described = xla.machine.current()
    texts = set()
    for threads, cycle in ((1, 1.0), (64, 0.1)):
        other = type(described)(
            threads,
            described.l1,
            described.l2,
            described.l3,
            measured={"cycle_nanoseconds": cycle, "fused_per_nanosecond_f32": 10 / cycle},
        )
        monkeypatch.setattr(xla.machine, "current", lambda other=other: other)
        with link.compiling_for(between):
            texts.add(run_pipeline(module, ["collective-matmul"]).to_text())
    assert len(texts) == 1


def test_steps_go_on_beside_products():
    with link.compiling_for(link.Link(5e5, 10.0, 32.0)):
        made = run_pipeline(large(4096, 1024, 1024), ["collective-matmul", "overlap-collectives"])
    names = [i.opcode for i in made.entry.instructions if i.opcode in ("dot", "async-start", "async-done")]
    assert names == ["async-start", "dot", "async-done"] * 3 + ["dot"]


def test_sizes_of_slices():
    # Slices of a dimension that is no multiple of their number.
    module, count = gathered("f32", "contracted of lhs", [[0, 1, 2]])
    with compiling(knobs=ALWAYS):
        made = run_pipeline(module, ["collective-matmul"])
    found = [i.shape.dimensions for i in made.entry.instructions if i.opcode == "all-gather"]
    assert found == [(1, 6), (1, 6), (2, 6)]
    assert count == math.prod([3])
