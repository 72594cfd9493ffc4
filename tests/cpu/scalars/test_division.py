"""Quotients and remainders of integers: in vectors through floats, by known divisors, and at the edges."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.target import has_feature


def numbers(kind):
    """Numbers at the edges of an integer type and next to powers of two, all of them with all of them."""
    bounds = np.iinfo(kind)
    powers = [sign * 2**k + step for k in range(0, bounds.bits, 3) for sign in (1, -1) for step in (-1, 0, 1)]
    edges = [bounds.min, bounds.min + 1, bounds.max, bounds.max - 1, 7, 10, -7]
    near = np.array(sorted({n for n in (*powers, *edges) if bounds.min <= n <= bounds.max}), kind)
    rng = np.random.default_rng(0)
    drawn = rng.integers(bounds.min, bounds.max, 500, kind, endpoint=True)
    divisor = rng.integers(1, min(bounds.max, 1000), 500, kind)
    # Of all lengths.
    other = np.maximum(np.abs(rng.permutation(drawn) >> rng.integers(0, bounds.bits - 1, 500).astype(kind)), kind(1))
    divisor = np.concatenate([divisor, other])
    drawn = np.concatenate([drawn, drawn])
    # Beside multiples a quotient is nearest to the next one.
    multiple = drawn // divisor * divisor
    a, b = (grid.reshape(-1) for grid in np.meshgrid(near, near))
    with np.errstate(all="ignore"):
        return (
            np.concatenate([a, drawn, multiple, multiple - kind(1), multiple + kind(1)]).astype(kind),
            np.concatenate([b, *[divisor] * 4]),
        )


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_quotients_and_remainders(kind):
    x, y = numbers(kind)
    name = xla.PrimitiveType.from_dtype(kind).hlo_name
    shape = f"{name}[{len(x)}]"
    lines, results = [], []
    for opcode in ("divide", "remainder"):
        for number, known in enumerate(["y", 7, 0, 1, np.iinfo(kind).max, *([-1, -10] if np.iinfo(kind).min else [])]):
            result = f"{opcode}{number}"
            if known == "y":
                lines.append(f"{result} = {shape} {opcode}(x, y)")
            else:
                lines.append(f"c_{result} = {name}[] constant({known})")
                lines.append(f"b_{result} = {shape} broadcast(c_{result}), dimensions={{}}")
                lines.append(f"{result} = {shape} {opcode}(x, b_{result})")
            results.append(result)
    body = "\n".join(lines)
    text = f"""HloModule division
    ENTRY e {{
      x = {shape} parameter(0)
      y = {shape} parameter(1)
      {body}
      ROOT r = ({", ".join([shape] * len(results))}) tuple({", ".join(results)})
    }}"""
    module = xla.HloModule.from_text(text)
    found, expected = (xla.compile(module, backend=backend)(x, y) for backend in ("cpu", "interpreter"))
    for result, ours, theirs in zip(results, found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=result)


@pytest.mark.parametrize(
    ("kind", "is_vector"),
    [("s8", True), ("u16", True), ("s32", True), ("u32", True)]
    + [(k, has_feature("avx512dq")) for k in ("s64", "u64")],
)
def test_integers_are_divided_in_vectors(kind, is_vector):
    text = f"""HloModule m
    ENTRY e {{
      x = {kind}[4096] parameter(0)
      y = {kind}[4096] parameter(1)
      ROOT r = {kind}[4096] divide(x, y)
    }}"""
    made = xla.compile(xla.HloModule.from_text(text), backend="cpu").llvm_ir(optimized=False)
    assert (" = fdiv <" in made) == is_vector
