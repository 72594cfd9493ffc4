"""Lowers a module to steps: chooses the kernels, and the values that each reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.cpu.entry.collectives import Collectives
from xlakit.cpu.entry.in_place import in_place_pairs
from xlakit.cpu.kernels.c_call import in_place_of
from xlakit.cpu.kernels.library import KernelLibrary
from xlakit.cpu.loops.emit.kernel import Kernel
from xlakit.data.literal import Literal
from xlakit.errors import UnsupportedError, XlakitError
from xlakit.ir.def_use import evaluated_instructions
from xlakit.ir.instruction import Computation, HloModule, Instruction, located
from xlakit.ir.operation import Array
from xlakit.memory.dataflow import Dataflow
from xlakit.memory.steps import ConditionalStep, HostStep, KernelStep, RandomStep, Step, StepProgram, WhileStep
from xlakit.memory.values import HloValue, Tree, ValueKind, leaves, new_values
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import (
    AddDependency,
    AfterAll,
    Constant,
    GetTupleElement,
    OptimizationBarrier,
    Parameter as ParameterOp,
    Tuple,
)
from xlakit.ops.movement import Reshape
from xlakit.ops.random import Rng, RngGetAndUpdateState
from xlakit.options import is_plain

# Operations that only rename arrays; here they and tuples are resolved, so that steps have only values.
_RENAMING = (Reshape, OptimizationBarrier, AddDependency)


class Lowering:
    """Lowers the computations of one module. A called computation is lowered anew for each call, with new values."""

    def __init__(self, module: HloModule, kernels: KernelLibrary, collectives: Collectives) -> None:
        self._module = module
        self._kernels = kernels
        self._collectives = collectives
        self._constants: list[Array] = []
        self._constant_values: dict[Instruction, Tree] = {}
        self._host = collectives.host_instructions
        self._dataflow = Dataflow()
        # In plain code phis are not simplified, so every element of a loop's state is copied.
        self._joins = not is_plain("memory")

    def lower(self) -> StepProgram:
        """The steps of the entry computation."""
        entry = self._module.entry
        arguments: list[HloValue] = []
        trees: list[Tree] = []
        for parameter in entry.parameters:
            trees.append(_arguments(new_values(parameter.shape, parameter), arguments))
        steps: list[Step] = []
        root = self._computation(entry, trees, steps)
        dataflow = self._dataflow
        return StepProgram(
            dataflow.replace_phis(steps), tuple(arguments), dataflow.values(leaves(root)), self._constants, self._host
        )

    # -- computations ----------------------------------------------------------------------------

    def _computation(self, computation: Computation, arguments: Sequence[Tree], steps: list[Step]) -> Tree:
        values: dict[Instruction, Tree] = {}
        self._collectives.enter(computation)
        for instruction in evaluated_instructions(computation):
            try:
                values[instruction] = self._instruction(instruction, values, arguments, steps)
            except XlakitError as error:
                raise located(error, self._module, instruction) from error.__cause__
        return values[computation.root]

    def _instruction(
        self, instruction: Instruction, values: dict[Instruction, Tree], arguments: Sequence[Tree], steps: list[Step]
    ) -> Tree:
        """The value of an instruction; appends the steps that compute it, none if it only renames arrays."""
        op = instruction.op
        if instruction.shape.is_dynamic:
            raise UnsupportedError(
                "dynamic dimensions that no pass has padded", hint="leave the pass pad-dynamic switched on"
            )
        if isinstance(op, ParameterOp):
            return arguments[op.number]
        if isinstance(op, Constant):
            return self._constant(instruction)
        operands = [values[o] for o in instruction.operands]
        if isinstance(op, GetTupleElement):
            return operands[0][op.index]  # pyright: ignore[reportIndexIssue,reportOptionalSubscript]
        if isinstance(op, Tuple):
            return tuple(operands)
        if isinstance(op, _RENAMING):
            return operands[0]
        if isinstance(op, AfterAll):
            return None
        if isinstance(op, RngGetAndUpdateState):
            state = HloValue(ValueKind.INSTRUCTION, instruction.shape.byte_size, instruction)
            steps.append(RandomStep(instruction, state, op.delta))
            return state
        if isinstance(op, Call):
            return self._computation(op.to_apply, operands, steps)
        if isinstance(op, While):
            return self._while(instruction, op, operands[0], steps)
        if isinstance(op, Conditional):
            return self._conditional(instruction, op, operands, steps)
        lowered = self._collectives.lower(instruction, operands, steps)
        if lowered is not None:
            return lowered[0]
        kernel = self._kernels.kernel(instruction)
        if kernel is None and isinstance(op, Fusion):
            return self._computation(op.calls, operands, steps)
        if kernel is None:
            return self._host_step(instruction, operands, steps)
        return self._kernel_step(instruction, kernel, operands, steps)

    def _constant(self, instruction: Instruction) -> Tree:
        tree = self._constant_values.get(instruction)
        if tree is None:
            tree = self._constant_tree(instruction.op_as(Constant).literal, instruction, ())
            self._constant_values[instruction] = tree
        return tree

    def _constant_tree(self, literal: Literal, instruction: Instruction, index: tuple[int, ...]) -> Tree:
        if literal.shape.is_tuple:
            return tuple(self._constant_tree(p, instruction, (*index, n)) for n, p in enumerate(literal.elements))
        if not literal.shape.is_array:
            return None
        self._constants.append(literal.array)
        number = len(self._constants) - 1
        return HloValue(ValueKind.CONSTANT, literal.shape.byte_size, instruction, index, number)

    # -- steps -----------------------------------------------------------------------------------

    def _kernel_step(
        self, instruction: Instruction, kernel: Kernel, operands: Sequence[Tree], steps: list[Step]
    ) -> Tree:
        operand_values = tuple([leaf for tree in operands for leaf in leaves(tree)])
        tree = new_values(instruction.shape, instruction)
        scratch: tuple[HloValue, ...] = ()
        if kernel.scratch_bytes:
            scratch = (HloValue(ValueKind.SCRATCH, kernel.scratch_bytes, instruction, suffix=".scratch"),)
        if isinstance(instruction.op, Rng):
            steps.extend(RandomStep(instruction, state) for state in scratch)
        result_values = tuple(leaves(tree))
        in_place = in_place_pairs(kernel, operand_values, result_values)
        steps.append(
            KernelStep(instruction, kernel.phases, operand_values, result_values, scratch, kernel.updates, in_place)
        )
        return tree

    def _host_step(self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]) -> Tree:
        tree = new_values(instruction.shape, instruction)
        operand_values = tuple(leaf for operand in operands for leaf in leaves(operand))
        function = self._kernels.ffi_call(instruction)
        updates = in_place_of(instruction) if function else {}
        steps.append(HostStep(instruction, len(self._host), operand_values, tuple(leaves(tree)), function, updates))
        self._host.append(instruction)
        return tree

    # -- control ---------------------------------------------------------------------------------

    def _while(self, instruction: Instruction, op: While, initial: Tree, steps: list[Step]) -> Tree:
        carried = new_values(instruction.shape, instruction, ValueKind.PHI)
        condition: list[Step] = []
        predicate = leaves(self._computation(op.condition, [carried], condition))[0]
        body: list[Step] = []
        result = self._computation(op.body, [carried], body)
        phis, first, next_values = (tuple(leaves(tree)) for tree in (carried, initial, result))
        if self._joins:
            self._dataflow.join(phis, (first, next_values))
        steps.append(WhileStep(instruction, condition, predicate, body, phis, first, next_values))
        return carried

    def _conditional(
        self, instruction: Instruction, op: Conditional, operands: Sequence[Tree], steps: list[Step]
    ) -> Tree:
        index, *arguments = operands
        results = new_values(instruction.shape, instruction, ValueKind.PHI)
        branches: list[list[Step]] = []
        incoming: list[tuple[HloValue, ...]] = []
        for computation, argument in zip(op.branch_computations, arguments, strict=True):
            branches.append([])
            incoming.append(tuple(leaves(self._computation(computation, [argument], branches[-1]))))
        phis = tuple(leaves(results))
        if self._joins:
            self._dataflow.join(phis, incoming)
        is_predicate = instruction.operands[0].shape.element_type.name == "PRED"
        steps.append(ConditionalStep(instruction, leaves(index)[0], is_predicate, branches, phis, incoming))
        return results


def _arguments(tree: Tree, arguments: list[HloValue]) -> Tree:
    """The values of a parameter, which are appended to ``arguments`` and numbered by their position there."""
    if isinstance(tree, HloValue):
        arguments.append(HloValue(ValueKind.ARGUMENT, tree.bytes, tree.instruction, tree.index, len(arguments)))
        return arguments[-1]
    return None if tree is None else tuple(_arguments(part, arguments) for part in tree)
