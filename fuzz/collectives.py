"""``python -m fuzz.collectives``: generated programs with collectives, compiled and interpreted, agree to the bit.

Each runs on 2 to 8 devices, replicas and partitions; every device's results are compared. The order in which elements
are combined is fixed, so that nothing but the bits of a NaN may differ.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fuzz.modules import difference_in_bits
from fuzz.programs.devices.collective_bodies import spread_module
from fuzz.programs.devices.copies import copies_module
from fuzz.programs.devices.rendezvous import Spread
from fuzz.support.numbered import TooSlowError, entries, parser, run, show, time_limit
from xlakit import compile as compile_program
from xlakit.ir.instruction import HloModule
from xlakit.options import compiling

# Of processor time, for a program, which takes a fraction of a second.
_LONGEST_SECONDS = 25.0
# Products of gathered arrays are computed in steps, as between processes, and small ones stay products until then.
_KNOBS = {"collective_matmul.when": 2, "small_products.most_products": 0}


def judge(program: Spread, runs: int = 2) -> tuple[str, int]:
    """Describe the fault of a module's compiled code, "" if there is none; count the collectives of Python."""
    module = HloModule.from_text(program.text)
    expected = compile_program(module, backend="interpreter").execute_replicated(program.arguments)
    try:
        executable: Any = compile_program(module, backend="cpu")
        for _ in range(runs):
            actual = executable.execute_replicated(program.arguments)
            for device, results in enumerate(zip(actual, expected, strict=True)):
                for number, (a, b) in enumerate(zip(*results, strict=True)):
                    if fault := difference_in_bits(a, b):
                        return f"device {device}: result {number}: {fault}", 0
    except Exception as error:  # any exception is a finding, with the program that caused it
        return f"{type(error).__name__}: {error}", 0
    return "", len(executable.host_instructions)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    made = parser("fuzz.collectives", __doc__, 500)
    made.add_argument("--copies", action="store_true", help="programs whose devices meet in copies of collectives")
    options = made.parse_args(arguments)
    generated = copies_module if options.copies else spread_module
    with_python = 0

    def fault_of(number: int) -> str:
        nonlocal with_python
        program = generated(options.seed, number)
        show(options, program.text)
        try:
            with time_limit(_LONGEST_SECONDS), compiling(knobs=_KNOBS):
                fault, hosts = judge(program)
        except TooSlowError:
            fault, hosts = f"takes more than {_LONGEST_SECONDS:.0f} s of processor time", 0
        with_python += hosts > 0
        return fault

    programs = entries(options, fault_of, " --copies" if options.copies else "")
    return run("fuzz.collectives", programs, options.seconds, lambda: f", Python does a part of {with_python}")


if __name__ == "__main__":
    sys.exit(main())
