"""C functions behind custom calls: ``void name(void* out, void** in)``, by their address.

Source: XLA's document "Operation semantics", section CustomCall. A function gets the memory of its operands and of its
result, each array in the layout of its shape; a tuple is a table of pointers to its elements. The versions of the
interface that return a status have more parameters:

    API_VERSION_STATUS_RETURNING            name(out, in, XlaCustomCallStatus* status)
    API_VERSION_STATUS_RETURNING_UNIFIED    name(out, in, const char* opaque, size_t opaque_len, status)

A status is the ``std::optional<std::string>`` of a failure's message, as GNU's C++ library lays it out: the address of
the text, its length, 16 bytes for a short text, and a byte that is 1 where there is one.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ExecutionError, UnsupportedError
from xlakit.ir.enums import CustomCallApiVersion
from xlakit.ir.instruction import Instruction
from xlakit.ir.operation import TOKEN, Evaluation, Value
from xlakit.ops.custom_call import CustomCall

# Functions of ctypes that expect their caller to hold the GIL say so in their flags.
_FUNCFLAG_PYTHONAPI = 4

_PLAIN_VERSIONS = (CustomCallApiVersion.API_VERSION_ORIGINAL, CustomCallApiVersion.API_VERSION_UNSPECIFIED)
_WITH_STATUS = CustomCallApiVersion.API_VERSION_STATUS_RETURNING
_WITH_OPAQUE = CustomCallApiVersion.API_VERSION_STATUS_RETURNING_UNIFIED


def is_c_function(function: object) -> bool:
    """Whether a value is a C function: a ctypes function, an address or a PyCapsule."""
    is_number = isinstance(function, int) and not isinstance(function, bool)
    named = type(function).__name__ == "PyCapsule"
    return is_number or named or isinstance(function, ctypes.c_void_p) or hasattr(function, "argtypes")


class CTarget:
    """A C function that custom calls run, with a reference to the object that owns it."""

    def __init__(self, name: str, function: object) -> None:
        self.name = name
        self.address = address_of(function)
        # Machine code runs without the GIL.
        self.needs_gil = bool(getattr(type(function), "_flags_", 0) & _FUNCFLAG_PYTHONAPI)
        self._owner = function
        self._make = ctypes.PYFUNCTYPE if self.needs_gil else ctypes.CFUNCTYPE

    def check(self, instruction: Instruction) -> None:
        """Raise UnsupportedError if an instruction wants a calling convention that C functions do not have."""
        op = instruction.op_as(CustomCall)
        if op.api_version not in (*_PLAIN_VERSIONS, _WITH_STATUS, _WITH_OPAQUE):
            raise UnsupportedError(
                f"custom call '{self.name}' wants {op.api_version.name} of a C function",
                hint="register handlers of the typed FFI with xlakit.register_ffi_handler",
            )
        for shape in (*(o.shape for o in instruction.operands), instruction.shape):
            if any(leaf.is_array and leaf.is_dynamic for _, leaf in shape.leaves()):
                raise UnsupportedError(
                    f"C functions cannot take or give the dynamic {shape}",
                    hint="pad it to its bounds with set_dimension_size before the call",
                )

    def __call__(self, context: Evaluation, *operands: Value) -> Any:
        """Call it on copies of the operands; gives the result."""
        instruction = context.instruction
        self.check(instruction)
        inputs, output = memory_of(instruction, operands, context.shape)
        output.link()
        table = (ctypes.c_void_p * len(inputs))(*(i.pointer for i in inputs))
        memory = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
        if not returns_status(instruction):
            self._make(None, *memory)(self.address)(output.pointer, table)
            return output.read()
        status = (ctypes.c_char * _STATUS_BYTES)()
        if instruction.op_as(CustomCall).api_version is _WITH_STATUS:
            self._make(None, *memory, ctypes.c_void_p)(self.address)(output.pointer, table, status)
        else:
            opaque = (instruction.annotations.backend_config or "").encode("utf-8", "surrogateescape")
            function = self._make(None, *memory, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)(self.address)
            function(output.pointer, table, opaque, len(opaque), status)
        if status[_IS_FAILURE] != b"\0":
            raise ExecutionError(f"custom call '{self.name}' has failed: {_message(bytes(status))}")
        return output.read()


# A string, and the byte that says that there is one; with the padding behind it.
_STATUS_BYTES, _IS_FAILURE = 40, 32


def _message(status: bytes) -> str:
    # The memory of a long text is not freed: it is the function's C++ library that knows how.
    address, length = struct.unpack("<QQ", status[:16])
    return ctypes.string_at(address, length).decode("utf-8", "replace")


def returns_status(instruction: Instruction) -> bool:
    """Whether a custom call is one of a version of the interface in which C functions return a status."""
    op = instruction.op
    return isinstance(op, CustomCall) and op.api_version in (_WITH_STATUS, _WITH_OPAQUE)


def address_of(pointer: object) -> int:
    """The address that a ctypes function, a number or a PyCapsule holds."""
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        address = pointer
    elif isinstance(pointer, ctypes.c_void_p):
        address = pointer.value or 0
    elif type(pointer).__name__ == "PyCapsule":
        api = ctypes.pythonapi
        name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
        address = get(pointer, name_of(pointer)) or 0
    elif hasattr(pointer, "argtypes"):
        address = ctypes.cast(cast("Any", pointer), ctypes.c_void_p).value or 0
    else:
        raise ArgumentError(f"{pointer!r} is no C function", hint="give a ctypes function, an address or a PyCapsule")
    # The first page contains no code on any system.
    if not 4096 <= address < 1 << 8 * ctypes.sizeof(ctypes.c_void_p):
        raise ArgumentError(f"the C function has no address, got {address}", hint="give a function that is loaded")
    return address


def memory_of(instruction: Instruction, operands: Sequence[Value], shape: Shape) -> tuple[list[Memory], Memory]:
    """The memory of copies of a custom call's operands, and of its result; aliased ones have the same address."""
    op = instruction.op_as(CustomCall)
    shapes = op.operand_layout_constraints or tuple(o.shape for o in instruction.operands)
    inputs = [Memory(shape, value) for shape, value in zip(shapes, operands, strict=True)]
    output = Memory(shape, None)
    for pair in op.output_to_operand_aliasing:
        output.at(pair.output_index).share(inputs[pair.operand_number].at(pair.operand_index))
    return inputs, output


