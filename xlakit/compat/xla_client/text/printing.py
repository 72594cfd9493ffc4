"""HloPrintOptions, and HLO text printed by these options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from xlakit.compat.xla_client.text.numbering import in_print_order
from xlakit.data.literal import Literal
from xlakit.formats.hlo_text.header import print_header, print_stack_frames
from xlakit.formats.hlo_text.lexer import quote
from xlakit.formats.hlo_text.names import with_plain_names
from xlakit.formats.hlo_text.printer import PrintOptions, hidden_computations, print_parts
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Constant

# Attributes that are printed where extra ones are not: what is called, and what any operation has.
PLAIN_ATTRIBUTES = {
    "to_apply", "calls", "condition", "body", "branch_computations", "true_computation", "false_computation", "select",
    "scatter", "called_computations", "sharding", "frontend_attributes", "control-predecessors", "metadata",
    "backend_config", "origin", "statistics",
}  # fmt: skip
_FEW_OPERANDS = 4


class HloPrintOptions:
    """The options of printing: the parts of a module that its text has."""

    # jaxlib's defaults.
    _DEFAULTS = {  # noqa: RUF012
        "canonicalize_computations": False,
        "canonicalize_instruction_names": False,
        "compact_operands": False,
        "include_layout_in_shapes": True,
        "indent_amount": 0,
        "is_in_nested_computation": 0,
        "print_backend_config": True,
        "print_control_dependencies": True,
        "print_extra_attributes": True,
        "print_ids": True,
        "print_large_constants": False,
        "print_metadata": True,
        "print_operand_names": True,
        "print_operand_shape": False,
        "print_percent": True,
        "print_program_shape": True,
        "print_result_shape": True,
        # Not there in jaxlib: whether every fifth operand has its number beside it, which the short forms leave out,
        # whether computations that are called are written where they are named, and whether only the constants are
        # written that programs are likely to differ by: those of integers, and zeros and ones as one number.
        "_counts_operands": True,
        "_writes_called_out": False,
        "_writes_essentials": False,
    }
    __slots__ = tuple(_DEFAULTS)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self) -> None:
        for name, value in self._DEFAULTS.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        known = self._DEFAULTS.get(name)
        if known is not None and not isinstance(value, type(known)):
            raise TypeError(f"incompatible function arguments: {name} is of type {type(known).__name__}, got {value!r}")
        object.__setattr__(self, name, value)

    @staticmethod
    def short_parsable() -> HloPrintOptions:
        """The shortest text that parses to the same program."""
        made = _options("backend_config", "control_dependencies", "metadata", "percent", "program_shape")
        made.print_large_constants = True
        return made

    @staticmethod
    def canonical() -> HloPrintOptions:
        """Text in which names and metadata do not count."""
        made = _options(
            "backend_config", "control_dependencies", "metadata", "operand_names", "percent", "program_shape"
        )
        made.print_operand_shape = made.canonicalize_instruction_names = True
        made._writes_called_out = True
        return made

    @staticmethod
    def fingerprint() -> HloPrintOptions:
        """Text for fingerprints: as :meth:`canonical`, without names of computations."""
        made = HloPrintOptions.canonical()
        made.canonicalize_computations, made.print_ids = True, False
        made._writes_essentials = True
        return made


def _options(*without: str) -> HloPrintOptions:
    made = HloPrintOptions()
    for name in (*(f"print_{name}" for name in without), "_counts_operands"):
        setattr(made, name, False)
    return made


def printed(module: HloModule, options: HloPrintOptions) -> str:
    """HLO text in XLA's order; parts that the options leave out may make it unparsable."""
    module = with_plain_names(in_print_order(module))
    header = print_header(module)
    if not options.print_ids:
        header = header.replace(f"HloModule {module.name}", "HloModule ", 1)
    # The short text has no metadata.
    if options.print_metadata and options.print_percent:
        header += print_stack_frames(module.stack_frames)
    parts, hidden = [header], hidden_computations(module)
    for computation in module.computations:
        if computation not in hidden:
            parts.append("\n".join(_lines(computation, options, is_entry=computation is module.entry)))
    return "\n\n".join(parts) + "\n\n"


