"""A module of StableHLO, in the bytecode of a portable artifact, as HLO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from xlakit.data.shape import Shape
from xlakit.errors import XlakitError
from xlakit.formats.stablehlo.bytecode import Bytecode, ForeignProgram, Operation, Region
from xlakit.formats.stablehlo.computations import ConstantValue, Draft, Names, tuple_of
from xlakit.formats.stablehlo.locations import Locations
from xlakit.formats.stablehlo.operations import Adaptor, rule_of
from xlakit.formats.stablehlo.values import EMPTY_MESH, Dense, Unsplit, read_attribute, read_type
from xlakit.ir.attributes import NO_ANNOTATIONS, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call, Conditional, While
from xlakit.ops.custom_call import CustomCall

_FUNCTION, _RETURN, _CONSTANT, _CALL = "vhlo.func_v1", "vhlo.return_v1", "vhlo.constant_v1", "vhlo.call_v1"
_WHILE: Final = "vhlo.while_v1"
_MESH, _CONSTRAINT, _CAST = "sdy.mesh", "sdy.sharding_constraint", "builtin.unrealized_conversion_cast"
_MAIN: Final = "main"
# Attributes of the main function's arguments and results that say nothing of what is computed.
_HARMLESS: Final = frozenset({"jax.result_info"})


def read_artifact(data: bytes) -> HloModule:
    """The module of a portable artifact, not verified. Raises ForeignProgram for what is not read here."""
    try:
        return _Conversion(Bytecode(data, read_attribute, read_type)).module()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, XlakitError) as error:
        # Damaged, or of another version than its numbers say. jaxlib, which reads it next, says what is wrong.
        raise ForeignProgram(f"{type(error).__name__}: {error}") from error


def try_to_read(data: bytes) -> HloModule | None:
    """What :func:`read_artifact` gives; None for what is not read here, which jaxlib may read."""
    try:
        return read_artifact(data)
    except ForeignProgram:
        return None


class _Conversion:
    """The conversion of one module."""

    def __init__(self, code: Bytecode) -> None:
        self._code = code
        self.attribute = code.attribute
        self._names = Names()
        self._locations = Locations(code)
        self._constants: dict[int, ConstantValue] = {}
        self._functions: dict[str, Operation] = {}
        self._computations: list[Computation] = []
        self._of_functions: dict[str, Computation] = {}
        self._regions = 0
        self._mesh: str | None = None
        for operation in code.module.regions[0].operations:
            if operation.name == _MESH:
                self._mesh = code.attribute(operation.properties[1])
                if code.attribute(operation.properties[0]) is not EMPTY_MESH:
                    raise ForeignProgram("a mesh with axes")
            elif operation.name == _FUNCTION:
                self._functions[code.attribute(operation.properties[3])] = operation
            else:
                raise ForeignProgram(f"{operation.name} beside functions")
        self._unchanged: dict[int, int] = {}
        for function in self._functions.values():
            for operation in _operations(function.regions[0]):
                if operation.name == _WHILE:
                    self._find_unchanged(operation)
        for number in self._unchanged:
            # A loop in another may begin with what the other never changes, either.
            while (first := self._unchanged[number]) in self._unchanged:
                self._unchanged[number] = self._unchanged[first]

    def module(self) -> HloModule:
        """The module."""
        given = self._code.module
        counts = {"mhlo.num_partitions": 1, "mhlo.num_replicas": 1} | given.attributes
        partitions, replicas = counts.pop("mhlo.num_partitions"), counts.pop("mhlo.num_replicas")
        if counts or len(given.properties) < 1:
            raise ForeignProgram(f"attributes of the module: {', '.join(counts)}")
        main = self._functions[_MAIN]
        arguments, _, outcomes = map(self.attribute, main.properties[:3])
        if any(set(each) - _HARMLESS for each in (*arguments, *outcomes)) or main.attributes:
            raise ForeignProgram("attributes of arguments and results")
        entry = self._function(_MAIN)
        return HloModule(
            self.attribute(given.properties[0] >> 1),
            entry,
            tuple(self._computations),
            num_partitions=partitions,
            replica_count=replicas,
            frontend_attributes=()
            if self._mesh is None
            else (("xla.sdy.meshes", f"{{{self._mesh} = #sdy.mesh<[]>}}"),),
            stack_frames=self._locations.stack_frames(),
        )

    def _find_unchanged(self, loop: Operation) -> None:
        """Note the values of a loop that it never changes: they are those it begins with."""
        condition, body = loop.regions
        unchanged = self._unchanged
        for index, number in enumerate(body.operations[-1].operands):
            first = loop.operands[index]
            first = unchanged.get(first, first)
            if unchanged.get(number, number) in (body.first_argument + index, first):
                for same in (body.first_argument, condition.first_argument, loop.first_result):
                    unchanged[same + index] = first

    # -- functions and regions -----------------------------------------------------------------------

    def _function(self, name: str) -> Computation:
        """The computation of a function."""
        found = self._of_functions.get(name)
        if found is None:
            draft = self._draft()
            (region,) = self._functions[name].regions
            for index, (type, at) in enumerate(zip(region.types, region.locations, strict=True)):
                annotations = self._locations.annotations(at)
                made = draft.parameter(index, self._code.type(type), annotations, f"Arg_{index}")
                draft.define(region.first_argument + index, made)
            found = self._of_functions[name] = self._finished(draft, name, region)
        return found

    def applied(self, region: Region) -> Computation:
        """The computation of a region that is applied to single elements."""
        draft = self._draft()
        for index, (type, at) in enumerate(zip(region.types, region.locations, strict=True)):
            annotations = self._locations.annotations(at)
            made = draft.parameter(index, self._code.type(type), annotations, f"Arg_{index}")
            draft.define(region.first_argument + index, made)
        return self._finished(draft, self._region_name(), region)

    def _region_name(self) -> str:
        self._regions += 1
        return f"region_{self._regions - 1}"

    def _draft(self) -> Draft:
        return Draft(self._names, self._constants, self._unchanged)

    def _finished(self, draft: Draft, name: str, region: Region, *, as_tuple: bool = False) -> Computation:
        *body, end = region.operations
        if end.name != _RETURN:
            raise ForeignProgram(f"a region that ends with {end.name}")
        for operation in body:
            self._convert(draft, operation)
        values = [draft.value(number) for number in end.operands]
        root = values[0] if len(values) == 1 and not as_tuple else draft.bundle(values)
        made = draft.computation(f"{name}.{len(self._computations) + 1}", root)
        self._computations.append(made)
        return made

    # -- operations ----------------------------------------------------------------------------------

    def _convert(self, draft: Draft, operation: Operation) -> None:
        name = operation.name
        code = self._code
        if name == _CONSTANT:
            (number,) = operation.properties
            dense: Dense = code.attribute(number)
            self._constants[operation.first_result] = ConstantValue(number, dense, code.type(operation.types[0]))
            return
        if operation.attributes:
            raise ForeignProgram(f"attributes of {name}: {', '.join(map(str, operation.attributes))}")
        if name == _CAST:
            # Between the types of VHLO and those of MLIR, on which Shardy's operations are.
            draft.define(operation.first_result, draft.value(operation.operands[0]))
            return
        shapes: list[Shape] = [] if name == _CONSTRAINT else [code.type(number) for number in operation.types]
        at = self._locations.annotations(operation.location)
        if name == _WHILE:
            made = self._while(draft, operation, shapes)
        elif name in ("vhlo.case_v1", "vhlo.if_v1"):
            made = self._conditional(draft, operation, shapes)
        else:
            operands = [draft.value(number) for number in operation.operands]
            if name == _CONSTRAINT:
                made = [self._unsplit(draft, operation, operands[0])]
            elif name == _CALL:
                callee = self._function(code.attribute(operation.properties[0]))
                made = draft.results(Call(to_apply=callee), operands, shapes, at)
            else:
                made = rule_of(name)(Adaptor(operation, operands, shapes, at, draft, self))
        for index, value in enumerate(made):
            draft.define(operation.first_result + index, value)

    def _unsplit(self, draft: Draft, operation: Operation, operand: Instruction) -> Instruction:
        """A value with a sharding that leaves it whole."""
        sharding = self.attribute(operation.properties[0])
        if not isinstance(sharding, Unsplit) or sharding.mesh != self._mesh:
            raise ForeignProgram("a value that is split over devices")
        text = f"#sdy.sharding_per_value<[<@{sharding.mesh}, [{', '.join(['{}'] * sharding.rank)}]>]>"
        annotations = self._locations.annotations(operation.location)
        annotations = replace(
            annotations, sharding=Sharding("REPLICATED"), frontend_attributes=(("xla.sdy.sharding", text),)
        )
        return draft.emit(CustomCall(custom_call_target="Sharding"), [operand], operand.shape, annotations)

    def _while(self, draft: Draft, operation: Operation, shapes: Sequence[Shape]) -> Sequence[Instruction]:
        """A loop. What it never changes, and what it uses of the program around it, follows what it changes."""
        at = self._locations.annotations(operation.location)
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

    def _conditional(self, draft: Draft, operation: Operation, shapes: Sequence[Shape]) -> Sequence[Instruction]:
        at = self._locations.annotations(operation.location)
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
        """The computation of a branch, whose parameter is what it uses of the program around it."""
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
        """The values of the program around regions that they use, apart from constants, in the order of their use."""
        own = {number for region in regions for each in _regions(region) for number in _defined(each)}
        found: dict[int, None] = {}
        for operation in (operation for region in regions for operation in _operations(region)):
            for number in operation.operands:
                first = self._unchanged.get(number, number)
                if first not in own and first not in self._constants:
                    found[first] = None
        return list(found)


def _operations(region: Region) -> Iterator[Operation]:
    """The operations of a region, those inside an operation before it."""
    for operation in region.operations:
        for inner in operation.regions:
            yield from _operations(inner)
        yield operation


def _regions(region: Region) -> Iterator[Region]:
    yield region
    for operation in region.operations:
        for inner in operation.regions:
            yield from _regions(inner)


def _defined(region: Region) -> Iterator[int]:
    yield from range(region.first_argument, region.first_argument + len(region.types))
    for operation in region.operations:
        yield from range(operation.first_result, operation.first_result + len(operation.types))
