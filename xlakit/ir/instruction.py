"""Instruction, Computation and Module: HLO as immutable values.

Instructions point at their operands, so a program is a graph; a computation lists its instructions with operands
before users. Two instructions are the same only if they are one object. No traversal here recurses: a chain of
100,000 instructions is an ordinary program.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeVar

from xlakit.arguments import constructing, converting, explaining
from xlakit.data.html import HtmlPage
from xlakit.data.immutable import Immutable
from xlakit.data.shape import ProgramShape, Shape
from xlakit.dataclass import dataclass
from xlakit.deprecation import renamed_attribute
from xlakit.errors import Location, ParseError, ShapeError, VerificationError, XlakitError
from xlakit.ir.attributes import (
    NO_ANNOTATIONS,
    AliasEntry,
    Annotations,
    BufferDonor,
    Sharding,
    StackFrames,
)
from xlakit.ir.operation import Op

_OpT = TypeVar("_OpT", bound=Op)
_Node = TypeVar("_Node")


class Instruction(Immutable):
    """One operation applied to operands. Immutable: make another with :meth:`replace`."""

    __slots__ = ("annotations", "control_predecessors", "name", "op", "operands", "shape")

    op: Op
    operands: tuple[Instruction, ...]
    shape: Shape
    name: str
    control_predecessors: tuple[Instruction, ...]
    annotations: Annotations

    def __init__(
        self,
        op: Op,
        operands: Sequence[Instruction],
        shape: Shape,
        name: str = "",
        *,
        control_predecessors: Sequence[Instruction] = (),
        annotations: Annotations = NO_ANNOTATIONS,
    ) -> None:
        _set_op(self, op)
        _set_operands(self, tuple(operands))
        _set_shape(self, shape)
        _set_name(self, name)
        _set_control_predecessors(self, tuple(control_predecessors))
        _set_annotations(self, annotations)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"instructions do not change; make another with replace({name}=...)")

    def replace(
        self,
        *,
        op: Op | None = None,
        operands: Sequence[Instruction] | None = None,
        shape: Shape | None = None,
        name: str | None = None,
        control_predecessors: Sequence[Instruction] | None = None,
        annotations: Annotations | None = None,
    ) -> Instruction:
        """A new instruction with the given fields replaced."""
        return Instruction(
            self.op if op is None else op,
            self.operands if operands is None else operands,
            self.shape if shape is None else shape,
            self.name if name is None else name,
            control_predecessors=self.control_predecessors if control_predecessors is None else control_predecessors,
            annotations=self.annotations if annotations is None else annotations,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling operand by operand would recurse as deep as the longest chain of instructions.
        return _root_of, (Computation.from_root(self.name, self),)

    @property
    def opcode(self) -> str:
        """The HLO opcode name, such as ``reduce-window``."""
        return self.op.opcode

    @property
    def is_pointwise(self) -> bool:
        """Whether the result at an index depends only on the operands at that index."""
        scalars = self.op.batches_scalars and all(i.shape.is_scalar for i in (self, *self.operands))
        return scalars or self.op.is_pointwise

    def op_as(self, kind: type[_OpT]) -> _OpT:
        """The operation, as an instance of a class; raises VerificationError if it is another."""
        if not isinstance(self.op, kind):
            raise VerificationError(
                f"{self.name} is {self.opcode}, not {kind.opcode}", hint="ask the instruction's opcode first"
            )
        return self.op

    def __str__(self) -> str:
        """The instruction as a line of HLO text."""
        from xlakit.formats import hlo_text

        return hlo_text.print_instruction(self)

    def __repr__(self) -> str:
        from xlakit.formats import hlo_text

        options = hlo_text.PrintOptions(short=True, large_constants=False)
        return f"<{hlo_text.print_instruction(self, options)}>"


# The slots' own setters: passes make tens of thousands of instructions, and object.__setattr__ would look up each name.
_set_op, _set_operands, _set_shape, _set_name, _set_control_predecessors, _set_annotations = (
    Instruction.__dict__[field].__set__
    for field in ("op", "operands", "shape", "name", "control_predecessors", "annotations")
)


def infer_shape(
    op: Op,
    operands: Sequence[Shape],
    declared: Shape | None,
    location: Location | None = None,
    name: str = "",
    computation: str = "",
) -> Shape:
    """The result shape of ``op``; errors name the operation, the operand shapes and the source location."""
    try:
        if op.arity is not None and len(operands) != op.arity:
            raise ShapeError(
                f"takes {op.arity} operand{'s' * (op.arity != 1)}, got {len(operands)}",
                hint={0: "leave the operands out", 1: "give one operand"}.get(op.arity, f"give {op.arity} operands"),
            )
        return op.result_shape(operands, declared)
    except XlakitError as error:
        label = f"{op.opcode} '{name}'" if name else op.opcode
        label += f" in computation {computation}" if computation else ""
        raise error.at(operation=label, shapes=operands, location=location) from None


@constructing
@dataclass(frozen=True, slots=True, eq=False)
class Computation(Immutable):
    """A function: instructions with operands before users, one of them the root."""

    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction
    execution_thread: str = "main"
    # Whether an instruction in it, or in what it calls, must run even if its result is not used.
    has_side_effect: bool = field(init=False, repr=False)
    # The instructions that call other computations.
    calling_instructions: tuple[Instruction, ...] = field(init=False, repr=False)
    # Whether its result at an index depends only on its arguments at that index.
    is_pointwise: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        write = object.__setattr__
        acts = any(i.op.can_have_effect and i.op.has_side_effect for i in self.instructions)
        write(self, "has_side_effect", acts)
        calls = tuple([i for i in self.instructions if i.op.can_call and i.op.called_computations])
        write(self, "calling_instructions", calls)
        write(self, "is_pointwise", all(i.is_pointwise for i in self.instructions))

    callers = renamed_attribute("callers", "calling_instructions")

    def __reduce__(self) -> tuple[Any, ...]:
        return _entry_of, (HloModule(self.name, self),)

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameter instructions by their number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: i.op.number))  # pyright: ignore

    @property
    def results(self) -> tuple[Instruction, ...]:
        """The result values: the operands of a root that is a tuple instruction, else the root alone."""
        return self.root.operands if self.root.opcode == "tuple" else (self.root,)

    @property
    def program_shape(self) -> ProgramShape:
        """The shapes of the parameters and of the root."""
        parameters = self.parameters
        return ProgramShape(tuple(p.shape for p in parameters), self.root.shape, tuple(p.name for p in parameters))

    @staticmethod
    @explaining
    def from_root(name: str, root: Instruction, also: Iterable[Instruction] = ()) -> Computation:
        """The computation of ``root`` and all instructions that it and ``also`` (effects, unused parameters) need."""
        return Computation(name, tuple(post_order([*also, root])), root)

    def rebuild(self, change: Callable[[Instruction, tuple[Instruction, ...]], Instruction]) -> Computation:
        """A new computation: ``change`` is called with each instruction and its new operands, operands first.

        All uses of the instruction are replaced by the result of ``change``: a new instruction, or an operand.
        """
        made: dict[Instruction, Instruction] = {}
        for old in self.instructions:
            new = change(old, tuple([made[o] for o in old.operands]))
            if new.control_predecessors:
                new = new.replace(control_predecessors=[made.get(p, p) for p in new.control_predecessors])
            made[old] = new
        return Computation(self.name, tuple(dict.fromkeys(made.values())), made[self.root], self.execution_thread)

    def __str__(self) -> str:
        """Its HLO text, without the computations that it calls."""
        from xlakit.formats import hlo_text

        return hlo_text.print_computation(self)

    def __repr__(self) -> str:
        return f"<computation {self.name} {self.program_shape.to_string(with_layout=False)}>"

    def _repr_html_(self) -> str:
        from xlakit.formats import html

        return html.computation_html(self)

    def view(self, *, passes: bool = False) -> HtmlPage:
        """A page of the computation and those that it calls, by default without passes; see :meth:`HloModule.view`."""
        return HloModule(self.name, self).view(passes=passes)


def post_order(roots: Iterable[Instruction]) -> Iterator[Instruction]:
    """All instructions that the roots depend on, each once, after its operands and control predecessors."""
    return depth_first(roots, lambda i: (*i.operands, *i.control_predecessors))


def depth_first(roots: Iterable[_Node], needed: Callable[[_Node], Sequence[_Node]]) -> Iterator[_Node]:
    """All nodes reachable through ``needed``, each once, in post-order; ``needed``: the nodes that precede a node."""
    done: set[_Node] = set()
    for root in roots:
        stack: list[tuple[_Node, bool]] = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if node in done:
                continue
            if expanded:
                done.add(node)
                yield node
                continue
            stack.append((node, True))
            stack.extend((other, False) for other in reversed(needed(node)) if other not in done)


@constructing
@dataclass(frozen=True, slots=True, eq=False)
class HloModule(Immutable):
    """A whole program: computations, callees first, and the one that is entered.

    ``entry_computation_layout`` says the layouts of arguments and result where they are fixed.
    ``header`` keeps other attributes of the HloModule line as (name, text) pairs.
    ``proto_fields`` keeps fields of HloModuleProto that have no counterpart here, serialized.
    """

    name: str
    entry: Computation
    computations: tuple[Computation, ...] = ()
    entry_computation_layout: ProgramShape | None = None
    is_scheduled: bool = False
    replica_count: int = 1
    num_partitions: int = 1
    input_output_alias: tuple[AliasEntry, ...] = ()
    buffer_donor: tuple[BufferDonor, ...] = ()
    frontend_attributes: tuple[tuple[str, str], ...] = ()
    stack_frames: StackFrames = field(default_factory=StackFrames)
    spmd_output_sharding: Sharding | None = None
    spmd_parameters_shardings: tuple[Sharding, ...] = ()
    header: tuple[tuple[str, str], ...] = ()
    proto_fields: bytes = b""

    def __post_init__(self) -> None:
        ordered = computations_callees_first([*self.computations, self.entry])
        object.__setattr__(self, "computations", (*(c for c in ordered if c is not self.entry), self.entry))

    def __reduce__(self) -> tuple[Any, ...]:
        return _module_of, (self.to_proto(),)

    @property
    def program_shape(self) -> ProgramShape:
        """The shapes of arguments and result, with the entry layout if there is one."""
        return self.entry_computation_layout or self.entry.program_shape

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all computations, those of called ones first."""
        return tuple([i for c in self.computations for i in c.instructions])

    @property
    def is_dynamic(self) -> bool:
        """Whether a value of the program has dynamic dimensions."""
        return any(i.shape.is_dynamic for i in self.instructions)

    def instruction_count(self) -> int:
        """The number of instructions of all computations."""
        return sum(len(c.instructions) for c in self.computations)

    def location_of(self, instruction: Instruction) -> Location | None:
        """The source file and line of an instruction, from its metadata or through the stack frame tables."""
        metadata = instruction.annotations.metadata
        if metadata is None:
            return None
        if metadata.source_file:
            return Location(metadata.source_file, metadata.source_line, metadata.source_column)
        frames, number = self.stack_frames, metadata.stack_frame_id
        if not 1 <= number <= len(frames.stack_frames):
            return None
        location = frames.stack_frames[number - 1][0]
        if not 1 <= location <= len(frames.file_locations):
            return None
        file, _, line, _, column, _ = frames.file_locations[location - 1]
        return Location(frames.file_names[file - 1], line, column) if 1 <= file <= len(frames.file_names) else None

    def replace(self, **changes: object) -> HloModule:
        """A new module with the given fields replaced; a new ``entry`` replaces the old one."""
        if "entry" in changes:
            changes.setdefault("computations", self.computations[:-1])
        return dataclasses.replace(self, **changes)  # pyright: ignore

    def with_entry(self, entry: Computation) -> HloModule:
        """A module that enters another computation: that, what it calls, and of the header what fits any entry.

        Layouts, aliases, donors and shardings of the old entry's parameters and results are left out.
        """
        return self.replace(
            entry=entry,
            computations=(),
            entry_computation_layout=None,
            input_output_alias=(),
            buffer_donor=(),
            spmd_output_sharding=None,
            spmd_parameters_shardings=(),
            header=tuple(pair for pair in self.header if not pair[0].startswith("allow_spmd_sharding_propagation_to_")),
        )

    def __eq__(self, other: object) -> bool:
        """Whether two modules are the same program: whether they print the same, but for what follows.

        Compared are, computation by computation and instruction by instruction in their order: opcodes, attributes and
        literals (to the bit), shapes with their layouts (an omitted one is major to minor), which operands and
        control predecessors an instruction has, shardings, frontend attributes and backend configs; and of the module
        the entry's layout, whether it is scheduled, replicas, partitions, aliases, donors and its other attributes.

        Not compared are names (of the module, computations, instructions), metadata, origins, statistics, stack frames,
        and ``proto_fields``. Equality, like the hash, takes time in proportion to the program.
        """
        if not isinstance(other, HloModule):
            return NotImplemented
        return self is other or self._structure() == other._structure()

    def __hash__(self) -> int:
        return hash(self._structure())

    def _structure(self) -> object:
        from xlakit.ir.structure import structure_of

        return structure_of(self)

    # -- formats: methods of modules, so that they are easy to find -------------------------------

    @staticmethod
    @converting
    def from_text(text: str, *, name: str = "<text>") -> HloModule:
        """Parse HLO text; ``name`` stands for the file in errors. Raises ParseError, ShapeError."""
        from xlakit.formats import hlo_text

        try:
            return hlo_text.parse_module(text, name=name)
        except ParseError as error:
            # No module that is one word has a file of that name.
            if "\n" not in text and os.path.isfile(text):
                raise error.at(hint="this is the name of a file: give its text, Path(name).read_text()") from None
            raise

    @converting
    def to_text(
        self, *, short: bool = False, metadata: bool = True, layouts: bool = True, large_constants: bool = True
    ) -> str:
        """HLO text; by default xlakit and XLA parse it to the same module.

        short: names without ``%``, computations without their shapes, no metadata. It parses to the same program.
        metadata: False leaves out where instructions come from: ``metadata``, ``origin``, the tables of stack frames.
        layouts: False leaves out the layouts of results, parameters and the entry.
        large_constants: False puts ``{...}`` instead of more than ten elements, and of tuples; parsed again, such a
        constant is elided (:func:`xlakit.fill_elided`).
        """
        from xlakit.formats import hlo_text

        return hlo_text.print_module(self, hlo_text.PrintOptions(short, metadata, layouts, large_constants))

    @staticmethod
    @converting
    def from_proto(data: bytes) -> HloModule:
        """Read a serialized HloModuleProto, or an HloProto around one. Raises FormatError, ShapeError."""
        from xlakit.formats import hlo_proto

        return hlo_proto.read_module(data)

    def to_proto(self) -> bytes:
        """A serialized HloModuleProto."""
        from xlakit.formats import hlo_proto

        return hlo_proto.write_module(self)

    def verify(self) -> None:
        """Check every rule of well-formedness and of shapes. Raises VerificationError, ShapeError."""
        from xlakit.verifier import verify

        verify(self)

    def view(self, *, passes: bool = True, memory: bool = False) -> HtmlPage:
        """A page of the program and of what each pass makes of it: notebooks show it, ``save`` writes it.

        passes: whether the passes run; otherwise the page has the program as it is. memory: whether the program is
        compiled, too, for a picture of its memory. :func:`xlakit.view_module` has more options.
        """
        from xlakit.tools.view import stages

        return stages.view_module(self, passes=passes, memory=memory)

    def __str__(self) -> str:
        """Its HLO text, all of it; see :meth:`to_text`."""
        return self.to_text()

    def _repr_html_(self) -> str:
        from xlakit.formats import html

        return html.module_html(self)

    def __repr__(self) -> str:
        return (
            f"<HloModule {self.name}: {len(self.computations)} computations, {self.instruction_count()} instructions>"
        )


