"""The texts and bytes of a module for its cache key: equal for modules that compile to the same machine code."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from xlakit.data.literal import Literal
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Kind, Op
from xlakit.ops.custom_call import HINTS, CustomCall
from xlakit.ops.data import Constant


def module_parts(
    module: HloModule, lapack_calls: Collection[str] = (), *, num_partitions: int = 1
) -> list[str | bytes]:
    """All parts of a module that affect its code. Raises KeyError, AttributeError or TypeError if it is malformed.

    lapack_calls: the targets of custom calls of LAPACK. num_partitions: the number of partitions it is compiled for.
    """
    # Hints that are identities on one partition become collectives when the program is partitioned.
    safe = {"TopK", *(HINTS if num_partitions == 1 else ()), *lapack_calls}
    named = any(_may_be_named(i, safe) for i in module.instructions)
    return _ModuleText(module, named=named).parts()


def _may_be_named(instruction: Instruction, safe: Collection[str]) -> bool:
    """Whether a runtime error may name the instruction; custom calls to the targets in ``safe`` cannot fail."""
    op = instruction.op
    if not isinstance(op, CustomCall):
        return op.has_side_effect
    return op.has_side_effect or bool(op.computations) or op.custom_call_target not in safe


class _ModuleText:
    """Collects all parts of a module that affect its code; refers to instructions and computations by number."""

    def __init__(self, module: HloModule, *, named: bool) -> None:
        self._module = module
        self._computations = {computation: number for number, computation in enumerate(module.computations)}
        self._named = named
        self._shapes: dict[Any, str] = {}
        # Keyed by id(annotations): many instructions share one object.
        self._annotations: dict[int, str] = {}
        self._parts: list[str | bytes] = []

    def parts(self) -> list[str | bytes]:
        module = self._module
        self._parts.append(
            repr(
                (
                    module.name if self._named else "",
                    module.entry_computation_layout,
                    module.is_scheduled,
                    module.replica_count,
                    module.num_partitions,
                    module.input_output_alias,
                    module.buffer_donor,
                    module.frontend_attributes,
                    module.spmd_output_sharding,
                    module.spmd_parameters_shardings,
                    module.stack_frames if self._named else "",
                )
            )
        )
        for computation in module.computations:
            self._computation(computation)
        return self._parts

    def _computation(self, computation: Computation) -> None:
        numbers = {instruction: number for number, instruction in enumerate(computation.instructions)}
        names = {i.name for i in computation.instructions}
        # Duplicate names are an error that verification reports, even where the names themselves do not matter.
        unique = len(names) == len(computation.instructions)
        name = computation.name if self._named else ""
        self._parts.append(f"{name} {unique} {numbers[computation.root]} {computation.execution_thread}")
        for instruction in computation.instructions:
            self._instruction(instruction, numbers)

    def _instruction(self, instruction: Instruction, numbers: dict[Instruction, int]) -> None:
        op, shape = instruction.op, instruction.shape
        text = self._shapes.get(shape)
        if text is None:
            text = self._shapes[shape] = shape.to_string()
        operands = [numbers[o] for o in instruction.operands]
        self._parts.append(f"{op.opcode} {text} {operands}")
        if isinstance(op, Constant):
            self._literal(op.literal)
        elif op.attributes:
            self._parts.append(repr(self._attributes(op)))
        if instruction.control_predecessors:
            self._parts.append(repr([numbers[p] for p in instruction.control_predecessors]))
        if instruction.annotations is not NO_ANNOTATIONS:
            self._parts.append(self._annotation_text(instruction.annotations))
        if self._named:
            self._parts.append(instruction.name)

    def _attributes(self, op: Op) -> list[Any]:
        """The values of an operation's attributes: a computation is its number, and a literal is added to the parts."""
        values: list[Any] = []
        for spec in op.attributes:
            value = getattr(op, spec.name)
            if spec.kind is Kind.COMPUTATION:
                value = None if value is None else self._computations[value]
            elif spec.kind is Kind.COMPUTATION_LIST:
                value = [self._computations[c] for c in value or ()]
            elif spec.kind is Kind.LITERAL and value is not None:
                self._literal(value)
                value = "literal"
            values.append(value)
        return values

    def _literal(self, literal: Literal) -> None:
        self._parts.append(literal.shape.to_string())
        if literal.shape.is_tuple:
            for element in literal.elements:
                self._literal(element)
        elif literal.shape.is_array:
            self._parts.append(literal.array.tobytes())

    def _annotation_text(self, annotations: Annotations) -> str:
        text = self._annotations.get(id(annotations))
        if text is None:
            text = self._annotations[id(annotations)] = self._text_of(annotations)
        return text

    def _text_of(self, annotations: Annotations) -> str:
        fields = (
            annotations.sharding,
            annotations.frontend_attributes,
            annotations.backend_config,
            annotations.parameter_replication,
            annotations.metadata if self._named else None,
        )
        return repr(fields) if any(fields) else ""
