"""Reads computations: from words to records.

Operands must be defined before they are used, so they are looked up at once; computations may stand in any order, so
what an instruction calls stays a name here, and ``linker`` looks it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import xlakit.ops.registry  # noqa: F401  # pyright: ignore[reportUnusedImport]  # enters all operations in OPERATIONS
from xlakit.data.shape import Shape
from xlakit.errors import ParseError, meant
from xlakit.formats.hlo_text.attributes import CODECS
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.literals import parse_literal
from xlakit.formats.hlo_text.metadata import (
    parse_frontend_attributes,
    parse_metadata,
    parse_origin,
    parse_statistics,
)
from xlakit.formats.hlo_text.records import CALLING, Bodies, Body, Callee, Record, fill_omitted, table_of
from xlakit.formats.hlo_text.shapes import at_shape, list_of, parse_shape
from xlakit.formats.hlo_text.sharding import parse_sharding
from xlakit.formats.hlo_text.sugar import read_sugar, unsugar
from xlakit.ir.attributes import Annotations, OpMetadata
from xlakit.ir.operation import OPERATIONS, Attribute, Kind, Op
from xlakit.ops.data import Constant, ElidedConstant

# Opcodes that XLA no longer has, and what to write instead.
_RENAMED: Final = {
    **{
        word: f"XLA has replaced it: write compare(...), direction={direction}"
        for word, direction in [
            ("equal-to", "EQ"),
            ("greater-than", "GT"),
            ("greater-than-or-equal-to", "GE"),
            ("less-than", "LT"),
            ("less-than-or-equal-to", "LE"),
            ("not-equal-to", "NE"),
        ]
    },
    "cross-replica-sum": "XLA has replaced it: write all-reduce(...), to_apply=ADDITION",
}
_ELIDED = re.compile(r"\{\s*\.\.\.\s*\}")


def unknown(word: str, known: list[str], what: str) -> tuple[str, str]:
    """The rule and the hint of an error about an unknown word."""
    return f"unknown {what} '{word}'", meant(word, known)


class Reader(Bodies):
    """Reads the computations of a text, in the order in which they end."""

    # -- computations ------------------------------------------------------------------------------

    def second_module(self) -> ParseError | None:
        """The fault where another module begins instead of a computation."""
        if self.lexer.text != "HloModule":
            return None
        return self.lexer.error(
            "a second module begins here",
            hint="parse each module by itself; on the command line FILE#2 is the second one",
        )

    def read_computation(self) -> Body:
        """``name (parameters) -> shape { instructions }``; the signature may be missing. Raises ParseError."""
        lexer = self.lexer
        start = lexer.start
        body = Body(lexer.expect_name("a computation's name"), start)
        if lexer.text == "(":
            list_of(lexer, "(", ")", self._signature_parameter, "between parameters")
            lexer.expect("->", "after the parameters")
            start = lexer.start
            body.result = parse_shape(lexer), start
        self._read_instructions(body)
        while lexer.accept(","):
            word = lexer.text
            if word != "execution_thread":
                raise lexer.expected("execution_thread= after a computation")
            lexer.advance()
            lexer.expect("=", f"after '{word}'")
            body.thread = lexer.expect_string()
        self.add(body)
        return body

    def _signature_parameter(self, lexer: Lexer) -> None:
        lexer.expect_name("a parameter's name")
        lexer.accept(":")
        parse_shape(lexer)

    def _read_instructions(self, body: Body) -> None:
        lexer = self.lexer
        lexer.expect("{", "before the instructions of a computation")
        while lexer.text != "}":
            self.read_instruction(body)
        if not body.records:
            raise lexer.error(f"computation {body.name} has no instructions")
        lexer.advance()

    def _callee(self, body: Body) -> Callee:
        """A computation's name, or its instructions in braces on the spot."""
        lexer = self.lexer
        start = lexer.start
        if lexer.text == "{":
            lexer.enter()
            inner = Body(self.unused_name("_"), start)
            self.add(inner)
            self._read_instructions(inner)
            lexer.leave()
            callee = Callee(inner.name, start)
        else:
            callee = Callee(lexer.expect_name("a computation's name"), start)
        body.callees.append(callee)
        return callee

    def _callees(self, body: Body) -> tuple[Callee, ...]:
        return tuple(list_of(self.lexer, "{", "}", lambda _: self._callee(body), "between computations"))

    # -- instructions ------------------------------------------------------------------------------

    def read_instruction(self, body: Body) -> None:
        """``ROOT name = shape opcode(operands), attributes``. Raises ParseError."""
        lexer = self.lexer
        if lexer.text == "ROOT":
            if body.root is not None:
                raise lexer.error(f"computation {body.name} has a second ROOT")
            lexer.advance()
            start = lexer.start
            name = lexer.expect_name("an instruction's name")
            lexer.expect("=", f"after '{name}'")
            body.root = self.read_right_side(body, name, start)
            return
        start = lexer.start
        name = lexer.expect_name("an instruction's name or '}'")
        lexer.expect("=", f"after '{name}'")
        self.read_right_side(body, name, start)

    def read_right_side(self, body: Body, name: str, start: int) -> Record:
        """``shape opcode(operands), attributes``; the shape may be missing where it can be inferred."""
        lexer = self.lexer
        shape = parse_shape(lexer) if at_shape(lexer) else None
        if lexer.kind != "name":
            raise lexer.expected("an opcode" if shape is not None else "a shape or an opcode")
        opcode_start, opcode = lexer.start, lexer.text
        lexer.advance()
        return self._operation(body, name, start, shape, opcode, opcode_start)

    def _operation(
        self,
        body: Body,
        name: str,
        start: int,
        shape: Shape | None,
        opcode: str,
        opcode_start: int,
        *,
        nested: bool = False,
    ) -> Record:
        lexer = self.lexer
        cls = OPERATIONS.get(opcode)
        wrapped = None
        if cls is None:
            sugar = read_sugar(opcode)
            if sugar is None:
                rule, hint = unknown(opcode, list(OPERATIONS), "opcode")
                hint = _RENAMED.get(opcode, hint)
                raise lexer.error(rule, opcode_start, hint=hint)
            cls, wrapped = sugar
        record = Record(name, cls, start, shape)
        lexer.expect("(", f"after '{opcode}'")
        inline = table_of(cls).inline
        if cls is Constant and lexer.text == "{" and lexer.peek() == "...":
            record.cls = ElidedConstant
            lexer.take(_ELIDED, "'{...}'")
            lexer.expect(")", f"after the value of {opcode}")
        elif inline is not None:
            record.values[inline.name] = self._inline_value(inline, shape, opcode, opcode_start)
            lexer.expect(")", f"after the value of {opcode}")
        else:
            self._operands(body, record)
        inner: dict[str, Any] = {}
        if lexer.text == "," and not nested:
            self._attributes(body, record, opcode, wrapped, inner)
        if wrapped is None:
            fill_omitted(opcode, record.values)
        else:
            fill_omitted(wrapped.opcode, inner)
            unsugar(self, body, record, wrapped, inner, opcode_start)
        self._check(record, opcode, opcode_start)
        if not name:
            record.name = body.unused_name(f"{opcode}.anon")
        elif name in body.names:
            raise lexer.error(f"there are two instructions called '{name}'", start)
        body.names[record.name] = record
        body.records.append(record)
        return record

    def _inline_value(self, spec: Attribute, shape: Shape | None, opcode: str, opcode_start: int) -> Any:
        """What stands in the parentheses instead of operands."""
        if spec.kind is not Kind.LITERAL:
            return CODECS[spec.kind].parse(self.lexer, spec)
        if shape is None:
            raise self.lexer.error(f"a {opcode} needs its shape before it", opcode_start)
        return parse_literal(self.lexer, shape)

    def _check(self, record: Record, opcode: str, opcode_start: int) -> None:
        cls = record.cls
        missing = [spec.text for spec in table_of(cls).required if spec.name not in record.values]
        if missing:
            raise self.lexer.error(f"{opcode} lacks {', '.join(f'{name}=' for name in missing)}", opcode_start)
        if cls.arity is not None and len(record.operands) != cls.arity:
            plural = "" if cls.arity == 1 else "s"
            raise self.lexer.error(
                f"{opcode} takes {cls.arity} operand{plural}, got {len(record.operands)}", opcode_start
            )

    # -- operands ----------------------------------------------------------------------------------

    def _operands(self, body: Body, record: Record) -> None:
        lexer = self.lexer
        if lexer.accept(")"):
            return
        while True:
            self._operand(body, record)
            if lexer.text == ",":
                lexer.advance()
                continue
            if lexer.text == ")":
                lexer.advance()
                return
            raise lexer.expected("',' or ')' after an operand")

    def _operand(self, body: Body, record: Record) -> None:
        """``name``, ``shape name``, ``name#0#1``, or a whole instruction without a name and attributes."""
        lexer = self.lexer
        shape_start, shape = lexer.start, None
        if lexer.kind != "name" or lexer.text == "b":
            if at_shape(lexer):
                shape = parse_shape(lexer)
            if lexer.kind != "name":
                operand_record = self._unnamed(body, shape)
                if operand_record is None:
                    raise lexer.expected("an operand")
                record.operands.append(operand_record)
                return
        start, word = lexer.start, lexer.text
        lexer.advance()
        if lexer.text == "(":
            lexer.enter()
            record.operands.append(self._operation(body, "", start, shape, word, start, nested=True))
            lexer.leave()
            return
        name = word[1:] if word[0] == "%" else word
        operand = body.names.get(name)
        if operand is None:
            operand = self._undefined(body, name, shape, start)
        if lexer.text == "#":
            operand = self._element(body, operand, name)
        if shape is not None and operand.shape is not shape:
            record.operand_shapes.append((len(record.operands), shape, shape_start))
        record.operands.append(operand)

    def _unnamed(self, body: Body, shape: Shape | None) -> Record | None:
        if shape is None or not body.is_open:
            return None
        return self._new_parameter(body, body.unused_name(f"_{body.parameters}"), shape, self.lexer.start)

    def _undefined(self, body: Body, name: str, shape: Shape | None, start: int) -> Record:
        if body.is_open and shape is not None:
            return self._new_parameter(body, name, shape, start)
        rule, hint = unknown(name, list(body.names), "operand")
        if body.is_open and not hint:
            hint = "without a computation around it, an operand that is not defined needs its shape before its name"
        raise self.lexer.error(rule, start, hint=hint or "operands must be defined before they are used")

    def _new_parameter(self, body: Body, name: str, shape: Shape, start: int) -> Record:
        record = Record(name, OPERATIONS["parameter"], start, shape)
        record.values["number"] = body.parameters
        body.parameters += 1
        body.names[name] = record
        body.records.append(record)
        return record

    def _element(self, body: Body, operand: Record, name: str) -> Record:
        """``name#0#1``: elements of a tuple, each an instruction that is made on the first use."""
        while self.lexer.accept("#"):
            index = self.lexer.expect_integer("an element's number")
            name = f"{name}#{index}"
            element = body.names.get(name)
            if element is None:
                element = Record(
                    body.unused_name(name.replace("#", "_")), OPERATIONS["get-tuple-element"], operand.offset, None
                )
                element.operands.append(operand)
                element.values["index"] = index
                body.records.append(element)
                body.names[name] = body.names[element.name] = element
            operand = element
        return operand

    # -- attributes --------------------------------------------------------------------------------

    def _attributes(
        self, body: Body, record: Record, opcode: str, wrapped: type[Op] | None, inner: dict[str, Any]
    ) -> None:
        """``, name=value`` any number of times; those of a wrapped operation go into ``inner``."""
        lexer = self.lexer
        table = table_of(record.cls).by_text
        wrapped_table = table_of(wrapped).by_text if wrapped is not None else {}
        shared: dict[str, Any] = {}
        seen: set[str] = set()
        while lexer.accept(","):
            start = lexer.start
            name = lexer.expect_name("an attribute's name")
            if name in seen:
                raise lexer.error(f"attribute {name} stands twice", start)
            seen.add(name)
            lexer.expect("=", f"after attribute '{name}'")
            if name in wrapped_table:
                inner[wrapped_table[name].name] = self._value(body, wrapped_table[name])
            elif name in table and (wrapped is None or name != "calls"):
                record.values[table[name].name] = self._value(body, table[name])
            elif name in _SHARED:
                _SHARED[name](lexer, shared)
            elif name == "control-predecessors":
                record.predecessors = list_of(
                    lexer, "{", "}", lambda _: self._predecessor(body), "between predecessors"
                )
            elif wrapped is not None and (wrapped.opcode, name) in _ODD:
                _ODD[wrapped.opcode, name](self, body, inner)
            elif (record.cls.opcode, name) in _ODD:
                _ODD[record.cls.opcode, name](self, body, record.values)
            else:
                known = [*wrapped_table, *table, *_SHARED, "control-predecessors"]
                rule, hint = unknown(name, known, f"attribute of {opcode}:")
                raise lexer.error(rule, start, hint=hint or "known: " + ", ".join(known))
        if shared:
            record.annotations = Annotations(**shared)

    def _value(self, body: Body, spec: Attribute) -> Any:
        if spec.kind in CALLING:
            if spec.kind is Kind.COMPUTATION_LIST and self.lexer.text == "{":
                return self._callees(body)
            return self._callee(body) if spec.kind is Kind.COMPUTATION else (self._callee(body),)
        return CODECS[spec.kind].parse(self.lexer, spec)

    def _predecessor(self, body: Body) -> Record:
        start = self.lexer.start
        name = self.lexer.expect_name("an instruction's name")
        predecessor = body.names.get(name)
        if predecessor is None:
            rule, hint = unknown(name, list(body.names), "control predecessor")
            raise self.lexer.error(rule, start, hint=hint)
        return predecessor

    # -- attributes that are not as their operations declare them ------------------------------------

    def _branch(self, body: Body, values: dict[str, Any], number: int) -> None:
        # A conditional on a predicate names its two branches one by one.
        branches = list(values.get("branch_computations", (None, None)))
        branches[number] = self._callee(body)
        values["branch_computations"] = tuple(branches)

    def _single_callee(self, body: Body, values: dict[str, Any]) -> None:
        values["computations"] = (self._callee(body),)

    def _ignored_word(self, body: Body, values: dict[str, Any]) -> None:
        self.lexer.expect_name("a mode")

    def _repeated_thread(self, body: Body, values: dict[str, Any]) -> None:
        # Old texts say the thread of the start again.
        self.lexer.expect_string("a thread's name")


