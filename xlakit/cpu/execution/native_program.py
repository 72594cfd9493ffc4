"""A program from the compile cache that native code calls, without the module that it was compiled from."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xlakit.cpu.execution.linked import Linked
from xlakit.cpu.runtime import Context, runtime_symbols
from xlakit.errors import ExecutionError

if TYPE_CHECKING:
    from xlakit.cpu.program import Program
    from xlakit.execution.device import Device


class NativeProgram:
    """Machine code that has no step in Python. It must live as long as it may be called.

    entry: the addresses of a function and of its first argument, as in LoadedExecutable.native_entry. is_pure: as in
    CpuExecutable.
    """

    def __init__(
        self,
        program: Program,
        num_devices: int,
        num_arguments: int,
        num_results: int,
        begin: Callable[[], list[Device]],
    ) -> None:
        """num_arguments, num_results: the arrays of each device. begin: creates a run's devices, to report an error."""
        linked = Linked(program)
        self._linked = linked
        self.is_pure = linked.is_pure
        if num_devices == 1:
            self._context = linked.new_context()
            self.entry = runtime_symbols()["xlakit_execute"], self._context.address
            return
        # Imported here: programs on one device load faster without it.
        from xlakit.cpu.execution.launch import Replicas
        from xlakit.cpu.runtime.host import register_steps

        key = register_steps(self, NativeProgram._answer)

        def new_context(device: int) -> Context:
            return linked.new_context(ordinal=device, host=key)

        self._replicas = Replicas(program, num_devices, begin, new_context)
        address = self._replicas.address(num_arguments, num_results)
        self.entry = runtime_symbols()["xlakit_execute_replicas"], address

    def _answer(self, number: int, address: int) -> None:
        self._replicas.answer(number, address)


class Conversion:
    """What native code calls with arguments that do not fit: a weak reference to a method of an executable.

    It holds the linked code, so that native code keeps the code alive.
    """

    def __init__(self, call: Callable[..., Any], code: Linked) -> None:
        self._call = weakref.WeakMethod(call)
        self._code = code

    def __call__(self, *arguments: object) -> Any:
        """Call the method; raises ExecutionError if the executable is gone."""
        call = self._call()
        if call is None:
            raise ExecutionError(
                "this call's executable is gone", hint="keep the executable as long as its direct_call is called"
            )
        return call(*arguments)
