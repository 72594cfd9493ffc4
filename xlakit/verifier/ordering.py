"""Rules of custom calls that order instructions."""

from __future__ import annotations

from collections.abc import Iterator

from xlakit.ir.control_deps import control_deps, is_control_dep, ordered
from xlakit.ops.custom_call import CustomCall
from xlakit.verifier.faults import Fault, Program


def ordering_faults(program: Program) -> Iterator[Fault]:
    """Faults of ``control_dep`` calls: too many operands, and cyclic orders."""
    for computation, call in program.instructions(CustomCall):
        if is_control_dep(call) and len(call.operands) != 2:
            hint = "call control_dep(first, second) for each two values that are to come in this order"
            yield Fault(computation, call, f"takes two operands, got {len(call.operands)}", hint)
    for computation in {c: None for c, i in program.instructions(CustomCall) if is_control_dep(i)}:
        for found in ordered(computation, control_deps(computation)):
            if isinstance(found, tuple):
                before, node = found
                yield Fault(
                    computation,
                    node,
                    f"can come neither before nor after '{before.name}': control_dep makes each need the other",
                    "let the first operand of control_dep be one that does not need the second",
                )
                break
