"""Steps that depend on the order along a dimension: running sums, the element that a reducer chooses, sorts."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.programs.composed.window_steps import INNER, STEPS, Chain
from fuzz.programs.operations.window import WindowDimension, window_text


def running(body: Chain) -> None:
    """For each element what those up to it give, or those from it on."""
    found = body.along()
    if found is None:
        return
    value, axis = found
    draft, size = body.draft, value.dims[axis]
    length = size + draft.pick([0, 0, 0, 1])
    margins = draft.pick([(length - 1, 0), (0, length - 1)])
    windows = [
        WindowDimension(n, length, 1, *margins) if d == axis else WindowDimension(n, 1)
        for d, n in enumerate(value.dims)
    ]
    called = draft.reducer(draft.pick(body.opcodes(value.kind)), value.kind)
    text = f"window={{{window_text(windows)}}}, to_apply={called}"
    body.tamed(
        body.add(
            value.kind, [w.output for w in windows], f"reduce-window({value.name}, {body.number(value.kind)}), {text}"
        )
    )


ORDER_STEPS: tuple[Callable[..., None], ...] = (*STEPS, running, running, running)
ORDER_INNER: tuple[Callable[..., None], ...] = (*INNER, running)
