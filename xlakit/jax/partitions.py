"""Programs for several devices, as JAX writes them for ``pmap`` and ``shard_map``: the program of one of the devices.

Such a program gets whole arrays and says how each is split over the devices; all that is computed happens in a part
that was written for one device, with collectives in it. The program of a device is that part, on shapes of what a
device has. What JAX leaves to be split by the compiler is not supported.
"""

from __future__ import annotations

import re
from typing import Final

from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.errors import UnsupportedError
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.custom_call import CustomCall

_TO_LOCAL, _TO_GLOBAL = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"
_NOTES: Final = ("Sharding", "xla.sdy.FuncResultSharding")
_AXES: Final = re.compile(r"\[((?:\{[^}]*\}(?:, )?)*)\]")
_NAME: Final = re.compile(r'"([^"]*)"(?::\(\d+\)\d+)?')

# For each dimension the axes of the mesh that split it; none where the value is whole on every device.
_Split = tuple[tuple[str, ...], ...]


def program_of_a_device(module: HloModule) -> HloModule:
    """The program that each of the devices runs. Raises UnsupportedError where the compiler would have to split it."""
    rewriter = _Rewriter(module)
    entry = module.entry.rebuild(rewriter.rewritten)
    renamed = {module.entry: entry}
    computations = tuple(renamed.get(c, c) for c in module.computations)
    return module.replace(computations=computations, entry=entry, entry_computation_layout=None)


class _Rewriter:
    """Rewrites the entry, operands first, and knows how each value is split."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._splits: dict[Instruction, tuple[_Split, ...]] = {}

    def rewritten(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """An instruction of the entry on what a device has."""
        if old.opcode == "parameter":
            made = old.replace(shape=_shard_shape(old))
            return self._note(made, _stated(old, "xla.sdy.sharding"))
        splits = tuple(split for operand in operands for split in self._splits.get(operand, ()))
        target = old.op.custom_call_target if isinstance(old.op, CustomCall) else ""
        if target in (_TO_LOCAL, _TO_GLOBAL) or target in _NOTES:
            return self._boundary(old, target, operands, splits)
        if old.opcode in ("tuple", "get-tuple-element"):
            return self._structural(old, operands, splits)
        if old.opcode == "reshape" and old.shape.dimensions == old.operands[0].shape.dimensions:
            return self._note(operands[0], splits)
        if any(any(split) for split in splits):
            raise self._unsupported(old)
        return old.replace(operands=operands)

    def _note(self, made: Instruction, splits: tuple[_Split, ...]) -> Instruction:
        self._splits[made] = splits
        return made

    def _boundary(
        self, old: Instruction, target: str, operands: tuple[Instruction, ...], splits: tuple[_Split, ...]
    ) -> Instruction:
        key = {_TO_LOCAL: "xla.sdy.in_shardings", _TO_GLOBAL: "xla.sdy.out_shardings"}.get(target, "xla.sdy.sharding")
        stated = _stated(old, key)
        if target == _TO_GLOBAL:
            return self._passed(old, operands, stated)
        if _without_whole(stated) != _without_whole(splits or ((),) * len(stated)):
            raise self._unsupported(old)
        return self._passed(old, operands, () if target == _TO_LOCAL else stated)

    def _passed(self, old: Instruction, operands: tuple[Instruction, ...], splits: tuple[_Split, ...]) -> Instruction:
        if len(operands) != 1 or old.shape.is_tuple:
            from xlakit.ops.data import Tuple

            shape = make_tuple_shape([o.shape for o in operands])
            made = Instruction(Tuple(), operands, shape, old.name)
        else:
            (made,) = operands
        return self._note(made, splits)

    def _structural(
        self, old: Instruction, operands: tuple[Instruction, ...], splits: tuple[_Split, ...]
    ) -> Instruction:
        if old.opcode == "tuple":
            made = old.replace(operands=operands, shape=make_tuple_shape([o.shape for o in operands]))
            counts = [self._splits.get(o, ((),)) for o in operands]
            return self._note(made, tuple(split[0] if split else () for split in counts))
        index = getattr(old.op, "index", 0)
        made = old.replace(operands=operands, shape=operands[0].shape.tuple_shapes[index])
        return self._note(made, (splits[index],) if index < len(splits) else ())

    def _unsupported(self, instruction: Instruction) -> UnsupportedError:
        return UnsupportedError(
            f"{instruction.opcode} '{instruction.name}' on values that are split over devices, outside of shard_map",
            location=self._module.location_of(instruction),
            hint="write it with jax.shard_map or jax.pmap, or keep its arrays on one device",
        )


def _shard_shape(parameter: Instruction) -> Shape:
    """The shape of what a device has of a parameter."""
    shape, sharding = parameter.shape, parameter.annotations.sharding
    if sharding is None or not shape.is_array or sharding.kind != "OTHER":
        return shape
    parts = sharding.tile_dimensions[: len(shape.dimensions)]
    if any(size % count for size, count in zip(shape.dimensions, parts, strict=True)):
        raise UnsupportedError(f"{shape.without_layout()} in {parts} parts, which are not equal")
    sizes = tuple(size // count for size, count in zip(shape.dimensions, parts, strict=True))
    return Shape(shape.element_type, sizes).with_default_layout()


def _stated(instruction: Instruction, key: str) -> tuple[_Split, ...]:
    """How an instruction says that each of its values is split."""
    text = dict(instruction.annotations.frontend_attributes).get(key, "")
    return tuple(_axes(entry) for entry in text.split(">, <")) if text else ()


def _axes(entry: str) -> _Split:
    found = _AXES.findall(entry)
    return tuple(
        tuple(m[0] for m in _NAME.finditer(part)) for part in re.findall(r"\{([^}]*)\}", found[-1] if found else "")
    )


def _without_whole(splits: tuple[_Split, ...]) -> tuple[_Split, ...]:
    return tuple(split if any(split) else () for split in splits)