def _lines(computation: Computation, options: HloPrintOptions, *, is_entry: bool) -> Iterator[str]:
    """The lines of a computation."""
    pad, percent = "  " * int(options.indent_amount), "%" if options.print_percent else ""
    name = ""
    if not options.is_in_nested_computation:
        name = f"{percent}{computation.name} " if options.print_ids else percent
    signature = ""
    if options.print_program_shape:
        shown = [f"{_name(p, options)}: {p.shape.to_string(with_layout=False)}" for p in computation.parameters]
        signature = f"({', '.join(shown)}) -> {computation.root.shape.to_string(with_layout=False)} "
    yield f"{'ENTRY ' if is_entry else ''}{pad}{name}{signature}{{"
    canonical = options.canonicalize_instruction_names
    names = {
        i: f"tmp_{number}" if canonical else percent + _name(i, options)
        for number, i in enumerate(computation.instructions)
    }
    for instruction in computation.instructions:
        root = "ROOT " if instruction is computation.root else ""
        yield f"{pad}  {root}{_line(instruction, names, options)}"
    thread = computation.execution_thread
    yield pad + ("}" if thread == "main" else f"}}, execution_thread={quote(thread)}")


def _name(instruction: Instruction, options: HloPrintOptions) -> str:
    return instruction.name if options.print_ids else instruction.name.partition(".")[0]


def printed_parts(instruction: Instruction, options: HloPrintOptions) -> tuple[str, str, list[str]]:
    """The opcode, what is in the parentheses after it, and the attributes, as they are printed."""
    large = options.print_large_constants or options._writes_essentials
    full = PrintOptions(
        metadata=options.print_metadata, layouts=options.include_layout_in_shapes, large_constants=large
    )
    opcode, inside, attributes = print_parts(instruction, full)
    if options._writes_essentials and isinstance(instruction.op, Constant):
        inside = _essential(instruction.op.literal, inside)
    return opcode, inside, attributes


def _essential(literal: Literal, shown: str) -> str:
    """The text of a constant in fingerprints."""
    if literal.shape.is_array:
        for number in (0, 1):
            if bool((literal.array == number).all()):
                return str(number)
        if literal.shape.element_type.is_integral:
            return shown
    return "{...}"


def _line(instruction: Instruction, names: dict[Instruction, str], options: HloPrintOptions) -> str:
    opcode, inside, attributes = printed_parts(instruction, options)
    if instruction.operands:
        inside = _operands(instruction, names, options)
    kept = [part for part in attributes if _is_printed(part.partition("=")[0], options)]
    shape = instruction.shape.to_string(with_layout=options.include_layout_in_shapes)
    result = f"{shape} " if options.print_result_shape else ""
    called = {computation.name: computation for computation in instruction.op.called_computations}
    named = [_renamed(part, called, options) for part in kept]
    return f"{names[instruction]} = {result}" + ", ".join([f"{opcode}({inside})", *named])


def _operands(instruction: Instruction, names: dict[Instruction, str], options: HloPrintOptions) -> str:
    shown: list[str] = []
    for number, operand in enumerate(instruction.operands):
        if options.compact_operands and number >= _FEW_OPERANDS:
            shown.append(f"...(+{len(instruction.operands) - number})")
            break
        shape = operand.shape.to_string(with_layout=options.include_layout_in_shapes)
        is_named = options.print_operand_names or options.canonicalize_instruction_names
        parts = [shape] * bool(options.print_operand_shape) + [names[operand]] * bool(is_named)
        comment = f"/*index={number}*/" if number and not number % 5 and options._counts_operands else ""
        shown.append(comment + " ".join(parts))
    return ", ".join(shown)


def _is_printed(attribute: str, options: HloPrintOptions) -> bool:
    if attribute == "backend_config":
        return options.print_backend_config
    if attribute == "control-predecessors":
        return options.print_control_dependencies
    return options.print_extra_attributes or attribute in PLAIN_ATTRIBUTES


def _renamed(attribute: str, called: dict[str, Computation], options: HloPrintOptions) -> str:
    """An attribute with the names of computations as the options ask for them, or with what they stand for."""
    nested = copy(options)
    nested.is_in_nested_computation, nested.indent_amount = True, int(options.indent_amount) + 1

    def name(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        if options._writes_called_out and match[1] in called:
            return "\n" + "\n".join(_lines(called[match[1]], nested, is_entry=False))
        return ("%" if options.print_percent else "") + (match[1] if options.print_ids else match[1].partition(".")[0])

    return re.sub(r'"(?:[^"\\]|\\.)*"|%([\w.-]+)', name, attribute)
