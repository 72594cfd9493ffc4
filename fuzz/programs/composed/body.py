"""Body: a computation to which steps add instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuzz.programs.draft import Draft, Named, join
from fuzz.programs.values import bits_of

# Values of steps have at most so many elements.
MOST_ELEMENTS = 4096


class Body:
    """The instructions of one computation in the making."""

    def __init__(
        self,
        draft: Draft,
        emit: Callable[[str, str], str],
        values: list[Named],
        prefix: str,
        steps: Sequence[Callable[[Body], None]],
    ) -> None:
        self.draft = draft
        self.emit = emit
        self.values = values
        self.prefix = prefix
        self.steps = steps
        # What becomes a result in any case.
        self.results: list[Named] = []

    def add(self, kind: str, dims: Sequence[int], call: str) -> Named:
        """An instruction; its value may be used from here on."""
        made = Named(self.emit(f"{kind}[{join(dims)}]", call), kind, tuple(dims))
        self.values.append(made)
        return made

    def pick(self, test: Callable[[Named], bool] = lambda _: True) -> Named | None:
        """One of the values that pass a test, later ones more often."""
        found = [v for v in self.values if test(v)]
        if not found:
            return None
        return found[-1 - min(len(found) - 1, int(self.draft.rng.exponential(4)))]

    def step(self) -> None:
        """One more operation, or none where what was drawn does not fit."""
        maker = self.draft.pick(self.steps)
        maker(self)

    def scalar(self, kind: str, number: int) -> Named:
        """A constant, or the largest number of an integer type that has not so large a one."""
        bits = 0 if "f" in kind or kind == "pred" else bits_of(kind)
        largest = (1 << bits - (kind[0] == "s")) - 1 if bits else number
        return self.add(kind, (), f"constant({min(number, largest)})")

    def matching(self, value: Named) -> Named:
        """Another value of the same type and dimensions, made for it where there is none."""
        found = self.pick(lambda v: v.kind == value.kind and v.dims == value.dims and v is not value)
        if found is not None and self.draft.chance(0.8):
            return found
        if value.dims and self.draft.chance():
            scalar = self.scalar(value.kind, self.draft.integer(0 if value.kind[0] == "u" else -1, 2))
            return self.add(value.kind, value.dims, f"broadcast({scalar.name}), dimensions={{}}")
        return value


def appending(lines: list[str]) -> Callable[[str, str], str]:
    """What emits into the lines of a computation, with numbered names."""

    def emit(shape: str, call: str) -> str:
        name = f"b{len(lines)}"
        lines.append(f"{name} = {shape} {call}")
        return name

    return emit
