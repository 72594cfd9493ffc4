"""Every error of a program says the operation, the operands' shapes, the place, the rule, and what to do."""

import evaluating
import pytest
from evaluating import build, f32, s32, shape

import xlakit as xla
from xlakit.errors import XlakitError

U32, C64 = xla.U32, xla.C64
ADD, LESS = (lambda a, b: a + b), (lambda a, b: a < b)


def pair(*shapes):
    return xla.make_tuple_shape(shapes)


# The operation that the error names, what is wrong, a function of handles, and the shapes of those.
BROKEN = [
    # element-wise
    ("add", "sizes", lambda x, y: x + y, f32(2), f32(3)),
    ("add", "types", lambda x, y: x + y, f32(2), s32(2)),
    ("add", "dimensions", lambda x, y: xla.add(x, y, (1, 0)), f32(2, 3), f32(2, 3, 4)),
    ("and", "floats", lambda x, y: x & y, f32(2), f32(2)),
    ("exponential", "integers", xla.exp, s32(2)),
    ("not", "floats", lambda x: ~x, f32(2)),
    ("is-finite", "tuple", xla.is_finite, pair(f32())),
    ("clamp", "sizes", xla.clamp, f32(2), f32(3), f32(3)),
    ("select", "no predicate", xla.select, f32(2), f32(2), f32(2)),
    ("compare", "no order", lambda x, y: x < y, shape(C64), shape(C64)),
    ("complex", "types", xla.complex, s32(), s32()),
    # conversions
    ("bitcast_convert_type", "widths", lambda x: xla.bitcast_convert_type(x, xla.F64), f32(3)),
    ("reduce-precision", "bits", lambda x: xla.reduce_precision(x, 5, -1), f32()),
    ("stochastic-convert", "random", lambda x, r: xla.stochastic_convert_type(x, r, xla.S8), f32(2), shape(U32, 3)),
    ("bitcast", "bytes", lambda x: xla.bitcast(x, f32(3)), f32(2)),
    # movement
    ("broadcast_in_dim", "rank", lambda x: xla.broadcast_in_dim(x, (2, 3), (1,)), f32(2)),
    ("reshape", "sizes", lambda x: xla.reshape(x, (7,)), f32(2, 3)),
    ("reshape", "order", lambda x: xla.reshape(x, (0, 0), (6,)), f32(2, 3)),
    ("transpose", "permutation", lambda x: xla.transpose(x, (0, 0)), f32(2, 3)),
    ("reverse", "range", lambda x: xla.rev(x, (2,)), f32(2, 3)),
    ("slice", "limit", lambda x: xla.slice(x, (0,), (5,), (1,)), f32(4)),
    ("slice", "rank", lambda x: xla.slice(x, (0,), (2,), (1,)), f32(4, 4)),
    ("pad", "rank", lambda x, v: xla.pad(x, v, [(0, 1, 0)]), f32(2, 2), f32()),
    ("concatenate", "sizes", lambda x, y: xla.concat_in_dim([x, y], 0), f32(2, 3), f32(2, 4)),
    ("get-tuple-element", "range", lambda x: xla.get_tuple_element(x, 2), pair(f32(), s32())),
    # dynamic
    ("dynamic-slice", "sizes", lambda x, i: xla.dynamic_slice(x, [i], (5,)), f32(4), s32()),
    ("dynamic-update-slice", "rank", lambda x, u, i: xla.dynamic_update_slice(x, u, [i]), f32(4), f32(1, 1), s32()),
    ("set-dimension-size", "type", lambda x, n: xla.set_dimension_size(x, n, 0), f32(4), f32()),
    # contractions
    ("dot", "sizes", xla.dot, f32(2, 3), f32(4, 5)),
    ("convolution", "groups", lambda x, k: xla.conv(x, k, (1,), "VALID", 3), f32(1, 3, 4), f32(2, 1, 2)),
    ("convolution", "features", lambda x, k: xla.conv(x, k, (1,), "VALID"), f32(1, 3, 4), f32(2, 2, 2)),
    ("cholesky", "square", xla.cholesky, f32(2, 3)),
    ("triangular-solve", "rank", lambda a, b: xla.triangular_solve(a, b, True, True, False), f32(2, 2), f32(2)),
    ("fft", "length", lambda x: xla.fft(x, "FFT", (4,)), shape(C64, 3)),
    # reductions
    ("reduce", "types", lambda x, i: xla.reduce(x, i, ADD, (0,)), f32(2), s32()),
    ("reduce", "range", lambda x, i: xla.reduce(x, i, ADD, (1,)), f32(2), f32()),
    ("map", "sizes", lambda x, y: xla.map([x, y], ADD), f32(2), f32(3)),
    ("reduce_window", "rank", lambda x, i: xla.reduce_window(x, i, ADD, (2,), (1,), "VALID"), f32(3, 3), f32()),
    ("sort", "range", lambda x: xla.sort(x, dimension=3), f32(2)),
    ("topk", "size", lambda x: xla.top_k(x, 5), f32(2)),
    ("batch-norm-inference", "features", lambda *a: xla.batch_norm_inference(*a, 0.1, 1), f32(2, 3), *[f32(2)] * 4),
    # gather and scatter
    ("gather", "type", lambda x, i: xla.gather(x, i, slice_sizes=(1,), start_index_map=(0,)), f32(4), f32(1)),
    ("gather", "sizes", lambda x, i: xla.gather(x, i, slice_sizes=(5,), start_index_map=(0,)), f32(4), s32(1)),
    ("scatter", "number", lambda x, i: xla.scatter([x, x], i, [x], ADD), f32(4), s32(1)),
    ("shuffle", "twice", lambda x: xla.shuffle_rotate(x, (0, 0), (1, 1)), f32(4)),
    (
        "select-and-scatter",
        "source",
        lambda x, s, i: xla.select_and_scatter(x, LESS, (2,), (2,), "VALID", s, i, ADD),
        f32(4),
        f32(3),
        f32(),
    ),
    # control
    ("while", "condition", lambda x: xla.while_(lambda v: v, lambda v: v, x), f32()),
    ("conditional", "type", lambda p, x: xla.conditional(p, x, lambda v: v, x, lambda v: v), f32(), f32()),
    ("call", "arguments", lambda x: xla.call(x.builder, build(ADD, f32(), f32()), [x]), f32()),
    ("scan", "range", lambda x, c: xla.scan(x, c, lambda a, b: (a + b, a), 4), f32(3), f32()),
    ("async-done", "context", xla.async_done, f32()),
    ("copy-done", "context", xla.copy_done, f32()),
    # collectives and transfers
    ("all_gather", "range", lambda x: xla.all_gather(x, 3, 2), f32(2)),
    ("all-reduce", "groups", lambda x: xla.all_reduce(x, ADD, [[0, 0]]), f32(2)),
    ("reduce_scatter", "divides", lambda x: xla.reduce_scatter(x, ADD, 0, 3), f32(4)),
    ("reduce_scatter", "groups", lambda x: xla.reduce_scatter(x, ADD, 0, 2, [[0, 1, 2]]), f32(4)),
    ("all_to_all", "divides", lambda x: xla.all_to_all(x, 0, 0, 3), f32(4)),
    ("collective-permute", "twice", lambda x: xla.collective_permute(x, [(0, 1), (0, 2)]), f32(2)),
    ("collective-broadcast", "empty", lambda x: xla.collective_broadcast(x, [[]]), f32(2)),
    ("outfeed", "nested", xla.outfeed, pair(pair(f32()))),
    ("send_with_token", "token", lambda t: xla.send_with_token(t, t, 1), xla.TOKEN_SHAPE),
    ("rng", "types", lambda a, b: xla.rng_uniform(a, b, s32(3)), f32(), f32()),
    ("rng_bit_generator", "state", lambda s: xla.rng_bit_generator("RNG_PHILOX", s, f32(3)), s32(4)),
    ("custom-call", "name", lambda x: xla.custom_call(x.builder, "", [x], f32()), f32()),
    ("after-all", "tokens", lambda x: xla.after_all([x]), f32()),
]


