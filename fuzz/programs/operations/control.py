"""Operations that call computations, and those that know sizes at run time."""

from __future__ import annotations

import numpy as np

from fuzz.programs.draft import Draft, Program, family, join
from fuzz.programs.values import FINITE, SMALL, is_float
from fuzz.support.tolerances import EXACT, SUMS


@family("call", ("f32", "s32", "bf16"), 1)
def call(draft: Draft, case: str) -> Program:
    """A computation on arrays."""
    dims = draft.dims()
    shape = f"{case}[{join(dims)}]"
    operand = draft.parameter(case, dims, plain=True)
    called = draft.computation([f"x = {shape} parameter(0)", f"r = {shape} negate(x)"])
    draft.emit(shape, f"call({operand}), to_apply={called}")
    return draft.finish("call", EXACT, case)


@family("fusion", ("f32", "s32", "bf16", "f32 bf16", "f16 f64", "bf16 f16"), 1.5)
def fusion(draft: Draft, case: str) -> Program:
    """A computation that a compiler fused; of two types, it converts within."""
    dims = draft.dims()
    kinds = [case.split(maxsplit=1)[0], case.rsplit(maxsplit=1)[-1]]
    shape, other = (f"{kind}[{join(dims)}]" for kind in kinds)
    left, right = (draft.parameter(kind, dims, plain=True) for kind in kinds)
    lines = [f"x = {shape} parameter(0)", f"z = {other} parameter(1)", f"y = {shape} convert(z)"]
    called = draft.computation([*lines, f"m = {shape} maximum(x, y)", f"r = {shape} abs(m)"])
    draft.emit(shape, f"fusion({left}, {right}), kind=kLoop, calls={called}")
    return draft.finish("fusion", EXACT, case)


@family("while", ("f32", "s32", "u8", "s64"), 1.5)
def while_(draft: Draft, case: str) -> Program:
    """A counted loop over a tuple; now and then it does not run at all."""
    dims = draft.dims()
    array = f"{case}[{join(dims)}]"
    state = f"(s32[], {array})"
    counter = draft.parameter("s32", [], values=np.asarray(draft.integer(0, 6), dtype=np.int32))
    start = draft.parameter(case, dims, plain=True)
    condition = draft.computation(
        [
            f"s = {state} parameter(0)",
            "i = s32[] get-tuple-element(s), index=0",
            "n = s32[] constant(5)",
            "r = pred[] compare(i, n), direction=LT",
        ]
    )
    body = draft.computation(
        [
            f"s = {state} parameter(0)",
            "i = s32[] get-tuple-element(s), index=0",
            f"a = {array} get-tuple-element(s), index=1",
            "one = s32[] constant(1)",
            "j = s32[] add(i, one)",
            f"b = {array} {draft.pick(['maximum', 'add'] if not is_float(case) else ['maximum', 'minimum'])}(a, a)",
            f"r = {state} tuple(j, b)",
        ]
    )
    whole = draft.emit(state, f"tuple({counter}, {start})")
    draft.emit(state, f"while({whole}), condition={condition}, body={body}")
    return draft.finish("while", EXACT, case)


@family("conditional", ("pred f32", "index f32", "index s4", "pred bf16", "index u8"), 1.5)
def conditional(draft: Draft, case: str) -> Program:
    """A branch by a predicate or by a number, also one that no branch has."""
    form, kind = case.split()
    dims = draft.dims()
    shape = f"{kind}[{join(dims)}]"
    count = 2 if form == "pred" else draft.integer(1, 4)
    operands = [draft.parameter(kind, dims, plain=True) for _ in range(count)]
    bodies = [
        draft.computation([f"x = {shape} parameter(0)", f"r = {shape} {draft.pick(['copy', 'negate'])}(x)"])
        for _ in range(count)
    ]
    if form == "pred":
        chooser = draft.parameter("pred", [])
        tail = f"true_computation={bodies[0]}, false_computation={bodies[1]}"
    else:
        values = np.asarray(draft.integer(-2, count + 1), dtype=np.int32)
        chooser = draft.parameter("s32", [], values=values)
        tail = f"branch_computations={{{join(bodies)}}}"
    draft.emit(shape, f"conditional({', '.join([chooser, *operands])}), {tail}")
    return draft.finish("conditional", EXACT, case)


