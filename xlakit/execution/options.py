"""ExecutionOptions: how a program is executed, as backends get it when they compile it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from xlakit.arguments import convert_fields
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.groups import Grid
from xlakit.ir.instruction import HloModule


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """How a program is executed.

    num_replicas, num_partitions: how many devices run it; by default what the module says.
    seed: of the random numbers of rng instructions, 0 or more; the state of a device persists from call to call.
    custom_calls: functions by name (Python's, or ctypes' C functions), before those that are registered for all.
    execution_context: feeds and channels that several executables share; by default each has its own.
    """

    num_replicas: int | None = None
    num_partitions: int | None = None
    seed: int = 0
    custom_calls: Mapping[str, object] | None = None
    execution_context: ExecutionContext | None = None

    def __post_init__(self) -> None:
        """Raise ArgumentError for a value of another type, and for a negative seed."""
        convert_fields(
            self,
            num_replicas=int | None,
            num_partitions=int | None,
            seed=int,
            custom_calls=Mapping[str, object] | None,
            execution_context=ExecutionContext | None,
        )
        if self.seed < 0:
            raise ArgumentError(f"seed {self.seed} is negative", hint="give 0 or more")

    def grid(self, module: HloModule) -> Grid:
        """The devices that run a module. Raises ArgumentError for none."""
        replicas = module.replica_count if self.num_replicas is None else self.num_replicas
        partitions = module.num_partitions if self.num_partitions is None else self.num_partitions
        if replicas < 1 or partitions < 1:
            raise ArgumentError(
                f"num_replicas {replicas} and num_partitions {partitions} must be at least 1",
                hint="give 1 for a single device, or leave it out",
            )
        return Grid(replicas, partitions)

    def in_context(self, execution_context: ExecutionContext | None) -> Self:
        """The same with other feeds and channels."""
        return replace(self, execution_context=execution_context)


DEFAULT = ExecutionOptions()
