"""Operations on dynamic dimensions in forms that builders do not write: index vectors along any dimension, batches of
them, scalars as operands; in compiled code and on the interpreter, at every size."""

import functools
import itertools

import numpy as np
import pytest
from evaluating import same

import xlakit as xla
from xlakit.cpu.execution import dynamic_arrays

SUM = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }"


@pytest.fixture(autouse=True)
def rubbish(monkeypatch):
    """Whatever lies around an argument must not matter: NaN, an index that is inside, a great number."""

    def padded(array, bounds):
        kind = bounds.element_type
        number = np.nan if kind.is_floating else 1 if kind.bit_width > 16 else kind is xla.PRED or 7
        full = np.full(bounds.dimensions, number).astype(array.dtype)
        full[tuple(slice(0, n) for n in array.shape)] = array
        return full

    monkeypatch.setattr(dynamic_arrays, "_at_bounds", padded)


@functools.cache
def programs(body, pre):
    module = xla.HloModule.from_text(f"HloModule m\n{SUM}\n{pre}\nENTRY e {{\n{body}\n}}")
    return [xla.compile(module, backend=backend, cache=False) for backend in ("interpreter", "cpu")]


def agree(body, *arguments, pre=""):
    """A program is compiled once, and runs with arguments of all sizes that it is given."""
    meaning, compiled = programs(body, pre)
    same(compiled(*arguments), meaning(*arguments))


def table(*sizes):
    return np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes) + 1


def indices(*sizes):
    """Some of them outside, at both ends."""
    return np.random.default_rng(sum(sizes)).integers(-2, 7, sizes).astype(np.int32)


ONE_EACH = "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, slice_sizes={1,1}"
INTO_EACH = "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, to_apply=sum"


@pytest.mark.parametrize(("vectors", "along"), [("2,<=4", 0), ("<=4,2", 1)])
def test_index_vectors_lie_along_any_dimension(vectors, along):
    text = f"""x = f32[<=5,3] parameter(0)
    i = s32[{vectors}] parameter(1)
    g = f32[<=4] gather(x, i), {ONE_EACH}, index_vector_dim={along}
    s = f32[<=5,3] scatter(x, i, g), {INTO_EACH}, index_vector_dim={along}
    ROOT r = (f32[<=4], f32[<=5,3]) tuple(g, s)"""
    for rows, count in itertools.product((1, 3, 5), (0, 2, 4)):
        agree(text, table(rows, 3), indices(count, 2).swapaxes(0, 1 - along))


def test_batches_of_a_gather_and_a_scatter_are_those_of_the_operand():
    text = """x = f32[<=5,3,2] parameter(0)
    i = s32[<=5,4] parameter(1)
    g = f32[<=5,4,2] gather(x, i), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1},
        operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1,2}
    s = f32[<=5,3,2] scatter(x, i, g), update_window_dims={2}, inserted_window_dims={1}, to_apply=sum,
        scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=2
    ROOT r = (f32[<=5,4,2], f32[<=5,3,2]) tuple(g, s)"""
    for rows in (0, 1, 3, 5):
        agree(text, table(rows, 3, 2), indices(rows, 4))


def test_a_scatter_into_a_scalar_adds_the_updates_that_there_are():
    text = """x = f32[] parameter(0)
    i = s32[<=4,0] parameter(1)
    u = f32[<=4] parameter(2)
    ROOT s = f32[] scatter(x, i, u), update_window_dims={}, inserted_window_dims={}, scatter_dims_to_operand_dims={},
        index_vector_dim=1, to_apply=sum"""
    for count in (0, 1, 4):
        agree(text, np.float32(7), np.zeros((count, 0), np.int32), table(count))


@pytest.mark.parametrize("kind", ["s32", "s64", "u32", "s8"])
def test_starts_may_be_one_vector_of_any_integers(kind):
    text = f"""x = f32[<=5,3] parameter(0)
    u = f32[<=2,2] parameter(1)
    i = {kind}[2] parameter(2)
    d = f32[2,2] dynamic-slice(x, i), dynamic_slice_sizes={{2,2}}
    p = f32[<=5,3] dynamic-update-slice(x, u, i)
    ROOT r = (f32[2,2], f32[<=5,3]) tuple(d, p)"""
    type = xla.PrimitiveType[kind.upper()].dtype
    ends = np.iinfo(type)
    for rows, start in itertools.product((2, 3, 5), (ends.min, 0, 2, ends.max)):
        for new in (0, 1, 2):
            agree(text, table(rows, 3), -table(new, 2), np.array([start, 1], type))


