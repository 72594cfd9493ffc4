"""Steps of modules that are to be split: groups that are sharded alike, calls on each of a batch, loops that add up,
rows of narrow types, and rows that are added at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import xlakit as xla
from fuzz.programs.composed.body import Body, appending
from fuzz.programs.draft import join

Array = np.ndarray[Any, Any]
_MOST_DIMS = 3
_NARROW = ("f8e8m0fnu", "f8e5m2", "f8e4m3fnuz", "bf16", "s8")


def group(body: Body) -> None:
    """Values of the same dimensions that are to be split alike."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is None:
        return
    number, dims = body.draft.integer(0, 1 << 20), value.dims
    others = [body.pick(lambda v: v.dims == dims) or value for _ in range(body.draft.integer(1, 2))]
    for member in dict.fromkeys([value, *others]):
        body.emit(
            "()",
            f'custom-call({member.name}), custom_call_target="xla.sdy.ShardingGroup", '
            f'custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.sharding_group_id="{number}"}}',
        )
    # A member that is made after the group is one of the values that later steps take.
    body.add(value.kind, value.dims, f"copy({value.name})")


def batched_call(body: Body) -> None:
    """A custom call on each element of a batch, of up to three dimensions; it mixes the elements behind these."""
    value = body.pick(lambda v: len(v.dims) > 0 and 0 not in v.dims)
    if value is None:
        return
    other = body.pick(lambda v: v.dims == value.dims) or value
    count = body.draft.integer(0, min(_MOST_DIMS, len(value.dims)))
    shapes = ", ".join(f"{v.kind}[{join(v.dims)}]" for v in (value, other))
    made = body.emit(
        f"({shapes})",
        f'custom-call({value.name}, {other.name}), custom_call_target="fuzz.turn_{count}", '
        f'frontend_attributes={{num_batch_dims="{count}"}}',
    )
    for number, of in enumerate((value, other)):
        body.results.append(body.add(of.kind, of.dims, f"get-tuple-element({made}), index={number}"))


def accumulation(body: Body) -> None:
    """A loop that adds products of a value with itself, which are sums over what may be split."""
    draft = body.draft
    value = body.pick(lambda v: len(v.dims) == 2 and 0 not in v.dims and v.kind != "pred")
    if value is None or body.prefix.count("w") > 1:
        return
    dims = (value.dims[1],) * 2
    begin = body.pick(lambda v: v.kind == value.kind and v.dims == dims)
    if begin is None or draft.chance():
        begin = body.add(value.kind, dims, f"broadcast({body.scalar(value.kind, 0).name}), dimensions={{}}")
    shape = f"{value.kind}[{join(dims)}]"
    state = f"(s32[], {shape}, {value.shape})"
    lines = [f"p = {state} parameter(0)"]
    emit = appending(lines)
    count, sum, x = (emit(s, f"get-tuple-element(p), index={i}") for i, s in enumerate(("s32[]", shape, value.shape)))
    added = emit(shape, f"dot({x}, {x}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}")
    for _ in range(draft.integer(0, 2)):
        added = emit(shape, draft.pick([f"transpose({added}), dimensions={{1,0}}", f"negate({added})"]))
    if draft.chance(0.2):
        # The loop has another use for the sum.
        added = emit(shape, f"minimum({added}, {sum})")
    made = emit(shape, draft.pick([f"add({sum}, {added})", f"add({added}, {sum})", f"subtract({sum}, {added})"]))
    following = emit("s32[]", f"add({count}, {emit('s32[]', 'constant(1)')})")
    lines.append(f"r = {state} tuple({following}, {made}, {x})")
    loop = draft.computation(lines)
    test = draft.computation(
        [
            f"p = {state} parameter(0)",
            "i = s32[] get-tuple-element(p), index=0",
            f"n = s32[] constant({draft.integer(0, 4)})",
            "r = pred[] compare(i, n), direction=LT",
        ]
    )
    start = body.emit(state, f"tuple({body.scalar('s32', 0).name}, {begin.name}, {value.name})")
    end = body.emit(state, f"while({start}), condition={test}, body={loop}")
    body.results.append(body.add(value.kind, dims, f"get-tuple-element({end}), index=1"))


def narrow_rows(body: Body) -> None:
    """A row of a narrow type, at a number that is known or computed: some of these types have no zero."""
    draft = body.draft
    value = body.pick(lambda v: len(v.dims) > 0 and 0 not in v.dims and v.kind in ("f32", "f64", "s32"))
    if value is None:
        return
    kind, rows, rest = draft.pick(_NARROW), value.dims[0], value.dims[1:]
    narrow = body.emit(f"{kind}[{join(value.dims)}]", f"convert({value.name})")
    row = f"{kind}[{join((1, *rest))}]"
    if draft.chance():
        place = draft.integer(0, rows - 1)
        ranges = ", ".join([f"[{place}:{place + 1}]", *(f"[0:{n}]" for n in rest)])
        taken = body.emit(row, f"slice({narrow}), slice={{{ranges}}}")
    else:
        starts = [body.scalar("s32", draft.integer(0, rows - 1)).name, *[body.scalar("s32", 0).name] * len(rest)]
        sizes = join((1, *rest))
        taken = body.emit(row, f"dynamic-slice({narrow}, {', '.join(starts)}), dynamic_slice_sizes={{{sizes}}}")
    body.results.append(body.add(value.kind, (1, *rest), f"convert({taken})"))


def rows_put(body: Body) -> None:
    """Several rows at once that are added to others, at a number that is a value."""
    draft = body.draft
    value = body.pick(lambda v: len(v.dims) > 0 and 0 not in v.dims and v.kind in ("f32", "f64", "s32"))
    if value is None:
        return
    count = draft.integer(1, value.dims[0])
    ranges = ", ".join(f"[0:{n}]" for n in (count, *value.dims[1:]))
    rows = body.emit(f"{value.kind}[{join((count, *value.dims[1:]))}]", f"slice({value.name}), slice={{{ranges}}}")
    place = body.emit("s32[1]", f"reshape({body.scalar('s32', draft.integer(0, value.dims[0] - count)).name})")
    number = f"{value.kind}[]"
    add = draft.computation(
        [f"a = {number} parameter(0)", f"b = {number} parameter(1)", f"r = {number} add(a, b)"],
    )
    dims = join(range(len(value.dims)))
    call = (
        f"scatter({value.name}, {place}, {rows}), update_window_dims={{{dims}}}, inserted_window_dims={{}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=0, to_apply={add}"
    )
    body.results.append(body.add(value.kind, value.dims, call))


def _turn(count: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    def turn(x: Array, y: Array) -> tuple[Array, Array]:
        axes = tuple(range(count, x.ndim))
        return np.flip(x, axes), np.roll(y, 1, axes) if axes else y

    return turn


def register_calls() -> None:
    """Register the functions that batched calls name."""
    for count in range(_MOST_DIMS + 1):
        xla.register_custom_call(f"fuzz.turn_{count}", _turn(count))


STEPS: tuple[Callable[[Body], None], ...] = (
    group, group, batched_call, batched_call, accumulation, accumulation, narrow_rows, rows_put,
)  # fmt: skip
