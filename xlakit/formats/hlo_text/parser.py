"""Parses whole programs in HLO text."""

from __future__ import annotations

import gc
from typing import Any

from xlakit.data.shape import ProgramShape
from xlakit.formats.hlo_text.header import parse_header, parse_stack_frames
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.linker import Linker
from xlakit.formats.hlo_text.reader import Reader
from xlakit.formats.hlo_text.records import SEVERAL_HINT, Body
from xlakit.ir.instruction import HloModule


def parse_module(text: str, *, name: str = "<text>") -> HloModule:
    """A module from HLO text, as OpenXLA prints and parses it.

    text: a module; or computations alone, or instructions alone (whose undefined operands, written with their
        shapes, become parameters).
    name: stands for the file in errors.

    Raises ParseError with line and column, and ShapeError where a shape that is not written cannot be inferred.
    """
    # Parsing makes millions of small objects and no garbage: the collector would only look at them over and over.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _parse_module(Lexer(text, name))
    finally:
        if collects:
            gc.enable()


def _parse_module(lexer: Lexer) -> HloModule:
    reader = Reader(lexer)
    fields: dict[str, Any] = {}
    if lexer.text == "HloModule":
        fields = parse_header(lexer)
        fields["stack_frames"] = parse_stack_frames(lexer)
        entry = _computations(reader)
    elif lexer.text == "ENTRY" or (lexer.kind == "name" and lexer.peek() in ("{", "(")):
        entry = _computations(reader)
        fields["name"] = f"module_{entry.name}"
    else:
        entry = _instructions(reader)
        fields["name"] = "_"
    computations = Linker(lexer, reader.bodies).link()
    computation = computations[entry.name]
    if "entry_computation_layout" not in fields:
        program = computation.program_shape
        fields["entry_computation_layout"] = ProgramShape(program.parameters, program.result)
    return HloModule(entry=computation, computations=tuple(computations.values()), **fields)


def _computations(reader: Reader) -> Body:
    """All computations; gives the one marked ENTRY, or the last."""
    lexer = reader.lexer
    entry: Body | None = None
    body: Body | None = None
    while lexer.kind != "end":
        start = lexer.start
        second = reader.second_module()
        if second is not None:
            raise second
        marked = lexer.accept("ENTRY")
        body = reader.read_computation()
        if marked and entry is not None:
            raise lexer.error("a module has only one ENTRY", start, hint=SEVERAL_HINT)
        entry = body if marked else entry
    if body is None:
        raise lexer.expected("a computation")
    return entry or body


def _instructions(reader: Reader) -> Body:
    """Instructions without a computation around them."""
    lexer = reader.lexer
    body = Body("_", lexer.start, is_open=True)
    reader.add(body)
    if lexer.kind == "end":
        raise lexer.expected("a module, a computation or an instruction")
    if lexer.kind == "shape" or lexer.text == "(":
        reader.read_right_side(body, "_", lexer.start)
        lexer.expect_end()
    while lexer.kind != "end":
        reader.read_instruction(body)
    return body
