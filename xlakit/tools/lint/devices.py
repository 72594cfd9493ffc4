"""Lints of programs for several devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xlakit.errors import ShapeError
from xlakit.ir.attributes import Sharding
from xlakit.ir.instruction import Instruction
from xlakit.ops.communication.collective import Collective
from xlakit.passes.spmd.shardings.annotations import Annotations, annotated_partitions
from xlakit.passes.spmd.shardings.values import leaf_shapes
from xlakit.tools.lint.registry import Found, lint
from xlakit.verifier.faults import Program

_LARGE: Final = 64 << 20


@lint("all-reduce-of-one", "a collective whose groups have one device each")
def _all_reduce_of_one(program: Program) -> Iterator[Found]:
    devices = program.module.replica_count * program.module.num_partitions
    for computation, instruction in program.instructions(Collective):
        op = instruction.op_as(Collective)
        if op.group_size == 1 or (not op.replica_groups.groups and devices == 1):
            yield Found(
                computation,
                instruction,
                f"each group of the {instruction.opcode} has one device, which exchanges nothing",
                "use its operand, or give the groups that were meant",
            )


@lint(
    "unsharded-large-array",
    f"an argument of {_LARGE >> 20} MiB or more that each device holds whole, in a program that splits other values",
)
def _unsharded_large_array(program: Program) -> Iterator[Found]:
    module = program.module
    if module.num_partitions == 1:
        return
    # A program that has been partitioned tells no shardings; its arguments are parts already.
    if not any(_splits(i.annotations.sharding) for _, i in program.instructions()):
        return
    for number, parameter in enumerate(module.entry.parameters):
        sharding = parameter.annotations.sharding
        if parameter.shape.byte_size >= _LARGE and not _splits(sharding):
            size = parameter.shape.byte_size >> 20
            yield Found(
                module.entry,
                parameter,
                f"each of {module.num_partitions} partitions holds all of argument {number}, {size} MiB",
                "give it a sharding that splits one of its dimensions (in JAX: jax.device_put with a NamedSharding)",
            )


@lint("sharding-of-other-devices", "a sharding over other devices than the program has partitions")
def _sharding_of_other_devices(program: Program) -> Iterator[Found]:
    # Of a program that does not say its partitions they are those of its shardings.
    declared = program.module.num_partitions
    partitions = annotated_partitions(program.module) if declared == 1 else declared
    if partitions == 1:
        return
    annotations = Annotations(program.module, partitions)
    for computation, instruction in program.instructions():
        try:
            last = _last_device(annotations, instruction)
        except ShapeError as error:
            # The partitioner's own words: it refuses the program for this.
            yield Found(computation, instruction, error.rule, error.hint or "")
            continue
        if last >= partitions:
            yield Found(
                computation,
                instruction,
                f"a sharding on device {last} in a program of {partitions} partitions",
                f"name one of 0 to {partitions - 1}",
            )


def _last_device(annotations: Annotations, instruction: Instruction) -> int:
    """The last device that has a whole value, 0 without one. Raises ShapeError for tiles on other devices."""
    last = 0
    for shape, sharding in zip(leaf_shapes(instruction.shape), annotations.shardings(instruction), strict=False):
        if shape.is_array and sharding is not None:
            annotations.splits(sharding, shape.rank)
            last = max(last, *sharding.devices) if sharding.kind == "MAXIMAL" else last
    return last


def _splits(sharding: Sharding | None) -> bool:
    """Whether a value, or an element of it, is split over devices, or is held by some of them only."""
    if sharding is None:
        return False
    if sharding.kind == "TUPLE":
        return any(map(_splits, sharding.elements))
    return sharding.kind not in ("REPLICATED", "UNKNOWN")
