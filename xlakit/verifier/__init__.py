"""The verifier checks a module: the rules of well-formedness, and each declared shape against the inferred one.

Source: the checks of OpenXLA's HLO verifier that do not depend on a backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ShapeError, VerificationError, XlakitError
from xlakit.ir.instruction import Computation, HloModule, Instruction, infer_shape
from xlakit.ir.traits import Elementwise
from xlakit.ops.communication.asynchronous import CopyDone, CopyStart
from xlakit.ops.communication.transfer import Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.elementwise.convert import Bitcast
from xlakit.verifier.annotations import annotation_faults
from xlakit.verifier.buffers import buffer_faults
from xlakit.verifier.devices import device_faults
from xlakit.verifier.faults import Program
from xlakit.verifier.ordering import ordering_faults
from xlakit.verifier.pairs import pair_faults

# These forward values, so their declared precision is that of their operand.
_EXACT = (
    *(Parameter, Constant, Tuple, GetTupleElement, OptimizationBarrier, Bitcast, DynamicUpdateSlice),
    *(Call, While, Conditional, CustomCall, Infeed, Outfeed, Send, SendDone, Recv, RecvDone, CopyStart, CopyDone),
)


class Finding(NamedTuple):
    """A fault: its error, and its location: an instruction, a computation, or the module's header."""

    error: XlakitError
    computation: Computation | None = None
    instruction: Instruction | None = None


def verify(module: HloModule) -> None:
    """Check a module; raises VerificationError or ShapeError that name the instruction, the rule and the source
    location.
    """
    for finding in findings(module):
        raise finding.error


def findings(module: HloModule) -> Iterator[Finding]:
    """Every fault of a module. Rules across instructions are checked only if no single instruction has a fault."""
    names: set[str] = set()
    checked_elementwise: set[object] = set()
    is_sound = True
    for computation in module.computations:
        if computation.name in names:
            is_sound = False
            error = VerificationError(
                f"two computations are called {computation.name}",
                hint="rename one of them with dataclasses.replace(computation, name=...)",
            )
            yield Finding(error, computation)
        names.add(computation.name)
        for finding in _of_computation(module, computation, checked_elementwise):
            is_sound = False
            yield finding
    if module.replica_count < 1 or module.num_partitions < 1:
        is_sound = False
        yield Finding(
            VerificationError(
                "replica_count and num_partitions must be at least 1",
                hint="give 1 where the program runs on one device",
            )
        )
    for rule in (_of_entry_layout, _of_aliases):
        try:
            yield from map(Finding, rule(module))
        except XlakitError as error:  # a ShapeIndex that is not in the shape
            yield Finding(error)
    if is_sound:
        program = Program(module)
        for rules in (pair_faults, device_faults, annotation_faults, buffer_faults, ordering_faults):
            for fault in rules(program):
                yield Finding(_broken(module, *fault), fault.computation, fault.instruction)


def shape_findings(module: HloModule) -> Iterator[Finding]:
    """The faults of single instructions: operands or attributes that break the shape rule, wrong declared shapes."""
    checked_elementwise: set[object] = set()
    for computation in module.computations:
        for instruction in computation.instructions:
            finding = _of_shape(module, computation, instruction, checked_elementwise)
            if finding is not None:
                yield finding


def _of_computation(module: HloModule, computation: Computation, checked_elementwise: set[object]) -> Iterator[Finding]:
    def found(instruction: Instruction, rule: str, hint: str) -> Finding:
        return Finding(_broken(module, computation, instruction, rule, hint), computation, instruction)

    seen: set[Instruction] = set()
    names: set[str] = set()
    for instruction in computation.instructions:
        if instruction.name in names:
            yield found(
                instruction,
                f"two instructions are called {instruction.name}",
                "rename one of them with replace(name=...)",
            )
        names.add(instruction.name)
        for operand in () if seen.issuperset(instruction.operands) else instruction.operands:
            if operand not in seen:
                yield found(
                    instruction,
                    f"operand {operand.name} is not defined before it",
                    "list operands before their users, as Computation.from_root does",
                )
        for predecessor in instruction.control_predecessors:
            if predecessor not in seen:
                yield found(
                    instruction,
                    f"control predecessor {predecessor.name} is not defined before it",
                    "list operands before their users, as Computation.from_root does",
                )
        seen.add(instruction)
        finding = _of_shape(module, computation, instruction, checked_elementwise)
        if finding is not None:
            yield finding
    if computation.root not in seen:
        error = VerificationError(
            f"the root of computation {computation.name} is not one of its instructions",
            hint="make the computation with Computation.from_root",
        )
        yield Finding(error, computation)
    numbers = [p.op.number for p in computation.parameters]  # pyright: ignore[reportAttributeAccessIssue]
    if numbers != list(range(len(numbers))):
        error = VerificationError(
            f"computation {computation.name} has parameters numbered {numbers}",
            hint=f"number them 0 .. {len(numbers) - 1}, each once",
        )
        yield Finding(error, computation)


