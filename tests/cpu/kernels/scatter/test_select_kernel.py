"""The kernel of select-and-scatter, against the interpreter."""

import ml_dtypes
import numpy as np
import pytest
from cpu.agreeing import agree, numbers
from evaluating import evaluate

import xlakit as xla


def pooled(x, window, strides, padding):
    return evaluate(
        lambda x: xla.reduce_window(x, np.array(0, x.shape.element_type.dtype), xla.add, window, strides, padding), x
    )


def check(x, window, strides, padding, select=xla.ge, scatter=xla.add, start=0):
    source = numbers(x.dtype.type, *pooled(x, window, strides, padding).shape, seed=3)
    init = np.array(start, x.dtype)
    agree(lambda x, s: xla.select_and_scatter(x, select, window, strides, padding, s, init, scatter), x, source)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_the_gradient_of_pooling(padding, strides, channels_last):
    for window in ((2, 2), (3, 3), (1, 4)):
        if channels_last:
            check(numbers(np.float32, 2, 9, 11, 21), (1, *window, 1), (1, *strides, 1), padding)
        else:
            check(numbers(np.float32, 2, 3, 9, 31), (1, 1, *window), (1, 1, *strides), padding)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, ml_dtypes.bfloat16, np.float64])
def test_element_types_of_windows(kind):
    check(numbers(kind, 3, 20, 9), (1, 3, 1), (1, 2, 1), "SAME")


def test_nan_is_selected_as_the_computation_says():
    x = numbers(np.float32, 4, 30)
    x[1, 3::7] = np.nan
    for select in (xla.ge, xla.gt, xla.le):
        check(x, (1, 4), (1, 3), "SAME", select)
        check(x.T.copy(), (4, 1), (3, 1), "SAME", select)


def test_other_computations():
    x = numbers(np.float32, 8, 33)
    check(x, (3, 1), (2, 1), "SAME", scatter=lambda a, b: a - b * np.float32(2), start=7)
    check(x, (1, 3), (1, 1), "SAME", scatter=lambda a, b: a * np.float32(0.5) + b)
    check(x, (3, 3), (1, 1), "SAME", scatter=xla.max, start=-9)


def test_long_rows():
    check(numbers(np.float32, 3, 1500), (1, 5), (1, 2), "SAME")
    check(numbers(np.float32, 12, 1500), (5, 1), (2, 1), "SAME")


HOLES = """
HloModule holes

select {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE
}

scatter {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  half = f32[] constant(0.5)
  c = f32[] multiply(a, half)
  ROOT d = f32[] add(b, c)
}

ENTRY main {
  x = f32[3,4,5] parameter(0)
  source = f32[SOURCE] parameter(1)
  zero = f32[] constant(0)
  ROOT y = f32[3,4,5] select-and-scatter(x, source, zero), window={WINDOW}, select=select, scatter=scatter
}
"""


@pytest.mark.parametrize(
    ("window", "source"),
    [
        ("size=1x3x3 pad=0_0x1_1x2_0 lhs_dilate=1x2x3", (3, 7, 13)),
        ("size=2x3x2 stride=1x2x1 pad=1_0x0_0x0_1 lhs_dilate=2x3x1 rhs_dilate=1x2x1", (5, 3, 5)),
        ("size=1x1x4 stride=1x1x2 lhs_dilate=1x1x2", (3, 4, 3)),
    ],
)
def test_windows_over_holes(window, source):
    module = xla.HloModule.from_text(HOLES.replace("WINDOW", window).replace("SOURCE", ",".join(map(str, source))))
    compiled, reference = (xla.compile(module, backend=name) for name in ("cpu", "interpreter"))
    assert not compiled.host_instructions
    x, given = numbers(np.float32, 3, 4, 5), numbers(np.float32, *source, seed=1)
    np.testing.assert_array_equal(compiled(x, given), reference(x, given))


def padded_gradient(x, source, window, strides, around, value, scatter=xla.add):
    """As JAX says the gradient of pooling with padding: padded, selected, cut."""
    edges = [(0, 0), *around, (0, 0)]
    padded = xla.pad(x, np.array(value, np.float32), [(low, high, 0) for low, high in edges])
    init = np.array(-0.0, np.float32)
    made = xla.select_and_scatter(padded, xla.ge, window, strides, "VALID", source, init, scatter)
    starts, sizes = [low for low, _ in edges], x.shape.dimensions
    limits = [s + n for s, n in zip(starts, sizes, strict=True)]
    return xla.slice(made, starts, limits, [1] * len(starts))


@pytest.mark.parametrize("value", [-np.inf, 0.25, np.nan])
@pytest.mark.parametrize(
    ("window", "stride", "around"),
    [((3, 3), (2, 2), ((1, 1), (1, 1))), ((5, 4), (1, 3), ((2, 0), (0, 4))), ((2, 2), (2, 2), ((0, 1), (1, 0)))],
)
def test_padding_takes_part_and_gets_nothing(value, window, stride, around):
    x = numbers(np.float32, 2, 7, 9, 19)
    x[0, :3, :4] = -np.inf
    x[1, 2:5, ::2] = np.nan
    sizes = [(n + sum(a) - w) // s + 1 for n, a, w, s in zip(x.shape[1:3], around, window, stride, strict=True)]
    source = numbers(np.float32, 2, *sizes, 19, seed=3)
    for scatter in (xla.add, xla.max):
        agree(
            lambda x, s, scatter=scatter: padded_gradient(
                x, s, (1, *window, 1), (1, *stride, 1), around, value, scatter
            ),
            x,
            source,
        )
