"""Device: what a replica and partition of a running program sees."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from xlakit.execution.channels import Channels
from xlakit.execution.context import ExecutionContext
from xlakit.execution.program import Program
from xlakit.execution.random_state import RandomState
from xlakit.execution.rendezvous import Rendezvous
from xlakit.execution.run import Participant, Run
from xlakit.execution.run_group import current_group
from xlakit.execution.transfers import Transfers


def start_run(program: Program, execution_context: ExecutionContext, *, shares_context: bool) -> Run:
    """A run of a program, without devices yet; a member of this thread's run group, if there is one.

    shares_context: whether other programs use the execution context, too; then channels connect them.
    """
    group = current_group()
    if not shares_context:
        channels = Channels()
    else:
        channels = execution_context.channels if group is None else group.channels(execution_context)
    run = Run(program, channels, execution_context.lock, execution_context.changed, shares_context=shares_context)
    if group is not None:
        group.add(run)
    return run


class Device(Participant):
    """One replica and partition in one run, on one thread."""

    def __init__(
        self,
        run: Run,
        execution_context: ExecutionContext,
        index: int,
        random: RandomState,
        *,
        feed_index: int | None = None,
    ) -> None:
        super().__init__(run, index, index if feed_index is None else feed_index)
        self.execution_context = execution_context
        self.random = random
        # Observes the values while the interpreter runs the program: an interpreter.evaluate.Observer.
        self.observer: Any = None
        self.rendezvous = Rendezvous(self, execution_context)
        self.transfers = Transfers(self, execution_context)
        run.devices.append(self)

    def taking_part(self) -> AbstractContextManager[None]:
        """Take part in the run during the block; raises if that cannot be."""
        run = self.run
        part = nullcontext() if run.session is None else run.session.taking_part()
        return self._using_channels(part) if run.shares_context and self.program.channel_ends else part

    @contextmanager
    def _using_channels(self, part: AbstractContextManager[None]) -> Generator[None]:
        run = self.run
        with (
            part,
            run.channels.using(
                f"'{self.program.module.name}'",
                self.index,
                self.program.channel_ends,
                self.execution_context.lock,
                lambda: run.failure is not None,
            ),
        ):
            yield
