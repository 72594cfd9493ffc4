"""The types of lints, their input and their findings. A lint is a function that :func:`lint` registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from xlakit.errors import InternalError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.verifier.faults import Program


class Found(NamedTuple):
    """A finding of a lint about an instruction: the fact (``message``), a remedy (``hint``), and an instruction with
    the same value, if there is one (``instead``).
    """

    computation: Computation
    instruction: Instruction
    message: str
    hint: str
    instead: Instruction | None = None


Check: TypeAlias = Callable[[Program], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Lint:
    """A kind of warning: its name, what it finds (a clause), and whether it is on unless switched off."""

    name: str
    finds: str
    check: Check
    is_default: bool


LINTS: Final[dict[str, Lint]] = {}


def lint(name: str, finds: str, *, is_default: bool = True) -> Callable[[Check], Check]:
    """Register the function below as the lint ``name``, which finds ``finds``."""

    def register(check: Check) -> Check:
        if name in LINTS:
            raise InternalError(f"two lints are called {name}", hint="rename one of them")
        LINTS[name] = Lint(name, finds, check, is_default)
        return check

    return register