@pytest.mark.parametrize(("operation", "fault", "function", "shapes"), [(o, f, g, s) for o, f, g, *s in BROKEN])
def test_an_error_while_building_says_all(operation, fault, function, shapes):
    with pytest.raises(XlakitError) as caught:
        build(function, *shapes)
    error = caught.value
    assert error.rule
    assert error.hint, error.rule
    assert error.operation == operation
    assert error.shapes, error.rule
    assert error.location is not None
    assert error.location.file in (__file__, evaluating.__file__)
    assert str(error).count("\n") == 3


# Programs in text whose fault is between instructions: the operation that the error names, and the entry's lines.
ODD = [
    ("add 'y'", "x = f32[2] parameter(0)\nROOT y = f32[3] add(x, x)"),
    ("add 'y'", "x = f32[2] parameter(0)\nz = s32[2] parameter(1)\nROOT y = f32[2] add(x, z)"),
    ("all-reduce-start 's'", "x = f32[2] parameter(0)\ns = f32[2] all-reduce-start(x), to_apply=add\nROOT y = copy(x)"),
    ("all-gather-done 'd'", "x = (f32[2], f32[4]) parameter(0)\nROOT d = f32[4] all-gather-done(x)"),
    ("async-done 'd'", "x = ((f32[]), f32[], u32[]) parameter(0)\nROOT d = f32[] async-done(x)"),
    ("async-start 's'", "x = f32[] parameter(0)\ns = ((f32[]), f32[], u32[]) negate-start(x)\nROOT y = copy(x)"),
    ("negate 'y'", "x = f32[2] parameter(0)\nROOT y = f32[2] negate(x), sharding={devices=[2,2]<=[4]}"),
]


@pytest.mark.parametrize(("operation", "body"), ODD)
def test_an_error_in_a_whole_program_says_all(operation, body):
    add = "add {\na = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] add(a, b)\n}"
    module = xla.HloModule.from_text(f"HloModule m\n\n{add}\n\nENTRY main {{\n{body}\n}}\n")
    with pytest.raises(XlakitError) as caught:
        module.verify()
    error = caught.value
    assert error.hint, error.rule
    assert error.shapes, error.rule
    assert error.operation == f"{operation} in computation main"