def located(error: XlakitError, module: HloModule, instruction: Instruction) -> XlakitError:
    """The error with the name, the operand shapes and the source location of the instruction added."""
    return error.at(
        operation=f"{instruction.opcode} '{instruction.name}'",
        shapes=[o.shape for o in instruction.operands],
        location=module.location_of(instruction),
    )


# Functions that pickle calls: modules, computations and instructions are pickled as the proto of a module.


def _module_of(proto: bytes) -> HloModule:
    return HloModule.from_proto(proto)


def _entry_of(module: HloModule) -> Computation:
    return module.entry


def _root_of(computation: Computation) -> Instruction:
    return computation.root


def computations_callees_first(roots: Iterable[Computation]) -> list[Computation]:
    """The computations and all that they call, each once, callees first; raises VerificationError on recursion."""
    order: list[Computation] = []
    state: dict[Computation, bool] = {}  # False while its callees are being listed, True when listed
    for root in roots:
        stack: list[tuple[Computation, bool]] = [(root, False)]
        while stack:
            computation, expanded = stack.pop()
            if expanded:
                state[computation] = True
                order.append(computation)
                continue
            if computation in state:
                if not state[computation]:
                    raise VerificationError(
                        f"computation {computation.name} calls itself", hint="use a while loop; HLO has no recursion"
                    )
                continue
            state[computation] = False
            stack.append((computation, True))
            callees = dict.fromkeys(c for i in computation.calling_instructions for c in i.op.called_computations)
            stack.extend((c, False) for c in reversed(callees) if not state.get(c, False))
    return order
