"""The table of functions that handlers of XLA's typed FFI call back: errors, states, memory, threads, types.

The functions are written in Python, as most calls of handlers use none of them: they serve errors, states and scratch
memory. One table serves the whole process, as machine code contains its address.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from dataclasses import field
from functools import cache
from typing import Any, Final

from xlakit import machine
from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError
from xlakit.execution.calls.ffi.structures import CODES, MAJOR, MINOR, ApiVersion, Context, TypeInfo

_WORD = ctypes.c_size_t
_POINTER = ctypes.c_void_p
# The bytes before the fields of each argument structure: its size, and the pointer to its extensions.
_HEAD: Final = 16
_UNIMPLEMENTED: Final = CODES.index("UNIMPLEMENTED")
_INVALID_ARGUMENT: Final = CODES.index("INVALID_ARGUMENT")
_NOT_FOUND: Final = CODES.index("NOT_FOUND")
_RESOURCE_EXHAUSTED: Final = CODES.index("RESOURCE_EXHAUSTED")
_ALIGNMENT: Final = 64


@dataclass(eq=False, slots=True)
class States:
    """The objects that the handlers of one call have made at their earlier stages: address and type by stage."""

    by_stage: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def drop(self, stage: int) -> None:
        """Free the object of a stage, if there is one."""
        type_id, state = self.by_stage.pop(stage, (0, 0))
        deleter = _deleters.get(type_id)
        if deleter and state:
            ctypes.CFUNCTYPE(None, _POINTER)(deleter)(state)

    def __del__(self) -> None:
        for stage in tuple(self.by_stage):
            self.drop(stage)


_numbers = itertools.count(1)
_lock = threading.Lock()
# The objects that handlers refer to by address or number: errors, futures, memory, states.
_errors: dict[int, tuple[int, Any]] = {}
_futures: dict[int, _Future] = {}
_memory: dict[int, Any] = {}
_states: dict[int, States] = {}
# The numbers of registered types, by name, and the functions that free their objects, by number.
_types: dict[str, int] = {}
_deleters: dict[int, int] = {}
_FIRST_TYPE: Final = 1 << 32


@dataclass(eq=False, slots=True)
class _Future:
    done: threading.Event = field(default_factory=threading.Event)
    error: int = 0


# -- errors ------------------------------------------------------------------------------------------


def new_error(code: int, message: str) -> int:
    """A new error, as the address that a handler returns; :func:`take_error` reads and frees it."""
    number = next(_numbers)
    _errors[number] = code, ctypes.create_string_buffer(message.encode("utf-8", "surrogateescape"))
    return number


def is_error(error: int) -> bool:
    """Whether an address is that of an error that a handler has made."""
    return error in _errors


def take_error(error: int) -> tuple[str, str]:
    """The name of an error's code, and its message; frees the error."""
    code, message = _errors.pop(error, (CODES.index("INTERNAL"), None))
    name = CODES[code] if 0 <= code < len(CODES) else f"code {code}"
    return name, "" if message is None else message.value.decode("utf-8", "replace")


def await_future(future: int) -> int:
    """Wait for the future that an asynchronous handler has returned; gives its error, or 0."""
    found = _futures[future]
    found.done.wait()
    del _futures[future]
    return found.error


# -- types and states --------------------------------------------------------------------------------


def register_type(name: str, type_id: int, type_info: int = 0) -> None:
    """Register a type: the address of its ``XLA_FFI_TypeId``, which becomes unique, and of its ``XLA_FFI_TypeInfo``.

    A name that is registered again has the type that it had. Raises ArgumentError where that is another one.
    """
    number = ctypes.c_int64.from_address(type_id)
    with _lock:
        known = _types.get(name)
        if known is not None and number.value not in (0, known):
            raise ArgumentError(
                f"the FFI type '{name}' is registered as type {known}, not {number.value}",
                hint="give each type a name of its own",
            )
        if number.value == 0:
            number.value = known if known is not None else _FIRST_TYPE + len(_types)
        _types[name] = number.value
        deleter = TypeInfo.from_address(type_info).deleter if type_info else None
        if deleter:
            _deleters[number.value] = deleter


def new_states() -> tuple[int, States]:
    """New states for the handlers of one call, after their number, which is valid until :func:`drop_states`."""
    number, states = next(_numbers), States()
    _states[number] = states
    return number, states


def drop_states(number: int) -> None:
    """Make the number of states invalid; they are freed with their last reference."""
    _states.pop(number, None)


# -- the functions -----------------------------------------------------------------------------------


class _Arguments:
    """The fields of a function's argument structure, which are words, by their numbers."""

    def __init__(self, address: int) -> None:
        self._address = address + _HEAD

    def address(self, number: int) -> int:
        """The address of a field."""
        return self._address + 8 * number

    def __getitem__(self, number: int) -> int:
        return ctypes.c_int64.from_address(self.address(number)).value

    def __setitem__(self, number: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address(number)).value = value

    def enum(self, number: int) -> int:
        """A field that is an enumeration."""
        return ctypes.c_int32.from_address(self.address(number)).value


def _error_create(arguments: _Arguments) -> int:
    number = next(_numbers)
    text = ctypes.string_at(arguments[0]) if arguments[0] else b""
    _errors[number] = arguments.enum(1), ctypes.create_string_buffer(text)
    return number


