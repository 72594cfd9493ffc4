"""The kernels of TopK, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest
from cpu.kernels.sort.sort_running import Program, same_bits
from cpu.kernels.sort.test_sort_kernel import any_bits
from evaluating import evaluate

import xlakit as xla
from xlakit.cpu.kernels.sort import top_k
from xlakit.cpu.kernels.sort.top_k import Method, emit_top_k, plan_top_k
from xlakit.cpu.llvm import Module
from xlakit.ops.sort import TopK


def compared(values, k, largest, method=None):
    plan = plan_top_k(TopK(k=k, largest=largest), xla.make_shape(values.dtype, values.shape))
    assert method is None or plan.method is method, plan.phases
    module = Module("top_k")
    program = Program(module, emit_top_k(module, plan), plan.scratch_bytes)
    expected = evaluate(lambda x: xla.top_k(x, k, largest), values)
    for parts in (1, 3):
        results = [np.full(e.shape, 0, e.dtype) for e in expected]
        program.run([values, *results], parts)
        for result, right in zip(results, expected, strict=True):
            same_bits(result, right, plan.phases)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        bool,
        np.int8,
        np.uint8,
        np.int32,
        np.uint64,
        np.float16,
        ml_dtypes.bfloat16,
        np.float32,
        np.float64,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.int4,
    ],
)
def test_kinds(kind, largest):
    rng = np.random.default_rng(0)
    compared(any_bits(rng, kind, 3, 300), 9, largest, Method.LIST)
    compared(any_bits(rng, kind, 3, 300), 99, largest, Method.RADIX_SELECT)


@pytest.mark.parametrize(("rows", "length", "k"), [(1, 1, 1), (2, 32, 32), (3, 65, 1), (1, 200, 32), (70, 130, 2)])
def test_few(rows, length, k):
    rng = np.random.default_rng(length)
    for values in (rng.normal(size=(rows, length)), np.arange(rows * length).reshape(rows, length)):
        compared(values.astype(np.float32), k, True, Method.LIST)
        compared(values.astype(np.float32), k, False, Method.LIST)


@pytest.mark.parametrize(("rows", "length", "k"), [(1, 65, 65), (40, 300, 100), (2, 5000, 4000)])
def test_many(rows, length, k):
    rng = np.random.default_rng(length)
    compared(rng.normal(size=(rows, length)).astype(np.float32), k, True, Method.RADIX_SELECT)
    compared(rng.integers(0, 9, (rows, length)), k, False, Method.RADIX_SELECT)


def test_none():
    compared(np.zeros((3, 5), np.float32), 0, True, Method.NOTHING)
    compared(np.zeros((0, 5), np.float32), 2, True, Method.NOTHING)


@pytest.mark.parametrize("k", [1, 32])
def test_chunks(k, monkeypatch):
    monkeypatch.setattr(top_k.LONG_ROW, "default", 1000)
    monkeypatch.setattr(top_k.CHUNK, "default", 300)
    monkeypatch.setattr(top_k.WANTED_OF_CHUNK, "default", 8)
    rng = np.random.default_rng(1)
    compared(any_bits(rng, np.float32, 3, 2001), k, True, Method.CHUNKED_LIST)
    compared(rng.integers(0, 5, 1234), k, False, Method.CHUNKED_LIST)
    compared(
        any_bits(rng, np.float16, 2, 1357), k + 32, True, Method.CHUNKED_RADIX_SELECT if k == 1 else Method.RADIX_SELECT
    )


LENGTH = 5000


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "kind", [bool, np.int8, np.uint16, np.int32, np.uint64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
)
def test_many_of_long_rows_are_counted_in_a_sample(kind, largest):
    rng = np.random.default_rng(7)
    compared(any_bits(rng, kind, 2, LENGTH), 60, largest, Method.RADIX_SELECT)
    for values in (np.arange(LENGTH), -np.arange(LENGTH), rng.permutation(LENGTH)):
        compared(np.stack([values, values // 50]).astype(kind), 60, largest, Method.RADIX_SELECT)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", [bool, np.int8, np.int32, np.uint64, ml_dtypes.bfloat16, np.float32, np.float64])
def test_rows_of_few_numbers(kind, largest):
    """Rows of one number each, the first and last of all among them, of three of them, and of one and a few others."""
    rng = np.random.default_rng(4)
    numbers = any_bits(rng, kind, 1, 3)[0]
    if np.dtype(kind).kind in "iu":
        ends = np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
    elif kind is bool:
        ends = np.array([False, True])
    else:
        ends = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]).astype(kind)
    numbers = np.concatenate([numbers, ends])
    one = np.repeat(numbers[:, None], LENGTH, 1)
    others = np.where(rng.random(one.shape) < 0.01, rng.permutation(numbers)[:, None], one)
    values = np.concatenate([one, rng.choice(ends, (1, LENGTH)), rng.choice(numbers, (1, LENGTH)), others])
    compared(values, 60, largest, Method.RADIX_SELECT)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", [np.int64, np.float64, np.float32])
def test_keys_that_differ_in_few_bits(kind, largest):
    """The first bits of keys are equal, then these of many, and so on."""
    rng = np.random.default_rng(5)
    width = 8 * np.dtype(kind).itemsize
    near = 1 << 62 | rng.integers(0, 1 << 13, (1, 2 * LENGTH)) << rng.integers(0, 49, (1, 2 * LENGTH))
    mostly = np.where(rng.random(near.shape) < 0.9, near[0, 0], near)
    values = np.concatenate([near, mostly, -near, (1 << 62) + np.arange(2 * LENGTH)[None] // 3]) >> (64 - width)
    compared(values.astype(f"i{width // 8}").view(kind), 60, largest, Method.RADIX_SELECT)


@pytest.mark.parametrize("largest", [True, False])
def test_a_sample_that_is_none(largest):
    """Every eighth block has no number that is among the first, or nothing else, or all numbers are equal."""
    block = np.arange(LENGTH) // 64 % 8
    for values in (np.where(block == 0, 0.0, 1.0), np.where(block == 0, 1.0, 0.0), np.ones(LENGTH)):
        noise = np.random.default_rng(3).normal(size=LENGTH) * 0.1 * (values != 1)
        for number in (values, -values, values + noise, -values - noise):
            compared(number.astype(np.float32), 33, largest, Method.RADIX_SELECT)
            compared(number.astype(np.float32), 78, largest, Method.RADIX_SELECT)


@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_the_last_of_a_long_row(direction):
    """Rows are read backwards where the last elements of a sort are wanted."""
    text = f"""HloModule last
order {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT less = pred[] compare(a, b), direction={direction}
}}
ENTRY e {{
  x = f32[{LENGTH}] parameter(0)
  i = s32[{LENGTH}] iota(), iota_dimension=0
  sorted = (f32[{LENGTH}], s32[{LENGTH}]) sort(x, i), dimensions={{0}}, is_stable=true, to_apply=order
  keys = f32[{LENGTH}] get-tuple-element(sorted), index=0
  where = s32[{LENGTH}] get-tuple-element(sorted), index=1
  last = f32[70] slice(keys), slice={{[{LENGTH - 70}:{LENGTH}]}}
  places = s32[70] slice(where), slice={{[{LENGTH - 70}:{LENGTH}]}}
  ROOT r = (f32[70], s32[70]) tuple(last, places)
}}"""
    executable = xla.compile(xla.HloModule.from_text(text))
    rows = np.arange(LENGTH)
    for values in (np.random.default_rng(2).normal(size=LENGTH), rows // 3, -rows // 3, rows % 3, rows * 0):
        numbers = values.astype(np.float32)
        order = np.argsort(numbers if direction == "LT" else -numbers, kind="stable")[-70:]
        keys, places = executable(numbers)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(keys, numbers[order])
