"""The attributes of operations in HLO text: for each Kind, how it is read and how it is printed.

The computations that an operation calls are read by ``reader``, since they may stand further down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from xlakit.errors import ShapeError
from xlakit.formats.hlo_text.lexer import Lexer, quote
from xlakit.formats.hlo_text.literals import parse_typed_literal, print_literal
from xlakit.formats.hlo_text.metadata import (
    Fields,
    parse_fields,
    parse_number,
    parse_shape_index,
    print_number,
    print_shape_index,
)
from xlakit.formats.hlo_text.shapes import list_of, parse_integers, parse_shape
from xlakit.formats.hlo_text.sharding import (
    joined,
    parse_replica_groups,
    parse_sharding,
    print_replica_groups,
    print_sharding,
)
from xlakit.ir.attributes import (
    ConvolutionDimensionNumbers,
    OutputOperandAliasing,
    PaddingDimension,
    ResultAccuracy,
    Sharding,
    SliceDimension,
    SparsityConfig,
    SparsitySide,
    Window,
    WindowDimension,
)
from xlakit.ir.enums import HloEnum, Precision
from xlakit.ir.operation import Attribute, Kind


class Codec(NamedTuple):
    """How one kind of attribute is read and printed."""

    parse: Callable[[Lexer, Attribute], Any]
    print: Callable[[Any], str]


def _simple(parse: Callable[[Lexer], Any], show: Callable[[Any], str]) -> Codec:
    return Codec(lambda lexer, _: parse(lexer), show)


# -- numbers, words and lists ------------------------------------------------------------------------


def _float32(lexer: Lexer) -> float:
    start = lexer.start
    value = parse_number(lexer)
    with np.errstate(over="ignore"):
        narrow = float(np.float32(value))
    if np.isinf(narrow):
        raise lexer.error(f"{value} is out of f32's range", start)
    return narrow


def _print_float32(value: float) -> str:
    short = f"{value:.6g}"
    return short if np.float32(short) == np.float32(value) else f"{value:.9g}"


def _print_number_lists(lists: Sequence[Sequence[int]]) -> str:
    return "{" + ",".join("{" + joined(numbers) + "}" for numbers in lists) + "}"


def _single(lexer: Lexer) -> int:
    start = lexer.start
    numbers = parse_integers(lexer)
    if len(numbers) != 1:
        raise lexer.error(f"expected one dimension in braces, got {len(numbers)}", start)
    return numbers[0]


def _pair(lexer: Lexer) -> tuple[int, int]:
    start = lexer.start
    numbers = parse_integers(lexer)
    if len(numbers) != 2:
        raise lexer.error(f"expected a pair such as {{0,1}}, got {len(numbers)} numbers", start)
    return numbers[0], numbers[1]


def _enum(lexer: Lexer, kind: type[HloEnum]) -> HloEnum:
    if lexer.kind != "name":
        raise lexer.expected("one of " + ", ".join(member.text for member in kind))
    try:
        member = kind.of(lexer.text)
    except ShapeError as fault:
        raise lexer.error(f"unknown {kind.__name__} '{lexer.text}'", hint=fault.hint) from None
    lexer.advance()
    return member


def _precisions(lexer: Lexer) -> tuple[Precision, ...]:
    given = list_of(lexer, "{", "}", lambda lexer: _enum(lexer, Precision), "between precisions")
    # All default says what nothing says, and is not written.
    return () if all(p is Precision.DEFAULT for p in given) else tuple(given)  # pyright: ignore[reportReturnType]


# -- windows, paddings and slices --------------------------------------------------------------------

_SIZES = re.compile(r"\d+(?:x\d+)*(?![\w.])")
_PAIRS = re.compile(r"-?\d+_-?\d+(?:x-?\d+_-?\d+)*(?![\w.])")
_PADDING = re.compile(r"-?\d+_-?\d+(?:_\d+)?(?:x-?\d+_-?\d+(?:_\d+)?)*(?![\w.])")
# The fields of a window: its name in text, the fields of WindowDimension, the values that need not be printed.
_WINDOW_FIELDS: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = (
    ("size", ("size",), ()),
    ("stride", ("stride",), (1,)),
    ("pad", ("padding_low", "padding_high"), (0, 0)),
    ("lhs_dilate", ("base_dilation",), (1,)),
    ("rhs_dilate", ("window_dilation",), (1,)),
    ("rhs_reversal", ("window_reversal",), (0,)),
)


def _window(lexer: Lexer) -> Window:
    start = lexer.start
    seen: dict[str, Any] = parse_fields(lexer, _WINDOW_READERS, "a window")
    sizes = seen.get("size", [])
    for name, values in seen.items():
        if len(values) != len(sizes):
            raise lexer.error(f"{name}= has {len(values)} dimensions, size= has {len(sizes)}", start)
    known = {name: fields for name, fields, _ in _WINDOW_FIELDS}
    dimensions: list[WindowDimension] = []
    for i in range(len(sizes)):
        fields = {f: v for name, values in seen.items() for f, v in zip(known[name], values[i], strict=True)}
        reversal = bool(fields.pop("window_reversal", 0))
        dimensions.append(WindowDimension(**fields, window_reversal=reversal))
    return Window(tuple(dimensions))


def _numbers(lexer: Lexer) -> list[list[int]]:
    """Sizes of dimensions, one number for each."""
    return [[_in_int64(lexer, part)] for part in lexer.take(_SIZES, "sizes such as 3x3").split("x")]


def _pairs(lexer: Lexer) -> list[list[int]]:
    """Paddings of dimensions, two numbers for each."""
    text = lexer.take(_PAIRS, "paddings such as 0_1x1_0")
    return [[_in_int64(lexer, part) for part in dimension.split("_")] for dimension in text.split("x")]


_WINDOW_READERS: Fields = {name: (name, _pairs if name == "pad" else _numbers) for name, _, _ in _WINDOW_FIELDS}


def _in_int64(lexer: Lexer, text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**63:
        raise lexer.error(f"{text[:40]} does not fit a 64-bit integer")
    return value


def print_window(window: Window) -> str:
    """A window in braces."""
    parts: list[str] = []
    for name, fields, default in _WINDOW_FIELDS:
        rows = [tuple(int(getattr(d, field)) for field in fields) for d in window.dimensions]
        if any(row != default for row in rows):
            parts.append(f"{name}=" + "x".join("_".join(map(str, row)) for row in rows))
    return "{" + " ".join(parts) + "}"


def _padding(lexer: Lexer) -> tuple[PaddingDimension, ...]:
    # A scalar has no dimensions to pad, and nothing stands after the '='.
    if lexer.text in (",", ")", "}") or lexer.kind == "name":
        return ()
    text = lexer.take(_PADDING, "a padding such as 0_1_0x1_1_2")
    return tuple(PaddingDimension(*(_in_int64(lexer, n) for n in part.split("_"))) for part in text.split("x"))


def _print_padding(padding: Sequence[PaddingDimension]) -> str:
    interior = any(d.interior_padding for d in padding)
    return "x".join(
        f"{d.edge_padding_low}_{d.edge_padding_high}" + (f"_{d.interior_padding}" if interior else "") for d in padding
    )


def _slice(lexer: Lexer) -> SliceDimension:
    lexer.expect("[", "before a slice")
    start = lexer.expect_integer("where the slice starts")
    lexer.expect(":", "after a slice's start")
    limit = lexer.expect_integer("where the slice ends")
    stride = lexer.expect_integer("a stride") if lexer.accept(":") else 1
    lexer.expect("]", "after a slice")
    return SliceDimension(start, limit, stride)


def _print_slices(slices: Sequence[SliceDimension]) -> str:
    strides = any(s.stride != 1 for s in slices)
    return "{" + ", ".join(f"[{s.start}:{s.limit}" + (f":{s.stride}]" if strides else "]") for s in slices) + "}"


# -- convolutions ------------------------------------------------------------------------------------

_LABELS = re.compile(r"[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}")


def _dim_labels(lexer: Lexer) -> ConvolutionDimensionNumbers:
    start = lexer.start
    text = lexer.take(_LABELS, "dimension labels such as b01f_01io->b01f")
    left, _, output = text.partition("->")
    input_, _, kernel = left.partition("_")
    numbers: list[Any] = []
    spatial: list[int] = []
    for labels, first, second in ((input_, "b", "f"), (kernel, "i", "o"), (output, "b", "f")):
        dimensions = {label: i for i, label in enumerate(labels) if label != "?"}
        digits = sorted(label for label in dimensions if label.isdigit())
        if len(dimensions) + labels.count("?") != len(labels):
            raise lexer.error(f"a label stands twice in '{labels}'", start)
        if first not in dimensions or second not in dimensions:
            raise lexer.error(f"'{labels}' needs the labels {first} and {second}", start)
        if digits != [str(i) for i in range(len(digits))]:
            raise lexer.error(f"spatial dimensions in '{labels}' must be 0 .. {len(digits) - 1}", start)
        numbers += [dimensions[first], dimensions[second], tuple(dimensions[d] for d in digits)]
        spatial.append(len(digits))
    if len(set(spatial)) > 1:
        raise lexer.error(f"input, kernel and output have {joined(spatial)} spatial dimensions", start)
    return ConvolutionDimensionNumbers(*numbers)


def _print_dim_labels(numbers: ConvolutionDimensionNumbers) -> str:
    def labels(first: str, a: int, second: str, b: int, spatial: Sequence[int]) -> str:
        dimensions = {a: first, b: second} | {dimension: str(i) for i, dimension in enumerate(spatial)}
        return "".join(dimensions.get(i, "?") for i in range(max(dimensions) + 1))

    n = numbers
    return (
        labels("b", n.input_batch_dimension, "f", n.input_feature_dimension, n.input_spatial_dimensions)
        + "_"
        + labels(
            "i", n.kernel_input_feature_dimension, "o", n.kernel_output_feature_dimension, n.kernel_spatial_dimensions
        )
        + "->"
        + labels("b", n.output_batch_dimension, "f", n.output_feature_dimension, n.output_spatial_dimensions)
    )


def _sparsity(lexer: Lexer) -> SparsityConfig:
    sides: Any = parse_fields(lexer, {side: (side, _sparsity_side) for side in ("lhs", "rhs")}, "a sparsity config")
    return SparsityConfig(**sides)


def _sparsity_side(lexer: Lexer) -> SparsitySide:
    fields: Any = parse_fields(lexer, _SPARSITY_FIELDS, "one side's sparsity")
    (fields["num_non_zero"],), (fields["block_size"],) = fields.pop("sparsity", [(0,), (0,)])
    return SparsitySide(**fields)


def _ratio(lexer: Lexer) -> list[list[int]]:
    numbers = _numbers(lexer)
    if len(numbers) != 2:
        raise lexer.error("a sparsity has two numbers, such as 2x4")
    return numbers


_SPARSITY_FIELDS: Fields = {
    "sparsity": ("sparsity", _ratio),
    **{name: (name, Lexer.expect_integer) for name in ("dimension", "stride", "idx")},
}


def _print_sparsity(config: SparsityConfig) -> str:
    def side(name: str, s: SparsitySide) -> str:
        # stride and idx are printed only if set, as older parsers do not know them.
        rest = "".join(f" {n}={v}" for n, v in (("stride", s.stride), ("idx", s.idx)) if v)
        return f"{name}={{sparsity={s.num_non_zero}x{s.block_size} dimension={s.dimension}{rest}}}"

    sides = (("lhs", config.lhs), ("rhs", config.rhs))
    return "{" + " ".join(side(name, s) for name, s in sides if s is not None) + "}"


# -- aliasing, accuracy ------------------------------------------------------------------------------


def _aliasing(lexer: Lexer) -> OutputOperandAliasing:
    output = parse_shape_index(lexer)
    lexer.expect(":", "after an output's index")
    lexer.expect("(", "before an operand's number and index")
    number = lexer.expect_integer("an operand's number")
    lexer.expect(",", "after an operand's number")
    index = parse_shape_index(lexer)
    lexer.expect(")", "after an operand's index")
    return OutputOperandAliasing(output, number, index)


def _print_aliasing(entries: Sequence[OutputOperandAliasing]) -> str:
    return "{" + ", ".join(
        f"{print_shape_index(e.output_index)}: ({e.operand_number}, {print_shape_index(e.operand_index)})"
        for e in entries
    ) + "}"  # fmt: skip


def _accuracy(lexer: Lexer, spec: Attribute) -> Any:
    lexer.expect("{", "before a result accuracy")
    word = lexer.text
    if word not in ("mode", "tolerance"):
        raise lexer.expected("mode= or tolerance=")
    lexer.advance()
    lexer.expect("=", f"after '{word}'")
    if word == "mode":
        start = lexer.start
        mode = lexer.expect_name("default or highest").upper()
        if mode not in ("DEFAULT", "HIGHEST"):
            raise lexer.error(f"unknown mode '{mode.lower()}'", start, hint="known: default, highest")
        result = ResultAccuracy(mode)
    else:
        tolerances: Any = parse_fields(lexer, _TOLERANCES, "a tolerance")
        result = ResultAccuracy(
            tolerance=(tolerances.get("atol", 0.0), tolerances.get("rtol", 0.0), int(tolerances.get("ulps", 0)))
        )
    lexer.expect("}", "after a result accuracy")
    # An explicit default accuracy is the same as an omitted one.
    return spec.default if result == ResultAccuracy() else result


def _ulps(lexer: Lexer) -> float:
    start = lexer.start
    value = parse_number(lexer)
    if not value.is_integer():
        raise lexer.error("ulps is an integer", start)
    return value


_TOLERANCES: Fields = {"atol": ("atol", parse_number), "rtol": ("rtol", parse_number), "ulps": ("ulps", _ulps)}


def _print_accuracy(accuracy: ResultAccuracy) -> str:
    if accuracy.tolerance is None:
        return f"{{mode={accuracy.mode.lower()}}}"
    atol, rtol, ulps = accuracy.tolerance
    return f"{{tolerance={{atol={print_number(atol)},rtol={print_number(rtol)},ulps={ulps}}}}}"


# -- domains -----------------------------------------------------------------------------------------


def _domain(lexer: Lexer) -> tuple[Sharding | None, Sharding | None]:
    """The shardings of the users' side and of the operand's; ``{}`` is none."""
    sides: Any = parse_fields(lexer, _DOMAIN_FIELDS, "a domain")
    return sides.get("entry"), sides.get("exit")


def _domain_kind(lexer: Lexer) -> None:
    start = lexer.start
    kind = lexer.expect_string()
    if kind != "sharding":
        raise lexer.error(f"unknown kind of domain '{kind}'", start, hint="known: sharding")


def _domain_side(lexer: Lexer) -> Sharding | None:
    sharding = parse_sharding(lexer)
    return None if sharding == Sharding("TUPLE") else sharding


_DOMAIN_FIELDS: Fields = {
    "kind": ("kind", _domain_kind),
    "entry": ("entry", _domain_side),
    "exit": ("exit", _domain_side),
}


def _print_domain(domain: tuple[Sharding | None, Sharding | None]) -> str:
    entry, exit_ = ("{}" if side is None else print_sharding(side) for side in domain)
    return f'{{kind="sharding", entry={entry}, exit={exit_}}}'


CODECS: dict[Kind, Codec] = {
    Kind.BOOL: _simple(Lexer.expect_bool, lambda v: "true" if v else "false"),
    Kind.INT64: _simple(Lexer.expect_integer, str),
    Kind.FLOAT: _simple(_float32, _print_float32),
    Kind.STRING: _simple(Lexer.expect_string, quote),
    Kind.INT64_LIST: _simple(parse_integers, lambda v: "{" + joined(v) + "}"),
    Kind.INT64_LIST_LIST: _simple(
        lambda lexer: tuple(list_of(lexer, "{", "}", parse_integers, "between lists")), _print_number_lists
    ),
    Kind.SINGLE_DIMENSION: _simple(_single, lambda v: f"{{{v}}}"),
    Kind.LITERAL: _simple(parse_typed_literal, lambda v: print_literal(v, with_shape=True)),
    Kind.COMPUTATION: _simple(Lexer.expect_name, lambda v: "%" + v.name),
    Kind.COMPUTATION_LIST: _simple(Lexer.expect_name, lambda v: "{" + ", ".join("%" + c.name for c in v) + "}"),
    Kind.ENUM: Codec(lambda lexer, spec: _enum(lexer, spec.enum), lambda v: v.text),  # pyright: ignore
    Kind.PRECISION_LIST: _simple(_precisions, lambda v: "{" + ",".join(p.text for p in v) + "}"),
    Kind.WINDOW: _simple(_window, print_window),
    Kind.CONVOLUTION_DIMENSION_NUMBERS: _simple(_dim_labels, _print_dim_labels),
    Kind.PADDING_CONFIG: _simple(_padding, _print_padding),
    Kind.SLICE_RANGES: _simple(lambda lexer: tuple(list_of(lexer, "{", "}", _slice, "between slices")), _print_slices),
    Kind.REPLICA_GROUPS: _simple(parse_replica_groups, print_replica_groups),
    Kind.SOURCE_TARGET_PAIRS: _simple(
        lambda lexer: tuple(list_of(lexer, "{", "}", _pair, "between pairs")), _print_number_lists
    ),
    Kind.SHAPE: _simple(parse_shape, str),
    Kind.SHAPE_LIST: _simple(
        lambda lexer: tuple(list_of(lexer, "{", "}", parse_shape, "between shapes")),
        lambda v: "{" + ", ".join(map(str, v)) + "}",
    ),
    Kind.DOMAIN: _simple(_domain, _print_domain),
    Kind.OUTPUT_OPERAND_ALIASING: _simple(
        lambda lexer: tuple(list_of(lexer, "{", "}", _aliasing, "between aliases")), _print_aliasing
    ),
    Kind.RESULT_ACCURACY: Codec(_accuracy, _print_accuracy),
    Kind.SPARSITY_CONFIG: _simple(_sparsity, _print_sparsity),
}
