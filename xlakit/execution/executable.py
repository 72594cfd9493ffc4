"""Executable: a program ready to run, whatever backend made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from xlakit.arguments import name_type
from xlakit.execution.analysis import Fallback, MemoryAnalysis
from xlakit.execution.context import ExecutionContext
from xlakit.ir.instruction import HloModule


@runtime_checkable
class Executable(Protocol):
    """A program ready to run, as every backend makes it. Call it with one value for each parameter."""

    @property
    def module(self) -> HloModule:
        """The program."""
        ...

    @property
    def execution_context(self) -> ExecutionContext:
        """The infeeds, outfeeds and channels of its devices."""
        ...

    @property
    def num_replicas(self) -> int:
        """How many replicas run the program."""
        ...

    @property
    def num_partitions(self) -> int:
        """How many partitions run the program."""
        ...

    @property
    def num_devices(self) -> int:
        """How many devices run the program; their numbers are ``replica * num_partitions + partition``."""
        ...

    def __call__(self, *arguments: object, donate: Sequence[int] = ()) -> Any:
        """Run the program with one argument for each parameter.

        Arguments are NumPy arrays of just the parameter's type and dimensions (any size up to the bound for a bounded
        dynamic dimension), Python numbers and lists that fit the type, Literals, tuples for tuple parameters.

        Gives fresh arrays, tuples of them for tuples, None for tokens. Where several devices run the program all get
        these arguments, and the result is the list of their results; see :meth:`execute_replicated`.

        donate: numbers of parameters whose arrays the program may overwrite. Where the module says in
        ``input_output_alias`` that a result may lie in a parameter's memory, and it can, that result then is the
        argument's own array, and nothing is copied. That is a permission: an array that cannot be used so (one that is
        read-only, or not aligned to 64 bytes, as all results of programs are, or that several devices get) is left as
        it is. Later uses of a donated array cannot be detected, so the caller must not use it: it holds the
        result, or nothing of use. Without ``donate`` arguments are never written to, must-alias or not.

        Raises ArgumentError, and what the program raises.
        """
        ...

    def execute_replicated(self, arguments: Sequence[Sequence[object]]) -> list[Any]:
        """Run the program on all devices at once, each on its own thread, with arguments for each.

        arguments: for each device, ``replica * num_partitions + partition``, a sequence of its arguments.

        Gives the list of their results. An error on one device stops all, and is raised here.
        """
        ...

    # -- its code and costs ----------------------------------------------------------------------

    def as_text(
        self, *, short: bool = False, metadata: bool = True, layouts: bool = True, large_constants: bool = True
    ) -> str:
        """The program that runs, as HLO text: after passes or, for the interpreter, as it was given.

        The options are those of :meth:`HloModule.to_text`.
        """
        ...

    def llvm_ir(self, *, optimized: bool = True) -> str:
        """The program as LLVM IR; ``optimized=False``: before LLVM's own passes.

        Raises UnsupportedError where there is no machine code, as in the interpreter.
        """
        ...

    def assembly(self) -> str:
        """The program in the assembly of this machine; raises UnsupportedError where there is no machine code."""
        ...

    def cost_analysis(self) -> dict[str, float]:
        """The cost of one call: ``flops``, ``transcendentals`` and ``bytes accessed``, counted as XLA does.

        A loop counts once for each iteration if their number is known, else once.
        """
        ...

    def memory_analysis(self) -> MemoryAnalysis:
        """The bytes of arguments, results and intermediate values, and what holds them at the peak."""
        ...

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Instructions that are not machine code, with the reason; empty if all are, or if the interpreter was
        requested.
        """
        ...


name_type(Executable, "an executable", "executables", "make one with xlakit.compile")
