"""A program computes with subnormal numbers as it was compiled to, on all threads, whatever the mode of its caller."""

import ctypes
import platform
from functools import cache

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.llvm import I64, VOID, Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime.float_mode import get_mode, set_mode
from xlakit.options import compiling

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"),
    reason="its control register is not known",
)
TINY = np.float32(1e-40)
HALVED = """
HloModule m
ENTRY e {{
  x = f32[{0}] parameter(0)
  half = f32[] constant(0.5)
  factors = f32[{0}] broadcast(half), dimensions={{}}
  ROOT r = f32[{0}] multiply(x, factors)
}}
"""


@cache
def mode_functions():
    module = Module("mode_test")
    get = module.function("get", I64, [], external=True)
    get.ret(get_mode(get))
    put = module.function("put", VOID, [I64], external=True)
    set_mode(put, put.parameters[0])
    put.ret()
    library = Library("mode_test", engine.make_object(module.text()), ["get", "put"], {})
    # The library has to stay.
    return (
        ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("get")),
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address("put")),
        library,
    )


def compiled(text, flushes):
    with compiling(flush_subnormals=flushes):
        return xla.compile(xla.HloModule.from_text(text))


# The larger one is split among threads.
@pytest.mark.parametrize("size", [3, 1 << 22])
@pytest.mark.parametrize("flushes", [True, False, None])
def test_subnormal_numbers_are_zero_where_the_option_says_so(size, flushes):
    x = np.full(size, TINY)
    result = compiled(HALVED.format(size), flushes)(x)
    np.testing.assert_array_equal(result, x * np.float32(0 if flushes else 0.5))


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
def test_the_sign_of_a_subnormal_number_is_that_of_zero_where_it_is_flushed(kind):
    text = f"HloModule m\nENTRY e {{\n x = {kind}[7] parameter(0)\n ROOT r = {kind}[7] sign(x)\n}}"
    dtype = xla.HloModule.from_text(text).entry.root.shape.element_type.dtype
    tiny = 1e-310 if kind == "f64" else TINY
    x = np.array([tiny, -tiny, 0.0, -0.0, np.nan, 2.5, -np.inf]).astype(dtype)
    for flushes, size in ((True, 0.0), (False, 1.0)):
        result = compiled(text, flushes)(x).astype(np.float64)
        np.testing.assert_array_equal(result, [size, -size, 0.0, -0.0, np.nan, 1.0, -1.0])
        assert np.signbit(result[[1, 3]]).all() and not np.signbit(result[[0, 2]]).any()


def test_the_mode_of_the_caller_changes_nothing_and_is_as_before():
    get, put, _ = mode_functions()
    in_full, flushing = compiled(HALVED.format(5), False), compiled(HALVED.format(5), True)
    own, x = get(), np.full(5, TINY)
    # As if a library had set it: operands and results are zero.
    bits = 1 << 24 if platform.machine().lower() in ("aarch64", "arm64") else 0x8040
    try:
        for mode in (own, own | bits):
            put(mode)
            kept, flushed, after = in_full(x), flushing(x), get()
            put(own)
            assert after == mode
            assert kept.tobytes() == (x * np.float32(0.5)).tobytes() and not flushed.any()
    finally:
        put(own)


def test_steps_in_python_compute_in_full():
    seen = []

    def step(x):
        seen.append(x * np.float32(0.5))
        return x

    xla.register_custom_call("float_mode_step", step)
    text = HALVED.format(4).replace(
        "ROOT r = f32[4] multiply(x, factors)",
        'y = f32[4] custom-call(x), custom_call_target="float_mode_step"\n  ROOT r = f32[4] multiply(y, factors)',
    )
    x = np.full(4, TINY)
    assert not compiled(text, True)(x).any()
    np.testing.assert_array_equal(seen[0], x * np.float32(0.5))


def test_devices_that_wait_for_each_other_keep_their_modes():
    get, _, _ = mode_functions()
    text = """
    HloModule m, replica_count=4
    add { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT s = f32[] add(a, b) }
    ENTRY e {
      x = f32[8] parameter(0)
      all = f32[8] all-reduce(x), to_apply=add
      half = f32[] constant(0.5)
      factors = f32[8] broadcast(half), dimensions={}
      product = f32[8] multiply(all, factors)
      ROOT r = f32[8] all-reduce(product), to_apply=add
    }"""
    before = get()
    # All numbers are subnormal, before the first collective and after the second.
    x = np.full((4, 8), np.float32(1e-39))
    for flushes, expected in ((True, 0.0), (False, x.sum(0) * 2)):
        results = np.asarray(compiled(text, flushes).execute_replicated([[row] for row in x]))
        np.testing.assert_array_equal(results, np.broadcast_to(np.float32(expected), x.shape))
        assert get() == before
