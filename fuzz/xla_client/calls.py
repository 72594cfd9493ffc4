"""A function for each function of ``ops`` that draws a valid call of it; ``DRAWS`` is their table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from fuzz.xla_client.draft import COMPLEX, FLOATS, INTEGERS, TYPES, Call, Draft, Value, plain

Draw = Callable[[Draft], Call]

_ETYPES = ("F32", "S32", "F64", "BF16", "F16", "S8", "U8", "U32", "S64", "C64", "PRED", "U16")
_UNARY = (
    "Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "IsFinite", "Not", "Exp", "Clz", "PopulationCount", "Square",
    "Reciprocal", "Expm1", "Log", "Log1p", "Logistic", "Sin", "Cos", "Tan", "Tanh", "Sqrt", "Rsqrt", "Cbrt",
    "Acos", "Asin", "Atan", "Acosh", "Asinh", "Atanh", "Cosh", "Sinh", "Erf", "Erfc", "ErfInv", "Lgamma",
    "Digamma", "BesselI0e", "BesselI1e", "Real", "Imag", "Conj", "OptimizationBarrier",
)  # fmt: skip
_BINARY = (
    "Add", "Sub", "Mul", "Div", "Rem", "Max", "Min", "And", "Or", "Xor", "Pow", "Atan2", "Complex", "ShiftLeft",
    "ShiftRightArithmetic", "ShiftRightLogical", "Eq", "Ne", "Lt", "Le", "Gt", "Ge",
)  # fmt: skip
_INTEGRAL = {
    "Clz",
    "PopulationCount",
    "ShiftLeft",
    "ShiftRightArithmetic",
    "ShiftRightLogical",
    "Not",
    "And",
    "Or",
    "Xor",
}
_FLOATING = {
    "IsFinite", "Cbrt", "Erf", "Erfc", "ErfInv", "Lgamma", "Digamma", "BesselI0e", "BesselI1e", "Round", "Ceil",
    "Floor", "Exp", "Log", "Sin", "Cos", "Tanh", "Sqrt", "Rsqrt", "Complex", "Atan2",
}  # fmt: skip


def _type_for(draft: Draft, op: str) -> str:
    if draft.rng.random() < 0.1:
        return draft.rng.choice(TYPES)
    if op in _INTEGRAL:
        return draft.rng.choice((*INTEGERS, "bool"))
    if op == "Complex":
        return draft.rng.choice(("float32", "float64"))
    if op in _FLOATING:
        return draft.rng.choice(FLOATS)
    return draft.rng.choice(TYPES)


def _unary(draft: Draft) -> Call:
    return draft.give(draft.operand(_type_for(draft, draft.call["op"]), draft.shape()))


def _binary(draft: Draft) -> Call:
    dtype, dimensions = _type_for(draft, draft.call["op"]), draft.shape()
    low = 0 if draft.call["op"].startswith("Shift") else -4
    lhs = draft.operand(dtype, dimensions)
    way = draft.rng.random()
    if way < 0.5:
        return draft.give(lhs, draft.operand(dtype, dimensions, low))
    if way < 0.65:
        return draft.give(lhs, draft.operand(dtype, [], low))
    kept = draft.some(len(dimensions))
    rhs = draft.operand(dtype, [dimensions[d] for d in kept], low)
    if way < 0.8:
        return draft.give(lhs, rhs, plain(kept))
    return draft.give(rhs, lhs, broadcast_dimensions=plain(kept))


def _clamp(draft: Draft) -> Call:
    dtype, dimensions = draft.rng.choice((*FLOATS, *INTEGERS)), draft.shape()
    ends = [[] if draft.rng.random() < 0.5 else dimensions for _ in range(2)]
    return draft.give(draft.operand(dtype, ends[0]), draft.operand(dtype, dimensions), draft.operand(dtype, ends[1]))


def _select(draft: Draft) -> Call:
    dtype, dimensions = draft.rng.choice(TYPES), draft.shape()
    pred = draft.operand("bool", [] if draft.rng.random() < 0.3 else dimensions)
    return draft.give(pred, draft.operand(dtype, dimensions), draft.operand(dtype, dimensions))


def _convert(draft: Draft) -> Call:
    return draft.give(draft.operand(draft.rng.choice(TYPES), draft.shape()), ["type", draft.rng.choice(_ETYPES)])


def _reduce_precision(draft: Draft) -> Call:
    bits = [plain(draft.rng.randint(1, 8)), plain(draft.rng.randint(0, 20))]
    return draft.give(draft.operand(draft.rng.choice(FLOATS), draft.shape()), *bits)


def _broadcast(draft: Draft) -> Call:
    return draft.give(draft.operand(draft.rng.choice(TYPES), draft.shape()), plain(draft.shape(0, 2)))


def _broadcast_in_dim(draft: Draft) -> Call:
    dimensions = draft.shape(1)
    kept = draft.some(len(dimensions))
    sizes = [1 if draft.rng.random() < 0.3 else dimensions[d] for d in kept]
    return draft.give(draft.operand(draft.rng.choice(TYPES), sizes), plain(dimensions), plain(kept))


def _reshape(draft: Draft) -> Call:
    dimensions = draft.rng.choice(([2, 3, 2], [12], [4, 3], [1, 12], [2, 6]))
    target = draft.rng.choice(([3, 4], [12], [2, 2, 3], [6, 2, 1], [12, 1]))
    return draft.give(draft.operand(draft.rng.choice(TYPES), dimensions), plain(target))


def _collapse(draft: Draft) -> Call:
    dimensions = draft.shape(1, 4)
    first = draft.rng.randrange(len(dimensions))
    last = draft.rng.randint(first, len(dimensions) - 1)
    return draft.give(draft.operand(draft.rng.choice(TYPES), dimensions), plain(list(range(first, last + 1))))


def _transpose(draft: Draft) -> Call:
    dimensions = draft.shape()
    order = draft.rng.sample(range(len(dimensions)), len(dimensions))
    return draft.give(draft.operand(draft.rng.choice(TYPES), dimensions), plain(order))


def _rev(draft: Draft) -> Call:
    dimensions = draft.shape()
    return draft.give(draft.operand(draft.rng.choice(TYPES), dimensions), plain(draft.some(len(dimensions))))


def _slice(draft: Draft) -> Call:
    dimensions = draft.shape()
    starts = [draft.rng.randint(0, d) for d in dimensions]
    limits = [draft.rng.randint(s, d) for s, d in zip(starts, dimensions, strict=True)]
    strides = [draft.rng.randint(1, 3) for _ in dimensions]
    return draft.give(draft.operand(draft.rng.choice(TYPES), dimensions), plain(starts), plain(limits), plain(strides))


def _slice_in_dim(draft: Draft) -> Call:
    dimensions = draft.shape(1)
    d = draft.rng.randrange(len(dimensions))
    start = draft.rng.randint(0, dimensions[d])
    numbers = [start, draft.rng.randint(start, dimensions[d]), draft.rng.randint(1, 3), d]
    return draft.give(draft.operand(draft.rng.choice(TYPES), dimensions), *map(plain, numbers))


def _dynamic_slice(draft: Draft) -> Call:
    dimensions, dtype = draft.shape(), draft.rng.choice(TYPES)
    sizes = [draft.rng.randint(0, d) for d in dimensions]
    value = draft.operand(dtype, dimensions)
    kind = draft.rng.choice(INTEGERS)
    starts: Value = ["list", *[draft.operand(kind, [], -2, 5) for _ in dimensions]]
    if draft.call["op"] == "DynamicSlice":
        return draft.give(value, starts, plain(sizes))
    return draft.give(value, draft.operand(dtype, sizes), starts)


def _concatenate(draft: Draft) -> Call:
    dimensions, dtype = draft.shape(1), draft.rng.choice(TYPES)
    d = draft.rng.randrange(len(dimensions))
    parts = [[*dimensions[:d], draft.rng.randint(0, 3), *dimensions[d + 1 :]] for _ in range(draft.rng.randint(1, 3))]
    return draft.give(["builder"], ["list", *[draft.operand(dtype, part) for part in parts]], plain(d))


def _pad(draft: Draft) -> Call:
    dimensions, dtype = draft.shape(), draft.rng.choice(TYPES)
    triples = [[draft.rng.randint(-1, 2), draft.rng.randint(-1, 2), draft.rng.randint(0, 2)] for _ in dimensions]
    return draft.give(draft.operand(dtype, dimensions), draft.operand(dtype, []), ["padding", *triples])


def _dot(draft: Draft) -> Call:
    n, k, m = (draft.rng.randint(0, 4) for _ in range(3))
    lhs, rhs = draft.rng.choice((([n, k], [k, m]), ([k], [k, m]), ([n, k], [k]), ([k], [k]), ([], [n, k])))
    dtype = draft.rng.choice((*FLOATS, *COMPLEX, "int32", "int8"))
    return draft.give(draft.operand(dtype, lhs), draft.operand(dtype, rhs))


def _dot_general(draft: Draft) -> Call:
    b, n, k, m = (draft.rng.randint(1, 4) for _ in range(4))
    dtype = draft.rng.choice((*FLOATS, *COMPLEX, "int32", "int8"))
    if draft.rng.random() < 0.5:
        lhs, rhs, contracting, batch = [b, n, k], [b, k, m], [[2], [1]], [[0], [0]]
    else:
        lhs, rhs, contracting, batch = [n, b, k], [m, k, b], [[1, 2], [2, 1]], [[], []]
    keywords = {"preferred_element_type": ["type", "F64"]} if dtype == "float32" and draft.rng.random() < 0.3 else {}
    return draft.give(draft.operand(dtype, lhs), draft.operand(dtype, rhs), ["dot", contracting, batch], **keywords)


def _convolution(draft: Draft) -> Call:
    rank, rng = draft.rng.choice((1, 2, 2, 3)), draft.rng
    batch, features, outputs, groups = rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 2)
    sizes, window = [rng.randint(3, 6) for _ in range(rank)], [rng.randint(1, 3) for _ in range(rank)]
    small = lambda low, high: plain([rng.randint(low, high) for _ in range(rank)])  # noqa: E731
    letters = "WHD"[:rank]
    dtype = rng.choice(("float32", "float32", "float64", "bfloat16", "complex64", "int32"))
    return draft.give(
        draft.operand(dtype, [batch, features * groups, *sizes], values=None, low=-3, high=3),
        draft.operand(dtype, [outputs * groups, features, *window], low=-3, high=3),
        small(1, 2),
        ["pairs", *[[rng.randint(-1, 2), rng.randint(0, 2)] for _ in range(rank)]],
        small(1, 2),
        small(1, 2),
        ["convolution", ["NC" + letters, "OI" + letters, "NC" + letters], rank],
        feature_group_count=plain(groups),
    )


_REDUCERS = ("Add", "Mul", "Max", "Min")


def _reduce(draft: Draft) -> Call:
    dimensions, dtype = draft.shape(1), draft.rng.choice(("float32", "float64", "int32", "uint8", "bool"))
    reducer = draft.rng.choice(("And", "Or") if dtype == "bool" else _REDUCERS)
    along = draft.some(len(dimensions)) or [0]
    value, start = draft.operand(dtype, dimensions, -3, 3), draft.operand(dtype, [], 0, 1)
    return draft.give(
        ["builder"], ["list", value], ["list", start], ["computation", reducer, [dtype] * 2], plain(along)
    )


def _reduce_window(draft: Draft) -> Call:
    dimensions, dtype = (
        [draft.rng.randint(2, 5) for _ in range(draft.rng.randint(1, 3))],
        draft.rng.choice(("float32", "int32")),
    )
    rank = len(dimensions)
    small = lambda low, high: plain([draft.rng.randint(low, high) for _ in range(rank)])  # noqa: E731
    pads: Value = ["pairs", *[[draft.rng.randint(0, 1), draft.rng.randint(0, 1)] for _ in range(rank)]]
    value, start = draft.operand(dtype, dimensions, -3, 3), draft.operand(dtype, [], 0, 1)
    reducer: Value = ["computation", draft.rng.choice(_REDUCERS), [dtype] * 2]
    return draft.give(value, start, reducer, small(1, 2), small(1, 2), small(1, 2), small(1, 2), pads)


def _select_and_scatter(draft: Draft) -> Call:
    rank = draft.rng.randint(1, 2)
    sizes = [draft.rng.randint(1, 3) for _ in range(rank)]
    window: Value = plain([2] * rank)
    value = draft.operand("float32", [2 * s for s in sizes], -9.0, 9.5)
    arguments = [["computation", "Ge", ["float32"] * 2], window, window, ["pairs", *[[0, 0]] * rank]]
    source, start = draft.operand("float32", sizes, -3, 3), draft.operand("float32", [], 0, 1)
    return draft.give(value, *arguments, source, start, ["computation", "Add", ["float32"] * 2])


def _map(draft: Draft) -> Call:
    dimensions, dtype = draft.shape(), draft.rng.choice(("float32", "int32"))
    function: Value = ["computation", draft.rng.choice(_REDUCERS), [dtype] * 2]
    values: Value = ["list", draft.operand(dtype, dimensions), draft.operand(dtype, dimensions)]
    return draft.give(["builder"], values, function, plain(list(range(len(dimensions)))))


def _call(draft: Draft) -> Call:
    values: Value = ["list", draft.operand("float32", []), draft.operand("float32", [])]
    return draft.give(["builder"], ["computation", draft.rng.choice(_REDUCERS), ["float32"] * 2], values)


def _conditional(draft: Draft) -> Call:
    branches = [["computation", name, ["float32"]] for name in draft.rng.sample(("Neg", "Exp", "Abs", "Square"), 3)]
    x, y = draft.operand("float32", [], -3, 3), draft.operand("float32", [], -3, 3)
    if draft.rng.random() < 0.5:
        return draft.give(draft.operand("bool", []), x, branches[0], y, branches[1])
    index = draft.operand("int32", [], -1, 3)
    return draft.give(index, ["list", *branches], ["list", x, y, x])


def _sort(draft: Draft) -> Call:
    dimensions, dtype = draft.shape(1), draft.rng.choice(("float32", "float64", "int32", "uint8", "bfloat16"))
    keywords = {"dimension": plain(draft.rng.randrange(len(dimensions)))}
    if draft.rng.random() < 0.3:
        keywords["comparator"] = ["computation", draft.rng.choice(("Lt", "Gt")), [dtype] * 2]
    return draft.give(["builder"], ["list", draft.operand(dtype, dimensions, -9, 9)], **keywords)


def _top_k(draft: Draft) -> Call:
    dimensions = [*draft.shape(0, 1), draft.rng.randint(1, 6)]
    return draft.give(draft.operand("float32", dimensions, -9, 9), plain(draft.rng.randint(0, dimensions[-1])))


def _iota(draft: Draft) -> Call:
    kind = draft.rng.choice(("F32", "S32", "U8", "BF16", "C64", "F64"))
    if draft.rng.random() < 0.4:
        return draft.give(["builder"], ["type", kind], plain(draft.rng.randint(0, 5)))
    dimensions = draft.shape(1)
    text = f"{kind.lower()}[{','.join(map(str, dimensions))}]"
    return draft.give(["builder"], ["shape", text], plain(draft.rng.randrange(len(dimensions))))


def _constant(draft: Draft) -> Call:
    dtype, dimensions = draft.rng.choice(TYPES), draft.shape()
    draft.operand(dtype, dimensions)
    return draft.give(["builder"], ["array", *draft.call["operands"].pop()])


def _tuple(draft: Draft) -> Call:
    parts = [draft.operand(draft.rng.choice(TYPES), draft.shape()) for _ in range(draft.rng.randint(0, 3))]
    return draft.give(["builder"], ["list", *parts])


def _fft(draft: Draft) -> Call:
    kind = draft.rng.choice(("FFT", "IFFT", "RFFT", "IRFFT"))
    lengths = [draft.rng.randint(1, 6) for _ in range(draft.rng.randint(1, 3))]
    inner = [*lengths[:-1], lengths[-1] // 2 + 1] if kind == "IRFFT" else lengths
    dtype = draft.rng.choice(("float32", "float64") if kind == "RFFT" else COMPLEX)
    value = draft.operand(dtype, [*draft.shape(0, 1), *inner], -3, 3)
    return draft.give(value, ["enum", "FftType", kind], plain(lengths))


def _positive_definite(draft: Draft, n: int) -> list[float]:
    rows = [[draft.rng.uniform(-1, 1) for _ in range(n)] for _ in range(n)]
    return [
        sum(x * y for x, y in zip(rows[i], rows[j], strict=True)) + (i + 1.5) * (i == j)
        for i in range(n)
        for j in range(n)
    ]  # fmt: skip


def _matrix(draft: Draft) -> Call:
    op, n = draft.call["op"], draft.rng.randint(1, 5)
    dtype = draft.rng.choice(("float32", "float64"))
    if op in ("Cholesky", "Eigh"):
        return draft.give(
            draft.operand(dtype, [n, n], values=_positive_definite(draft, n)), plain(draft.rng.random() < 0.5)
        )
    value = draft.operand(dtype, [n, draft.rng.randint(1, n)], -3.0, 3.5)
    return draft.give(value, *([plain(draft.rng.random() < 0.5)] if op == "QR" else []))


def _triangular_solve(draft: Draft) -> Call:
    n, m, left = draft.rng.randint(1, 4), draft.rng.randint(1, 3), draft.rng.random() < 0.5
    dtype = draft.rng.choice(("float32", "float64"))
    a = draft.operand(dtype, [n, n], values=_positive_definite(draft, n))
    b = draft.operand(dtype, [n, m] if left else [m, n], -3, 3)
    flags = [plain(left), plain(draft.rng.random() < 0.5), plain(draft.rng.random() < 0.3)]
    which = draft.rng.choice(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))
    return draft.give(a, b, *flags, ["enum", "TriangularSolveOptions_Transpose", which])


def _gather(draft: Draft) -> Call:
    fields = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
    value = draft.operand(draft.rng.choice(TYPES), [5, 3])
    indices = draft.operand("int32", [4, 1], -2, 6)
    return draft.give(value, indices, ["record", "GatherDimensionNumbers", fields], plain([1, draft.rng.randint(1, 3)]))


def _scatter(draft: Draft) -> Call:
    fields = {
        "update_window_dims": [1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
    }
    dtype = draft.rng.choice(("float32", "int32"))
    value, indices = draft.operand(dtype, [5, 3], -3, 3), draft.operand("int32", [4, 1], -2, 6)
    updates = draft.operand(dtype, [4, 3], -3, 3)
    reducer: Value = ["computation", draft.rng.choice(_REDUCERS), [dtype] * 2]
    return draft.give(value, indices, updates, reducer, ["record", "ScatterDimensionNumbers", fields])


def _positive(draft: Draft) -> Call:
    dtype, dimensions = draft.rng.choice(("float32", "float64")), draft.shape()
    count = 3 if draft.call["op"] == "RegularizedIncompleteBeta" else 2
    if draft.call["op"] == "NextAfter":
        return draft.give(draft.operand(dtype, dimensions), draft.operand(dtype, dimensions))
    values = [draft.operand(dtype, dimensions, 1.1, 4.0) for _ in range(count)]
    if count == 3:
        draft.call["operands"][2][2] = [round(draft.rng.uniform(0.05, 0.95), 2) for _ in range(math.prod(dimensions))]
    return draft.give(*values)


def _dimension_size(draft: Draft) -> Call:
    dimensions = draft.shape(1)
    return draft.give(draft.operand("float32", dimensions), plain(draft.rng.randrange(len(dimensions))))


DRAWS: dict[str, Draw] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("ConvertElementType", "BitcastConvertType"), _convert),
    **dict.fromkeys(("DynamicSlice", "DynamicUpdateSlice"), _dynamic_slice),
    **dict.fromkeys(("Cholesky", "Eigh", "QR", "SVD", "QrDecomposition"), _matrix),
    **dict.fromkeys(
        ("Igamma", "Igammac", "RegularizedIncompleteBeta", "Zeta", "NextAfter", "RandomGammaGrad"), _positive
    ),
    "Broadcast": _broadcast,
    "BroadcastInDim": _broadcast_in_dim,
    "Call": _call,
    "Clamp": _clamp,
    "Collapse": _collapse,
    "ConcatInDim": _concatenate,
    "Conditional": _conditional,
    "Constant": _constant,
    "ConvGeneralDilated": _convolution,
    "Dot": _dot,
    "DotGeneral": _dot_general,
    "Fft": _fft,
    "Gather": _gather,
    "GetDimensionSize": _dimension_size,
    "Iota": _iota,
    "Map": _map,
    "Pad": _pad,
    "Reduce": _reduce,
    "ReducePrecision": _reduce_precision,
    "ReduceWindowWithGeneralPadding": _reduce_window,
    "Reshape": _reshape,
    "Rev": _rev,
    "Scatter": _scatter,
    "Select": _select,
    "SelectAndScatterWithGeneralPadding": _select_and_scatter,
    "Slice": _slice,
    "SliceInDim": _slice_in_dim,
    "Sort": _sort,
    "TopK": _top_k,
    "Transpose": _transpose,
    "TriangularSolve": _triangular_solve,
    "Tuple": _tuple,
}


def drawn(seed: int, ops: list[str]) -> Call:
    """A call of one of some functions."""
    rng = random.Random(seed)
    op = rng.choice(ops)
    return DRAWS[op](Draft(rng, op))
