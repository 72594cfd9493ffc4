"""The interface's functions that are written in Python: those called rarely, and never while Python shuts down."""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from xlakit import compile_cache as cache
from xlakit.collector import collecting_less
from xlakit.cpu.runtime.numpy_api import keep_for_ever
from xlakit.errors import (
    ArgumentError,
    HandlerError,
    InternalError,
    ResourceError,
    UnsupportedError,
    XlakitError,
    outside,
    raised_by_handler,
)
from xlakit.jax.api.numbers import Code
from xlakit.jax.arguments import ArgumentStruct, NamedValues
from xlakit.jax.devices import Devices
from xlakit.jax.float_environment import FloatEnvironment
from xlakit.jax.identity import device_count
from xlakit.jax.native.records import EXECUTABLE
from xlakit.jax.processes import is_current
from xlakit.jax.queue import open_queue
from xlakit.jax.wire import DESCRIBED
from xlakit.options import compiling, current
from xlakit.settings import check_settings

if TYPE_CHECKING:
    from xlakit.jax.native.library import Native, OfPython
    from xlakit.jax.program import Program

Slot = Callable[["State", ArgumentStruct], None]


class State:
    """The state of the plugin: the client, once it exists, and the programs to which JAX has references."""

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.devices: Devices | None = None
        self._native: Native | None = None
        self.programs: dict[int, Program] = {}
        self.attributes: NamedValues | None = None
        # Called with each new program.
        self.on_program: Callable[[Program], None] | None = None
        self._reader = threading.local()

    @property
    def native(self) -> Native:
        """The native library, which the plugin loads before JAX can call it. Raises InternalError before that."""
        if self._native is None:
            raise InternalError("the plugin is called before its native library is loaded")
        return self._native

    @native.setter
    def native(self, library: Native) -> None:
        self._native = library

    @contextmanager
    def reading_whole_programs(self) -> Generator[None]:
        """Within the block, requests of jaxlib for programs on this thread get whole programs, not outlines."""
        self._reader.of_all = True
        try:
            yield
        finally:
            self._reader.of_all = False

    def description_of(self, executable: int) -> bytes:
        """The description of a program for a request of jaxlib on this thread: an outline, or the whole program."""
        description = self.programs[executable].description
        return description.whole if getattr(self._reader, "of_all", False) else description.outline

    def forget_dead(self) -> None:
        """Release programs to which JAX has no reference left."""
        address = self.native.take_dead()
        while address:
            program = self.programs.pop(address)
            address = ctypes.c_int64.from_address(address + EXECUTABLE.offset("next")).value
            del program

    def text_of(self, fingerprint: str) -> str | None:
        """The HLO text of a program after the compiler's passes; None if no loaded program has the fingerprint."""
        for program in self.programs.values():
            if program.fingerprint == fingerprint:
                return program.text()
        return None


def error_code(error: BaseException) -> Code:
    """The interface's code for an exception."""
    if isinstance(error, UnsupportedError):
        return Code.UNIMPLEMENTED
    if isinstance(error, (ResourceError, MemoryError)):
        return Code.RESOURCE_EXHAUSTED
    if isinstance(error, ArgumentError):
        return Code.INVALID_ARGUMENT
    if isinstance(error, KeyboardInterrupt):
        return Code.CANCELLED
    if isinstance(error, HandlerError):
        return Code.__members__.get(error.code, Code.UNKNOWN)
    return Code.INTERNAL


def describe(error: BaseException) -> str:
    """The text of an exception as JAX shows it."""
    cause = error.__cause__
    text = str(error) if isinstance(error, XlakitError) else f"{type(error).__name__}: {error}"
    if cause is None and isinstance(error, XlakitError):
        return text
    if cause is None:
        return text + "\n" + "".join(traceback.format_exception(error))
    # For an exception of a user's function, add the traceback within that function.
    return text + "\n" + "".join(traceback.format_exception(type(cause), cause, outside(cause.__traceback__)))


# -- the client ------------------------------------------------------------------------------------


def _attributes(state: State, struct: ArgumentStruct) -> None:
    """Report the version of StableHLO in which programs may be passed: jaxlib's, as jaxlib also converts them here."""
    from jaxlib.mlir.dialects import stablehlo

    if state.attributes is None:
        version: str = stablehlo.get_current_version()
        state.attributes = NamedValues({"stablehlo_current_version": [int(n) for n in version.split(".")]})
        keep_for_ever(state.attributes)
    struct["attributes"], struct["num_attributes"] = state.attributes.address, 1


def _create_client(state: State, struct: ArgumentStruct) -> None:
    # Checked here, as programs from the compile cache may use none of the settings.
    check_settings()
    cache.is_enabled()
    cache.size_limit()
    current()
    devices = state.devices
    if devices is None or len(devices.local) != device_count(state.platform) or not is_current(devices.cluster):
        # JAX may drop its clients (``clear_backends``) and create others, for which settings may have changed, or the
        # processes of jax.distributed.
        devices = state.devices = Devices(state.platform)
        # Objects of the previous client still point at the records of its devices.
        keep_for_ever(devices)
    open_queue(state.native)
    struct["client"] = devices.record.address


