"""Long programs are ordinary programs: nothing recurses, nothing is quadratic."""

import time

import numpy as np
import pytest

import xlakit as xla

LENGTH = 20_000


def chain_text(length: int) -> str:
    lines = ["HloModule chain", "", "ENTRY main {", "  x0 = f32[] parameter(0)"]
    lines += [f"  x{i} = f32[] negate(x{i - 1})" for i in range(1, length)]
    lines += [f"  ROOT x{length} = f32[] negate(x{length - 1})", "}"]
    return "\n".join(lines) + "\n"


def test_a_long_chain_parses_prints_converts_and_runs():
    module = xla.HloModule.from_text(chain_text(LENGTH))
    assert module.instruction_count() == LENGTH + 1
    module.verify()
    again = xla.HloModule.from_text(module.to_text())
    assert again.instruction_count() == LENGTH + 1
    assert xla.HloModule.from_proto(module.to_proto()).instruction_count() == LENGTH + 1
    assert xla.compile(module)(np.float32(2)) == 2


def test_a_chain_is_built_and_forgotten_without_recursion():
    builder = xla.XlaBuilder("chain")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32))
    for _ in range(LENGTH):
        x = xla.neg(x)
    computation = builder.build(x)
    assert len(computation.computation.instructions) == LENGTH + 1
    assert not builder.is_constant(x)


def test_an_empty_array_may_be_longer_than_memory():
    text = "HloModule m\n\nENTRY main {\n  ROOT i = f32[1000000000000,0] iota(), iota_dimension=0\n}\n"
    result = xla.compile(xla.HloModule.from_text(text), backend="interpreter")()
    assert result.shape == (1_000_000_000_000, 0)


def test_huge_shapes_are_refused_before_anything_is_allocated():
    text = "HloModule m\n\nENTRY main {\n  ROOT i = s32[1073741824,1073741824] iota(), iota_dimension=0\n}\n"
    start = time.perf_counter()
    with pytest.raises(xla.ResourceError, match="'i'"):
        xla.compile(xla.HloModule.from_text(text))
    with pytest.raises(xla.XlakitError):
        xla.HloModule.from_text(text.replace("s32[1073741824,", "s64[1073741824,1073741824,"))
    assert time.perf_counter() - start < 5
