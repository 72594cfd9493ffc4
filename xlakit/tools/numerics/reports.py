"""``xlakit run --trace``, ``--shadow`` and ``--against``: reports on the numbers of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlakit.api import compile
from xlakit.arguments import converting
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling
from xlakit.tools.dumps import given_values
from xlakit.tools.jaxlib_child import Limits, run_on_jaxlib
from xlakit.tools.numerics.divergence import Divergence, Ready, Side, first_divergence
from xlakit.tools.numerics.shadow import ShadowReport, shadow_replicated
from xlakit.tools.numerics.trace import Trace, trace_replicated
from xlakit.tools.shards import on_devices

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
) -> Divergence | None:
    """The first instruction that differs, as :func:`find_divergence` reports it.

    other: one of :data:`WAYS`, or another program.
    """
    devices, values = given_values(on_devices(module), input_path, seed)
    program = devices.module if devices.count == 1 else devices.whole
    if program is None:
        raise UnsupportedError(
            f"{module.name} runs on {devices.count} devices, and is not known as a program of one",
            hint="compare its results: xlakit run --compare",
        )
    expected = other if isinstance(other, str) else _of_one(other)
    return _divergence(program, values, expected, backend or "cpu", seed, limits)


@converting
def find_divergence(
    module: HloModule,
    *arguments: object,
    against: str | HloModule = "interpreter",
    backend: str = "cpu",
    seed: int = 0,
) -> Divergence | None:
    """The first instruction that a program computes with other values than another way to run it, or another program.

    module: a program for one device. arguments: one for each parameter, as :class:`xlakit.Executable` takes them.
    against: ``interpreter``, ``plain`` (compiled without memory sharing, fusion and other optimizations), ``cpu``,
    ``jaxlib`` (in a process of its own), or another program with the same parameters, of which the instructions are
    compared that correspond to each other; it runs on the same backend. backend: what runs the program, ``cpu`` or
    ``interpreter``. seed: of random numbers.

    An instruction counts where it gives other values for the same operands: integers and PRED that are not equal,
    floating point numbers beyond the tolerance of their type, relative to what the sum or product is made of. Loops are
    followed iteration by iteration.

    Gives None where there is no such instruction and the results agree. Raises ArgumentError for another ``against``,
    UnsupportedError for a program of several devices, and what compiling and running the programs raises.
    """
    if module.replica_count * module.num_partitions > 1:
        raise UnsupportedError(
            f"{module.name} runs on {module.replica_count * module.num_partitions} devices",
            hint="compare a program of one device, or the results: xlakit run --compare",
        )
    if isinstance(against, str) and against not in WAYS:
        raise ArgumentError(f"there is no against={against!r}", hint=f"give a module, or one of {', '.join(WAYS)}")
    return _divergence(module, arguments, against, backend, seed, Limits())


def _divergence(
    program: HloModule,
    arguments: Sequence[Any],
    against: str | HloModule,
    backend: str,
    seed: int,
    limits: Limits,
) -> Divergence | None:
    actual = Side(program, _preparing(backend, seed, limits))
    if isinstance(against, str):
        return first_divergence(actual, Side(program, _preparing(against, seed, limits)), arguments)
    return first_divergence(actual, Side(_comparable(program, against), actual.prepare), arguments)


def _of_one(module: HloModule) -> HloModule:
    """The program as one of one device."""
    devices = on_devices(module)
    return devices.whole or devices.module


def _comparable(program: HloModule, other: HloModule) -> HloModule:
    """The other program, where it takes the arguments of the first."""
    mine, others = ([p.shape.without_layout() for p in m.entry.parameters] for m in (program, other))
    if mine != others:
        raise ArgumentError(
            f"{other.name} takes ({', '.join(map(str, others))}), {program.name} takes ({', '.join(map(str, mine))})",
            hint="compare programs of the same parameters",
        )
    return other


def _preparing(way: str, seed: int, limits: Limits) -> Any:
    """What makes a program ready to run in one of the ways."""

    def prepare(module: HloModule) -> Ready:
        if way == "jaxlib":
            return lambda arguments: run_on_jaxlib(module, [list(arguments)], limits)[0]
        with compiling(plain="all" if way == "plain" else None):
            executable = compile(module, backend="interpreter" if way == "interpreter" else "cpu", seed=seed)

        def run(arguments: Sequence[Any]) -> Any:
            return executable(*arguments)

        return run

    return prepare