def _compile(state: State, struct: ArgumentStruct) -> None:
    source = ArgumentStruct("Program", struct["program"])
    format = source.data("format", "format_size").decode()
    options = struct.data("compile_options", "compile_options_size")
    struct["executable"] = _add_program(state, source.data("code", "code_size"), format, options)


def _add_program(state: State, code: bytes, format: str, options: bytes) -> int:
    """The address of the record of a new program."""
    state.forget_dead()
    if state.devices is None:
        raise InternalError("a program is compiled before there is a client")
    with collecting_less():
        # Imported with the first program: JAX also makes clients in processes that compile none.
        from xlakit.jax.compiling import compile_program

        program = compile_program(state.devices, code, format, options)
    state.programs[program.record.address] = program
    if state.on_program is not None:
        state.on_program(program)
    return program.record.address


# -- programs --------------------------------------------------------------------------------------


def _optimized_program(state: State, struct: ArgumentStruct) -> None:
    description = state.description_of(struct["executable"])
    target = ArgumentStruct("Program", struct["program"])
    target["format"], target["format_size"] = ctypes.addressof(_DESCRIBED), len(_DESCRIBED.value)
    if target["code"]:
        ctypes.memmove(target["code"], description, len(description))
    target["code_size"] = len(description)


_DESCRIBED: Final = ctypes.create_string_buffer(DESCRIBED.encode())


def _serialize(state: State, struct: ArgumentStruct) -> None:
    from xlakit.jax.serialized import serialize

    _return_bytes(state, struct, serialize(state.programs[struct["executable"]]), "serialized")


def _device_assignment(state: State, struct: ArgumentStruct) -> None:
    _return_bytes(state, struct, state.programs[struct["executable"]].assignment, "holder")


def _return_bytes(state: State, struct: ArgumentStruct, data: bytes, holder: str) -> None:
    """Return bytes, with their holder and the function by which the caller frees them."""
    copied = state.native.make_bytes(data)
    struct["bytes"], struct["bytes_size"] = copied, len(data)
    struct[holder], struct["deleter"] = copied, state.native.destroy_bytes


def _deserialize(state: State, struct: ArgumentStruct) -> None:
    from xlakit.jax.serialized import deserialize

    description, options, level = deserialize(struct.data("bytes", "bytes_size"))
    if struct["options"]:
        options = struct.data("options", "options_size")
    with compiling(cpu=level or None):
        struct["executable"] = _add_program(state, description, DESCRIBED, options)


def _cost_analysis(state: State, struct: ArgumentStruct) -> None:
    properties = state.programs[struct["executable"]].cost_properties()
    struct["properties"], struct["num_properties"] = properties.address, properties.count


def _memory_stats(state: State, struct: ArgumentStruct) -> None:
    program = state.programs[struct["executable"]]
    for name, value in program.memory_stats().items():
        if struct.has(name):
            struct[name] = value


SLOTS: Final[dict[str, Slot]] = {
    "Plugin_Attributes": _attributes,
    "Client_Create": _create_client,
    "Client_Compile": _compile,
    "Executable_Serialize": _serialize,
    "Executable_DeserializeAndLoad": _deserialize,
    "LoadedExecutable_GetDeviceAssignment": _device_assignment,
    "Executable_OptimizedProgram": _optimized_program,
    "Executable_GetCostAnalysis": _cost_analysis,
    "Executable_GetCompiledMemoryStats": _memory_stats,
}


# -- callbacks -------------------------------------------------------------------------------------


def callbacks(state: State) -> dict[str, OfPython]:
    """The functions that are written in Python, by name, as native code calls them."""
    usual = FloatEnvironment()
    return {name: _callback(state, name, slot, usual) for name, slot in SLOTS.items()}


def _callback(state: State, name: str, slot: Slot, usual: FloatEnvironment) -> OfPython:
    def call(address: int) -> int:
        try:
            with usual.here():
                slot(state, ArgumentStruct(name, address))
        except BaseException as error:
            return _made(state, error)
        return 0

    return call


def failure_callback(state: State) -> OfPython:
    """The function that makes the error of a program that ended with a nonzero status."""

    def call(status: int) -> int:
        return _made(state, _error_of(status))

    return call


def _made(state: State, error: BaseException) -> int:
    """The error of an exception. Raises what a signal handler raised: native code hands it over."""
    raised = raised_by_handler(error)
    if raised is not None:
        raise raised
    return state.native.make_error(error_code(error), describe(error))


def _error_of(status: int) -> BaseException:
    from xlakit.cpu.runtime.call import raise_status

    try:
        raise_status(status)
    except BaseException as error:
        return error
