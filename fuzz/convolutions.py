"""``python -m fuzz.convolutions``: dilated convolutions in groups, of narrow types, against the interpreter.

A base dilation divides the places of a window into phases (``xlakit/cpu/kernels/conv/geometry.py``), each of which is a
product of its own: of other sizes, with other taps, and with positions or features as its rows. Elements of few bits
may be converted once in a copy. Programs here have what chooses between these: phases of different sizes, about as many
features as a phase has positions, operands and results in any order of dimensions, groups of features and of a batch,
groups of so few features that several share a vector, both dilations, windows that reach into padding or past it, and
results of a wider type. Every second one is compiled with knobs and vectors drawn at random, as in :mod:`fuzz.forced`.
Three quarters of them multiply whole numbers, whose sums are exact in any order: their results must be the same to the
bit. The exit status is 1 where one differs.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuzz import compiled
from fuzz.forced import draw
from fuzz.programs.draft import Draft, Program
from fuzz.programs.operations.window import WindowDimension, window_text
from fuzz.programs.values import SMALL, Array, dtype_of, is_float
from fuzz.support import numbered
from fuzz.support.tolerances import EXACT, SUMS
from xlakit.options import compiling, current

_FLOATS = ("f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e3m4")
_INTEGERS = ("s8", "u8", "s4", "u4")
# Element types that are drawn now and then: their kernels are the same but for the conversions.
_OTHERS = ("f32", "f64", "s32", "c64")
# Results of another type than the operands'.
_WIDER = {**dict.fromkeys(_FLOATS, ("f32", "bf16")), **dict.fromkeys(_INTEGERS, ("s32", "s16")), "f32": ("f64",)}
# Multiplications of a program; the interpreter takes most of the time.
_MOST = 2_000_000


@dataclass(frozen=True, slots=True)
class _Groups:
    """The number of groups, and what they divide: "feature", "batch" or nothing."""

    of: str
    count: int


def _dimension(draft: Draft, most: int, *, has_phases: bool = True) -> WindowDimension:
    """A spatial dimension: mostly dilated, with a number of places that its phases do not divide."""
    base, size = (
        draft.pick([draft.integer(1, 5), draft.integer(2, most)]) if most > 1 else 1,
        draft.pick([1, 2, 3, 3, 4, 5, 7]),
    )
    base_dilation, window_dilation = draft.pick([1, 2, 2, 3, 3, 4]) if has_phases else 1, draft.pick([1, 1, 1, 2, 3])
    stride = draft.pick([1, 1, 1, 2, 3])
    extent = (size - 1) * window_dilation + 1
    low, high = (draft.pick([0, size // 2, extent - 1, draft.integer(-1, extent + 1)]) for _ in range(2))
    # At least one place.
    high += max(0, extent - ((base - 1) * base_dilation + 1 + low + high))
    reversal = draft.chance(0.3)
    return WindowDimension(base, size, stride, low, high, base_dilation, window_dilation, reversal)


def _places_of_a_phase(dimension: WindowDimension) -> int:
    """How many places the smallest phases have; the others have one more."""
    return dimension.output * math.gcd(dimension.stride, dimension.base_dilation) // dimension.base_dilation


def _order(draft: Draft, labels: str, usual: Sequence[str]) -> str:
    """An order of dimensions that programs have, or any."""
    return draft.pick(usual) if draft.chance(0.8) else "".join(labels[i] for i in draft.permutation(len(labels)))


def _arranged(order: str, labels: str, sizes: Sequence[int]) -> list[int]:
    """The sizes in an order."""
    return [sizes[labels.index(letter)] for letter in order]


def _values(draft: Draft, kind: str, dims: Sequence[int], *, whole: bool) -> Array | None:
    """Whole numbers without zero, which tell where they were read; None leaves the choice to the draft."""
    if not whole:
        return None
    numbers = draft.rng.integers(1, 4, tuple(dims)) * (draft.rng.integers(0, 2, tuple(dims)) * 2 - 1)
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(numbers) if kind.startswith("u") else numbers).astype(dtype_of(kind))


def program(seed: int, number: int) -> Program:
    """Program ``number`` of a seed."""
    draft = Draft(np.random.default_rng([seed, number]))
    while True:
        made = _drawn(draft)
        if made is not None:
            return made


def _drawn(draft: Draft) -> Program | None:
    """A program; None where it would be too large."""
    # Groups of few features share vectors, where they are side by side.
    is_narrow = draft.chance(0.2)
    rank = draft.pick([2, 2, 3] if is_narrow else [1, 1, 2, 2, 2, 3])
    # Single elements of as many features as images lie like one image of as many groups.
    is_single = draft.chance(0.3 if is_narrow else 0.12)
    most = 1 if is_single else 40 if rank == 1 else 12
    dims = [_dimension(draft, most, has_phases=not (is_narrow or is_single)) for _ in range(rank)]
    if is_single and draft.chance(0.5):
        # Behind features it is no line of them.
        dims[-2:] = [WindowDimension(1, 3, 1, 1, 1, 1, 1, False), WindowDimension(1, 1, 1, 0, 0, 1, 1, False)][-rank:]
    divided = ["feature", "feature", "batch"] if is_single else ["", "", "", "feature", "batch"]
    groups = _Groups(draft.pick(divided), draft.integer(2, 4))
    inputs, batch = draft.pick([1, draft.integer(1, 4), draft.integer(3, 40)]), draft.integer(1, 4)
    # Rows are positions or features, whichever fills vectors better: where both are about as many, each phase chooses.
    near = max(1, _places_of_a_phase(dims[-1]))
    outputs = draft.pick([near, near, near, draft.integer(1, 6), draft.integer(5, 70)])
    # Each feature may be a convolution by itself; kernels of their own have features side by side.
    is_depthwise = not is_narrow and draft.chance(0.12)
    if is_narrow:
        groups = _Groups("batch" if is_single else "feature", draft.pick([2, 4, 8, 8, 16]))
        inputs, outputs = draft.pick([1, 2, 3, 4, 6, 8, 16]), draft.pick([1, 2, 4, 4, 8, 8, 8, 16])
        batch = 1 if is_single else batch
    if is_depthwise:
        groups, inputs, outputs = _Groups("feature", draft.integer(2, 70)), 1, 1
    count = groups.count if groups.of else 1
    places = math.prod(d.output for d in dims)
    if batch * count * outputs * inputs * places * math.prod(d.size for d in dims) > _MOST:
        return None
    kind = draft.pick(
        ("f32", *_OTHERS) if is_narrow or is_single else draft.pick([_FLOATS, _FLOATS, _FLOATS, _INTEGERS, _OTHERS])
    )
    result = draft.pick(_WIDER[kind]) if kind in _WIDER and draft.chance(0.5) else kind
    spatial = "012"[:rank]
    of_images, of_kernels = f"bf{spatial}", f"io{spatial}"
    apart = [f"b{spatial}f"]
    is_apart = is_depthwise or is_narrow
    left_order = _order(draft, of_images, apart if is_apart else [f"bf{spatial}", f"bf{spatial}", *apart])
    out_order = left_order if draft.chance(0.6) else _order(draft, of_images, [f"bf{spatial}", *apart])
    of_depthwise, others = [f"{spatial}io"], [f"{spatial}io", f"oi{spatial}", f"io{spatial}"]
    right_order = _order(draft, of_kernels, of_depthwise if is_depthwise else others)
    batches, features = {"feature": (1, count), "batch": (count, 1), "": (1, 1)}[groups.of]
    left = _arranged(left_order, of_images, [batch * batches, inputs * features, *(d.base for d in dims)])
    right = _arranged(right_order, of_kernels, [inputs, outputs * count, *(d.size for d in dims)])
    out = _arranged(out_order, of_images, [batch, outputs * count, *(d.output for d in dims)])
    whole = draft.chance(0.75)
    names = [draft.parameter(kind, s, SMALL, _values(draft, kind, s, whole=whole)) for s in (left, right)]
    window = window_text(dims)
    parts = [f"convolution({', '.join(names)})", *([f"window={{{window}}}"] if window else [])]
    parts.append(f"dim_labels={left_order}_{right_order}->{out_order}")
    if groups.of:
        parts.append(f"{groups.of}_group_count={count}")
    draft.emit(draft.shape(result, out), ", ".join(parts))
    exact = whole or not (is_float(kind) or kind == "c64")
    return draft.finish("convolution", EXACT if exact else SUMS, f"{kind} to {result}, groups: {groups.of or 'none'}")


def judge(made: Program) -> str:
    """Describe the fault of the compiled code; "" if there is none."""
    status, detail = compiled.judge(made)
    return "" if status == "agreed" else f"{status}: {detail}"


def _fault_of(options: Namespace, number: int) -> str:
    made = program(options.seed, number)
    drawn = draw(options.seed, number) if number % 2 else current()
    numbered.show(options, made.text, drawn.text)
    with compiling(drawn):
        return judge(made)


main = numbered.net("fuzz.convolutions", __doc__, 2000, _fault_of)

if __name__ == "__main__":
    sys.exit(main())