class Memory:
    """Memory that a C function reads or writes: the array in its shape's layout, or a table of a tuple's elements."""

    def __init__(self, shape: Shape, value: Value | None) -> None:
        self.shape = shape
        self.pointer: int | None = None
        self._elements: list[Memory] = []
        self._memory: Any = None
        if shape.is_tuple:
            values = value if value is not None else [None] * len(shape.tuple_shapes)
            self._elements = [Memory(s, v) for s, v in zip(shape.tuple_shapes, values, strict=True)]
            self.link()
        elif shape.is_array:
            literal = Literal(shape, np.zeros(shape.dimensions, shape.element_type.dtype) if value is None else value)
            # A copy, since the function may write anywhere; an empty array still needs an address.
            linear = literal.to_linear()
            self._memory = np.array(linear) if linear.size else np.zeros(1, linear.dtype)
            self._count = linear.size
            self.pointer = self._memory.ctypes.data

    def at(self, index: tuple[int, ...]) -> Memory:
        """An element of a tuple of tuples."""
        return self._elements[index[0]].at(index[1:]) if index else self

    def leaves(self) -> Iterator[Memory]:
        """The memory of its arrays and tokens, in their order."""
        if self.shape.is_tuple:
            for element in self._elements:
                yield from element.leaves()
        else:
            yield self

    def share(self, other: Memory) -> None:
        """Use the memory of ``other``, which has an equal shape, instead of this one's."""
        for own_element, element in zip(self._elements, other._elements, strict=True):
            own_element.share(element)
        if self.shape.is_array:
            self._memory, self.pointer = other._memory, other.pointer

    def link(self) -> None:
        """Write the tables of tuples."""
        for element in self._elements:
            element.link()
        if self.shape.is_tuple:
            self._memory = (ctypes.c_void_p * len(self._elements))(*(e.pointer for e in self._elements))
            self.pointer = ctypes.addressof(self._memory)

    def read(self) -> Value:
        """The value that the memory holds now."""
        if self.shape.is_tuple:
            return tuple(element.read() for element in self._elements)
        if self._memory is None:
            return TOKEN
        return Literal.from_linear(self.shape, self._memory[: self._count]).array
