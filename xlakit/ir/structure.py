"""Structural equality of modules: everything that is printed counts, except names and source locations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xlakit.data.shape import ProgramShape
from xlakit.ir.operation import Kind, Op

if TYPE_CHECKING:
    from xlakit.ir.instruction import Computation, HloModule, Instruction

# A nested tuple of frozen values.
Structure = tuple[Any, ...]


def structure_of(module: HloModule) -> Structure:
    """A value that is equal for two modules if and only if they are the same program; see :meth:`HloModule.__eq__`.

    In the value a computation is its number in the module, an instruction its index in the computation.
    """
    numbers = {computation: number for number, computation in enumerate(module.computations)}
    return (
        tuple(_computation(c, numbers) for c in module.computations),
        _program(module.program_shape),
        module.is_scheduled,
        (module.replica_count, module.num_partitions),
        module.input_output_alias,
        module.buffer_donor,
        module.frontend_attributes,
        (module.spmd_output_sharding, module.spmd_parameters_shardings),
        module.header,
    )


def _computation(computation: Computation, numbers: Mapping[Computation, int]) -> Structure:
    indices = {instruction: index for index, instruction in enumerate(computation.instructions)}
    instructions = tuple(_instruction(i, indices, numbers) for i in computation.instructions)
    return computation.execution_thread, indices[computation.root], instructions


def _instruction(
    instruction: Instruction, indices: Mapping[Instruction, int], numbers: Mapping[Computation, int]
) -> Structure:
    annotations = instruction.annotations
    return (
        (instruction.opcode, attributes_of(instruction.op, numbers)),
        instruction.shape.with_implied_layouts(),
        tuple(indices[operand] for operand in instruction.operands),
        frozenset(indices[before] for before in instruction.control_predecessors),
        annotations.sharding,
        annotations.frontend_attributes,
        annotations.backend_config,
        annotations.parameter_replication,
    )


def attributes_of(op: Op, numbers: Mapping[Computation, int]) -> Structure:
    """The attributes of an operation; a computation is its number, or -1 where it has none."""
    return tuple(_attribute(getattr(op, spec.name), spec.kind, numbers) for spec in op.attributes)


def _attribute(value: Any, kind: Kind, numbers: Mapping[Computation, int]) -> Any:
    if kind is Kind.COMPUTATION:
        return None if value is None else numbers.get(value, -1)
    if kind is Kind.COMPUTATION_LIST:
        return None if value is None else tuple(numbers.get(computation, -1) for computation in value)
    # Floats are compared by their hexadecimal text: as numbers NaN would differ from itself, and -0 would equal 0.
    return value.hex() if isinstance(value, float) else value


def _program(program: ProgramShape) -> Structure:
    return tuple(p.with_implied_layouts() for p in program.parameters), program.result.with_implied_layouts()