def _of_shape(
    module: HloModule, computation: Computation, instruction: Instruction, checked_elementwise: set[object]
) -> Finding | None:
    """The fault of one instruction, if it has one.

    checked_elementwise: (op, id of the declared shape, ids of the operand shapes) of element-wise operations that
    have no fault; a later instruction with an equal key is not inferred again. Modules read from protos share one
    object among equal shapes, so most of their instructions hit.
    """
    op = instruction.op
    operands = [o.shape for o in instruction.operands]
    known = (op, id(instruction.shape), *map(id, operands)) if isinstance(op, Elementwise) else None
    if known is not None and known in checked_elementwise:
        return None
    try:
        inferred = infer_shape(op, operands, instruction.shape, None, instruction.name, computation.name)
    except XlakitError as error:
        return Finding(error.at(location=module.location_of(instruction)), computation, instruction)
    if not matches(instruction.shape, inferred, exact=isinstance(instruction.op, _EXACT)):
        error = ShapeError(
            f"declared as {instruction.shape.to_string(with_layout=False)}, the rule gives {inferred}",
            operation=f"{instruction.opcode} '{instruction.name}' in computation {computation.name}",
            shapes=operands,
            location=module.location_of(instruction),
            hint=f"declare {inferred}, or change operands or attributes",
        )
        return Finding(error, computation, instruction)
    if known is not None:
        checked_elementwise.add(known)
    return None


def matches(declared: Shape, inferred: Shape, *, exact: bool = False) -> bool:
    """Whether a declared shape is one that the rule allows.

    Layouts do not matter, a size that may be dynamic can be declared static with its bound or the other way round,
    and floating point types may differ in precision, unless ``exact``, as XLA lets backends keep values in another one.
    """
    if declared is inferred:
        return True
    if declared.is_tuple or inferred.is_tuple:
        return (
            declared.is_tuple
            and inferred.is_tuple
            and len(declared.tuple_shapes) == len(inferred.tuple_shapes)
            and all(
                matches(d, i, exact=exact) for d, i in zip(declared.tuple_shapes, inferred.tuple_shapes, strict=True)
            )
        )
    same_type = declared.element_type is inferred.element_type or (
        not exact and declared.element_type.is_floating and inferred.element_type.is_floating
    )
    if not declared.is_array or not inferred.is_array:
        return declared.element_type is inferred.element_type
    sizes = declared.dimensions, inferred.dimensions
    if not same_type or len(sizes[0]) != len(sizes[1]):
        return False
    return sizes[0] == sizes[1] or all(a == b or a < 0 or b < 0 for a, b in zip(*sizes, strict=True))


def _of_entry_layout(module: HloModule) -> Iterator[XlakitError]:
    layout = module.entry_computation_layout
    if layout is None:
        return
    actual = module.entry.program_shape
    if not ProgramShape(layout.parameters, layout.result).compatible(actual):
        yield VerificationError(
            f"entry_computation_layout {layout.to_string(with_layout=False)} does not match the entry computation "
            f"{actual.to_string(with_layout=False)}",
            hint="leave entry_computation_layout out, or give the entry's own shapes",
        )


def _has_sharding(module: HloModule, number: int) -> bool:
    """Whether a parameter or the result has a sharding: then their parts may have equal shapes where they do not."""
    if module.spmd_parameters_shardings:
        return False
    ends = module.entry.parameters[number], module.entry.root
    return any(end.annotations.sharding is not None for end in ends)


def _of_aliases(module: HloModule) -> Iterator[XlakitError]:
    parameters = module.entry.program_shape.parameters
    outputs: set[tuple[int, ...]] = set()
    taken: set[tuple[int, tuple[int, ...]]] = set()
    for entry in module.input_output_alias:
        if entry.output_index in outputs:
            yield VerificationError(
                f"output {{{_join(entry.output_index)}}} is aliased twice", hint="give each output one parameter"
            )
        outputs.add(entry.output_index)
        place = entry.parameter_number, entry.parameter_index
        if place in taken:
            yield VerificationError(
                f"parameter {entry.parameter_number}, {{{_join(entry.parameter_index)}}}, is aliased twice: two "
                "outputs cannot lie in one memory",
                hint="give each parameter one output",
            )
        taken.add(place)
        output = _at(module.entry.root.shape, entry.output_index, "input_output_alias", "the result")
        _verify_parameter_index(parameters, entry.parameter_number, entry.parameter_index, "input_output_alias")
        given = parameters[entry.parameter_number].at(entry.parameter_index)
        is_split = _has_sharding(module, entry.parameter_number)
        if output.byte_size != given.byte_size and not is_split:
            yield VerificationError(
                f"output {{{_join(entry.output_index)}}} of {output.byte_size} bytes cannot lie in parameter "
                f"{entry.parameter_number}, {{{_join(entry.parameter_index)}}}, of {given.byte_size}",
                shapes=[output, given],
                hint="alias arrays of one size in bytes",
            )
    for donor in module.buffer_donor:
        _verify_parameter_index(parameters, donor.parameter_number, donor.parameter_index, "buffer_donor")


def _verify_parameter_index(parameters: Sequence[Shape], number: int, index: Sequence[int], what: str) -> None:
    if not 0 <= number < len(parameters):
        raise VerificationError(
            f"{what} names parameter {number}; the entry has {len(parameters)}",
            hint=f"name a parameter from 0 to {len(parameters) - 1}"
            if parameters
            else "leave it out; the entry takes nothing",
        )
    _at(parameters[number], index, what, f"parameter {number}")


def _at(shape: Shape, index: Sequence[int], what: str, whole: str) -> Shape:
    """The shape at an index that an attribute of the module names."""
    try:
        return shape.at(index)
    except ShapeError as error:
        raise VerificationError(f"{what}, {whole}: {error.rule}", hint=error.hint) from None


def _broken(
    module: HloModule, computation: Computation, instruction: Instruction, rule: str, hint: str = ""
) -> VerificationError:
    return VerificationError(
        rule,
        hint=hint,
        operation=f"{instruction.opcode} '{instruction.name}' in computation {computation.name}",
        shapes=[o.shape for o in instruction.operands],
        location=module.location_of(instruction),
    )


def _join(index: Sequence[int]) -> str:
    return ",".join(map(str, index))
