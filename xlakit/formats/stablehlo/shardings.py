"""Conversion of Shardy's shardings in a module for several partitions to HLO's custom calls and annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from xlakit.data.shape import Shape
from xlakit.formats.stablehlo.bytecode import Bytecode, ForeignProgram, Operation
from xlakit.formats.stablehlo.computations import OF_SHARDY, Draft, tuple_of
from xlakit.formats.stablehlo.shardy import ManualAxes, MeshSharding, hlo_sharding, meshes_text, value_text, values_text
from xlakit.ir.attributes import Annotations, Mesh, Sharding
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.control import Call
from xlakit.ops.custom_call import CustomCall

SHARDING: Final = "sdy.sharding"
CONSTRAINT, BARRIER, GROUP = "sdy.sharding_constraint", "sdy.propagation_barrier", "sdy.sharding_group"
# In HLO.
_MESHES, _OF_VALUES, _IN, _OUT, _MANUAL_AXES = (
    f"{OF_SHARDY}{name}" for name in ("meshes", "sharding", "in_shardings", "out_shardings", "manual_axes")
)
_BEGIN, _END, _RESULT, _BARRIER, _GROUP = (
    f"{OF_SHARDY}{name}"
    for name in (
        "GlobalToLocalShape",
        "LocalToGlobalShape",
        "FuncResultSharding",
        "PropagationBarrier",
        "ShardingGroup",
    )
)
_CONSTRAINT: Final = "Sharding"
_DIRECTION, _GROUP_NUMBER = f"{OF_SHARDY}allowed_direction", f"{OF_SHARDY}sharding_group_id"
_NOT_INLINED: Final = (("inlineable", "false"),)


class Shardings:
    """The shardings of a module."""

    def __init__(self, code: Bytecode, meshes: Sequence[Operation]) -> None:
        self._code = code
        self._meshes: dict[str, Mesh] = {}
        for mesh in meshes:
            value, name = map(code.attribute, mesh.properties)
            self._meshes[name] = value

    def module(self, module: HloModule) -> HloModule:
        """A module with the meshes that shardings name."""
        if not self._meshes:
            return module
        return module.replace(frontend_attributes=((_MESHES, meshes_text(self._meshes)),))

    def argument(self, annotations: Annotations, attributes: Mapping[str, Any]) -> Annotations:
        """The annotations of an argument of the main function with some attributes."""
        if SHARDING not in attributes:
            return annotations
        sharding: MeshSharding = attributes[SHARDING]
        return replace(
            annotations,
            sharding=self._of_hlo([sharding], is_tuple=False),
            frontend_attributes=((_OF_VALUES, value_text(sharding)),),
        )

    def results(
        self, draft: Draft, values: Sequence[Instruction], attributes: Sequence[Mapping[str, Any]]
    ) -> Instruction:
        """The root of the main function: its results with the shardings in their attributes."""
        shardings: list[MeshSharding | None] = [each.get(SHARDING) for each in attributes]
        found = [Sharding("REPLICATED") if s is None else self._of_hlo([s], is_tuple=False) for s in shardings]
        if len(values) == 1:
            return self._result(draft, values[0], shardings[0], found[0])
        sharded = [self._result(draft, value, sharding) for value, sharding in zip(values, shardings, strict=True)]
        of_all = None if sharded == values else Sharding("TUPLE", elements=tuple(found))
        return draft.bundle(sharded, Annotations(sharding=of_all))

    def _result(
        self, draft: Draft, value: Instruction, sharding: MeshSharding | None, of_hlo: Sharding | None = None
    ) -> Instruction:
        if sharding is None:
            return value
        at = Annotations(metadata=value.annotations.metadata)
        return _sharding_call(draft, _RESULT, value, replace(at, sharding=of_hlo, frontend_attributes=_of(sharding)))

    def marker(self, draft: Draft, operation: Operation, at: Annotations) -> Sequence[Instruction]:
        """A constraint of a value, a barrier for its sharding, or a group of values with one sharding."""
        value = draft.value(operation.operands[0])
        if operation.name == CONSTRAINT:
            sharding: MeshSharding = self._code.attribute(operation.properties[0])
            own = replace(at, sharding=self._of_hlo([sharding], is_tuple=False), frontend_attributes=_of(sharding))
            return [_sharding_call(draft, _CONSTRAINT, value, own)]
        number: int = self._code.attribute(operation.properties[0])
        if operation.name == BARRIER:
            return [
                _sharding_call(
                    draft, _BARRIER, value, replace(at, frontend_attributes=((_DIRECTION, f"{number} : i32"),))
                )
            ]
        own = replace(at, frontend_attributes=((_GROUP_NUMBER, f"{number} : i64"),))
        _sharding_call(draft, _GROUP, value, own, tuple_of(()))
        return []

    def operation(self, annotations: Annotations, number: int, *, is_tuple: bool) -> Annotations:
        """The annotations of an operation with an attribute that has the sharding of each of its results."""
        shardings: tuple[MeshSharding, ...] = self._code.attribute(number)
        pairs = (*annotations.frontend_attributes, (_OF_VALUES, values_text(shardings)))
        return replace(
            annotations, sharding=self._of_hlo(shardings, is_tuple=is_tuple), frontend_attributes=tuple(sorted(pairs))
        )

    def manual(
        self,
        draft: Draft,
        operation: Operation,
        body: Computation,
        operands: Sequence[Instruction],
        shapes: tuple[Sequence[Shape], Sequence[Shape]],
        at: Annotations,
    ) -> Sequence[Instruction]:
        """A call of a manual computation; ``shapes``: of its operands' parts, and of its whole results."""
        into, axes, out = map(self._code.attribute, operation.properties)
        parts, results = shapes
        if not results:
            raise ForeignProgram("a manual computation without results")
        if operands:
            operands = _boundary(
                draft, _BEGIN, operands, parts, replace(at, frontend_attributes=_manual_attributes(_IN, into, axes))
            )
        own = replace(at, frontend_attributes=_NOT_INLINED)
        inner = body.root.shape
        made = draft.results(Call(to_apply=body), operands, inner.tuple_shapes if inner.is_tuple else (inner,), own)
        return _boundary(
            draft, _END, made, results, replace(at, frontend_attributes=_manual_attributes(_OUT, out, axes))
        )

    def _of_hlo(self, shardings: Sequence[MeshSharding], *, is_tuple: bool) -> Sharding:
        found = [hlo_sharding(sharding, self._meshes[sharding.mesh]) for sharding in shardings]
        return Sharding("TUPLE", elements=tuple(found)) if is_tuple else found[0]


def _sharding_call(
    draft: Draft, target: str, value: Instruction, at: Annotations, shape: Shape | None = None
) -> Instruction:
    """A custom call about the sharding of a value; its shape is that of the value by default."""
    op = CustomCall(custom_call_target=target, custom_call_has_side_effect=target != _CONSTRAINT)
    return draft.emit(op, [value], value.shape if shape is None else shape, at)


def _of(sharding: MeshSharding) -> tuple[tuple[str, str], ...]:
    return ((_OF_VALUES, values_text([sharding])),)


def _manual_attributes(key: str, shardings: Sequence[MeshSharding], axes: ManualAxes) -> tuple[tuple[str, str], ...]:
    return tuple(sorted([(key, values_text(shardings)), (_MANUAL_AXES, str(axes))]))


def _boundary(
    draft: Draft, target: str, values: Sequence[Instruction], shapes: Sequence[Shape], at: Annotations
) -> Sequence[Instruction]:
    """The beginning or the end of a manual computation."""
    op = CustomCall(custom_call_target=target, custom_call_has_side_effect=True)
    return draft.results(op, values, shapes, at)
