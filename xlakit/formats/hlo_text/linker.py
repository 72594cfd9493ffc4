"""From records to instructions: computations are looked up by name and made callees first."""

from __future__ import annotations

from functools import cache

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import TOKEN_SHAPE, Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ParseError, XlakitError
from xlakit.formats.hlo_text.inferred import laid_out
from xlakit.formats.hlo_text.lexer import Lexer
from xlakit.formats.hlo_text.reader import unknown
from xlakit.formats.hlo_text.records import CALLING, Body, Callee, Record
from xlakit.ir.instruction import Computation, Instruction, infer_shape
from xlakit.ir.operation import Kind, Op
from xlakit.ops.communication.transfer import Outfeed, Send, SendDone

# Operations that give a token, whatever result shape the text declares: old texts declare the operand's.
_ALWAYS_TOKENS = (Outfeed, SendDone)
_REQUEST = Shape(PrimitiveType.U32).with_default_layout()


@dataclass(slots=True)
class Linker:
    """Makes the computations of a text."""

    lexer: Lexer
    bodies: dict[str, Body]

    def link(self) -> dict[str, Computation]:
        """All computations by their names. Raises ParseError, ShapeError."""
        self._spread_threads()
        computations: dict[str, Computation] = {}
        open_bodies: set[str] = set()
        for first in self.bodies.values():
            stack = [(first, False)]
            while stack:
                body, ready = stack.pop()
                if ready:
                    open_bodies.discard(body.name)
                    computations[body.name] = self._make(body, computations)
                    continue
                if body.name in computations:
                    continue
                open_bodies.add(body.name)
                stack.append((body, True))
                stack += [
                    (self._find(c, open_bodies), False) for c in reversed(body.callees) if c.name not in computations
                ]
        return computations

    def _spread_threads(self) -> None:
        """Give the computations that an asynchronous operation calls, directly or indirectly, its execution thread.

        The text of a computation may omit the thread.
        """
        for body in self.bodies.values():
            for record in body.records:
                thread = record.values.get("async_execution_thread", "main")
                callee = record.values.get("calls")
                names = {callee.name} if thread != "main" and isinstance(callee, Callee) else set[str]()
                while names:
                    called = self.bodies.get(names.pop())
                    if called is not None and called.thread in ("main", thread):
                        called.thread = thread
                        names |= {
                            c.name
                            for c in called.callees
                            if c.name in self.bodies and self.bodies[c.name].thread == "main"
                        }

    def _find(self, callee: Callee, open_bodies: set[str]) -> Body:
        if callee.name in open_bodies:
            raise self.lexer.error(f"computation '{callee.name}' calls itself", callee.offset)
        body = self.bodies.get(callee.name)
        if body is None:
            rule, hint = unknown(callee.name, list(self.bodies), "computation")
            raise self.lexer.error(rule, callee.offset, hint=hint)
        return body

    def _make(self, body: Body, computations: dict[str, Computation]) -> Computation:
        instructions: list[Instruction] = []
        for record in body.records:
            record.instruction = self.instruction(record, computations)
            instructions.append(record.instruction)
        root = (body.root or body.records[-1]).instruction
        computation = Computation(body.name, tuple(instructions), root, body.thread)
        if body.result is not None and not body.result[0].compatible(root.shape):
            self.differs(
                f"computation {body.name} is said to give {body.result[0].to_string(with_layout=False)}, its root "
                f"'{root.name}' is {root.shape.to_string(with_layout=False)}",
                body.result[1],
            )
        return computation

    def differs(self, rule: str, offset: int) -> None:
        """Raise ParseError if the result of a computation differs from its declared shape."""
        raise self.lexer.error(rule, offset)

    def instruction(self, record: Record, computations: dict[str, Computation]) -> Instruction:
        """The instruction of a record. Raises ParseError, ShapeError."""
        operands = [operand.instruction for operand in record.operands]
        op = self._op(record, computations)
        shape = record.shape
        if record.operand_shapes:
            self._check_operand_shapes(record)
        if record.cls in _ALWAYS_TOKENS:
            shape = TOKEN_SHAPE
        elif record.cls is Send:
            # The declared shape is ignored here, too: old texts have others.
            shape = make_tuple_shape([operands[0].shape, _REQUEST, TOKEN_SHAPE])
        elif shape is None:
            shape = self._inferred(record, op)
        return Instruction(
            op,
            operands,
            shape,
            record.name,
            control_predecessors=[p.instruction for p in record.predecessors] if record.predecessors else (),
            annotations=record.annotations,
        )

    def _op(self, record: Record, computations: dict[str, Computation]) -> Op:
        values = record.values
        if not values and record.cls.canonical is Op.canonical:
            return _without_attributes(record.cls)
        for spec in record.cls.attributes:
            if spec.kind not in CALLING:
                continue
            value = values.get(spec.name)
            if spec.kind is Kind.COMPUTATION and isinstance(value, Callee):
                values[spec.name] = computations[value.name]
            elif spec.kind is Kind.COMPUTATION_LIST and value is not None:
                if None in value:
                    raise self.lexer.error(f"{record.cls.opcode} lacks one of its branches", record.offset)
                values[spec.name] = tuple(computations[c.name] for c in value)
        try:
            return record.cls(**values).canonical([operand.instruction.shape for operand in record.operands])
        except XlakitError as error:
            raise self._with_position(error, record) from None

    def _inferred(self, record: Record, op: Op) -> Shape:
        shapes = [operand.instruction.shape for operand in record.operands]
        try:
            return laid_out(op, shapes, infer_shape(op, shapes, None, name=record.name))
        except XlakitError as error:
            raise self._with_position(error, record) from None

    def _check_operand_shapes(self, record: Record) -> None:
        for number, shape, offset in record.operand_shapes:
            operand = record.operands[number].instruction
            if not shape.compatible(operand.shape) and not _same_bounds(shape, operand.shape):
                raise self.lexer.error(
                    f"operand '{operand.name}' is said to be {shape.to_string(with_layout=False)}, it is "
                    f"{operand.shape.to_string(with_layout=False)}",
                    offset,
                )

    def _with_position(self, error: XlakitError, record: Record) -> XlakitError:
        if isinstance(error, ParseError):
            return error
        return error.at(
            operation=f"{record.cls.opcode} '{record.name}'",
            location=self.lexer.error("", record.offset).location,
        )


def _same_bounds(declared: Shape, actual: Shape) -> bool:
    """Whether two shapes differ at most in which dimensions are dynamic; operands may be written without the marks."""
    if declared.is_tuple and actual.is_tuple and len(declared.tuple_shapes) == len(actual.tuple_shapes):
        return all(map(_same_bounds, declared.tuple_shapes, actual.tuple_shapes))
    return declared.compatible(actual) or (
        declared.same_dimensions(actual) and declared.element_type is actual.element_type
    )


@cache
def _without_attributes(cls: type[Op]) -> Op:
    return cls()
