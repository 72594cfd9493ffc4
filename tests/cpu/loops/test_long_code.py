"""Loops of long code whose last dimension is short: the code is not written several times, and no batch is moved."""

import numpy as np
import pytest

import xlakit as xla
from xlakit.cpu.codegen import generate, make_objects
from xlakit.cpu.program import Target
from xlakit.execution.groups import Grid
from xlakit.lib import special
from xlakit.passes.pipeline import run_pipeline


def object_bytes(module):
    code = generate(run_pipeline(module), Target(Grid(1, 1)))
    make_objects(code)
    return sum(map(len, code.objects))


def chain(dtype, function, length, sizes):
    builder = xla.XlaBuilder("chain")
    x = xla.parameter(builder, 0, xla.make_shape(dtype, sizes), "x")
    row = xla.parameter(builder, 1, xla.make_shape(dtype, sizes[-1:]), "row")
    spread = xla.broadcast_in_dim(row, sizes, [len(sizes) - 1])
    y = x + spread
    for _ in range(length):
        y = function(y, spread)
    return builder.build(y).to_module()


CHAINS = {
    "powers": (np.float64, xla.pow, 30),
    "sines": (np.float32, lambda y, _: xla.sin(y), 40),
    "complex": (np.complex64, lambda y, _: xla.tanh(y), 8),
    "quotients": (np.int64, xla.div, 30),
}


# Not all processors divide vectors of 64-bit integers.
@pytest.mark.parametrize("name", ["powers", "sines", "complex"])
def test_short_rows_take_little_more_code_than_long_ones(name):
    short, long = (object_bytes(chain(*CHAINS[name], sizes)) for sizes in ([3, 100, 7], [3, 7, 100]))
    assert short < 3 * long


def test_operations_on_elements_alone_are_no_batch():
    builder = xla.XlaBuilder("zeta")
    x, q = (xla.parameter(builder, n, xla.make_shape(np.float64, (3, 100, 7)), f"p{n}") for n in range(2))
    assert "transpose(" not in run_pipeline(builder.build(special.zeta(x, q)).to_module()).to_text()


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("sizes", [(3, 100, 7), (100, 3), (37, 2)])
def test_results_are_those_of_single_elements(name, sizes):
    dtype, function, _ = CHAINS[name]
    rng = np.random.default_rng(0)
    x, row = (rng.uniform(1, 2, s) * (40 if dtype is np.int64 else 1) for s in (sizes, sizes[-1:]))
    x, row = x.astype(dtype), row.astype(dtype)
    length = 40 if name == "sines" else 4
    whole = np.asarray(xla.compile(chain(dtype, function, length, sizes))(x, row))
    flat = xla.compile(chain(dtype, function, length, (1, x.size)))
    each = flat(x.reshape(1, -1), np.broadcast_to(row, sizes).reshape(-1))
    np.testing.assert_array_equal(whole.reshape(1, -1), np.asarray(each))