def test_windows_of_updates_that_are_not_full_stay_inside():
    text = """x = f32[9] parameter(0)
    i = s64[3,1] parameter(1)
    u = f32[3,<=5] parameter(2)
    ROOT s = f32[9] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={}, to_apply=sum,
        scatter_dims_to_operand_dims={0}, index_vector_dim=1"""
    for size in (0, 1, 3, 5):
        agree(text, table(9), np.array([[6], [1 << 62], [-1]]), table(3, size))


@pytest.mark.parametrize("size", [-1, 5])
def test_a_known_size_beyond_the_bound_is_an_error(size):
    module = xla.HloModule.from_text(f"""HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  n = s32[] constant({size})
  ROOT r = f32[<=4] set-dimension-size(x, n), dimensions={{0}}
}}""")
    for backend in ("interpreter", "cpu"):
        with pytest.raises(xla.XlakitError, match="set-dimension-size"):
            xla.compile(module, backend=backend, cache=False)(table(4))


def test_static_arrays_with_sizes_become_dynamic_ones():
    text = """x = f32[5,3] parameter(0)
    n = s32[] parameter(1)
    three = s32[] constant(3)
    d = f32[<=5,3] custom-call(x, n, three), custom_call_target="SliceToDynamic"
    zero = f32[] constant(0)
    ROOT r = f32[3] reduce(d, zero), dimensions={0}, to_apply=sum"""
    for size in (0, 2, 5):
        agree(text, table(5, 3), np.int32(size))


def test_a_literal_may_hold_fewer_elements_than_its_bounds():
    text = """c = f32[<=5,<=3] constant({{1, 2}, {3, 4}})
    i = s32[] parameter(0)
    r = f32[<=5,<=3] reverse(c), dimensions={0,1}
    zero = f32[] constant(0)
    s = f32[] reduce(c, zero), dimensions={0,1}, to_apply=sum
    n = s32[] get-dimension-size(c), dimensions={1}
    ROOT t = (f32[<=5,<=3], f32[], s32[]) tuple(r, s, n)"""
    agree(text, np.int32(0))


KINDS = ["pred", "s4", "s8", "u16", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1fn", "f32"]


@pytest.mark.parametrize("kind", KINDS)
def test_padding_sorts_behind_all_numbers_of_a_type(kind):
    """The ends of the type, and NaN of both signs, too."""
    type = xla.PrimitiveType[kind.upper()].dtype
    integral = xla.PrimitiveType[kind.upper()].is_integral or kind == "pred"
    some = np.array([3, 1, 0, 2, 1, 1] if integral else [np.nan, 1, -np.inf, np.inf, -0.0, 0.0])
    values = some.astype(type)
    if kind in ("s8", "u16"):
        values[1], values[2] = np.iinfo(type).max, np.iinfo(type).min
    if kind == "f32":
        values[1] = -values[0]
    order = "" if integral else ", type=TOTALORDER"
    less, greater = (
        f"{name} {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)"
        f"  ROOT c = pred[] compare(a, b), direction={name}{order} }}"
        for name in ("LT", "GT")
    )
    text = f"""x = {kind}[<=6] parameter(0)
    up = {kind}[<=6] sort(x), dimensions={{0}}, to_apply=LT
    ROOT down = {kind}[<=6] sort(up), dimensions={{0}}, to_apply=GT"""
    for size in (0, 1, 4, 6):
        for one in (text, text.replace("ROOT ", "").replace("up =", "ROOT up =")):
            agree(one, values[:size], pre=f"{less}\n{greater}")


@pytest.mark.parametrize(("x", "source"), [("<=6", "<=4"), ("6", "<=4")])
def test_a_window_selects_among_the_elements_that_there_are(x, source):
    """Windows reach over the end of the valid elements."""
    text = f"""x = s16[{x}] parameter(0)
    s = s16[{source}] parameter(1)
    zero = s16[] constant(0)
    ROOT r = s16[{x}] select-and-scatter(x, s, zero), window={{size=2 stride=2 pad=1_1}}, select=ge, scatter=plus"""
    pre = """ge { a = s16[] parameter(0)  b = s16[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GE }
plus { a = s16[] parameter(0)  b = s16[] parameter(1)  ROOT c = s16[] add(a, b) }"""
    for size in (0, 2, 3, 5, 6) if x == "<=6" else (6,):
        given = np.arange(size, dtype=np.int16) % 4
        agree(text, given, np.arange((size + 2 - 2) // 2 + 1, dtype=np.int16) + 1, pre=pre)
