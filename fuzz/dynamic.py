"""``python -m fuzz.dynamic``: programs on arrays of bounded dynamic dimensions, compiled and interpreted, must agree.

They are chains of operations on small integers, so results must be equal. Programs that the interpreter refuses as they
run (an array that cannot be reshaped at the size that it has) must be refused by compiled code too. The exit status is
1 where anything differs.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from fuzz.modules import difference
from fuzz.programs.dynamic import DynamicProgram, dynamic_program
from fuzz.support import numbered
from xlakit import compile as compile_program
from xlakit.errors import ExecutionError, UnsupportedError
from xlakit.tools.inputs import flatten


def judge(program: DynamicProgram) -> tuple[str, str]:
    """``"agreed"``, ``"refused"`` by both, ``"unsupported"`` or ``"failed"``, and what is to be said of it."""
    refused = ""
    try:
        expected = flatten(compile_program(program.module, backend="interpreter")(*program.arguments))
    except ExecutionError as error:
        refused, expected = error.rule, {}
    try:
        actual = flatten(compile_program(program.module, backend="cpu", cache=False)(*program.arguments))
    except UnsupportedError as error:
        return "unsupported", error.rule
    except ExecutionError as error:
        return ("refused", "") if refused else ("failed", error.rule)
    except Exception as error:  # any other exception is a finding
        return "failed", f"{type(error).__name__}: {error}"
    if refused:
        return "failed", f"runs, where the interpreter says: {refused}"
    for name, value in expected.items():
        fault = difference(actual[name], value)
        if fault:
            return "failed", f"result {name}: {fault}"
    return "agreed", ""


_TALLY = numbered.Tally()


def _fault_of(options: Namespace, number: int) -> str:
    program = dynamic_program(options.seed, number)
    numbered.show(options, program.module.to_text())
    return _TALLY.fault(f"fuzz.dynamic --seed {options.seed} --number {number}", *judge(program))


main = numbered.net("fuzz.dynamic", __doc__, 1000, _fault_of, summary=_TALLY.summary)

if __name__ == "__main__":
    sys.exit(main())
