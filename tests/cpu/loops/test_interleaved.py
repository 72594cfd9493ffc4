"""Interleaved parts of interleaved parts, as associative scans have them: the code of a fusion stays small."""

from collections import Counter

import numpy as np

import xlakit as xla
from xlakit.passes.pipeline import run_pipeline


def scan(size):
    """The running sums of an array by halving it, as ``lax.associative_scan`` does."""
    lines = [f"p{size} = f32[{size},4] parameter(0)"]
    n = size
    while n > 1:
        h = n // 2
        lines += [
            f"even{n} = f32[{h},4] slice(p{n}), slice={{[0:{n}:2], [0:4]}}",
            f"odd{n} = f32[{h},4] slice(p{n}), slice={{[1:{n}:2], [0:4]}}",
            f"p{h} = f32[{h},4] add(even{n}, odd{n})",
        ]
        n = h
    lines.append("r1 = f32[1,4] copy(p1)")
    while n < size:
        m = 2 * n
        lines += [
            f"zero{m} = f32[] constant(0)",
            f"first{m} = f32[1,4] slice(p{m}), slice={{[0:1], [0:4]}}",
            f"before{m} = f32[{n - 1},4] slice(r{n}), slice={{[0:{n - 1}], [0:4]}}",
            f"own{m} = f32[{n - 1},4] slice(p{m}), slice={{[2:{m}:2], [0:4]}}",
            f"rest{m} = f32[{n - 1},4] add(before{m}, own{m})",
            f"front{m} = f32[{n},4] concatenate(first{m}, rest{m}), dimensions={{0}}",
            f"low{m} = f32[{m},4] pad(front{m}, zero{m}), padding=0_1_1x0_0_0",
            f"high{m} = f32[{m},4] pad(r{n}, zero{m}), padding=1_0_1x0_0_0",
            f"r{m} = f32[{m},4] add(low{m}, high{m})",
        ]
        n = m
    text = "\n".join(line for line in lines if "f32[0," not in line and "before2 " not in line)
    text = text.replace("concatenate(first2, rest2)", "concatenate(first2)")
    return xla.HloModule.from_text(f"HloModule m ENTRY e {{ {text} ROOT r = f32[{size},4] negate(r{size}) }}")


def most_emitted(computation):
    """How often the computation's instruction that is read along most ways is computed."""
    ways = Counter({computation.root: 1})
    for instruction in reversed(computation.instructions):
        for operand in instruction.operands:
            ways[operand] += ways[instruction]
    return max(ways[i] for i in computation.instructions if i.opcode == "add")


def test_a_recursive_scan_is_not_computed_anew_for_each_level():
    fusions = [i for i in run_pipeline(scan(256)).entry.instructions if i.opcode == "fusion"]
    assert fusions
    assert max(most_emitted(c) for f in fusions for c in f.op.called_computations) <= 4


def test_a_recursive_scan_gives_running_sums():
    values = np.random.default_rng(0).integers(-9, 9, (64, 4)).astype(np.float32)
    np.testing.assert_array_equal(xla.compile(scan(64), cache=False)(values), -np.cumsum(values, 0))
