"""``xlakit run --trace``, ``--shadow`` and ``--against``: reports on the numbers of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from xlakit.arguments import converting
from xlakit.child_process import Limits
from xlakit.errors import ArgumentError
from xlakit.ir.instruction import HloModule
from xlakit.tools.dumps import given_values
from xlakit.tools.inputs import compiled
from xlakit.tools.jaxlib_child import Jaxlib
from xlakit.tools.numerics.divergence import Divergence, Progress, first_divergence
from xlakit.tools.numerics.shadow import ShadowReport, shadow_replicated
from xlakit.tools.numerics.sides import Ready, Side
from xlakit.tools.numerics.trace import Trace, trace_replicated
from xlakit.tools.replicas import as_replicas
from xlakit.tools.shards import check_parameters, on_devices, without_shardings

# What a program can be run against, besides another program.
WAYS = ("interpreter", "plain", "jaxlib", "cpu")


def trace(module: HloModule, *, input_path: str | None, seed: int, iterations: bool) -> Trace:
    """The values of every instruction, as :func:`trace_values` reports them; arguments and results are whole arrays."""
    devices, values = given_values(on_devices(module), input_path, seed)
    return trace_replicated(devices.module, devices.arguments(values), iterations=iterations, seed=seed)


def shadow(module: HloModule, *, input_path: str | None, seed: int) -> ShadowReport:
    """The error of every instruction, as :func:`shadow_errors` reports them; arguments are whole arrays."""
    devices, values = given_values(on_devices(module), input_path, seed)
    return shadow_replicated(devices.module, devices.arguments(values), seed=seed)


def against(
    module: HloModule,
    other: str | HloModule,
    *,
    input_path: str | None,
    seed: int,
    backend: str | None,
    limits: Limits,
    progress: Progress,
) -> Divergence | None:
    """The first instruction that differs, as :func:`find_divergence` reports it.

    other: one of :data:`WAYS`, or another program. limits: of jaxlib. progress: is told where the search is.
    """
    with Jaxlib(limits) as jaxlib:
        return _against(module, other, input_path, _Way(backend or "cpu", seed, jaxlib, progress))


def _against(module: HloModule, other: str | HloModule, input_path: str | None, way: _Way) -> Divergence | None:
    devices, values = given_values(on_devices(module), input_path, way.seed)
    if isinstance(other, str):
        return way.divergence(_unsplit(devices.module), other, devices.arguments(values))
    others = on_devices(other)
    if devices.whole is not None and (others.whole is not None or others.count == 1):
        # The programs are compared as they are written: all that the partitioner makes of them is the same.
        mine, theirs, device_arguments = (
            devices.whole,
            others.whole or others.module,
            [values] * devices.whole.replica_count,
        )
        return way.divergence_of_two(mine, theirs, device_arguments, device_arguments)
    check_parameters(devices.module.name, devices.program, other.name, others.program)
    if others.count != devices.count:
        raise ArgumentError(
            f"{other.name} runs on {others.count} devices, {module.name} on {devices.count}",
            hint="compare programs of as many devices",
        )
    device_arguments = devices.arguments(values)
    mine, theirs = _unsplit(devices.module), _unsplit(others.module)
    return way.divergence_of_two(
        mine, theirs, device_arguments, others.arguments(values) if values else device_arguments
    )


def _unsplit(module: HloModule) -> HloModule:
    """The program of one device, of which no part is split again."""
    return module if module.replica_count * module.num_partitions == 1 else without_shardings(module)


@converting
def find_divergence(
    module: HloModule,
    *arguments: object,
    against: str | HloModule = "interpreter",
    backend: str = "cpu",
    seed: int = 0,
) -> Divergence | None:
    """The first instruction that a program computes with other values than another way to run it, or another program.

    arguments: one for each parameter, as :class:`xlakit.Executable` takes them; several devices all get these.
    against: ``interpreter``, ``plain`` (compiled without memory sharing, fusion and other optimizations), ``cpu``,
    ``jaxlib`` (in a process of its own), or another program with the same parameters, of which the instructions are
    compared that correspond to each other; it runs on the same backend. backend: what runs the program, ``cpu`` or
    ``interpreter``. seed: of random numbers.

    An instruction counts where it gives other values for the same operands: integers and PRED that are not equal,
    floating point numbers beyond the tolerance of their type, relative to what the sum or product is made of. Loops are
    followed iteration by iteration.

    Of a program of several devices each device's values are compared with its own on the other side.

    Gives None where there is no such instruction and the results agree. Raises ArgumentError for another ``against``,
    or a program of other parameters or devices, and what compiling and running the programs raises.
    """
    count = module.replica_count * module.num_partitions
    if isinstance(against, str) and against not in WAYS:
        raise ArgumentError(f"there is no against={against!r}", hint=f"give a module, or one of {', '.join(WAYS)}")
    device_arguments = [arguments] * count
    with Jaxlib(Limits()) as jaxlib:
        way = _Way(backend, seed, jaxlib)
        if isinstance(against, str):
            return way.divergence(module, against, device_arguments)
        others = against.replica_count * against.num_partitions
        if others != count:
            raise ArgumentError(
                f"{against.name} runs on {others} devices, {module.name} on {count}",
                hint="compare programs of as many devices",
            )
        return way.divergence_of_two(module, against, device_arguments, device_arguments)


class _Way(NamedTuple):
    """How programs are run: the backend, or another of :data:`WAYS`; the seed of random numbers; jaxlib's process; what
    is told where the search is.
    """

    name: str
    seed: int
    jaxlib: Jaxlib
    progress: Progress = lambda where: None

    def divergence(
        self, program: HloModule, other: str, device_arguments: Sequence[Sequence[Any]]
    ) -> Divergence | None:
        """The first instruction that differs when a program is run in another way of :data:`WAYS`."""
        expected = Side(program, self._replace(name=other)._prepare)
        return first_divergence(Side(program, self._prepare), expected, device_arguments, progress=self.progress)

    def divergence_of_two(
        self,
        program: HloModule,
        other: HloModule,
        device_arguments: Sequence[Sequence[Any]],
        others: Sequence[Sequence[Any]],
    ) -> Divergence | None:
        """The first instruction of two programs that differs, each given its own arguments for each device."""
        check_parameters(program.name, program.entry.program_shape, other.name, other.entry.program_shape)
        sides = Side(program, self._prepare), Side(other, self._prepare)
        return first_divergence(*sides, device_arguments, others, self.progress)

    def _prepare(self, module: HloModule) -> Ready:
        """Make a program ready to run."""
        if self.name == "jaxlib":
            return self.jaxlib.prepare(as_replicas(module))
        return compiled(module, self.name, self.seed).execute_replicated
