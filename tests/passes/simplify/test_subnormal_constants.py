"""Programs that take subnormal numbers for zero do so with constants, too, of which NumPy would keep them."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.ops.data import Constant
from xlakit.options import compiling
from xlakit.passes.pipeline import run_pipeline

TINY = {kind: np.asarray(n) for kind, n in [("F32", 2.0**-130), ("F64", 2.0**-1030), ("BF16", 2.0**-130)]}


def total(x):
    return xla.reduce(x, xla.constant(x.builder, 0.0, x.shape.element_type), xla.add, [0])


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize(
    ("program", "is_move"),
    [
        (lambda x: x + x, False),
        (lambda x: xla.rev(x, [0]), True),
    ],
)
def test_results_are_those_of_arguments(program, is_move, kind, flush):
    array = (np.arange(1, 9) * TINY[kind]).astype(getattr(xla, kind).dtype)
    with compiling(flush_subnormals=flush):
        builder = xla.XlaBuilder("known")
        known = builder.build(program(xla.constant(builder, array))).to_module()
        is_folded = isinstance(run_pipeline(known).entry.root.op, Constant)
        assert is_folded == (is_move or not flush)
        builder = xla.XlaBuilder("given")
        given = builder.build(program(xla.parameter(builder, 0, xla.Shape(getattr(xla, kind), array.shape))))
        expected = np.asarray(xla.compile(given, backend="cpu")(array))
        result = np.asarray(xla.compile(known, backend="cpu")())
    assert result.tobytes() == expected.tobytes()
    assert bool(np.any(expected.astype(np.float64))) == (is_move or not flush)


def test_complex_and_narrow_numbers():
    def is_folded(array):
        builder = xla.XlaBuilder("known")
        with compiling(flush_subnormals=True):
            root = run_pipeline(builder.build(total(xla.constant(builder, array))).to_module()).entry.root
        return isinstance(root.op, Constant)

    assert not is_folded((np.arange(1, 9) * 1e-40j).astype(np.complex64))
    assert is_folded((np.arange(1, 9) * 1j).astype(np.complex64))
    # These are normal in F32.
    assert is_folded((np.arange(1, 9) * 2.0**-24).astype(np.float16))
    assert is_folded((np.arange(1, 9) * 2.0**-9).astype(ml_dtypes.float8_e4m3fn))


# Every plan, since LLVM folds some constants in its passes and others as it generates code.
@pytest.mark.parametrize("plain", [(), ("rewrites",), ("fusion",), ("rewrites", "fusion"), ("inline",), ("llvm",)])
@pytest.mark.parametrize("size", [3, 16, 40, 100])
@pytest.mark.parametrize("kind", TINY)
def test_known_sums_are_zero_in_every_plan(kind, size, plain):
    builder, numbers = xla.XlaBuilder("known"), (1 + np.arange(size) % 7) * TINY[kind]
    odd, same = (
        xla.constant(builder, x.astype(getattr(xla, kind).dtype)) for x in (numbers, np.full(size, TINY[kind]))
    )
    one, two = (xla.constant(builder, x, getattr(xla, kind)) for x in (float(TINY[kind]), 2))
    module = builder.build(xla.tuple_(builder, [total(odd), total(same), one + one, one * two])).to_module()
    knobs = {"loop_sums.fewest_iterations": 1}
    with compiling(flush_subnormals=True, plain=plain, knobs=knobs):
        results = xla.compile(module, backend="cpu", cache=False)()
    assert not any(float(np.asarray(x)) for x in results)