_ODD: dict[tuple[str, str], Callable[[Reader, Body, dict[str, Any]], None]] = {
    ("conditional", "true_computation"): lambda reader, body, values: reader._branch(body, values, 0),  # pyright: ignore[reportPrivateUsage]
    ("conditional", "false_computation"): lambda reader, body, values: reader._branch(body, values, 1),  # pyright: ignore[reportPrivateUsage]
    ("custom-call", "to_apply"): Reader._single_callee,  # pyright: ignore[reportPrivateUsage]
    ("async-update", "async_execution_thread"): Reader._repeated_thread,  # pyright: ignore[reportPrivateUsage]
    ("async-done", "async_execution_thread"): Reader._repeated_thread,  # pyright: ignore[reportPrivateUsage]
    # Texts of a few months of 2025 have it; it means nothing.
    ("all-reduce", "mode"): Reader._ignored_word,  # pyright: ignore[reportPrivateUsage]
    ("all-reduce-start", "mode"): Reader._ignored_word,  # pyright: ignore[reportPrivateUsage]
    ("reduce-scatter", "mode"): Reader._ignored_word,  # pyright: ignore[reportPrivateUsage]
}


# -- annotations -------------------------------------------------------------------------------------


def _metadata(lexer: Lexer, shared: dict[str, Any]) -> None:
    metadata = parse_metadata(lexer)
    if metadata != OpMetadata():
        shared["metadata"] = metadata


def _statistics(lexer: Lexer, shared: dict[str, Any]) -> None:
    shared["statistics_visualized"], shared["statistics"] = parse_statistics(lexer)


def _set(field: str, parse: Callable[[Lexer], Any]) -> Callable[[Lexer, dict[str, Any]], None]:
    def read(lexer: Lexer, shared: dict[str, Any]) -> None:
        shared[field] = parse(lexer)

    return read


# The attributes that any operation may have.
_SHARED: dict[str, Callable[[Lexer, dict[str, Any]], None]] = {
    "metadata": _metadata,
    "sharding": _set("sharding", parse_sharding),
    "frontend_attributes": _set("frontend_attributes", parse_frontend_attributes),
    "backend_config": _set("backend_config", Lexer.expect_string_or_json),
    "statistics": _statistics,
    "origin": _set("origin", parse_origin),
    # Its name until 2025.
    "original_value": _set("origin", parse_origin),
    "parameter_replication": _set(
        "parameter_replication",
        lambda lexer: tuple(list_of(lexer, "{", "}", Lexer.expect_bool, "between true and false")),
    ),
}
SHARED_ATTRIBUTES = tuple(_SHARED)
