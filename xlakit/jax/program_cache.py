"""Programs in the compile cache, found by the bytes of the program that JAX passes to the plugin.

The key of machine code derives from the HLO module, and converting JAX's bytes to HLO takes longer than loading the
code. So each program has a second entry whose key derives from the bytes: it contains the key of the machine code and
the metadata that JAX queries for every program. Anything else is computed from the module on demand.

Only programs that run without Python in this process, and none of whose custom calls is registered, have such entries:
they depend only on their bytes, their devices, and the compiler's state that :func:`source_key` covers. Programs that
call Python functions for partitioning, or report shardings to them, have none.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from xlakit import compile_cache as cache, options as _options
from xlakit.cpu.cache.cache_key import compiler_has_changed, source_key
from xlakit.cpu.execution.native_program import NativeProgram
from xlakit.cpu.program import Program as MachineCode
from xlakit.errors import ExecutionError, FormatError
from xlakit.jax.executable_metadata import ExecutableMetadata
from xlakit.jax.program import Program
from xlakit.jax.sources import Description, described_module
from xlakit.settings import debugged, dump_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from xlakit.execution.device import Device
    from xlakit.ir.instruction import HloModule
    from xlakit.jax.devices import Devices
    from xlakit.runtime.executable import LoadedExecutable

_PROGRAM, _OUTLINE = "program", "outline"
# Custom calls for which the partitioner calls Python.
_OF_PARTITIONER = b"InspectSharding", b"CustomSPMDPartitioning"


def key_of(code: bytes, format: str, assignment: bytes) -> str | None:
    """The key of a program for the devices in ``assignment``; None if the program cannot be cached.

    No other option of JAX changes the program. Their bytes are not part of the key, since they differ between
    processes.
    """
    import jaxlib.version

    if any(name in code for name in _OF_PARTITIONER):
        return None
    # Not cached if the compiler has to run: for debug output, for dumps, for verification, which compiles twice, and
    # for profiles, which need the program.
    current = _options.current()
    is_watched = current.verify or current.sanitize or current.profile or dump_request() is not None
    if not cache.is_enabled() or debugged() or is_watched:
        return None
    return source_key(format, [jaxlib.version.__version__], [code, assignment])


def load(
    key: str, devices: Devices, options: bytes, compile: Callable[[HloModule], LoadedExecutable]
) -> Program | None:
    """The cached program of a key; None if there is none, or if it cannot run here.

    compile: compiles the module for the devices of the key; called only for uses that need more than the machine code
    and the metadata.
    """
    found = cache.load(key)
    if found is None:
        return None
    try:
        metadata = ExecutableMetadata.from_fields(found.fields["metadata"])
        description = Description(bytes(found.sections[_PROGRAM]), bytes(found.sections[_OUTLINE]))
        machine_key: str = found.fields["machine code"]
        calls: list[str] = found.fields["calls"]
    except (KeyError, FormatError) as error:
        cache.discard(key, f"it tells of no program: {error}")
        return None
    machine = cache.load(machine_key)
    if machine is not None and _options.current().tune and not machine.fields.get("tuned"):
        # Not loaded, so that it is compiled again, with tuning.
        return None
    if machine is None or max(metadata.devices) >= len(devices.local) or _are_registered(calls):
        return None

    def module() -> HloModule:
        return described_module(description.for_file)

    try:
        code = MachineCode.from_entry(machine, module)
    except FormatError as error:
        cache.discard(machine_key, error.rule)
        return None

    # A weak reference: the program refers to its code, so the code must not keep the program alive.
    owner: list[weakref.ref[Program]] = []

    def begin() -> list[Device]:
        running = owner[0]()
        if running is None:
            raise ExecutionError("this run's program is gone", hint="keep a program as long as it runs")
        compiled: Any = running.loaded.compiled
        return compiled.begin()

    native = NativeProgram(code, len(metadata.devices), len(metadata.orders), len(metadata.results), begin)
    program = Program(
        devices, metadata, description, options, lambda: compile(module()), native, lambda: compile(module())
    )
    owner.append(weakref.ref(program))
    return program


def store(key: str, metadata: ExecutableMetadata, program: Program) -> None:
    """Store a program under a key, if it may be cached by its bytes."""
    loaded = program.loaded
    compiled: Any = loaded.compiled
    machine_key: str | None = getattr(compiled, "cache_key", None)
    if machine_key is None or loaded.native_entry is None or compiler_has_changed():
        return
    if compiled.host_instructions:
        return
    calls = _calls(loaded.module)
    if not _are_registered(calls):
        fields = {"machine code": machine_key, "calls": calls, "metadata": metadata.fields()}
        description = program.description
        cache.save(key, cache.Entry(fields, {_PROGRAM: description.program, _OUTLINE: description.outline}))


def _calls(module: HloModule) -> list[str]:
    """The names of the custom calls of a module."""
    from xlakit.ops.custom_call import CustomCall

    ops = (i.op for computation in module.computations for i in computation.instructions)
    return sorted({op.custom_call_target for op in ops if isinstance(op, CustomCall)})


def _are_registered(calls: Iterable[str]) -> bool:
    """Whether any of these custom calls is registered in this process."""
    # If the module of custom calls is not loaded, none is registered.
    registry: Any = sys.modules.get("xlakit.execution.calls.custom_calls")
    return registry is not None and any(map(registry.is_registered, calls))
