"""Two modules run on the same arguments."""

from __future__ import annotations

from xlakit.errors import ArgumentError
from xlakit.ir.instruction import HloModule
from xlakit.tools.compare import LeafComparison, compare
from xlakit.tools.inputs import compiled
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.shards import check_parameters, on_devices


def compare_results(
    first: HloModule, second: HloModule, *, backend: str | None = None, input_path: str | None = None, seed: int = 0
) -> list[LeafComparison]:
    """The results of the second module compared with those of the first, output by output.

    backend: as :func:`xlakit.compile` takes it. input_path, seed: the arguments, as of ``xlakit run``; those of a file
    are found by the names of the first module's parameters.

    Raises ArgumentError where the modules take arguments of other shapes, or give results for other numbers of devices.
    """
    devices = [on_devices(module) for module in (first, second)]
    devices = [devices[1].telling(devices[0]), devices[0].telling(devices[1])]
    program, other = (device.program for device in devices)
    check_parameters(first.name, program, second.name, other)
    counts = [device.results_count for device in devices]
    if counts[0] != counts[1]:
        raise ArgumentError(
            f"the results of {first.name} are those of {counts[0]} devices, of {second.name} those of {counts[1]}",
            hint="give programs for as many devices, or one that says how its result is split",
        )
    arguments = Arguments(seed) if input_path is None else Arguments.from_file(input_path, program, seed)
    values = arguments.values(program)
    executables = [compiled(d.module, backend, seed) for d in devices]
    expected, actual = (device.run(e, values) for device, e in zip(devices, executables, strict=True))
    return compare(actual, expected)
