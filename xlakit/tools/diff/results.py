"""Two modules run on the same arguments."""

from __future__ import annotations

from xlakit.api import compile
from xlakit.ir.instruction import HloModule
from xlakit.tools.compare import LeafComparison, compare
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.shards import check_parameters, on_devices


def compare_results(
    first: HloModule, second: HloModule, *, backend: str | None = None, input_path: str | None = None, seed: int = 0
) -> list[LeafComparison]:
    """The results of the second module compared with those of the first, output by output.

    backend: as :func:`xlakit.compile` takes it. input_path, seed: the arguments, as of ``xlakit run``; those of a file
    are found by the names of the first module's parameters.

    Raises ArgumentError where the modules take arguments of other shapes.
    """
    devices = [on_devices(module) for module in (first, second)]
    program, other = (device.program for device in devices)
    check_parameters(first.name, program, second.name, other)
    arguments = Arguments(seed) if input_path is None else Arguments.from_file(input_path, program, seed)
    values = arguments.values(program)
    expected, actual = (device.run(compile(device.module, backend=backend, seed=seed), values) for device in devices)
    return compare(actual, expected)