@family("get-dimension-size", ("f32", "s8"), 0.6)
def get_dimension_size(draft: Draft, case: str) -> Program:
    """The size of a dimension, static or set before."""
    dims = draft.dims(1, 4, empty=0.0)
    along = draft.integer(0, len(dims) - 1)
    operand = draft.parameter(case, dims, plain=True)
    if draft.chance():
        operand = _set_size(draft, case, dims, along, operand)[0]
    draft.emit("s32[]", f"get-dimension-size({operand}), dimensions={{{along}}}")
    return draft.finish("get-dimension-size", EXACT, case)


def _set_size(draft: Draft, kind: str, dims: list[int], along: int, operand: str) -> tuple[str, str]:
    size = np.asarray(draft.integer(0, dims[along]), dtype=np.int32)
    bound = [f"<={n}" if d == along else str(n) for d, n in enumerate(dims)]
    shape = f"{kind}[{','.join(bound)}]"
    name = draft.parameter("s32", [], values=size)
    return draft.emit(shape, f"set-dimension-size({operand}, {name}), dimensions={{{along}}}"), shape


@family("set-dimension-size", ("f32", "s32", "bf16"), 1.5)
def set_dimension_size(draft: Draft, case: str) -> Program:
    """A dimension made smaller; alone, negated, transposed or reduced."""
    dims = draft.dims(1, 3, empty=0.0)
    along = draft.integer(0, len(dims) - 1)
    operand = draft.parameter(case, dims, SMALL, plain=True)
    made, shape = _set_size(draft, case, dims, along, operand)
    use = draft.pick(["alone", "negate", "reduce", "add"])
    if use == "negate":
        draft.emit(shape, f"negate({made})")
    elif use == "add":
        draft.emit(shape, f"add({made}, {made})")
    elif use == "reduce":
        zero = draft.emit(f"{case}[]", "constant(0)")
        called = draft.reducer("add", case)
        all_dims = join(range(len(dims)))
        draft.emit(f"{case}[]", f"reduce({made}, {zero}), dimensions={{{all_dims}}}, to_apply={called}")
    return draft.finish("set-dimension-size", SUMS if use == "reduce" else EXACT, f"{case} {use}")


@family("dynamic-reshape", ("f32",), 0.4)
def dynamic_reshape(draft: Draft, case: str) -> Program:
    """To sizes that are operands."""
    rows, columns = draft.integer(1, 4), draft.integer(1, 4)
    operand = draft.parameter(case, [rows * columns], plain=True)
    sizes = [draft.parameter("s32", [], values=np.asarray(n, dtype=np.int32)) for n in (rows, columns)]
    draft.emit(f"{case}[<={rows},{columns}]", f"dynamic-reshape({', '.join([operand, *sizes])})")
    return draft.finish("dynamic-reshape", EXACT, case)


@family("scan", ("f32", "s32"), 0.6)
def scan(draft: Draft, case: str) -> Program:
    """A running sum."""
    length = draft.integer(1, 9)
    operand = draft.parameter(case, [length], SMALL, plain=True)
    start = draft.parameter(case, [], SMALL)
    called = draft.computation(
        [
            f"x = {case}[] parameter(0)",
            f"c = {case}[] parameter(1)",
            f"s = {case}[] add(c, x)",
            f"r = ({case}[], {case}[]) tuple(s, s)",
        ]
    )
    shapes = f"({case}[{length}], {case}[])"
    draft.emit(shapes, f"scan({operand}, {start}), dimensions={{0}}, num_carries=1, to_apply={called}")
    return draft.finish("scan", SUMS if is_float(case) else EXACT, case)


@family("custom-call", ("Sharding f32", "LayoutConstraint bf16", "TopK f32", "Sharding s8"), 0.5)
def custom_call(draft: Draft, case: str) -> Program:
    """The targets that both sides know: hints, which give the operand, and the first k of each row."""
    target, kind = case.split()
    dims = draft.dims(1, 2, empty=0.0)
    operand, shape = draft.parameter(kind, dims, FINITE, plain=True), f"{kind}[{join(dims)}]"
    more = {"Sharding": ", sharding={replicated}", "TopK": ", api_version=API_VERSION_STATUS_RETURNING"}.get(target, "")
    if target == "TopK":
        rows = join([*dims[:-1], draft.integer(1, dims[-1])])
        shape = f"({kind}[{rows}], s32[{rows}])"
    draft.emit(shape, f'custom-call({operand}), custom_call_target="{target}"{more}')
    return draft.finish("custom-call", EXACT, case)
