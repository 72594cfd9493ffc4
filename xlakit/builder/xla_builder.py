"""XlaBuilder: programs from Python calls, checked call by call.

The operations themselves are functions on the pages of ``xlakit.ops``; a builder collects the instructions that they
append. Each instruction records its caller's file and line, and an error is raised by the call that causes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from xlakit.arguments import converting, explaining
from xlakit.data.html import HtmlPage
from xlakit.data.immutable import Immutable
from xlakit.data.shape import ProgramShape, Shape, ShapeIndex, make_tuple_shape
from xlakit.errors import ArgumentError, Location, ShapeError
from xlakit.ir.attributes import NO_ANNOTATIONS, AliasEntry, Annotations, OpMetadata, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction, infer_shape
from xlakit.ir.names import unused_name
from xlakit.ir.operation import Op
from xlakit.ir.rebuilding import rebuilt
from xlakit.ops.communication.collectives import DeviceNumber
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Parameter, parameter, tuple_
from xlakit.ops.handle import ComputationLike, XlaOp, as_op, building, caller_location
from xlakit.ops.random import Rng, RngGetAndUpdateState


class XlaComputation(Immutable):
    """A built computation: the argument of ``compile``, and of operations that call one, such as reduce and while."""

    __slots__ = ("_aliases", "computation")

    @converting
    def __init__(self, computation: Computation, aliases: Sequence[AliasEntry] = ()) -> None:
        self.computation = computation
        self._aliases = tuple(aliases)

    def __reduce__(self) -> tuple[Any, ...]:
        return _computation_of, (self.to_module(),)

    @property
    def name(self) -> str:
        """The computation's name."""
        return self.computation.name

    @property
    def program_shape(self) -> ProgramShape:
        """The shapes of parameters and result."""
        return self.computation.program_shape

    @converting
    def to_module(self, *, replica_count: int = 1, num_partitions: int = 1) -> HloModule:
        """The module whose entry this computation is."""
        if replica_count < 1 or num_partitions < 1:
            raise ArgumentError(
                f"replica_count {replica_count} and num_partitions {num_partitions} must be at least 1",
                hint="give 1 where the program runs on one device",
            )
        return HloModule(
            self.name,
            _named_apart(self.computation),
            replica_count=replica_count,
            num_partitions=num_partitions,
            input_output_alias=self._aliases,
        )

    @converting
    def to_text(
        self, *, short: bool = False, metadata: bool = True, layouts: bool = True, large_constants: bool = True
    ) -> str:
        """The module as HLO text; see :meth:`HloModule.to_text`."""
        module = self.to_module()
        return module.to_text(short=short, metadata=metadata, layouts=layouts, large_constants=large_constants)

    def __str__(self) -> str:
        """The module as HLO text."""
        return self.to_text()

    def __repr__(self) -> str:
        return f"XlaComputation({self.name}: {self.program_shape.to_string(with_layout=False)})"

    def _repr_html_(self) -> str:
        from xlakit.formats import html

        return html.module_html(self.to_module())

    def view(self, *, passes: bool = True, memory: bool = False) -> HtmlPage:
        """The module as a page; see :meth:`HloModule.view`."""
        return self.to_module().view(passes=passes, memory=memory)


def _computation_of(module: HloModule) -> XlaComputation:
    return XlaComputation(module.entry, module.input_output_alias)


def laid_out(inferred: Shape, declared: Shape | None) -> Shape:
    """An inferred shape with the layouts that a declared one may carry, and otherwise the default."""
    if declared is None or not declared.compatible(inferred):
        return inferred.with_default_layout()
    if inferred.is_tuple:
        pairs = zip(inferred.tuple_shapes, declared.tuple_shapes, strict=True)
        return make_tuple_shape([laid_out(i, d) for i, d in pairs])
    return declared if declared.layout else inferred.with_default_layout()


