"""The line ``HloModule name, attributes`` and the tables of stack frames under it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from xlakit.data.shape import ProgramShape
from xlakit.errors import FormatError, ParseError
from xlakit.formats.hlo_text.lexer import Lexer, quote
from xlakit.formats.hlo_text.metadata import (
    Fields,
    parse_fields,
    parse_frontend_attributes,
    parse_shape_index,
    print_frontend_attributes,
    print_shape_index,
)
from xlakit.formats.hlo_text.shapes import list_of, parse_shape
from xlakit.ir.attributes import AliasEntry, BufferDonor, StackFrames
from xlakit.ir.instruction import HloModule

_WORD = re.compile(r"[^\s,]+")


_IN_BRACES = ("allow_spmd_sharding_propagation_to_parameters", "allow_spmd_sharding_propagation_to_output")


def parse_header(lexer: Lexer) -> dict[str, Any]:
    """The fields of HloModule that stand on its line. Raises ParseError."""
    lexer.expect("HloModule")
    if lexer.text == "ENTRY":  # a computation follows, which else would be taken for the only one, unmarked
        raise lexer.expected("the module's name")
    fields: dict[str, Any] = {"name": lexer.expect_name("the module's name")}
    lexer.accept(":")  # in old texts
    others: list[tuple[str, str]] = []
    seen: set[str] = set()
    while lexer.accept(","):
        start = lexer.start
        name = lexer.expect_name("an attribute of the module")
        if name in seen:
            raise lexer.error(f"attribute {name} stands twice", start)
        seen.add(name)
        lexer.expect("=", f"after attribute '{name}'")
        parse = _ATTRIBUTES.get(name)
        if parse is not None:
            fields[name] = parse(lexer)
        else:
            # Attributes that xlakit does not use are kept as text.
            value = lexer.take_json() if lexer.text == "{" else lexer.take(_WORD, "a value")
            # Old texts have one value without braces.
            others.append((name, f"{{{value}}}" if name in _IN_BRACES and not value.startswith("{") else value))
    fields["header"] = tuple(others)
    return fields


def check_other_attribute(name: str, text: str) -> None:
    """Raise FormatError unless the line could carry this attribute, as one that xlakit has no use for."""
    lexer = Lexer(f"HloModule m, {name}={text}")
    try:
        fields = parse_header(lexer)
        lexer.expect_end()
    except ParseError:
        fields = {}
    if fields.get("header") != ((name, text),):
        raise FormatError(
            f"'{name}={text}' is no attribute that the first line of a module can have",
            hint=f"give NAME={...} or NAME=word",
        )


def _alias(lexer: Lexer) -> AliasEntry:
    output = parse_shape_index(lexer)
    lexer.expect(":", "after an output's index")
    lexer.expect("(", "before a parameter's number")
    number = lexer.expect_integer("a parameter's number")
    lexer.expect(",", "after a parameter's number")
    index = parse_shape_index(lexer)
    must = False
    if lexer.accept(","):
        if lexer.text not in ("may-alias", "must-alias"):
            raise lexer.expected("may-alias or must-alias")
        must = lexer.text == "must-alias"
        lexer.advance()
    lexer.expect(")", "after an alias")
    return AliasEntry(output, number, index, must)


def _donor(lexer: Lexer) -> BufferDonor:
    lexer.expect("(", "before a parameter's number")
    number = lexer.expect_integer("a parameter's number")
    lexer.expect(",", "after a parameter's number")
    index = parse_shape_index(lexer)
    lexer.expect(")", "after a buffer donor")
    return BufferDonor(number, index)


def _entry_layout(lexer: Lexer) -> ProgramShape:
    lexer.expect("{", "before the entry computation's layout")
    parameters = list_of(lexer, "(", ")", parse_shape, "between parameter shapes")
    lexer.expect("->", "after the parameter shapes")
    result = parse_shape(lexer)
    lexer.expect("}", "after the entry computation's layout")
    return ProgramShape(tuple(parameters), result)


def _count(lexer: Lexer) -> int:
    start = lexer.start
    value = lexer.expect_integer()
    if value < 1:
        raise lexer.error(f"expected a count of at least 1, got {value}", start)
    return value


_ATTRIBUTES: dict[str, Callable[[Lexer], Any]] = {
    "is_scheduled": Lexer.expect_bool,
    "input_output_alias": lambda lexer: tuple(list_of(lexer, "{", "}", _alias, "between aliases")),
    "buffer_donor": lambda lexer: tuple(list_of(lexer, "{", "}", _donor, "between buffer donors")),
    "entry_computation_layout": _entry_layout,
    "replica_count": _count,
    "num_partitions": _count,
    "frontend_attributes": parse_frontend_attributes,
}


# -- stack frames ------------------------------------------------------------------------------------

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_FRAME = ("file_location_id", "parent_frame_id")


def parse_stack_frames(lexer: Lexer) -> StackFrames:
    """The four tables, where they are there. Raises ParseError."""
    if lexer.text != "FileNames":
        return StackFrames()
    lexer.advance()
    files = _strings(lexer)
    lexer.expect("FunctionNames", "after the file names")
    functions = _strings(lexer)
    lexer.expect("FileLocations", "after the function names")
    locations = _rows(lexer, _LOCATION, "a file location")
    lexer.expect("StackFrames", "after the file locations")
    frames = _rows(lexer, _FRAME, "a stack frame")
    # In text the parent's number is one higher than in the proto.
    return StackFrames(files, functions, locations, tuple((at, parent - 1) for at, parent in frames))  # pyright: ignore


def _strings(lexer: Lexer) -> tuple[str, ...]:
    strings: list[str] = []
    while lexer.kind == "integer":
        lexer.advance()
        strings.append(lexer.expect_string())
    return tuple(strings)


def _rows(lexer: Lexer, names: tuple[str, ...], what: str) -> tuple[Any, ...]:
    known: Fields = {n: (n, Lexer.expect_integer) for n in names}
    rows: list[tuple[object, ...]] = []
    while lexer.kind == "integer":
        lexer.advance()
        start = lexer.start
        fields = parse_fields(lexer, known, what)
        missing = [name for name in names if name not in fields]
        if missing:
            raise lexer.error(f"{what} lacks {', '.join(missing)}", start)
        rows.append(tuple(fields[name] for name in names))
    return tuple(rows)


def print_stack_frames(frames: StackFrames) -> str:
    """The four tables, or nothing where all are empty."""
    if frames == StackFrames():
        return ""
    locations = [_row(_LOCATION, row) for row in frames.file_locations]
    rows = [_row(_FRAME, (at, parent + 1)) for at, parent in frames.stack_frames]
    return "\n\n" + "\n".join(
        [
            _table("FileNames", [quote(name) for name in frames.file_names]),
            _table("FunctionNames", [quote(name) for name in frames.function_names]),
            _table("FileLocations", locations),
            _table("StackFrames", rows),
        ]
    )


def _row(names: tuple[str, ...], values: tuple[int, ...]) -> str:
    return "{" + " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True)) + "}"


def _table(title: str, rows: list[str]) -> str:
    return "".join([f"{title}\n", *(f"{number} {row}\n" for number, row in enumerate(rows, 1))])


# -- printing ----------------------------------------------------------------------------------------


def print_header(module: HloModule, *, layouts: bool = True) -> str:
    """The module's line, as XLA orders it."""
    others = dict(module.header)
    parts = [f"HloModule {module.name}"]
    if module.is_scheduled:
        parts.append("is_scheduled=true")
    if module.input_output_alias:
        entries = ", ".join(
            f"{print_shape_index(e.output_index)}: ({e.parameter_number}, {print_shape_index(e.parameter_index)}, "
            f"{'must' if e.must else 'may'}-alias)"
            for e in module.input_output_alias
        )
        parts.append(f"input_output_alias={{ {entries} }}")
    if module.buffer_donor:
        donors = ", ".join(
            f"({d.parameter_number}, {print_shape_index(d.parameter_index)})" for d in module.buffer_donor
        )
        parts.append(f"buffer_donor={{ {donors} }}")
    if "alias_passthrough_params" in others:
        parts.append(f"alias_passthrough_params={others.pop('alias_passthrough_params')}")
    parts.append(f"entry_computation_layout={{{print_program_layout(module, layouts=layouts)}}}")
    parts += [f"{name}={others.pop(name)}" for name in _IN_BRACES if name in others]
    if module.replica_count != 1:
        parts.append(f"replica_count={module.replica_count}")
    if module.num_partitions != 1:
        parts.append(f"num_partitions={module.num_partitions}")
    if module.frontend_attributes:
        parts.append(f"frontend_attributes={print_frontend_attributes(module.frontend_attributes)}")
    parts += [f"{name}={value}" for name, value in others.items()]
    return ", ".join(parts)


def print_program_layout(module: HloModule, *, layouts: bool = True) -> str:
    """``(f32[2]{0})->f32[]`` with the layouts of the entry, or without."""
    program = module.entry_computation_layout or module.entry.program_shape
    parameters: list[str] = []
    for number, shape in enumerate(program.parameters):
        mark = f"/*index={number}*/" if number and number % 5 == 0 else ""
        parameters.append(mark + shape.to_string(with_layout=layouts))
    return f"({', '.join(parameters)})->{program.result.to_string(with_layout=layouts)}"
