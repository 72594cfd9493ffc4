"""Shuffles and sparse convolutions as other operations: compiled programs against the interpreter."""

import numpy as np
import pytest
from cpu.agreeing import agree, numbers

import xlakit as xla

SHUFFLES = [
    ([0], np.array([[2], [0], [1]])),
    ([1], np.array([[[3], [2], [1], [0]]])),
    ([1], np.random.default_rng(0).integers(0, 4, (3, 4, 5))),
    ([1], np.random.default_rng(1).integers(0, 4, (1, 1, 5))),
    ([2, 0], np.random.default_rng(2).integers(0, 3, (3, 1, 5, 2))),
    ([0, 1], np.array([[[[1, 3]]]])),
    ([2, 1, 0], np.random.default_rng(3).integers(0, 3, (3, 4, 5, 3))),
]


@pytest.mark.parametrize(("dimensions", "indices"), SHUFFLES)
def test_permutations(dimensions, indices):
    if indices.ndim == 2:
        indices = indices[..., None]
    agree(lambda x: xla.shuffle_permute(x, dimensions, indices.astype(np.int32)), numbers(np.float32, 3, 4, 5))


@pytest.mark.parametrize(("dimensions", "shifts"), [([0], [1]), ([2, 0], [-7, 5]), ([1], [4]), ([], [])])
def test_rotations(dimensions, shifts):
    for kind in (np.int8, np.complex64):
        agree(lambda x: xla.shuffle_rotate(x, dimensions, shifts), numbers(kind, 3, 4, 5))


def test_no_elements():
    agree(lambda x: xla.shuffle_rotate(x, [1], [1]), numbers(np.float32, 3, 0))
    agree(lambda x: xla.shuffle_permute(x, [0], np.array([[1], [0]], np.int32)), numbers(np.float32, 2, 0))
    agree(lambda x: xla.shuffle_permute(x, [1], np.zeros((0, 6, 1), np.int32)), numbers(np.float32, 0, 6))


def test_a_permutation_along_no_dimension_is_the_array():
    for sizes, indices in (((), 3), ((2, 3), [[0]])):
        agree(lambda x, i=indices: xla.shuffle_permute(x, [], np.array(i, np.int32)), numbers(np.float32, *sizes))


SPARSE = """
HloModule sparse

ENTRY main {
  x = KIND[2,6,5] parameter(0)
  kernel = KIND[4,2,3] parameter(1)
  places = s8[4,2,3] parameter(2)
  ROOT y = KIND[2,4,3] convolution(x, kernel, places), window={size=3}, dim_labels=bf0_oi0->bf0,
    sparsity_config={rhs={sparsity=1x3 dimension=1 stride=1 idx=2}}
}
"""


@pytest.mark.parametrize("kind", [xla.F32, xla.BF16, xla.S32, xla.C64], ids=lambda kind: kind.hlo_name)
def test_sparse_convolutions(kind):
    module = xla.HloModule.from_text(SPARSE.replace("KIND", kind.hlo_name))
    x, kernel = (numbers(kind.dtype.type, *sizes).astype(kind.dtype) for sizes in ((2, 6, 5), (4, 2, 3)))
    # A place outside of its block is nowhere.
    places = np.random.default_rng(0).integers(-1, 4, kernel.shape).astype(np.int8)
    compiled = xla.compile(module, backend="cpu")
    assert not compiled.host_instructions
    expected = xla.compile(module, backend="interpreter")(x, kernel, places)
    np.testing.assert_array_equal(compiled(x, kernel, places), expected)
    dense = (places[:, :, None] == np.arange(3)[:, None]) * kernel[:, :, None]
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=2).astype(np.complex128)
    by_hand = np.einsum("bipw,oiw->bop", windows, dense.reshape(4, 6, 3).astype(np.complex128))
    np.testing.assert_array_equal(expected.astype(np.complex128), by_hand)
