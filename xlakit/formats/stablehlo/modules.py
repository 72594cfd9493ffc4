"""Conversion of StableHLO modules, read from the bytecode of portable artifacts, to HLO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from xlakit.data.shape import Shape
from xlakit.errors import XlakitError
from xlakit.formats.stablehlo.adaptor import Adaptor
from xlakit.formats.stablehlo.bytecode import Bytecode, ForeignProgram, Operation, Region
from xlakit.formats.stablehlo.computations import OF_SHARDY, ConstantValue, Draft, Names, tuple_of
from xlakit.formats.stablehlo.locations import Locations
from xlakit.formats.stablehlo.operations import rule_of
from xlakit.formats.stablehlo.shardings import BARRIER, CONSTRAINT, GROUP, SHARDING, Shardings
from xlakit.formats.stablehlo.values import Dense, read_attribute, read_type
from xlakit.ir.attributes import NO_ANNOTATIONS, AliasEntry, Annotations, BufferDonor
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Conditional, While

_FUNCTION, _CONSTANT, _WHILE, _MESH = "vhlo.func_v1", "vhlo.constant_v1", "vhlo.while_v1", "sdy.mesh"
_CAST, _CUSTOM_CALL = "builtin.unrealized_conversion_cast", "vhlo.custom_call_v1"
_RETURNS: Final = frozenset({"vhlo.return_v1", "sdy.return"})
# Operations that are replaced by their operand in a program for one partition; the casts between VHLO's and MLIR's
# types around them are in any program.
_SAME: Final = frozenset({_CAST, BARRIER, "sdy.reshard", CONSTRAINT})
_MARKERS: Final = frozenset({BARRIER, CONSTRAINT, GROUP})
_CONDITIONALS: Final = frozenset({"vhlo.case_v1", "vhlo.if_v1"})
_MANUAL: Final = "sdy.manual_computation"
_BODY: Final = "xla.sdy.manual_computation_body"
_MAIN: Final = "main"
_ALIAS, _DONOR, _FRONTEND = "tf.aliasing_output", "jax.buffer_donor", "mhlo.frontend_attributes"
# Attributes of the main function's arguments and results, and of operations, that are handled elsewhere, or have no
# effect in a program for one partition.
_KNOWN: Final = frozenset(
    {
        *(
            _ALIAS,
            _DONOR,
            _FRONTEND,
            "jax.result_info",
            "jax.token",
            "mhlo.backend_config",
            "mhlo.layout_mode",
            "mhlo.memory_kind",
        ),
        *("mhlo.sharding", SHARDING, "sdy.sharding_rule"),
    }
)
# Those of them that are unsupported in programs for several partitions.
_NOT_READ: Final = frozenset({"mhlo.sharding", "sdy.sharding_rule"})


def read_artifact(data: bytes) -> HloModule:
    """The module of a portable artifact, not verified. Raises ForeignProgram for anything unsupported."""
    try:
        return _Conversion(Bytecode(data, read_attribute, read_type)).module()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, XlakitError) as error:
        # The data is damaged or of an unknown version. The caller tries jaxlib next, which reports the fault.
        raise ForeignProgram(f"{type(error).__name__}: {error}") from error


def try_to_read(data: bytes) -> HloModule | None:
    """As :func:`read_artifact`, but None for anything unsupported, which jaxlib may read."""
    try:
        return read_artifact(data)
    except ForeignProgram:
        return None


class _Conversion:
    """The conversion of one module."""

    def __init__(self, code: Bytecode) -> None:
        self.code = code
        self._names = Names()
        self._locations = Locations(code)
        self._constants: dict[int, ConstantValue] = {}
        self._functions: dict[str, Operation] = {}
        self._computations: list[Computation] = []
        self._of_functions: dict[str, Computation] = {}
        self._regions = 0
        meshes: list[Operation] = []
        for operation in code.module.regions[0].operations:
            if operation.name == _FUNCTION:
                self._functions[code.attribute(operation.properties[3])] = operation
            elif operation.name == _MESH:
                meshes.append(operation)
            else:
                raise ForeignProgram(f"{operation.name} beside functions")
        counts = {name: code.attribute(number) for name, number in code.module.attributes.items()}
        self._replicas, self._partitions = (counts.pop(f"mhlo.num_{kind}", 1) for kind in ("replicas", "partitions"))
        if counts:
            raise ForeignProgram(f"attributes of the module: {', '.join(counts)}")
        self._shardings = Shardings(code, meshes) if self._partitions != 1 else None
        self._unchanged: dict[int, int] = {}
        for function in self._functions.values():
            for operation in _operations(function.regions[0]):
                if operation.name == _WHILE:
                    self._find_unchanged(operation)
        for number in self._unchanged:
            # Follow the chain: the initial value of an inner loop may itself be unchanged in the outer loop.
            while (first := self._unchanged[number]) in self._unchanged:
                self._unchanged[number] = self._unchanged[first]

    def module(self) -> HloModule:
        """The module."""
        main = self._functions[_MAIN]
        arguments, _, outcomes = map(self.code.attribute, main.properties[:3])
        self._check_known({*main.attributes, *chain(*arguments, *outcomes)}, "the main function")
        entry = self._entry(main, arguments, outcomes)
        is_tuple = entry.root.shape.is_tuple
        aliases = sorted((each[_ALIAS], number) for number, each in enumerate(arguments) if _ALIAS in each)
        module = HloModule(
            self.code.attribute(self.code.module.properties[0] >> 1),
            entry,
            tuple(self._computations),
            input_output_alias=tuple(
                AliasEntry((output,) if is_tuple else (), number, ()) for output, number in aliases
            ),
            buffer_donor=tuple(BufferDonor(number) for number, each in enumerate(arguments) if _DONOR in each),
            stack_frames=self._locations.stack_frames(),
            replica_count=self._replicas,
            num_partitions=self._partitions,
        )
        return module if self._shardings is None else self._shardings.module(module)

    @property
    def has_several_devices(self) -> bool:
        """Whether the module is for several devices."""
        return self._replicas * self._partitions != 1

    def _find_unchanged(self, loop: Operation) -> None:
        """Record the loop-carried values that no iteration changes as equal to their initial values."""
        condition, body = loop.regions
        unchanged = self._unchanged
        for index, number in enumerate(body.operations[-1].operands):
            first = loop.operands[index]
            first = unchanged.get(first, first)
            if unchanged.get(number, number) in (body.first_argument + index, first):
                for same in (body.first_argument, condition.first_argument, loop.first_result):
                    unchanged[same + index] = first

    def _check_known(self, names: Iterable[str], where: str) -> None:
        unknown = set(names) - _KNOWN
        if self._shardings is not None:
            # mhlo.sharding is the older form of a sharding, and redundant if the newer one is given, too.
            unknown |= set(names) & _NOT_READ - ({"mhlo.sharding"} if SHARDING in names else set())
        if unknown:
            raise ForeignProgram(f"attributes of {where}: {', '.join(unknown)}")

    # -- functions and regions -----------------------------------------------------------------------

    def function(self, name: str) -> Computation:
        """The computation of a function."""
        found = self._of_functions.get(name)
        if found is None:
            draft = self._draft()
            (region,) = self._functions[name].regions
            self._define_parameters(draft, region)
            found = self._of_functions[name] = self._finished(draft, name, region)
        return found

    def _entry(
        self, main: Operation, arguments: Sequence[Mapping[str, Any]], outcomes: Sequence[Mapping[str, Any]]
    ) -> Computation:
        """The computation of the main function, whose arguments and results have attributes."""
        if self._shardings is None or not any(SHARDING in each for each in (*arguments, *outcomes)):
            return self.function(_MAIN)
        draft = self._draft()
        (region,) = main.regions
        self._define_parameters(draft, region, arguments)
        values = self._converted(draft, region)
        root = self._shardings.results(draft, values, outcomes or [{}] * len(values))
        return self._computation(draft, _MAIN, root)

    def region_computation(self, region: Region) -> Computation:
        """The computation of a region that is applied to single elements."""
        draft = self._draft()
        self._define_parameters(draft, region)
        return self._finished(draft, self._region_name(), region)

    def _define_parameters(self, draft: Draft, region: Region, attributes: Sequence[Mapping[str, Any]] = ()) -> None:
        """Define a parameter for each argument of a region; ``attributes``: those of the main function's arguments."""
        for index, (type, at) in enumerate(zip(region.types, region.locations, strict=True)):
            annotations = self._locations.annotations(at)
            if attributes and self._shardings is not None:
                annotations = self._shardings.argument(annotations, attributes[index])
            parameter = draft.parameter(index, self.code.type(type), annotations, f"Arg_{index}")
            draft.define(region.first_argument + index, parameter)

    def _region_name(self) -> str:
        self._regions += 1
        return f"region_{self._regions - 1}"

    def _draft(self) -> Draft:
        return Draft(self._names, self._constants, self._unchanged)

    def _finished(self, draft: Draft, name: str, region: Region, *, as_tuple: bool = False) -> Computation:
        values = self._converted(draft, region)
        root = values[0] if len(values) == 1 and not as_tuple else draft.bundle(values)
        return self._computation(draft, name, root)

    def _computation(self, draft: Draft, name: str, root: Instruction) -> Computation:
        computation = draft.computation(f"{name}.{len(self._computations) + 1}", root)
        self._computations.append(computation)
        return computation

    # -- operations ----------------------------------------------------------------------------------

    def _converted(self, draft: Draft, region: Region) -> list[Instruction]:
        """Convert the operations of a region; gives the values that it returns."""
        *body, end = region.operations
        if end.name not in _RETURNS:
            raise ForeignProgram(f"a region that ends with {end.name}")
        for operation in body:
            self._convert(draft, operation)
        return [draft.value(number) for number in end.operands]

    def _convert(self, draft: Draft, operation: Operation) -> None:
        name = operation.name
        code = self.code
        if name == _CONSTANT:
            (number,) = operation.properties
            dense: Dense = code.attribute(number)
            self._constants[operation.first_result] = ConstantValue(number, dense, code.type(operation.types[0]))
            return
        self._check_known(operation.attributes, name)
        if name == _CAST or (name in _SAME and self._shardings is None):
            results: Sequence[Instruction] = [draft.value(operation.operands[0])]
        elif name in _MARKERS and self._shardings is not None:
            results = self._shardings.marker(draft, operation, self._locations.annotations(operation.location))
        elif name == _MANUAL:
            results = self._manual(draft, operation)
        else:
            shapes: list[Shape] = [code.type(number) for number in operation.types]
            at = self._annotations(operation)
            if name == _WHILE:
                results = self._while(draft, operation, shapes, at)
            elif name in _CONDITIONALS:
                results = self._conditional(draft, operation, shapes, at)
            else:
                operands = [draft.value(number) for number in operation.operands]
                results = rule_of(name)(Adaptor(operation, operands, shapes, at, draft, self))
        for index, value in enumerate(results):
            draft.define(operation.first_result + index, value)

    def _annotations(self, operation: Operation) -> Annotations:
        annotations = self._locations.annotations(operation.location)
        attributes = operation.attributes
        if _FRONTEND in attributes:
            frontend_attributes = self.code.attribute(attributes[_FRONTEND])
            own = tuple(sorted(pair for pair in frontend_attributes.items() if not pair[0].startswith(OF_SHARDY)))
            if self._shardings is not None and len(own) != len(frontend_attributes):
                raise ForeignProgram("shardings in frontend attributes")
            annotations = replace(annotations, frontend_attributes=own)
        if self._shardings is None or SHARDING not in attributes:
            return annotations
        if operation.name != _CUSTOM_CALL:
            raise ForeignProgram(f"a sharding of {operation.name}")
        is_tuple = len(operation.types) != 1
        return self._shardings.operation(annotations, attributes[SHARDING], is_tuple=is_tuple)

    def _manual(self, draft: Draft, operation: Operation) -> Sequence[Instruction]:
        """A manual computation, on the parts of sharded arrays; with one partition its body is inlined."""
        (region,) = operation.regions
        if self._shardings is not None:
            operands = [draft.value(number) for number in operation.operands]
            inner = self._draft()
            self._define_parameters(inner, region)
            body = self._finished(inner, _BODY, region)
            parts, results = ([self.code.type(number) for number in each] for each in (region.types, operation.types))
            at = self._locations.annotations(operation.location)
            return self._shardings.manual(draft, operation, body, operands, (parts, results), at)
        for index, number in enumerate(operation.operands):
            draft.define(region.first_argument + index, draft.value(number))
        return self._converted(draft, region)

    def _while(
        self, draft: Draft, operation: Operation, shapes: Sequence[Shape], at: Annotations
    ) -> Sequence[Instruction]:
        """A loop. Its state has the loop-carried values that change, then the values that it captures.

        Loop-carried values that never change are captured, too, or are constants.
        """
        condition, body = operation.regions
        changed = [n for n in range(len(shapes)) if operation.first_result + n not in self._unchanged]
        used = self._captured(condition, body)
        operands = [draft.value(number) for number in (*(operation.operands[n] for n in changed), *used)]
        if not operands:
            raise ForeignProgram("a loop without values")
        start = operands[0] if len(operands) == 1 else draft.bundle(operands, at)
        carried = [operand.shape for operand in operands]
        of_body = self._loop_part(body, changed, used, carried, is_body=True)
        of_condition = self._loop_part(condition, changed, used, carried, is_body=False)
        loop = draft.emit(While(condition=of_condition, body=of_body), [start], start.shape, at)
        values = [loop] if len(operands) == 1 else [draft.element(loop, n, at) for n in range(len(operands))]
        ends = dict(zip(changed, values, strict=False))
        return [ends.get(n) or draft.value(operation.operands[n]) for n in range(len(shapes))]

    def _loop_part(
        self, region: Region, changed: Sequence[int], used: Sequence[int], shapes: Sequence[Shape], *, is_body: bool
    ) -> Computation:
        draft = self._draft()
        numbers = [*(region.first_argument + n for n in changed), *used]
        if len(numbers) == 1:
            annotations = self._locations.annotations(region.locations[changed[0]]) if changed else NO_ANNOTATIONS
            draft.define(numbers[0], draft.parameter(0, shapes[0], annotations, "Arg_0"))
        else:
            whole = draft.parameter(0, tuple_of(shapes), NO_ANNOTATIONS, "arg_tuple")
            for index, number in enumerate(numbers):
                draft.define(number, draft.element(whole, index))
        *body, end = region.operations
        ends = [end.operands[n] for n in changed] + list(used) if is_body else end.operands
        region = replace(region, operations=[*body, replace(end, operands=ends)])
        return self._finished(draft, self._region_name(), region, as_tuple=is_body and len(numbers) != 1)

    def _conditional(
        self, draft: Draft, operation: Operation, shapes: Sequence[Shape], at: Annotations
    ) -> Sequence[Instruction]:
        operands = [draft.value(operation.operands[0])]
        branches: list[Computation] = []
        for region in operation.regions:
            used = self._captured(region)
            values = [draft.value(number) for number in used]
            operands.append(values[0] if len(values) == 1 else draft.bundle(values, at))
            branches.append(self._branch(region, used, values))
        op = Conditional(branch_computations=tuple(branches))
        return draft.results(op, operands, shapes, at)

    def _branch(self, region: Region, used: Sequence[int], values: Sequence[Instruction]) -> Computation:
        """The computation of a branch, whose parameter holds the values ``used`` that it captures."""
        draft = self._draft()
        if len(values) == 1:
            draft.define(used[0], draft.parameter(0, values[0].shape, values[0].annotations, "Arg_0"))
        else:
            name = "arg_tuple" if values else "arg_empty_tuple"
            whole = draft.parameter(0, tuple_of([value.shape for value in values]), NO_ANNOTATIONS, name)
            for index, number in enumerate(used):
                draft.define(number, draft.element(whole, index))
        return self._finished(draft, self._region_name(), region)

    def _captured(self, *regions: Region) -> list[int]:
        """The values that regions use and do not define, apart from constants, in the order of their first use."""
        defined = {number for region in regions for each in _with_nested_regions(region) for number in _defined(each)}
        found: dict[int, None] = {}
        for operation in (operation for region in regions for operation in _operations(region)):
            for number in operation.operands:
                first = self._unchanged.get(number, number)
                if first not in defined and first not in self._constants:
                    found[first] = None
        return list(found)


def _operations(region: Region) -> Iterator[Operation]:
    """The operations of a region, each after the operations of its own regions."""
    for operation in region.operations:
        for inner in operation.regions:
            yield from _operations(inner)
        yield operation


def _with_nested_regions(region: Region) -> Iterator[Region]:
    """A region and all regions inside of it."""
    yield region
    for operation in region.operations:
        for inner in operation.regions:
            yield from _with_nested_regions(inner)


def _defined(region: Region) -> Iterator[int]:
    yield from range(region.first_argument, region.first_argument + len(region.types))
    for operation in region.operations:
        yield from range(operation.first_result, operation.first_result + len(operation.types))
