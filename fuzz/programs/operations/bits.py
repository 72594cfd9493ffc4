"""Moves and orders of floats, which compute nothing: all bits count, those of NaNs too, whatever they go through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fuzz.programs.draft import join
from fuzz.programs.values import EDGES, Array, bits_of, make_values, with_nans_of_all_bits

# The dimensions of the result, and the move of the elements of x and y.
_MOVES = (
    ("4,6", "reverse(x), dimensions={1}"),
    ("4,6", "select(p, x, y)"),
    ("6,4", "transpose(x), dimensions={1,0}"),
    ("4,3", "slice(x), slice={[0:4], [0:6:2]}"),
    ("6,6", "pad(x, c), padding=1_1x1_-1"),
    ("4,12", "concatenate(x, y), dimensions={1}"),
    ("3,4,6", "broadcast(x), dimensions={1,2}"),
)


@dataclass(frozen=True, slots=True)
class Moves:
    """One of each move, in one type."""

    kind: str

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The shape of each result, and its operation; the last ones order by the bits, and give them as integers."""
        moves = [(f"{self.kind}[{dims}]", call) for dims, call in _MOVES]
        order = ("pred[4,6]", "compare(x, y), direction=LT, type=TOTALORDER")
        return [*moves, order, (f"u{bits_of(self.kind)}[4,6]", "bitcast-convert(x)")]

    @property
    def text(self) -> str:
        """The module that has them all."""
        lines = [f"{name} = {self.kind}[4,6] parameter({number})" for number, name in enumerate("xy")]
        lines += ["p = pred[4,6] parameter(2)", f"c = {self.kind}[] parameter(3)"]
        lines += [f"r{number} = {shape} {call}" for number, (shape, call) in enumerate(self.calls)]
        names = join([f"r{number}" for number in range(len(self.calls))])
        lines.append(f"ROOT r = ({join([shape for shape, _ in self.calls])}) tuple({names})")
        return "\n".join(["HloModule moves", "ENTRY e {", *lines, "}", ""])

    def arguments(self, rng: np.random.Generator) -> list[Array]:
        """Its arguments: there are NaNs of all fractions, and half of y differs from x in the last bit alone."""
        with np.errstate(all="ignore"):
            x, y, c = (with_nans_of_all_bits(rng, make_values(rng, self.kind, d, EDGES)) for d in ([4, 6], [4, 6], []))
        unsigned = f"u{x.itemsize}"
        near = (x.view(unsigned) ^ x.view(unsigned).dtype.type(1)).view(x.dtype)
        return [x, np.where(rng.random(x.shape) < 0.5, near, y), make_values(rng, "pred", [4, 6], EDGES), c]
