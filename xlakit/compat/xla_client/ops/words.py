"""What jaxlib says of operations that are not well formed, for programs and tests that look for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, XlakitError
from xlakit.ops.handle import XlaOp

# Opcodes of binary operations whose functions have other names.
_OPCODES = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum", "rem": "remainder",
    "pow": "power", **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "compare"),
}  # fmt: skip

_SAME = "The parameter of condition and body, the result of the body, and init must all have the same shape"
_ACCUMULATOR = "Reduction function's accumulator shape at index 0 differs from the init_value shape"
_NO_DOT = "Cannot infer shape for dot operation: {lhs} <dot> {rhs}."
_SLICE = "in slice operation; argument shape: {operand}"

# Names of functions, a pattern in xlakit's rule, and jaxlib's words; the first that fits counts. Braces hold the
# arguments, the groups of the pattern (`kind` in capital letters), and `operation`, which is xlakit's.
_RULES: tuple[tuple[str, str, str], ...] = (
    ("Parameter", r"parameter (?P<n>\d+) is declared twice", "parameter {n} already registered"),
    ("Reshape", "cannot reshape", "Reshape operation has mismatched element counts"),
    ("Broadcast", r"size (?P<n>-\d+) is negative", "Broadcast with negative dimension size {n}"),
    ("BroadcastInDim", r"dimension (?P<i>\d+) of size (?P<n>\d+) cannot become dimension \d+ of size (?P<m>\d+)",
     "Input dimension should be either 1 or equal to the output dimension it is broadcasting into; the {i}th "
     "operand dimension is {n}, the {i}th output dimension is {m}"),
    ("BroadcastInDim", r"dimension (?P<n>-?\d+) is out of range", "Broadcast dimension {n} is out of bound"),
    ("Transpose", "does not permute",
     "Transpose dimensions [{permutation}] are not a permutation of the operand dimensions (operand shape is "
     "{operand})"),
    ("Rev", r"(?P<n>-?\d+) is out of range",
     "One of the reverse dimensions ({n}) is out-of-bounds in shape {operand}"),
    ("Slice", r"(?P<n>\d+) slice ranges are given for rank (?P<m>\d+)",
     "Slice index count does not match argument rank: {n} vs {m}"),
    ("Slice|SliceInDim", r"start (?P<n>-\d+) .* is negative", "Negative start index to slice: {n}"),
    ("Slice|SliceInDim", r"limit (?P<n>\d+) .* greater than its size (?P<m>\d+)",
     f"limit index ({{n}}) must be less than or equal to dimension size ({{m}}) {_SLICE}"),
    ("Slice|SliceInDim", r"limit (?P<n>-?\d+) .* less than its start (?P<m>\d+)",
     f"limit index ({{n}}) must be greater or equal to start index ({{m}}) in slice with positive stride {_SLICE}"),
    ("Slice|SliceInDim", r"stride (?P<n>-?\d+) ", "Stride ({n}) must be positive"),
    ("DynamicSlice", r"has (?P<n>\d+) entries for rank (?P<m>\d+)",
     "Dynamic slice index count does not match argument rank: {n} vs {m}"),
    ("DynamicSlice", r"slice size (?P<n>\d+) .* greater than its size (?P<m>\d+)",
     "Slice dim size {n} greater than dynamic slice dimension: {m}"),
    ("DynamicUpdateSlice", r"the update has rank (?P<n>\d+), the operand (?P<m>\d+)",
     "Dynamic update slice update rank does not match argument rank: {n} vs {m}"),
    ("DynamicUpdateSlice", r"update size (?P<n>\d+) .* greater than the operand's (?P<m>\d+)",
     "Update dim size {n} greater than dynamic slice dimension: {m}"),
    ("DynamicUpdateSlice", "does not fit", "Dynamic update slice update element type does not match argument"),
    ("ConcatInDim", "no operand", "Concatenate expects at least one argument"),
    ("Map", "no operand", "Map expects at least one argument"),
    ("ConcatInDim", r"rank (?P<n>\d+) and (?P<m>\d+)", "Cannot concatenate arrays with different ranks: {n}"),
    ("ConcatInDim", r"cannot concatenate (?P<kind>\w+) and (?P<other_kind>\w+)",
     "Cannot concatenate arrays with different element types: {kind} vs {other_kind}"),
    ("ConcatInDim", "differ in dimension",
     "Cannot concatenate arrays that differ in dimensions other than the one being concatenated"),
    ("ConcatInDim", r"(?P<n>-?\d+) is out of range", "Concatenate dimension out of bounds: {n}"),
    ("Pad", r"padding has \d+ dimensions", "The rank of the operand and the padding configuration do not match"),
    ("Pad", "does not have the type", "The element types of the operands to Pad do not match"),
    ("Pad", r"gives dimension (?P<n>\d+) the negative", "Padding result in negative size for dimension {n}"),
    ("Pad", "must be a scalar", "Pad operation does not support non-scalar padding values"),
    ("Select", "pred must have element type pred", "Select's pred operand must have PRED element type; got {pred}"),
    ("Select", "different element types", "Operands to select must be the same shape; got {on_true} and {on_false}"),
    ("Clamp", "different element types", "Clamp with incompatible element types: {min}, {operand}, {max}"),
    ("GetTupleElement", r"index (?P<n>-?\d+) is out of range",
     "GetTupleElement() index ({n}) out of range for tuple shape {tuple_data}"),
    ("GetTupleElement", "takes a tuple", "Operand to GetTupleElement() is not a tuple; got {tuple_data}"),
    ("AfterAll", "tokens only", "All operands to AfterAll must be tokens"),
    ("Collapse", "consecutive|out of range", "Collapsed dimensions are not in consecutive order"),
    ("GetDimensionSize", r"(?P<n>-?\d+) is out of range", "GetDimensionSize dimension out of bounds: {n}"),
    ("Dot|DotGeneral", "contracting dimension .* has size",
     f"{_NO_DOT} Contracting dimension sizes are not compatible"),
    ("Dot|DotGeneral", "batch dimension .* has size", f"{_NO_DOT} Batch dimension sizes are not compatible"),
    ("Dot|DotGeneral", r"lhs has \d+ contracting",
     f"{_NO_DOT} Must specify the same number of contracting dimensions for lhs and rhs"),
    ("Dot|DotGeneral", "out of range", "A dimension number is out of range in Dot"),
    ("ConvGeneralDilated", r"input has (?P<n>\d+) features",
     "Expected LHS feature dimension (value {n}) to be a multiple"),
    ("ConvGeneralDilated", r"(?P<n>\d+) output features .* batch_group_count (?P<m>\d+)",
     "Expected output feature dimension size (value {n}) to be a multiple of batch group count {m}"),
    ("Sort", "same dimensions", "Sort keys and values dimensions must match"),
    ("Fft", r"(?P<n>I?R?FFT) takes a complex type, not (?P<kind>\w+)",
     "{n} requires complex input type, found {kind}"),
    ("Fft", r"RFFT takes f32 or f64, not (?P<kind>\w+)", "RFFT requires F32 or F64 input type, found {kind}"),
    ("Cholesky", "must be equal", "The two minor dimensions of 'a' must have compatible size, got {a}"),
    ("Cholesky", "rank 2 or more", "The 'a' argument to Cholesky must have rank >= 2, got shape {a}"),
    ("TriangularSolve", "rows|columns", "The shared dimension of 'a' and 'b' does not match, got shapes {a} and {b}"),
    ("TriangularSolve", "must be equal", "The two minor dimensions of 'a' must have equal size, got {a}"),
    ("TriangularSolve", "same rank", "Arguments to triangular solve must have equal rank; got {b} and {a}"),
    ("Gather", r"has (?P<n>\d+) elements, the index vectors in dimension (?P<i>\d+) .* have (?P<m>\d+)",
     "Gather op has {n} elements in start_index_map and the bound of dimension index_vector_dim={i} of "
     "start_indices is {m}"),
    ("Gather", "array of integers", "Gather indices parameter must be an integral tensor; got {start_indices}"),
    ("CustomCall.*", r"begins with \$", 'Invalid custom_call_target "{call_target_name}"'),
    ("CustomCall.*", r"(?P<n>\d+) operand_layout_constraints for (?P<m>\d+)",
     "Must specify a shape with layout for each operand for custom call with constrained layout; given {n} "
     "shapes, expected {m}"),
    ("While", "condition .* must give pred", "Condition must return a boolean"),
    ("While", r"condition .* takes (?P<n>\d+) parameters", "Condition must take 1 arguments; got {n}"),
    ("While", r"body .* takes (?P<n>\d+) parameters", "Body must take 1 arguments; got {n}"),
    ("While", "gives|takes", _SAME),
    ("_conditional.*", "chosen by", "Argument to predicated-Conditional is not a scalar of PRED type ({predicate})"),
    ("_conditional.*", r"takes (?P<n>\d+) parameters", "branch computation 0 must take 1 argument; got {n}"),
    ("_conditional.*", r"takes \S+ as parameter 0, got (?P<shape>\S+)",
     "branch operand 0 must match the shape of the only parameter of branch computation 0: got operand: {shape}"),
    ("_conditional.*", r"branch (?P<n>\d+) .* gives",
     "the result of branch 0 computation and branch {n} computation must have the same shape"),
    ("Call", r"takes (?P<n>\d+) parameters, got (?P<m>\d+)",
     "Call applied function arity must match number of arguments; got: arity: {n}, arguments: {m}"),
    ("Call", r"takes (?P<shape>\S+) as parameter (?P<n>\d+), got (?P<other>\S+)",
     "Call parameter must match argument; got parameter {n} shape: {shape}, argument shape: {other}"),
    ("Map", r"takes (?P<n>\d+) parameters for (?P<m>\d+)",
     "Map applied function arity must match number of arguments; got: arity: {n}, arguments: {m}"),
    ("Map", "dimensions must be", "Map requires monotonically increasing dimension numbers; got: {dimensions}"),
    ("Map", "does not take", "Mapped computation's parameter type has to match argument element type"),
    ("Reduce", r"(?P<n>-?\d+) is out of range", "Reducing out-of-bounds dimension {n}"),
    ("Reduce", "twice", "Duplicate reduction dimension"),
    ("Reduce|_reduce_window", "initial value .* is not a scalar|takes elements", _ACCUMULATOR),
    ("Reduce|_reduce_window", r"takes (?P<n>\d+) parameters, (?P<m>\d+) are needed",
     "Reduction function must take {m} parameters, but takes {n} parameter(s)"),
    ("Reduce", "same dimensions", "All reduced tensors must have compatible dimension"),
    ("Lgamma|Digamma|Erfc|ErfInv|Bessel.*|Igamma.*|Zeta|RandomGammaGrad", r"\b(?P<kind>pred|[su]\d+)\b",
     "Operands to {function} must be real-valued floating-point, but got {kind}"),
    ("Complex", r"has (?P<kind>\w+)$",
     "Expected element type in shape to be floating for complex compose operation; got {kind}"),
    ("Atan2", r"lhs .* has (?P<kind>\w+)",
     "Expected input element type to be floating or complex for atan2 operation; got {kind}"),
    ("And|Or|Xor", r"has (?P<kind>\w+)$",
     "Expected pred or integral type in argument to and/or operation; got {kind}"),
    ("Not", r"has (?P<kind>\w+)$",
     "Expected pred or an integral element type in argument to Not operation; got {kind}"),
    ("Clz|PopulationCount", r"has (?P<kind>\w+)$",
     "Expected an integral element type in argument to {function} operation; got {kind}"),
    ("IsFinite", r"has (?P<kind>\w+)$",
     "Expected element type in shape to be floating point for IsFinite operation; got {kind}"),
    ("Abs", r"has (?P<kind>\w+)$",
     "Expected element type in shape to be floating or complex for abs operation; got {kind}"),
    ("Sign", r"has (?P<kind>\w+)$",
     "Expected element type in shape to be signed or complex for sign operation; got {kind}"),
    (".*", r"^operand must have a floating point or complex element type, has (?P<kind>\w+)$",
     "Expected element type in shape to be floating or complex for {operation} operation; got {kind}"),
    (".*", r"^(operand|lhs) must have a floating point element type, has (?P<kind>\w+)$",
     "Expected element type in shape to be floating for {operation} operation; got {kind}"),
    (".*", r"^operand must have a numeric \(not pred\) element type, has (?P<kind>\w+)$",
     "Expected element type in shape to be integral, floating or complex for {operation} operation; got {kind}"),
    (".*", r"^lhs must have a \w+ \(not pred\) element type, has (?P<kind>\w+)$",
     "Expected element type in shape to be arithmetic type for operation {operation}; got {kind}"),
    (".*", "^operand must be an array, is",
     "Expected array argument for operand of unary operation, but got {operand}"),
)  # fmt: skip


def words_for(function: str, error: XlakitError, arguments: Mapping[str, Any]) -> str:
    """Give jaxlib's words for the error of a function of ``ops``, without a full stop; empty where it has none here."""
    if isinstance(error, ShapeError) and "broadcast_dimensions" in arguments and "lhs" in arguments:
        found = _words_for_two(error, arguments)
        if found:
            return found
    for names, pattern, words in _RULES:
        match = re.fullmatch(names, function) and re.search(pattern, error.rule)
        if match:
            groups = {name: text.upper() if "kind" in name else text for name, text in match.groupdict().items()}
            given = {name: _shown(value) for name, value in arguments.items()}
            return words.format(**given, **groups, function=function, operation=error.operation)
    return ""


