"""Shuffle: rotations and permutations."""

import evaluating
import numpy as np
import pytest
from evaluating import evaluate, f32, ints, refused, same

import xlakit as xla


def test_shuffle_rotates_and_permutes():
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    same(evaluate(lambda x: xla.shuffle_rotate(x, [0, 1], [1, 2]), matrix), np.roll(matrix, (-1, -2), (0, 1)))
    same(evaluate(lambda x: xla.shuffle_permute(x, [1], ints([[2, 0, 1]])), matrix), matrix[:, [2, 0, 1]])
    everywhere = np.stack(np.meshgrid([1, 0], [2, 1, 0], indexing="ij"), axis=-1).astype(np.int32)
    same(evaluate(lambda x: xla.shuffle_permute(x, [0, 1], everywhere), matrix), matrix[::-1, ::-1])
    same(evaluate(lambda x: xla.shuffle_permute(x, [1], ints([[2]])), matrix), matrix[:, [2, 2, 2]])
    refused("leave dimension 0", lambda x: xla.shuffle_permute(x, [0], ints([2, 0])), f32(2))


def test_shuffle_checks_shifts_and_indices():
    refused("one shift for each", lambda x: xla.shuffle_rotate(x, [0], [1, 2]), f32(2, 2))
    refused("different numbers", lambda x: xla.shuffle_rotate(x, [0, 0], [1, 2]), f32(2, 2))
    refused("need a last dimension", lambda x: xla.shuffle_permute(x, [0, 1], ints([[0]])), f32(2, 2))
    refused("do not say", lambda x: xla.shuffle_permute(x, [0], ints([0, 1, 2])), f32(2))


def test_shuffle_in_hlo_text():
    text = """HloModule m

ENTRY main {
  p0 = f32[3,2] parameter(0)
  a = f32[3,2] shuffle(p0), dimensions={0,1}, mode=rotate, shifts={1,-1}
  ROOT b = f32[3,2] shuffle(a), dimensions={0}, mode=permute, indices=s32[3,1] { {2}, {0}, {1} }
}
"""
    module = xla.HloModule.from_text(text)
    again = xla.HloModule.from_text(module.to_text())
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = np.roll(matrix, (-1, 1), (0, 1))[[2, 0, 1]]
    same(evaluating.compiled(module)(matrix), expected)
    same(evaluating.compiled(again)(matrix), expected)


def test_shuffle_has_no_proto_yet():
    built = xla.XlaBuilder("m")
    xla.shuffle_rotate(xla.parameter(built, 0, f32(2)), [0], [1])
    with pytest.raises(xla.UnsupportedError, match="shuffle declares mode"):
        built.build().to_module().to_proto()