class XlaBuilder:
    """Collects the instructions of one computation.

    Functions such as ``xlakit.add`` append to the builder that their operands belong to; those without operands
    (``parameter``, ``constant``, ``iota``) take the builder first. Source: XlaBuilder of OpenXLA's client library.
    """

    @converting
    def __init__(self, name: str = "computation", *, source_metadata: bool = True) -> None:
        """An empty builder; source_metadata: whether instructions keep the file and line of their call as metadata."""
        self.name = name
        self._source_metadata = source_metadata
        self._instructions: list[Instruction] = []
        self._names: dict[str, int] = {}
        self._parameters: set[int] = set()
        self._annotations = NO_ANNOTATIONS
        self._aliases: list[AliasEntry] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # The document's examples call methods of the builder, such as builder.Max(y, x) and builder.Build().
            raise AttributeError(f"'XlaBuilder' object has no attribute '{name}'{_instead_of_method(name)}")

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions that were added, in their order."""
        return tuple(self._instructions)

    # -- building --------------------------------------------------------------------------------

    @explaining
    def append(
        self,
        op: Op,
        operands: Sequence[XlaOp],
        shape: Shape | None = None,
        name: str = "",
        *,
        backend_config: str = "",
        frontend_attributes: Sequence[tuple[str, str]] = (),
    ) -> XlaOp:
        """Add one instruction; every function of an operation calls this. Raises ShapeError, ArgumentError."""
        location = caller_location()
        for operand in operands:
            if operand.builder is not self:
                raise ArgumentError(
                    f"an operand of {op.opcode} belongs to another builder",
                    operation=op.opcode,
                    location=location,
                    hint="pass values into a sub-computation as parameters",
                )
        inputs = [operand.instruction for operand in operands]
        inferred = infer_shape(op, [i.shape for i in inputs], shape, location)
        if isinstance(op, Parameter):
            self._enter_parameter(op.number, location)
        result = laid_out(inferred, shape)
        annotations = self._annotated(location)
        if backend_config or frontend_attributes:
            frontend = dict(annotations.frontend_attributes) | dict(frontend_attributes)
            annotations = replace(
                annotations,
                backend_config=backend_config or annotations.backend_config,
                frontend_attributes=tuple(frontend.items()),
            )
        instruction = Instruction(
            op, inputs, result, self._unique(name or op.opcode, numbered=not name), annotations=annotations
        )
        self._instructions.append(instruction)
        return XlaOp(self, instruction)

    def _enter_parameter(self, number: int, location: Location | None) -> None:
        if number in self._parameters:
            raise ShapeError(
                f"parameter {number} is declared twice in {self.name}",
                operation="parameter",
                location=location,
                hint="number the parameters 0, 1, 2, ..., each once",
            )
        self._parameters.add(number)

    def _unique(self, stem: str, *, numbered: bool) -> str:
        count = self._names.get(stem, 0)
        self._names[stem] = count + 1
        return stem if count == 0 and not numbered else f"{stem}.{count + (1 if numbered else 0)}"

    def _annotated(self, location: Location | None) -> Annotations:
        given = self._annotations
        named = given.metadata is not None and given.metadata.source_file
        if location is None or named or not self._source_metadata:
            return given
        metadata = given.metadata or OpMetadata()
        return replace(given, metadata=replace(metadata, source_file=location.file, source_line=location.line))

    @building
    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """The computation with ``root`` as its result; by default the last operation that was added.

        Raises ArgumentError where there is none, or where the parameters are not numbered 0 .. n-1.
        """
        computation = self._computation(root)
        self._check_aliases(computation.program_shape)
        return XlaComputation(computation, self._aliases)

    def _computation(self, root: XlaOp | None) -> Computation:
        if root is None and not self._instructions:
            raise ArgumentError(f"{self.name} has no operations", hint="add one before build()")
        if root is not None and root.builder is not self:
            raise ArgumentError(
                "the root belongs to another builder",
                hint="build with the builder of the root, or pass its value in as a parameter",
            )
        chosen = root.instruction if root is not None else self._instructions[-1]
        if sorted(self._parameters) != list(range(len(self._parameters))):
            raise ArgumentError(
                f"{self.name} has parameters {sorted(self._parameters)}",
                hint=f"number them 0 .. {len(self._parameters) - 1} without gaps",
            )
        kept = [i for i in self._instructions if isinstance(i.op, Parameter) or i.op.has_side_effect]
        return Computation.from_root(self.name, chosen, kept)

    def _check_aliases(self, program: ProgramShape) -> None:
        for alias in self._aliases:
            if not 0 <= alias.parameter_number < len(program.parameters):
                raise ShapeError(
                    f"an alias names parameter {alias.parameter_number} of {len(program.parameters)}",
                    hint="declare the parameter before build()",
                )
            program.result.at(alias.output_index)
            program.parameters[alias.parameter_number].at(alias.parameter_index)

    @building
    def create_sub_builder(self, name: str) -> XlaBuilder:
        """An empty builder for a computation that this one calls; it inherits no settings.

        Source: XlaBuilder::CreateSubBuilder.
        """
        return XlaBuilder(f"{self.name}.{name}")

    @explaining
    def subcomputation(self, source: ComputationLike, parameters: Sequence[Shape]) -> Computation:
        """``source`` as a Computation: itself, that of an XlaComputation, or the trace of a Python function.

        A function is called with one handle for each of ``parameters`` and returns a handle, or a tuple of them.
        """
        if isinstance(source, Computation):
            return source
        held = getattr(source, "computation", None)
        if isinstance(held, Computation):
            return held
        if not callable(source) or isinstance(source, type):
            raise ArgumentError(
                f"{source!r} is not a computation", hint="give an XlaComputation or a Python function on XlaOps"
            )
        return trace(source, parameters).computation

    def emptied(self) -> XlaBuilder:
        """A new builder with this one's name and settings, and no instructions."""
        made = XlaBuilder(self.name, source_metadata=self._source_metadata)
        made._annotations = self._annotations
        return made

    # -- queries ---------------------------------------------------------------------------------

    @building
    def get_shape(self, op: XlaOp) -> Shape:
        """The shape of an operation."""
        return op.shape

    @building
    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """The shapes of parameters and result, were the computation built now."""
        return self._computation(root).program_shape

    @building
    def is_constant(self, op: XlaOp) -> bool:
        """Whether a value depends on constants only: no parameter, no random number, no effect, no replica."""
        stack, seen = [op.instruction], set[Instruction]()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node.op, (Parameter, *_NOT_CONSTANT)) or node.op.has_side_effect:
                return False
            for called in node.op.called_computations:
                if any(isinstance(i.op, _NOT_CONSTANT) or i.op.has_side_effect for i in called.instructions):
                    return False
            stack.extend(node.operands)
        return True

    # -- settings for the operations that follow ---------------------------------------------------

    @building
    def set_op_metadata(self, metadata: OpMetadata) -> None:
        """Set ``metadata`` of all operations that follow."""
        self._annotations = replace(self._annotations, metadata=metadata)

    @building
    def clear_op_metadata(self) -> None:
        """Remove the metadata that :meth:`set_op_metadata` has set."""
        self._annotations = replace(self._annotations, metadata=None)

    @building
    def set_sharding(self, sharding: Sharding) -> None:
        """Give ``sharding`` to all operations that follow. Source: XlaBuilder::SetSharding."""
        self._annotations = replace(self._annotations, sharding=sharding)

    def clear_sharding(self) -> None:
        """Remove the sharding that :meth:`set_sharding` has set."""
        self._annotations = replace(self._annotations, sharding=None)

    @building
    def set_frontend_attributes(self, attributes: Mapping[str, str]) -> None:
        """Give frontend attributes to all operations that follow. Source: XlaBuilder::SetFrontendAttributes."""
        self._annotations = replace(self._annotations, frontend_attributes=tuple(attributes.items()))

    def clear_frontend_attributes(self) -> None:
        """Remove the attributes that :meth:`set_frontend_attributes` has set."""
        self._annotations = replace(self._annotations, frontend_attributes=())

    @building
    @contextmanager
    def op_metadata(self, metadata: OpMetadata) -> Generator[None]:
        """Set ``metadata`` of the operations made inside of a ``with`` block."""
        with self._scoped(replace(self._annotations, metadata=metadata)):
            yield

    @building
    @contextmanager
    def sharding(self, sharding: Sharding | None) -> Generator[None]:
        """Set the sharding of the operations made inside of a ``with`` block."""
        with self._scoped(replace(self._annotations, sharding=sharding)):
            yield

    @building
    @contextmanager
    def frontend_attributes(self, attributes: Mapping[str, str]) -> Generator[None]:
        """Set frontend attributes of the operations made inside of a ``with`` block."""
        with self._scoped(replace(self._annotations, frontend_attributes=tuple(attributes.items()))):
            yield

    @contextmanager
    def _scoped(self, annotations: Annotations) -> Generator[None]:
        before, self._annotations = self._annotations, annotations
        try:
            yield
        finally:
            self._annotations = before

    @building
    def setup_alias(
        self, output_index: ShapeIndex, parameter_number: int, parameter_index: ShapeIndex, *, must: bool = False
    ) -> None:
        """Let an output share its buffer with a parameter; :meth:`build` checks that both are there.

        Source: XlaBuilder::SetUpAlias.
        """
        self._aliases.append(AliasEntry(tuple(output_index), parameter_number, tuple(parameter_index), must))

    def __repr__(self) -> str:
        return f"<XlaBuilder {self.name}: {len(self._instructions)} instructions>"