def _shown(value: object) -> str:
    """An argument in a message of jaxlib: the shape of an array, numbers between commas."""
    if isinstance(value, XlaOp):
        return str(value.shape.without_layout())
    if isinstance(value, list | tuple):
        return ",".join(_shown(item) for item in cast("list[object]", value))
    return str(value)


def _words_for_two(error: XlakitError, arguments: Mapping[str, Any]) -> str:
    """Give jaxlib's words of the shapes of two operands that do not go together."""
    left, right = (cast("Shape", arguments[name].shape).without_layout() for name in ("lhs", "rhs"))
    name = error.operation or ""
    opcode = _OPCODES.get(name, name.rstrip("_").replace("_", "-"))
    for side, shape in (("lhs", left), ("rhs", right)):
        if not shape.is_array:
            return f"Expected array argument for {side} of binary operation {opcode}, but got {shape}"
    if left.element_type != right.element_type:
        return f"Binary op {opcode} with different element types: {left} and {right}"
    lower, higher = sorted((left, right), key=lambda shape: shape.rank)
    along = tuple(arguments["broadcast_dimensions"] or ())
    if lower.rank == higher.rank or not along:
        if lower.rank != higher.rank:
            return f"Shapes must be equal rank, but are {lower} and {higher}"
        return f"Binary op with incompatible shapes: {left} and {right}" if left.dimensions != right.dimensions else ""
    if len(along) != lower.rank:
        return (
            "Size of broadcast_dimensions has to match lower-rank operand's rank;  lower-rank operand's rank is "
            f"{lower.rank}, size of broadcast_dimensions is {len(along)}"
        )
    for number, place in enumerate(along):
        if 0 <= place < higher.rank and lower.dimensions[number] != higher.dimensions[place]:
            sizes = f"{lower.dimensions[number]} != {higher.dimensions[place]}"
            return f"Broadcast dimension {number} mismatch: {sizes}; {lower} and {higher}"
    return ""
