"""Two modules run on the same arguments."""

from __future__ import annotations

from typing import Any

from xlakit.api import compile
from xlakit.errors import ArgumentError
from xlakit.ir.instruction import HloModule
from xlakit.tools.compare import LeafComparison, compare
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.shards import on_devices


def compare_results(
    first: HloModule, second: HloModule, *, backend: str | None = None, input_path: str | None = None, seed: int = 0
) -> list[LeafComparison]:
    """The results of the second module compared with those of the first, output by output.

    backend: as :func:`xlakit.compile` takes it. input_path, seed: the arguments, as of ``xlakit run``; those of a file
    are found by the names of the first module's parameters.

    Raises ArgumentError where the modules take arguments of other shapes.
    """
    devices = [on_devices(module) for module in (first, second)]
    shapes = [[s.without_layout() for s in d.program.parameters] for d in devices]
    if shapes[0] != shapes[1]:
        shown = " and ".join(f"({', '.join(s.to_string(with_layout=False) for s in given)})" for given in shapes)
        raise ArgumentError(
            f"the modules take different arguments: {shown}", hint="compare modules with the same parameters"
        )
    program = devices[0].program
    arguments = Arguments(seed) if input_path is None else Arguments.from_file(input_path, program, seed)
    values = arguments.values(program)
    results: list[Any] = []
    for device in devices:
        executable = compile(device.module, backend=backend, seed=seed)
        given = device.arguments(values)
        each = [executable(*given[0])] if len(given) == 1 else executable.execute_replicated(given)
        results.append(device.joined(each))
    return compare(results[1], results[0])