# Results of these operations are not constant; nor are those of operations with side effects (collectives, feeds).
_NOT_CONSTANT = (Rng, RngGetAndUpdateState, DeviceNumber, CustomCall)


def _named_apart(entry: Computation) -> Computation:
    """The same computation, with those that it calls renamed so that all names are unique."""
    module = HloModule(entry.name, entry)
    names = [c.name for c in module.computations]
    if len(set(names)) == len(names):
        return entry
    taken = {entry.name}

    def name(computation: Computation) -> str:
        if computation is entry:
            return entry.name
        unused = unused_name(computation.name, taken)
        taken.add(unused)
        return unused

    return rebuilt(module, lambda _, new: new, name=name).entry


def _instead_of_method(name: str) -> str:
    """What to write instead of a method that builders do not have; empty where that is not known."""
    if name.startswith("__"):
        return ""
    from xlakit.ops.shared.subscript import function_of, in_snake_case

    if (snake := in_snake_case(name)) in vars(XlaBuilder):
        return f"; did you mean '{snake}'?"
    function = function_of(name)
    return f"; operations are functions: write xlakit.{function}(..)" if function else ""


def trace(function: Callable[..., Any], parameters: Sequence[Shape], name: str = "") -> XlaComputation:
    """The computation that a Python function on handles builds, for these parameter shapes.

    The function may return a handle, a number, or a (nested) tuple of those. Raises what the function raises.
    """
    stem = getattr(function, "__name__", "").strip("<>") or "function"
    _check_takes(function, stem, parameters)
    builder = XlaBuilder(name or stem)
    result = function(*(parameter(builder, i, shape, f"p{i}") for i, shape in enumerate(parameters)))
    return builder.build(_as_root(builder, result))


def _check_takes(function: Callable[..., Any], name: str, parameters: Sequence[Shape]) -> None:
    """Raise ArgumentError unless a function takes as many handles as there are parameters."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have no signature
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        shapes = ", ".join(shape.to_string(with_layout=False) for shape in parameters)
        raise ArgumentError(
            f"the function {name}{signature} is called with {len(parameters)} values, ({shapes}): {error}",
            hint="it gets one XlaOp for each parameter of the computation",
        ) from None


def _as_root(builder: XlaBuilder, result: object) -> XlaOp:
    if isinstance(result, (tuple, list)):
        parts = [_as_root(builder, r) for r in cast("Sequence[object]", result)]
        return tuple_(builder, *parts)
    return as_op(builder, cast("XlaOp", result))
