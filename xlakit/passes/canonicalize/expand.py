"""Expansion: rewrites compound operations (scans, async pairs, batch norms, ..) by simpler ones, and removes hints."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.communication.async_pairs import chain_of
from xlakit.ops.communication.asynchronous import AsyncDone, CopyDone
from xlakit.ops.communication.transfer import Domain
from xlakit.ops.control import Call, Scan, While
from xlakit.ops.convolution import Convolution
from xlakit.ops.custom_call import HINTS, CustomCall
from xlakit.ops.dot import Dot, check_packed
from xlakit.ops.dynamic import DynamicSlice, DynamicUpdateSlice, GetDimensionSize, SetDimensionSize
from xlakit.ops.movement import Broadcast, Reshape
from xlakit.ops.shared.nibbles import is_packed
from xlakit.ops.sort import TopK
from xlakit.passes.canonicalize.expand_algebra import (
    batch_norm,
    scaled_dot,
    widened,
)
from xlakit.passes.canonicalize.expand_arrays import shuffle, sparse_convolution
from xlakit.passes.canonicalize.expand_dots import dot_of_vectors, is_of_vectors, packed_product
from xlakit.passes.core.async_operations import has_whole, whole_of
from xlakit.passes.core.computation_builder import ComputationBuilder, ComputationCloner, ReplacementBuilder
from xlakit.passes.core.framework import CalleesPass, PassContext
from xlakit.passes.core.rewriter import same_layouts

# Makes the replacement of an instruction, on its cloned operands; None if the instruction has to stay.
_Expansion = Callable[[Sequence[Instruction], ReplacementBuilder], Instruction | None]


class Expand(CalleesPass):
    """Write scans as loops and async pairs as whole operations, and leave out hints that change nothing."""

    name = "expand"
    left_out_by = ""

    @property
    def parts(self) -> dict[str, str]:
        """The law of each expansion, by its name."""
        return _parts()

    def may_change(self, computation: Computation) -> bool:
        """Whether a computation has an operation to expand; raises UnsupportedError for malformed packed products."""
        for i in computation.instructions:
            if is_packed(i.op):
                check_packed(i.op, [o.shape for o in i.operands])
        return any(map(_may_expand, computation.instructions))

    def change(self, computation: Computation, context: PassContext) -> Computation:
        """Expand the operations of one computation."""
        if not self.may_change(computation):
            return computation
        ordered = {p for i in computation.instructions for p in i.control_predecessors}
        chains = _async_chains(computation, ordered, context)
        members = {member for chain in chains.values() for member in chain}
        cloner = ComputationCloner(computation, context)
        changed = bool(chains)
        for old in computation.instructions:
            if old in members:
                continue
            if old in chains:
                start = chains[old][-1]
                operands = [cloner.clones[o] for o in start.operands]
                cloner.substitute(old, cloner.add(whole_of(start, context), *operands, like=old))
                continue
            expansion = packed_product if is_packed(old.op) else _EXPANSIONS.get(old.op.opcode)
            made = None
            held = old.control_predecessors or old in ordered
            if expansion and not held and (isinstance(old.op, _STRUCTURAL) or not _is_dynamic(old)):
                made = expansion([cloner.clones[o] for o in old.operands], cloner.at(old))
            if made is None:
                cloner.clone(old)
            else:
                cloner.substitute(old, made)
                changed = True
        return cloner.build() if changed else computation


def _may_expand(instruction: Instruction) -> bool:
    """A cheap test of whether an instruction has an expansion; False for most dots and convolutions."""
    op = instruction.op
    if is_packed(op):
        return True
    if isinstance(op, Dot):
        return is_of_vectors(instruction)
    expanded = isinstance(op, (AsyncDone, CopyDone)) or op.opcode in _EXPANSIONS
    return expanded and (not isinstance(op, Convolution) or len(instruction.operands) > 2)


def _is_dynamic(instruction: Instruction) -> bool:
    return any(x.shape.is_dynamic for x in (instruction, *instruction.operands))


# -- async pairs -----------------------------------------------------------------------------------


def _async_chains(
    computation: Computation, ordered: set[Instruction], context: PassContext
) -> dict[Instruction, list[Instruction]]:
    """For each done that can become one synchronous operation, its chain: the updates before it, and last its start.

    Each member of the chain may have only one use, and the operation no side effect.
    """
    uses = use_counts(computation.instructions, computation.root)
    uses.update(ordered)
    found: dict[Instruction, list[Instruction]] = {}
    for done in computation.instructions:
        if not isinstance(done.op, (AsyncDone, CopyDone)) or done in ordered:
            continue
        chain = chain_of(done)
        start = chain[-1]
        if any(uses[member] > 1 for member in chain) or any(member.control_predecessors for member in (done, *chain)):
            continue
        if has_whole(start) and not start.op.has_side_effect and context.spend(done.op.opcode):
            found[done] = chain
    return found


# -- hints and known functions ---------------------------------------------------------------------


def _domain(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """domain(x) -> x: a domain only marks a border between parts of a program."""
    return operands[0] if make.context.spend("domain") else None


def _custom_call(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    op, shape = make.old.op_as(CustomCall), make.old.shape
    if op.custom_call_target == "xla.sdy.ShardingGroup" and shape.is_tuple and not shape.tuple_shapes:
        return _group(operands, make)
    if len(operands) != 1 or op.has_side_effect or op.computations:
        return None
    if op.custom_call_target in HINTS:
        return _hint(operands, make)
    return _top_k(operands, make) if op.custom_call_target == "TopK" else None


def _hint(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """hint(x) -> x: a custom call that only says where or how its operand should be stored."""
    before, after = operands[0].shape, make.old.shape
    same = before.without_layout() == after.without_layout() and same_layouts(before, after)
    return operands[0] if same and make.context.spend("hint") else None


def _group(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """sharding-group(x) -> (): it only affects partitioning, which is done before this pass."""
    return make.tuple() if make.context.spend("group") else None


def _top_k(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """TopK(x) -> topk(x): the custom call of that name."""
    (operand,), shape = operands, make.old.shape
    if not shape.is_tuple or not shape.tuple_shapes[0].rank:
        return None
    top_k = TopK(k=shape.tuple_shapes[0].dimensions[-1])
    plain = shape.without_layout()
    if top_k.result_shape([operand.shape], None) != plain or not same_layouts(shape, plain):
        return None
    return make.add(top_k, operand) if make.context.spend("top-k") else None


# -- scans -----------------------------------------------------------------------------------------


def _scan(operands: Sequence[Instruction], make: ReplacementBuilder) -> Instruction | None:
    """scan(x, c, f) -> while, whose iterations each read a slice of each input and write a slice of each output.

    The state is (count, number of steps if it is dynamic, inputs, carries, outputs). Along a dynamic dimension the
    number of steps is the size at run time.
    """
    old = make.old
    op = old.op_as(Scan)
    shapes = old.shape.tuple_shapes_or_self
    outputs = shapes[: len(shapes) - op.num_carries]
    inputs = operands[: len(operands) - op.num_carries]
    carries = operands[len(inputs) :]
    steps = (inputs[0].shape if inputs else outputs[0]).dimensions[op.dimension]
    if steps >= 1 << 31 or not make.context.spend("scan"):
        return None
    zeros = [_zeros(shape, make) for shape in outputs]
    if not steps:
        results = [*zeros, *carries]
    else:
        end = None
        if inputs and inputs[0].shape.dynamic_dimensions[op.dimension]:
            end = make.add(GetDimensionSize(dimension=op.dimension), inputs[0])
        counts = [make.builder.scalar(0, PrimitiveType.S32), *([] if end is None else [end])]
        start = make.tuple(*counts, *inputs, *carries, *zeros)
        steps_said = steps if end is None else None
        loop = While(
            condition=_condition(old.name, steps_said, start.shape, make.context),
            body=_body(op, old.name, steps_said, start.shape, len(inputs), make.context),
        )
        made = make.add(loop, start)
        first = len(counts) + len(inputs)
        order = [*range(first + len(carries), first + len(shapes)), *range(first, first + len(carries))]
        results = [make.element(made, number) for number in order]
        if end is not None:
            for number in range(len(outputs)):
                set_size = SetDimensionSize(dimension=op.dimension)
                results[number] = make.add(set_size, results[number], end)
    return make.tuple(*results) if old.shape.is_tuple else results[0]


def _zeros(shape: Shape, make: ReplacementBuilder) -> Instruction:
    zero = make.builder.scalar(0, shape.element_type)
    return make.add(Broadcast(dimensions=()), zero, shape=shape) if shape.dimensions else zero


def _condition(name: str, steps: int | None, state: Shape, context: PassContext) -> Computation:
    builder = ComputationBuilder(context)
    parameter = builder.parameter(0, state)
    count = builder.element(parameter, 0)
    end = builder.element(parameter, 1) if steps is None else builder.scalar(steps, PrimitiveType.S32)
    test = builder.compare(count, end, "LT")
    return builder.computation(f"{name}_condition", test)


def _body(op: Scan, name: str, steps: int | None, state: Shape, inputs: int, context: PassContext) -> Computation:
    """The body of a scan's loop, with the state (count, [number of steps, if dynamic,] inputs, carries, outputs).

    steps: the static number of steps; None if it is dynamic. inputs: the number of inputs.
    """
    builder = ComputationBuilder(context)
    parameter = builder.parameter(0, state)
    elements = builder.elements(parameter)
    count = step = elements[0]
    # Loop-invariant elements come first: the dynamic number of steps, if any, and the inputs.
    first = 1 if steps is not None else 2
    carry = first + inputs
    if op.is_reverse:
        if steps is None:
            last = builder.apply("subtract", elements[1], builder.scalar(1, PrimitiveType.S32))
        else:
            last = builder.scalar(steps - 1, PrimitiveType.S32)
        step = builder.apply("subtract", last, count)
    zero = builder.scalar(0, PrimitiveType.S32)
    slices = [_slice(array, op.dimension, step, zero, builder) for array in elements[first:carry]]
    carried = elements[carry : carry + op.num_carries]
    result = builder.add(Call(to_apply=op.to_apply), *slices, *carried)
    parts = builder.elements(result)
    rows = parts[: len(parts) - op.num_carries]
    arrays = [
        _write(array, row, op.dimension, step, zero, builder)
        for array, row in zip(elements[carry + op.num_carries :], rows, strict=True)
    ]
    following = builder.apply("add", count, builder.scalar(1, PrimitiveType.S32))
    root = builder.tuple(following, *elements[1:carry], *parts[len(rows) :], *arrays)
    return builder.computation(f"{name}_body", root)


def _slice(
    array: Instruction, dimension: int, step: Instruction, zero: Instruction, builder: ComputationBuilder
) -> Instruction:
    """The elements at ``step`` along a dimension."""
    sizes, starts = _at_step(array, dimension, step, zero)
    part = builder.add(DynamicSlice(dynamic_slice_sizes=sizes), array, *starts)
    kept = [d for d in range(len(sizes)) if d != dimension]
    shape = part.shape.with_dimensions([sizes[d] for d in kept], [part.shape.dynamic_dimensions[d] for d in kept])
    return builder.add(Reshape(), part, shape=shape)


def _write(
    array: Instruction,
    row: Instruction,
    dimension: int,
    step: Instruction,
    zero: Instruction,
    builder: ComputationBuilder,
) -> Instruction:
    """The array with the slice at ``step`` along a dimension overwritten by ``row``."""
    sizes, starts = _at_step(array, dimension, step, zero)
    marks = row.shape.dynamic_dimensions
    shape = row.shape.without_layout().with_dimensions(sizes, (*marks[:dimension], False, *marks[dimension:]))
    part = builder.add(Reshape(), row, shape=shape)
    return builder.add(DynamicUpdateSlice(), array, part, *starts)


def _at_step(
    array: Instruction, dimension: int, step: Instruction, zero: Instruction
) -> tuple[tuple[int, ...], list[Instruction]]:
    """The sizes and the starts of the slice at ``step`` along a dimension."""
    sizes = tuple(1 if d == dimension else n for d, n in enumerate(array.shape.dimensions))
    return sizes, [step if d == dimension else zero for d in range(len(sizes))]


_EXPANSIONS: dict[str, _Expansion] = {
    "batch-norm-grad": batch_norm,
    "batch-norm-inference": batch_norm,
    "batch-norm-training": batch_norm,
    "cholesky": widened,
    "convolution": sparse_convolution,
    "custom-call": _custom_call,
    "domain": _domain,
    "dot": dot_of_vectors,
    "scaled-dot": scaled_dot,
    "scan": _scan,
    "shuffle": shuffle,
    "triangular-solve": widened,
}
# Operations whose expansion also holds for arrays of dynamic dimensions.
_STRUCTURAL = (CustomCall, Domain, Scan)


def _parts() -> dict[str, str]:
    """The law of each expansion (the first line of its docstring), by the name under which rewrites are counted."""
    found: dict[str, Callable[..., object]] = {
        "async-done": whole_of,
        "copy-done": whole_of,
        "group": _group,
        "hint": _hint,
        "packed-product": packed_product,
        "top-k": _top_k,
    }
    for expansion in _EXPANSIONS.values():
        if expansion is not _custom_call:
            found[expansion.__name__.strip("_").replace("_", "-")] = expansion
    return {name: (inspect.getdoc(found[name]) or "").split("\n", 1)[0] for name in sorted(found)}
