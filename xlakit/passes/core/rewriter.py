"""Rewriter: applies rules to a computation, operands first, to a fixed point, and builds the new instructions.

Each instruction, whether of the program or made by a rule, is brought to its canonical form once: first its operands,
then the instruction itself, until no rule changes it. From then on every use refers to the canonical form. The work is
proportional to the number of instructions, and no function recurses::

    y = x - 0          operands first: x is canonical
    z = y * 1          y: subtract_zero gives x             canonical[y] = x
                       z becomes x * 1; multiply_one: x     canonical[z] = x
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from xlakit.data.shape import Shape
from xlakit.errors import InternalError
from xlakit.ir.def_use import use_counts
from xlakit.ir.instruction import Computation, Instruction, infer_shape
from xlakit.ir.operation import Op
from xlakit.passes.core.framework import Names, PassContext, inherited, is_fixed, mark_live, with_operands
from xlakit.passes.core.hlo_builder import HloBuilder
from xlakit.verifier import matches

# In a rule's opcodes: every opcode.
ANY = "*"

# By opcode the name of each rule, the operation that the first operand must be, and the function.
RuleIndex = Mapping[
    str, tuple[tuple[str, type[Op] | None, "Callable[[Instruction, Rewriter], Instruction | None]"], ...]
]

# The limit of rewrites in one computation, which ends rules that undo each other; real programs stay far below it.
_REWRITES_PER_INSTRUCTION = 100
_REWRITES_AT_LEAST = 1_000


class Rewriter(HloBuilder):
    """The rewriting of one computation; rules use it to build instructions and to count uses of old ones.

    Rules are not called for instructions with an effect or with control predecessors, nor where the shape of the
    instruction, of an operand, or of an operand's operand has dynamic dimensions.
    """

    def __init__(self, computation: Computation, index: RuleIndex, context: PassContext) -> None:
        self.context = context
        self.computation = computation
        self._index = index
        self._rules_for_all = index.get(ANY, ())
        self._names = Names(computation, context)
        # The canonical form of each instruction that has one; a canonical instruction maps to itself.
        self._canonical: dict[Instruction, Instruction] = {}
        # What a rule returned for an instruction whose canonical form is not known yet.
        self._replaced: dict[Instruction, Instruction] = {}
        self._order: list[Instruction] = []
        self._current = computation.root
        self._uses: Counter[Instruction] | None = None
        self._has_dynamic = any(i.shape.is_dynamic for i in computation.instructions)
        self._rewrites_left = _REWRITES_AT_LEAST + _REWRITES_PER_INSTRUCTION * len(computation.instructions)
        self._changed = False

    def result(self) -> Computation:
        """Apply all rewrites and give the new computation; the same object if no rule applied."""
        old = self.computation
        canonical = self._canonical
        for instruction in old.instructions:
            if instruction not in canonical:
                self._canonicalize(instruction)
        if not self._changed:
            return old
        root = canonical[old.root]
        live = mark_live(self._order, root)
        return Computation(old.name, tuple(i for i in self._order if i in live), root, old.execution_thread)

    # -- canonical forms -------------------------------------------------------------------------

    def _canonicalize(self, first: Instruction) -> None:
        """Find the canonical form of an instruction: first of its operands, then apply rules until none applies.

        An explicit stack replaces recursion: an instruction stays on it until its operands are canonical.
        """
        canonical, replaced = self._canonical, self._replaced
        stack = [first]
        while stack:
            node = stack[-1]
            if node in canonical:
                stack.pop()
                continue
            successor = replaced.get(node)
            if successor is not None:
                if successor in canonical:
                    self._set_canonical(node, canonical[successor])
                    stack.pop()
                else:
                    stack.append(successor)
                continue
            waiting = [o for o in (*node.operands, *node.control_predecessors) if o not in canonical]
            if waiting:
                stack.extend(waiting)
                continue
            current = self._with_canonical_operands(node)
            better = self._improve(current)
            if better is not None:
                self._changed = True
                replaced[node] = better
                stack.append(better)
                continue
            self._order.append(current)
            canonical[current] = current
            self._set_canonical(node, current)
            stack.pop()

    def _set_canonical(self, node: Instruction, final: Instruction) -> None:
        self._canonical[node] = final
        if self._uses is not None and node is not final:
            self._uses[final] += self._uses[node]

    def _with_canonical_operands(self, node: Instruction) -> Instruction:
        canonical = self._canonical
        operands = tuple([canonical[o] for o in node.operands])
        predecessors = node.control_predecessors
        if predecessors:
            predecessors = tuple(dict.fromkeys(canonical[p] for p in predecessors))
        return with_operands(node, operands, predecessors)

    def _improve(self, instruction: Instruction) -> Instruction | None:
        """The result of the first rule that applies to the instruction; None if none does."""
        rules = self._index.get(instruction.op.opcode, self._rules_for_all)
        if not rules or is_fixed(instruction) or (self._has_dynamic and _touches_dynamic(instruction)):
            return None
        self._current = instruction
        for name, of, rewrite in rules:
            if of is not None and not isinstance(instruction.operands[0].op, of):
                continue
            rewritten = rewrite(instruction, self)
            if rewritten is None or rewritten is instruction:
                continue
            replacement = self._with_shape_of(instruction, rewritten, name)
            if replacement is None:
                continue
            if not self._may_go_on(name):
                return None
            if self.context.observer is not None:
                names = [instruction.name, *self._names_made(instruction, replacement)]
                self.context.observer(name, self.computation.name, names)
            return replacement
        return None

    def _names_made(self, old: Instruction, replacement: Instruction) -> list[str]:
        """The names of the new instructions that a replacement depends on, without its own."""
        new_instructions: dict[Instruction, None] = {}
        stack = [replacement]
        while stack:
            node = stack.pop()
            if node is not old and node not in self._canonical and node not in new_instructions:
                new_instructions[node] = None
                stack.extend(node.operands)
        return [node.name for node in new_instructions if node is not replacement]

    def _may_go_on(self, rule: str) -> bool:
        if self._rewrites_left <= 0:
            if self.context.check:
                raise InternalError(
                    f"rewriting {self.computation.name} does not come to an end; the last rule was {rule}"
                )
            return False
        self._rewrites_left -= 1
        return self.context.spend(rule)

    def _with_shape_of(self, old: Instruction, new: Instruction, rule: str) -> Instruction | None:
        """``new`` with the shape and the name of ``old``, which it replaces; None if the shapes do not permit that.

        The shapes can differ because a program may declare a result of another floating point precision or with other
        dynamic dimensions than inference gives. An instruction that existed before the rule cannot take the shape of
        ``old``, so it must have that shape already, with its layout, which bitcasts depend on.
        """
        same = new.shape == old.shape
        if not same:
            if not matches(new.shape, old.shape):
                raise InternalError(f"rule {rule} replaces {old.shape} by {new.shape}")
            if new.shape.without_layout() != old.shape.without_layout():
                return None
            if new in self._canonical and not same_layouts(new.shape, old.shape):
                return None
        if new in self._canonical:
            return new
        return Instruction(new.op, new.operands, old.shape, old.name, annotations=inherited(old.annotations))

    # -- queries of rules ------------------------------------------------------------------------

    def uses(self, instruction: Instruction) -> int:
        """A lower bound of the number of uses of an instruction in the computation; being the root is one use."""
        if self._uses is None:
            uses = use_counts(self.computation.instructions, self.computation.root)
            for old, final in self._canonical.items():
                if old is not final:
                    uses[final] += uses[old]
            self._uses = uses
        return self._uses[instruction]

    # -- new instructions ------------------------------------------------------------------------

    def add(self, op: Op, *operands: Instruction, shape: Shape | None = None) -> Instruction:
        """A new instruction; ``shape`` is the declared result of an operation whose operands do not determine it."""
        inferred = infer_shape(op, [o.shape for o in operands], shape)
        name = self._names.new(op.opcode)
        annotations = inherited(self._current.annotations, metadata_only=True)
        return Instruction(op, operands, inferred, name, annotations=annotations)

    def on(self, old: Instruction, *operands: Instruction) -> Instruction:
        """The operation of ``old`` on other operands, with the element type of ``old``.

        That type may differ from the inferred one, since a program may declare another floating point precision.
        """
        result = self.add(old.op, *operands, shape=old.shape.without_layout())
        kind = old.shape.element_type
        if result.shape.is_array and result.shape.element_type is not kind:
            return result.replace(shape=result.shape.with_element_type(kind))
        return result


def same_layouts(a: Shape, b: Shape) -> bool:
    """Whether two shapes of the same dimensions have the same layouts (a missing layout is the default one)."""
    if a.tuple_shapes:
        return all(same_layouts(x, y) for x, y in zip(a.tuple_shapes, b.tuple_shapes, strict=True))
    return not a.is_array or a.layout == b.layout or a.layout_or_default == b.layout_or_default


def _touches_dynamic(instruction: Instruction) -> bool:
    if instruction.shape.is_dynamic:
        return True
    return any(o.shape.is_dynamic or any(inner.shape.is_dynamic for inner in o.operands) for o in instruction.operands)
