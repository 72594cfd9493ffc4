"""What a program computes for the arguments of an oracle: values of its entry, and states of the loops in that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from xlakit.data.literal import Array
from xlakit.interpreter.evaluate import Context
from xlakit.interpreter.executable import compile_module
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Value
from xlakit.ops.control import While
from xlakit.tools.inputs import options_of
from xlakit.tools.oracles.arguments import Arguments
from xlakit.tools.oracles.oracle import Oracle, Report, Verdict, named_shapes
from xlakit.tools.shards import on_devices

# Larger values are not kept: candidates have them as constants.
MOST_ELEMENTS: Final = 4096
# Of the states of a loop the first and the last ones are kept, and between them those of powers of two.
_FIRST_STATES, _LAST_STATES = 8, 4


@dataclass(frozen=True)
class Captured:
    """Values of a run on the interpreter, by the names of instructions of the entry.

    values: the arrays that instructions give. states: what loops carry, before some of their iterations.
    """

    values: Mapping[str, Array]
    states: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Capture(Oracle):
    """Not a question: a run on the interpreter, of which the values are observed."""

    arguments: Arguments

    @property
    def claim(self) -> str:
        """What any module does."""
        return "run on the interpreter"

    @property
    def options(self) -> str:
        """No option asks for it."""
        return ""

    def observe(self, module: HloModule) -> Captured:
        """The values of a program of one device; of several there are none."""
        devices = on_devices(module)
        if devices.count > 1:
            return Captured({}, {})
        values = self.arguments.values(named_shapes(devices), devices.module.entry)
        observer = _Observer(devices.module.entry)
        executable = compile_module(devices.module, options_of(devices.module, self.arguments.seed))
        executable.call_observed(lambda _: observer, devices.arguments(values))
        states = {name: [*first, *last] for name, (first, last) in observer.states.items()}
        return Captured(observer.values, states)

    def judge(self, report: Report) -> Verdict:
        """Whether it ran."""
        return Verdict(isinstance(report.observed, Captured), report.detail)


@dataclass(slots=True)
class _Observer:
    """Keeps values of the entry, and for each of its loops what the body is given."""

    entry: Computation
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    states: dict[str, tuple[list[Any], deque[Any]]] = field(default_factory=dict[str, tuple[list[Any], deque[Any]]])
    _callers: list[Instruction] = field(default_factory=list[Instruction])
    # The parameter of the body that has begun, until an instruction reads it; and how often each body has begun.
    _wanted: Instruction | None = None
    _runs: dict[str, int] = field(default_factory=dict[str, int])

    def enter(self, caller: Instruction, computation: Computation) -> None:
        """Note that a body begins."""
        if not self._callers and isinstance(caller.op, While) and computation is caller.op.body:
            self._wanted = computation.parameters[0]
        self._callers.append(caller)

    def leave(self) -> None:
        """A computation ends."""
        self._callers.pop()

    def observe(self, context: Context, evaluate: Callable[..., Value], operands: Sequence[Value]) -> Value:
        """Evaluate an instruction, and keep what is wanted of it."""
        instruction = context.instruction
        if self._wanted is not None and len(self._callers) == 1 and self._wanted in instruction.operands:
            self._keep_state(self._callers[0].name, operands[instruction.operands.index(self._wanted)])
            self._wanted = None
        value = evaluate(context, *operands)
        if not self._callers and instruction.shape.is_array and instruction.shape.num_elements <= MOST_ELEMENTS:
            self.values[instruction.name] = np.array(value)
        return value

    def _keep_state(self, loop: str, state: Value) -> None:
        number = self._runs[loop] = self._runs.get(loop, -1) + 1
        if _size(state) > MOST_ELEMENTS * 4:
            return
        first, last = self.states.setdefault(loop, ([], deque(maxlen=_LAST_STATES)))
        if number < _FIRST_STATES or number & (number - 1) == 0:
            first.append(_copied(state))
        else:
            last.append(_copied(state))


def _size(value: Any) -> int:
    return sum(map(_size, value)) if isinstance(value, tuple) else np.size(value)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]


def _copied(value: Any) -> Any:
    return tuple(map(_copied, value)) if isinstance(value, tuple) else np.array(value)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