def _error_get_message(arguments: _Arguments) -> int:
    _, message = _errors[arguments[0]]
    arguments[1] = ctypes.addressof(message)
    return 0


def _error_destroy(arguments: _Arguments) -> int:
    _errors.pop(arguments[0], None)
    return 0


def _type_register(arguments: _Arguments) -> int:
    name = ctypes.string_at(arguments[0], arguments[1]).decode()
    try:
        register_type(name, arguments[2], arguments[3])
    except ArgumentError as error:
        return new_error(_INVALID_ARGUMENT, error.rule)
    return 0


def _states_of(context: int) -> States | None:
    return _states.get(Context.from_address(context).states) if context else None


def _state_set(arguments: _Arguments) -> int:
    states, stage = _states_of(arguments[0]), arguments.enum(1)
    if states is None or stage in states.by_stage:
        return new_error(_INVALID_ARGUMENT, f"the state of stage {stage} is set already, or cannot be set here")
    states.by_stage[stage] = ctypes.c_int64.from_address(arguments[2]).value, arguments[3]
    return 0


def _state_get(arguments: _Arguments) -> int:
    states, stage = _states_of(arguments[0]), arguments.enum(1)
    state = states.by_stage.get(stage) if states is not None else None
    if state is None:
        return new_error(_NOT_FOUND, f"stage {stage} has set no state")
    type_id = ctypes.c_int64.from_address(arguments[2]).value
    if state[0] != type_id:
        return new_error(_INVALID_ARGUMENT, f"the state of stage {stage} has type {state[0]}, not {type_id}")
    arguments[3] = state[1]
    return 0


def _context_get(_: _Arguments) -> int:
    return new_error(_NOT_FOUND, "xlakit's runs carry no user data in their execution context")


def _memory_allocate(arguments: _Arguments) -> int:
    size, alignment = arguments[1], max(arguments[2], _ALIGNMENT)
    try:
        memory = ctypes.create_string_buffer(max(1, size) + alignment)
    except (MemoryError, ValueError, OverflowError):
        return new_error(_RESOURCE_EXHAUSTED, f"there are no {size} bytes of memory")
    address = -(-ctypes.addressof(memory) // alignment) * alignment
    _memory[address] = memory
    arguments[3] = address
    return 0


def _memory_free(arguments: _Arguments) -> int:
    _memory.pop(arguments[2], None)
    return 0


def _schedule(arguments: _Arguments) -> int:
    task = ctypes.CFUNCTYPE(None, _POINTER)(arguments[1])
    threading.Thread(target=task, args=(arguments[2],), daemon=True).start()
    return 0


def _num_threads(arguments: _Arguments) -> int:
    ctypes.c_int64.from_address(arguments[1]).value = machine.current().threads
    return 0


def _future_create(arguments: _Arguments) -> int:
    number = next(_numbers)
    _futures[number] = _Future()
    arguments[0] = number
    return 0


def _future_set_available(arguments: _Arguments) -> int:
    _futures[arguments[0]].done.set()
    return 0


def _future_set_error(arguments: _Arguments) -> int:
    future = _futures[arguments[0]]
    future.error = arguments[1]
    future.done.set()
    return 0


def _run_id(arguments: _Arguments) -> int:
    # Unique for each call, and therefore for each run.
    arguments[1] = next(_numbers)
    return 0


def _device_ordinal(arguments: _Arguments) -> int:
    context = arguments[0]
    ordinal = Context.from_address(context).ordinal if context else 0
    ctypes.c_int32.from_address(arguments.address(1)).value = ordinal
    return 0


def _refused(what: str) -> Callable[[_Arguments], int]:
    return lambda _: new_error(_UNIMPLEMENTED, f"{what} on xlakit")


# In the order of the interface's table.
_FUNCTIONS: Final[tuple[Callable[[_Arguments], int], ...]] = (
    _error_create,
    _error_get_message,
    _error_destroy,
    _refused("handlers are registered with jax.ffi.register_ffi_target, not from C,"),
    _refused("there are no streams"),
    _type_register,
    _context_get,
    _state_set,
    _state_get,
    _memory_allocate,
    _memory_free,
    _schedule,
    _num_threads,
    _future_create,
    _future_set_available,
    _future_set_error,
    _run_id,
    _device_ordinal,
)


class _Table(ctypes.Structure):
    _fields_ = (
        ("struct_size", _WORD),
        ("extension_start", _POINTER),
        ("api_version", ApiVersion),
        ("internal_api", _POINTER),
        ("functions", _POINTER * len(_FUNCTIONS)),
    )


_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t)


def _callable_from_c(function: Callable[[_Arguments], int]) -> Any:
    return _FUNCTION(lambda address: function(_Arguments(address)))


@cache
def _table() -> tuple[Any, Any]:
    callbacks = tuple(map(_callable_from_c, _FUNCTIONS))
    version = ApiVersion(ctypes.sizeof(ApiVersion), None, MAJOR, MINOR)
    table = _Table(ctypes.sizeof(_Table), None, version, None)
    for number, callback in enumerate(callbacks):
        table.functions[number] = ctypes.cast(callback, _POINTER)
    return table, callbacks


def table_address() -> int:
    """The address of the table of functions, which is fixed for the process."""
    return ctypes.addressof(_table()[0])
