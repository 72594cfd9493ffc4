"""Handlers of XLA's typed FFI behind custom calls.

A handler is ``XLA_FFI_Error* handler(XLA_FFI_CallFrame*)``, as the macros of XLA's header make it. Its version is
queried when it is registered. Machine code calls handlers that have only the stage ``execute``
(:mod:`xlakit.cpu.kernels.ffi_call`); this module makes all other calls: those of the interpreter, of handlers with more
stages, and on arrays that are not major to minor.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, HandlerError, UnsupportedError
from xlakit.execution.calls.c_calls import Memory, address_of, memory_of
from xlakit.execution.calls.ffi import interface, structures
from xlakit.execution.calls.ffi.attributes import Attribute, parse_attributes
from xlakit.execution.calls.ffi.frames import Structure, call_frame
from xlakit.execution.calls.ffi.handshake import ask_version
from xlakit.execution.calls.ffi.structures import Stage
from xlakit.ir.enums import CustomCallApiVersion
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import Evaluation, Value
from xlakit.ops.custom_call import CustomCall

_HANDLER: Final = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(structures.CallFrame))
_HINT: Final = "build it against the headers of jax.ffi.include_dir(), and give jax.ffi.pycapsule(handler)"
_STAGES: Final = tuple(stage.name.lower() for stage in Stage)


class FfiTarget:
    """The handlers that custom calls of one name run, by stage."""

    def __init__(self, name: str, handlers: object) -> None:
        """``handlers`` is the handler of the stage execute, or a mapping from the names of stages to handlers.

        Each is a PyCapsule, an address or a ctypes function. Raises ArgumentError, UnsupportedError.
        """
        self.name = name
        by_stage: Mapping[Any, object] = handlers if isinstance(handlers, Mapping) else {"execute": handlers}
        unknown = [str(stage) for stage in by_stage if stage not in _STAGES]
        if unknown or "execute" not in by_stage:
            raise ArgumentError(
                f"the handlers of custom call '{name}' are of the stages {', '.join(map(str, by_stage)) or 'none'}",
                hint=f"give execute, and of {', '.join(_STAGES[:3])} what there is",
            )
        self._owner = handlers
        self._addresses = {Stage[str(stage).upper()]: address_of(handler) for stage, handler in by_stage.items()}
        self._functions = {stage: _HANDLER(address) for stage, address in self._addresses.items()}
        for address in self._addresses.values():
            self._check_version(address)
        self._states: dict[Instruction, _Held] = {}
        self._lock = threading.Lock()

    def for_executable(self) -> FfiTarget:
        """A copy for one executable: it has its own states, which are freed with the executable."""
        made = copy(self)
        made._states = {}
        made._lock = threading.Lock()
        return made

    @property
    def address(self) -> int | None:
        """The address of the handler if machine code can call it directly, which needs that it has no other stage."""
        return self._addresses[Stage.EXECUTE] if len(self._addresses) == 1 else None

    def _check_version(self, address: int) -> None:
        frame = _Frame((), (), {})
        version, error = ask_version(address, frame.fields)
        if interface.is_error(error):
            raise failure(self.name, error)
        if version == (0, 0):
            raise ArgumentError(
                f"the function for custom call '{self.name}' is no handler of XLA's typed FFI: it says no version",
                hint="register a C function void name(void* out, void** in) with register_c_custom_call, from JAX with "
                f"api_version=0; or {_HINT}",
            )
        if version[0] != structures.MAJOR or version[1] > structures.MINOR:
            raise UnsupportedError(
                f"the handler of custom call '{self.name}' has version {version[0]}.{version[1]} of XLA's typed FFI; "
                f"this is {structures.MAJOR}.{structures.MINOR}",
                hint=_HINT,
            )

    def check(self, instruction: Instruction) -> None:
        """Raise UnsupportedError or ParseError for a call that handlers cannot serve."""
        op = instruction.op_as(CustomCall)
        if op.api_version is not CustomCallApiVersion.API_VERSION_TYPED_FFI:
            raise UnsupportedError(
                f"custom call '{self.name}' wants {op.api_version.name} of a handler of XLA's typed FFI",
                hint="register a C function void name(void* out, void** in) for it, with api_version=0",
            )
        for shape in (*(o.shape for o in instruction.operands), instruction.shape):
            for _, leaf in shape.leaves():
                if leaf.is_array and leaf.is_dynamic:
                    raise UnsupportedError(
                        f"handlers of XLA's typed FFI cannot take or give the dynamic {shape}",
                        hint="pad it to its bounds with set_dimension_size before the call",
                    )
        parse_attributes(instruction.annotations.backend_config)

    def _raise(self, error: int) -> None:
        if error:
            raise failure(self.name, error)

    def __call__(self, context: Evaluation, *operands: Value) -> Any:
        """Call it on copies of the operands; gives the result."""
        instruction = context.instruction
        self.check(instruction)
        inputs, output = memory_of(instruction, operands, context.shape)
        attributes = parse_attributes(instruction.annotations.backend_config)
        states = self._states_of(instruction, attributes)
        frame = _Frame(inputs, [output], attributes)
        ffi_context = structures.Context(context.replica_id * context.num_partitions + context.partition_id, states)
        for stage in (Stage.PREPARE, Stage.INITIALIZE, Stage.EXECUTE):
            self._run(stage, frame, ffi_context)
        return output.read()

    def _states_of(self, instruction: Instruction, attributes: Mapping[str, Attribute]) -> int:
        """The number of the states of a call's handlers; 0 if they have none.

        At the first call of an instruction the states are made, by the stage ``instantiate``.
        """
        if len(self._addresses) == 1:
            return 0
        with self._lock:
            held = self._states.get(instruction)
            if held is None:
                held = _Held(*interface.new_states())
                weakref.finalize(held, interface.drop_states, held.number)
                self._run(Stage.INSTANTIATE, _Frame((), (), attributes), structures.Context(0, held.number))
                self._states[instruction] = held
        # The states of these stages belong to one run, which makes them anew.
        for stage in (Stage.PREPARE, Stage.INITIALIZE):
            held.states.drop(stage)
        return held.number

    def _run(self, stage: Stage, frame: _Frame, context: structures.Context) -> None:
        function = self._functions.get(stage)
        if function is None:
            return
        fields = frame.fields
        fields.stage, fields.ctx, fields.future = stage, ctypes.addressof(context), None
        self._raise(function(ctypes.byref(fields)))
        if fields.future:
            self._raise(interface.await_future(fields.future))


def failure(name: str, error: int) -> HandlerError:
    """The error of a custom call whose handler has failed; ``error``: the address that the handler returned."""
    code, message = interface.take_error(error)
    return HandlerError(f"custom call '{name}' failed: {message or code}", code=code)


class _Held:
    """The states of one call, which end with its instruction."""

    def __init__(self, number: int, states: interface.States) -> None:
        self.number = number
        self.states = states


class _Frame:
    """A call frame in memory, which it keeps with all memory that the frame points to."""

    def __init__(
        self, operands: Sequence[Memory], results: Sequence[Memory], attributes: Mapping[str, Attribute]
    ) -> None:
        self._held: list[Any] = []
        frame = call_frame(_arrays(operands), _arrays(results), attributes, api=interface.table_address())
        self.fields: Any = self._written(frame)

    def _written(self, structure: Structure) -> ctypes.Structure:
        written = structure.kind()
        value: Any
        for name, value in structure.fields.items():
            is_inside = isinstance(getattr(written, name), ctypes.Structure)
            setattr(written, name, self._written(value) if is_inside else self._value(value))
        return written

    def _value(self, value: Any) -> int | None:
        """A number, or the address of what it points to."""
        if isinstance(value, Structure):
            memory: Any = self._written(value)
        elif isinstance(value, bytes):
            memory = ctypes.create_string_buffer(value, max(1, len(value)))
        elif isinstance(value, list):
            memory = (ctypes.c_void_p * max(1, len(value)))(*map(self._value, value))
        else:
            return value
        self._held.append(memory)
        return ctypes.addressof(memory)


def _arrays(values: Sequence[Memory]) -> list[tuple[Shape, int | None]]:
    return [(leaf.shape, leaf.pointer) for value in values for leaf in value.leaves()]
