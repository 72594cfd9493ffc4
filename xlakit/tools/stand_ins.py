"""Stand-ins for custom calls that have no meaning here, so that a program with some can be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from xlakit.errors import ShapeError, UnsupportedError, XlakitError
from xlakit.execution.calls.custom_calls import CustomCalls
from xlakit.ir.instruction import HloModule
from xlakit.ops.custom_call import CustomCall


def stand_ins(module: HloModule) -> dict[str, Callable[..., NoReturn]]:
    """A function for each custom call that is not registered or not implemented; it raises what is wrong with it."""
    known = CustomCalls()
    functions: dict[str, Callable[..., NoReturn]] = {}
    for instruction in (i for c in module.computations for i in c.instructions if isinstance(i.op, CustomCall)):
        try:
            known.check(instruction)
        except (ShapeError, UnsupportedError) as error:
            functions.setdefault(instruction.op_as(CustomCall).custom_call_target, _raising(error))
    return functions


def _raising(error: XlakitError) -> Callable[..., NoReturn]:
    def call(*_: object) -> NoReturn:
        raise error

    return call
