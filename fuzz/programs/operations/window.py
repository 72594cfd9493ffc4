"""Windows of convolutions, reduce-window and select-and-scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fuzz.programs.draft import Draft


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window, with the size of the base that it moves over."""

    base: int
    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    @property
    def output(self) -> int:
        """How many places the window has."""
        base = (self.base - 1) * self.base_dilation + 1 if self.base else 0
        room = base + self.low + self.high - ((self.size - 1) * self.window_dilation + 1)
        return room // self.stride + 1 if room >= 0 else 0


def draw_dimension(
    draft: Draft, *, dilated: bool, negative: bool, reversed_too: bool, padding: int | None = None
) -> WindowDimension:
    """A dimension whose window has at least one place; padded by up to ``padding``, or by less than the window."""
    base, size = draft.integer(1, 7), draft.pick([1, 2, 2, 3, 4])
    base_dilation = draft.pick([1, 1, 2, 3]) if dilated else 1
    window_dilation = draft.pick([1, 1, 2]) if dilated else 1
    extent = (size - 1) * window_dilation + 1
    least, most = -1 if negative and base > 2 else 0, extent - 1 if padding is None else padding
    low, high = (draft.integer(least, most) if draft.chance(0.6) else 0 for _ in range(2))
    high += max(0, extent - ((base - 1) * base_dilation + 1 + low + high))
    reversal = reversed_too and draft.chance(0.2)
    return WindowDimension(base, size, draft.integer(1, 3), low, high, base_dilation, window_dilation, reversal)


def window_text(dims: Sequence[WindowDimension]) -> str:
    """What stands between the braces of ``window={}``; what has its default everywhere is left out."""
    columns = {
        "size": [str(d.size) for d in dims],
        "stride": [str(d.stride) for d in dims],
        "pad": [f"{d.low}_{d.high}" for d in dims],
        "lhs_dilate": [str(d.base_dilation) for d in dims],
        "rhs_dilate": [str(d.window_dilation) for d in dims],
        "rhs_reversal": [str(int(d.reversal)) for d in dims],
    }
    defaults = {"stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}
    parts = [f"{key}={'x'.join(v)}" for key, v in columns.items() if any(e != defaults.get(key) for e in v)]
    return " ".join(parts)
