"""From a module to steps: which kernels there are, and which buffers they work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xlakit.cpu.entry.buffers import Buffer, Tree, byte_size, leaves, new_tree
from xlakit.cpu.entry.collectives import Collectives
from xlakit.cpu.entry.in_place import in_place_pairs
from xlakit.cpu.entry.steps import ConditionalStep, CopyStep, HostStep, KernelStep, RandomStep, Step, WhileStep
from xlakit.cpu.entry.uses import Uses, renames
from xlakit.cpu.kernels.library import Kernel, KernelLibrary
from xlakit.data.literal import Literal
from xlakit.errors import InternalError, UnsupportedError, XlakitError
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Array
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.data import Constant, GetTupleElement
from xlakit.ops.data import Parameter as ParameterOp
from xlakit.ops.random import Rng, RngGetAndUpdateState
from xlakit.options import is_plain


@dataclass(slots=True)
class Lowered:
    """What a module was lowered to. values: what the results hold, buffers in the order of ``results``."""

    steps: list[Step]
    arguments: list[Buffer]
    results: list[Buffer]
    constants: list[Array]
    host_instructions: list[Instruction] = field(default_factory=list)
    values: list[Buffer] = field(default_factory=list[Buffer])


class Lowering:
    """Lowers the computations of one module."""

    def __init__(self, module: HloModule, kernels: KernelLibrary, collectives: Collectives) -> None:
        self._module = module
        self._kernels = kernels
        self._collectives = collectives
        self._constants: list[Array] = []
        self._constant_buffers: dict[Instruction, Tree] = {}
        self._host = collectives.host_instructions
        # The state of the loops that are being lowered, and for results the operands that they could lie in.
        self._homes: set[Buffer] = set()
        # Buffers that later values were put into.
        self._reused: set[Buffer] = set()
        # What branches and calls are given: the caller may need it again.
        self._lent: set[Buffer] = set()
        self._may_share: dict[Buffer, set[Buffer]] = {}
        # Where in a computation buffers are first written; a later value may lie in the same one.
        self._begun: dict[Computation, dict[Buffer, int]] = {}
        # Where they are last read, under any name: a call or a loop may give an argument back as it came.
        self._read: dict[Computation, dict[Buffer, int]] = {}
        # Whether values may lie in one buffer; otherwise each is copied to where it is wanted.
        self._shares = not is_plain("memory")

    def lower(self) -> Lowered:
        """The steps of the entry computation."""
        entry = self._module.entry
        arguments: list[Buffer] = []
        trees: list[Tree] = []
        for parameter in entry.parameters:
            tree = new_tree(parameter.shape, parameter.name)
            for leaf in leaves(tree):
                leaf.place, leaf.number = "argument", len(arguments)
                arguments.append(leaf)
            trees.append(tree)
        steps: list[Step] = []
        root = self._computation(entry, trees, steps)
        return Lowered(steps, arguments, self._results(root, steps), self._constants, self._host, leaves(root))

    def _results(self, root: Tree, steps: list[Step]) -> list[Buffer]:
        """Make the results' buffers those that the caller gives, copying what cannot be."""
        results: list[Buffer] = []
        for number, leaf in enumerate(leaves(root)):
            own = leaf.resolved()
            if own.place == "temporary" and self._shares:
                own.place, own.number = "result", number
                results.append(own)
            else:
                results.append(Buffer(own.bytes, "result", number))
                steps.append(CopyStep(own, results[-1]))
        return results

    # -- computations ----------------------------------------------------------------------------

    def _computation(self, computation: Computation, arguments: Sequence[Tree], steps: list[Step]) -> Tree:
        values: dict[Instruction, Tree] = {}
        begun = self._begun[computation] = {}
        read = self._read[computation] = {}
        uses = Uses(computation)
        for instruction in computation.instructions:
            if not uses.is_live(instruction):
                continue
            try:
                values[instruction] = self._instruction(instruction, values, arguments, uses, steps)
            except XlakitError as error:
                raise error.at(
                    operation=f"{instruction.opcode} '{instruction.name}'",
                    shapes=[o.shape for o in instruction.operands],
                    location=self._module.location_of(instruction),
                ) from error.__cause__
            for operand in () if renames(instruction) else instruction.operands:
                read.update((leaf.resolved(), uses.position(instruction)) for leaf in leaves(values[operand]))
            for leaf in leaves(values[instruction]):
                begun.setdefault(leaf.resolved(), uses.position(instruction))
        return values[computation.root]

    def _called(self, computation: Computation, arguments: Sequence[Tree], steps: list[Step]) -> Tree:
        """As :meth:`_computation`, for one that must leave its arguments as they are."""
        lent = {b.resolved() for tree in arguments for b in leaves(tree)} - self._lent
        self._lent |= lent
        result = self._computation(computation, arguments, steps)
        made = Counter(b.resolved() for b in leaves(result))
        # What is given back as it came, or more than once, has two names now, so that it is not known when it is free.
        self._lent -= lent - made.keys()
        self._lent |= {buffer for buffer, count in made.items() if count > 1}
        # The caller sees all that is read here as read at once: other kernels may read an operand after the one that
        # makes a result.
        for buffer in made:
            self._may_share.pop(buffer, None)
        return result

    def _may_write(self, buffer: Buffer) -> bool:
        own = buffer.resolved()
        return self._shares and own.place == "temporary" and own not in self._lent

    def _instruction(
        self,
        instruction: Instruction,
        values: dict[Instruction, Tree],
        arguments: Sequence[Tree],
        uses: Uses,
        steps: list[Step],
    ) -> Tree:
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
        if op.opcode == "tuple":
            return tuple(operands)
        if op.opcode in ("reshape", "opt-barrier", "add-dependency"):
            return operands[0]
        if op.opcode == "after-all":
            return None
        if isinstance(op, RngGetAndUpdateState):
            state = Buffer(byte_size(instruction.shape), name=instruction.name)
            steps.append(RandomStep(instruction, state, op.delta))
            return state
        if isinstance(op, Call):
            return self._called(op.to_apply, operands, steps)
        if isinstance(op, While):
            return self._while(instruction, op, operands[0], uses, steps)
        if isinstance(op, Conditional):
            return self._conditional(instruction, op, operands, steps)
        met = self._collectives.lower(
            instruction, operands, uses, steps, lambda given, made: self._share_same(instruction, given, made, uses)
        )
        if met is not None:
            return met[0]
        kernel = self._kernels.kernel(instruction)
        if kernel is None and isinstance(op, Fusion):
            return self._called(op.calls, operands, steps)
        if kernel is None:
            return self._host_step(instruction, operands, steps)
        return self._kernel_step(instruction, kernel, operands, uses, steps)

    def _constant(self, instruction: Instruction) -> Tree:
        found = self._constant_buffers.get(instruction)
        if found is None:
            found = self._constant_tree(instruction.op_as(Constant).literal, instruction.name)
            self._constant_buffers[instruction] = found
        return found

    def _constant_tree(self, literal: Literal, name: str) -> Tree:
        if literal.shape.is_tuple:
            return tuple(self._constant_tree(part, f"{name}.{i}") for i, part in enumerate(literal.elements))
        if not literal.shape.is_array:
            return None
        self._constants.append(literal.array)
        return Buffer(byte_size(literal.shape), "constant", len(self._constants) - 1, name)

    # -- steps -----------------------------------------------------------------------------------

    def _kernel_step(
        self, instruction: Instruction, kernel: Kernel, operands: Sequence[Tree], uses: Uses, steps: list[Step]
    ) -> Tree:
        given = [leaf for tree in operands for leaf in leaves(tree)]
        tree = new_tree(instruction.shape, instruction.name)
        made = leaves(tree)
        for result, operand in kernel.updates.items():
            buffer = given[operand]
            own = _nth_operand(instruction, operand)
            if (
                self._may_write(buffer)
                and uses.ends_at(own, instruction)
                and buffer.resolved() not in [b.resolved() for i, b in enumerate(given) if i != operand]
            ):
                self._reused.add(buffer.resolved())
                made[result].merge_into(buffer)
            else:
                steps.append(CopyStep(buffer, made[result]))
        self._share(instruction, kernel, given, made, uses)
        scratch = [Buffer(kernel.scratch_bytes, name=instruction.name + ".scratch")] if kernel.scratch_bytes else []
        if isinstance(instruction.op, Rng):
            steps.append(RandomStep(instruction, scratch[0]))
        steps.append(KernelStep(instruction, kernel.phases, (*given, *made, *scratch), kernel.updates))
        return tree

    def _share(
        self, instruction: Instruction, kernel: Kernel, given: Sequence[Buffer], made: Sequence[Buffer], uses: Uses
    ) -> None:
        """Put results where operands are that nobody reads any more; note what could be put so."""
        if len(kernel.phases) == 1 and not kernel.scratch_bytes:
            self._share_pairs(instruction, sorted(in_place_pairs(instruction)), given, made, uses)

    def _share_same(
        self, instruction: Instruction, given: Sequence[Buffer], made: Sequence[Buffer], uses: Uses
    ) -> None:
        """As :meth:`_share`, where each result can lie where the operand of the same number is."""
        self._share_pairs(instruction, [(number, number) for number in range(len(made))], given, made, uses)

    def _share_pairs(
        self,
        instruction: Instruction,
        pairs: Sequence[tuple[int, int]],
        given: Sequence[Buffer],
        made: Sequence[Buffer],
        uses: Uses,
    ) -> None:
        taken: set[Buffer] = set()
        for result, operand in pairs:
            buffer = given[operand].resolved()
            if [b.resolved() for b in given].count(buffer) > 1:
                continue
            self._may_share.setdefault(made[result], set()).add(buffer)
            own = _nth_operand(instruction, operand)
            free = self._may_write(buffer) and buffer not in self._homes and uses.ends_at(own, instruction)
            if free and buffer not in taken and made[result].resolved() is made[result]:
                taken.add(buffer)
                made[result].merge_into(buffer)

    def _host_step(self, instruction: Instruction, operands: Sequence[Tree], steps: list[Step]) -> Tree:
        tree = new_tree(instruction.shape, instruction.name)
        given = tuple(leaf for operand in operands for leaf in leaves(operand))
        steps.append(HostStep(instruction, len(self._host), given, tuple(leaves(tree))))
        self._host.append(instruction)
        return tree

    # -- control ---------------------------------------------------------------------------------

    def _while(self, instruction: Instruction, op: While, initial: Tree, uses: Uses, steps: list[Step]) -> Tree:
        carried = new_tree(instruction.shape, instruction.name)
        taken: set[Buffer] = set()
        changed: set[Buffer] = set()
        unchanged = _unchanged(op.body)
        for path, own, first in _paired(carried, initial):
            free = self._may_write(first) and uses.ends_at((instruction.operands[0], path), instruction)
            if free and first.resolved() not in taken:
                taken.add(first.resolved())
                if path[:1] not in unchanged:
                    changed.add(first.resolved())
                self._reused.add(first.resolved())
                own.merge_into(first)
            elif self._shares and path[:1] in unchanged and first.resolved() not in changed:
                # It is read where it is; it has two names then, so that nobody can tell when it is free.
                self._lent.add(first.resolved())
                own.merge_into(first)
            else:
                steps.append(CopyStep(first, own))
        self._homes.update(b.resolved() for b in leaves(carried))
        before, self._reused = self._reused, set()
        condition: list[Step] = []
        # The body needs the state as it was before the condition.
        predicate = leaves(self._called(op.condition, [carried], condition))[0]
        body: list[Step] = []
        result = self._computation(op.body, [carried], body)
        self._carry(op.body, carried, result, body)
        self._reused |= before
        state = tuple(leaves(carried)), tuple(leaves(initial)), tuple(leaves(result))
        steps.append(WhileStep(instruction, condition, predicate, body, *state))
        return carried

    def _carry(self, body: Computation, carried: Tree, result: Tree, steps: list[Step]) -> None:
        """Bring what the body gives to where it starts from; where it can, it is computed there at once."""
        uses = Uses(body)
        parameter = body.parameters[0]
        pairs = [(path, own.resolved(), given.resolved()) for path, own, given in _paired(carried, result)]
        homes = {own for _, own, _ in pairs}
        given_count: dict[Buffer, int] = {}
        for _, _, given in pairs:
            given_count[given] = given_count.get(given, 0) + 1
        copies: list[tuple[Buffer, Buffer]] = []
        for path, own, given in pairs:
            if own is given:
                continue
            last_read = max(uses.last_use((parameter, path)), self._read[body].get(own, -1))
            maker = self._begun[body].get(given, -1)
            fresh = self._shares and given.place == "temporary" and given not in homes and given_count[given] == 1
            # Where something else was computed in this state's place, it may be needed until the end.
            fresh = fresh and own not in self._reused and own not in given_count
            last = own in self._may_share.get(given, ())
            if fresh and (last_read < maker or (last_read == maker and last)):
                given.merge_into(own)
            else:
                copies.append((given, own))
        sources = {given for given, _ in copies}
        overwritten = [own for _, own in copies if own in sources]
        if overwritten:
            # A value that another one is about to overwrite goes through a buffer of its own.
            held = {own: Buffer(own.bytes, name="held") for own in overwritten}
            steps.extend(CopyStep(own, spare) for own, spare in held.items())
            copies = [(held.get(given, given), own) for given, own in copies]
        steps.extend(CopyStep(given, own) for given, own in copies)

    def _conditional(
        self, instruction: Instruction, op: Conditional, operands: Sequence[Tree], steps: list[Step]
    ) -> Tree:
        index, *arguments = operands
        results = new_tree(instruction.shape, instruction.name)
        branches: list[list[Step]] = []
        values: list[tuple[Buffer, ...]] = []
        for computation, argument in zip(op.branch_computations, arguments, strict=True):
            branch: list[Step] = []
            given = self._called(computation, [argument], branch)
            self._give(results, given, argument, branch)
            branches.append(branch)
            values.append(tuple(leaves(given)))
        is_predicate = instruction.operands[0].shape.element_type.name == "PRED"
        made = tuple(leaves(results))
        steps.append(ConditionalStep(instruction, leaves(index)[0], is_predicate, branches, made, values))
        return results

    def _give(self, results: Tree, given: Tree, argument: Tree, branch: list[Step]) -> None:
        """Bring what a branch gives to where all branches leave it; where it can, it is computed there at once."""
        outside = {b.resolved() for b in leaves(argument)} | self._homes
        for _, target, source in _paired(results, given):
            own = source.resolved()
            is_its_own = own.place == "temporary" and own not in outside and own is not target.resolved()
            if self._shares and is_its_own:
                outside.add(target)
                own.merge_into(target)
            else:
                branch.append(CopyStep(source, target))


def _unchanged(body: Computation) -> set[tuple[int, ...]]:
    """The places of the elements that a loop's body gives as it was given them."""
    if body.root.op.opcode != "tuple":
        return set()
    return {
        (number,)
        for number, given in enumerate(body.root.operands)
        if isinstance(given.op, GetTupleElement)
        and given.op.index == number
        and given.operands[0] is body.parameters[0]
    }


def _paired(a: Tree, b: Tree, path: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Buffer, Buffer]]:
    """The buffers of two trees that stand at the same place, with that place."""
    if isinstance(a, Buffer) and isinstance(b, Buffer):
        return [(path, a, b)]
    return [
        found
        for number, (x, y) in enumerate(zip(a or (), b or (), strict=True))  # pyright: ignore
        for found in _paired(x, y, (*path, number))
    ]


def _nth_operand(instruction: Instruction, number: int) -> tuple[Instruction, tuple[int, ...]]:
    """The operand, and the place in its tuple, that array ``number`` of all the operands' arrays is."""
    count = 0
    for operand in instruction.operands:
        for path, shape in operand.shape.leaves():
            if not shape.is_array:
                continue
            if count == number:
                return operand, tuple(path)
            count += 1
    raise InternalError(f"{instruction.name} has no operand array {number}")
