"""Calls of handlers of XLA's typed FFI in machine code: a function that writes the call frame and calls the handler.

The frame and the structures that it points to are written to the stack for each call, some hundred bytes. The handler
is imported like other C functions; see :mod:`xlakit.cpu.kernels.c_call`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

from xlakit.cpu.kernels.c_call import in_place_of
from xlakit.cpu.llvm import I8, I32, I64, PTR, Effort, Function, Module, Value
from xlakit.cpu.program import FFI_TABLE, c_symbol
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.attributes import Attribute, parse_attributes
from xlakit.execution.calls.ffi.structures import AttributeKind, Stage
from xlakit.execution.calls.ffi.target import data_type_number, kind_of
from xlakit.ir.instruction import Instruction
from xlakit.ops.custom_call import CustomCall

_TOKEN: Final = Shape(PrimitiveType.TOKEN)


def emit_ffi_call(module: Module, instruction: Instruction) -> Function:
    """A function ``ptr ffi_call(ptr table, i64 ordinal)``, which returns the handler's error, or null.

    table: the addresses of the arrays of the operands, then of the results. ordinal: the number of the device.
    """
    op = instruction.op_as(CustomCall)
    handler = module.declare(c_symbol(op.custom_call_target), PTR, [PTR])
    fn, table, ordinal = module.begin("ffi_call", PTR, [PTR, I64])
    operands = [shape for operand in instruction.operands for shape in _leaves(operand.shape)]
    results = _leaves(instruction.shape)
    arrays = [shape for shape in (*operands, *results) if shape.is_array]
    pointers = [fn.pointer(table, number) for number in range(len(arrays))]
    count = sum(shape.is_array for shape in operands)
    for result, operand in in_place_of(instruction).items():
        # The handler expects the operand in the result's memory.
        fn.copy(pointers[count + result], pointers[operand], arrays[operand].byte_size)
        pointers[operand] = pointers[count + result]
    writer = _Writer(fn)
    frame = writer.structure(structures.CallFrame)
    context = writer.structure(structures.Context, ordinal=ordinal)
    fields = {"api": fn.address(module.declare(FFI_TABLE, PTR, [])), "ctx": context, "stage": int(Stage.EXECUTE)}
    writer.fill(frame, structures.CallFrame, struct_size=structures.CALL_FRAME_BYTES, **fields)
    addresses = iter(pointers)
    for name, shapes in (("args", operands), ("rets", results)):
        buffers = [writer.buffer(shape, next(addresses) if shape.is_array else fn.null()) for shape in shapes]
        part = writer.inside(frame, structures.CallFrame, name)
        types = writer.numbers([structures.BUFFER] * len(buffers), I32)
        writer.fill(part, structures.Buffers, size=len(buffers), types=types, buffers=fn.table(buffers))
    attributes = parse_attributes(instruction.annotations.backend_config)
    writer.attributes(writer.inside(frame, structures.CallFrame, "attrs"), attributes)
    fn.ret(fn.call(handler, PTR, frame))
    fn.effort = Effort.LITTLE
    return fn


def _leaves(shape: Shape) -> list[Shape]:
    return [leaf if leaf.is_array else _TOKEN for _, leaf in shape.leaves()]


class _Writer:
    """Writes the structures of the FFI to the stack of a function."""

    def __init__(self, fn: Function) -> None:
        self._fn = fn

    def structure(self, kind: type[ctypes.Structure], **fields: Value | int) -> Value:
        """A new structure; ``struct_size`` is set, and other fields that are not given are 0."""
        fn = self._fn
        memory = fn.alloca(I64, -(-ctypes.sizeof(kind) // 8))
        fn.fill(memory, 0, ctypes.sizeof(kind))
        self.fill(memory, kind, **fields)
        return memory

    def fill(self, memory: Value, kind: type[ctypes.Structure], **fields: Value | int) -> None:
        """Write fields of a structure."""
        if hasattr(kind, "struct_size"):
            fields = {"struct_size": ctypes.sizeof(kind), **fields}
        for name, value in fields.items():
            field: Any = getattr(kind, name)
            number = value if isinstance(value, Value) else self._fn.constant(I32 if field.size == 4 else I64, value)
            self._fn.store(number, self.inside(memory, kind, name))

    def inside(self, memory: Value, kind: type[ctypes.Structure], name: str) -> Value:
        """The address of a field."""
        return self._fn.at(memory, I8, getattr(kind, name).offset)

    def numbers(self, numbers: Sequence[int], type: Any) -> Value:
        """The address of a constant array of numbers."""
        data = b"".join(number.to_bytes(type.bytes, "little", signed=True) for number in numbers)
        return self.data(data)

    def data(self, data: bytes) -> Value:
        """The address of constant bytes."""
        module = self._fn.module
        return self._fn.address(module.constant_data("ffi_data", data.ljust(8, b"\0"), align=16))

    def buffer(self, shape: Shape, address: Value) -> Value:
        """The structure of an operand or a result."""
        dimensions = shape.dimensions if shape.is_array else ()
        return self.structure(
            structures.Buffer,
            dtype=data_type_number(shape),
            data=address,
            rank=len(dimensions),
            dims=self.numbers(dimensions, I64),
        )

    def attributes(self, memory: Value, attributes: Mapping[str, Attribute]) -> None:
        """Fill in the structure of a dictionary of attributes."""
        kinds = [int(kind_of(value)) for value in attributes.values()]
        self.fill(
            memory,
            structures.Attributes,
            size=len(attributes),
            types=self.numbers(kinds, I32),
            names=self._fn.table([self._span(name) for name in attributes]),
            attrs=self._fn.table([self._attribute(value) for value in attributes.values()]),
        )

    def _attribute(self, value: Attribute) -> Value:
        if isinstance(value, str):
            return self._span(value)
        if isinstance(value, Mapping):
            attributes = self.structure(structures.Attributes)
            self.attributes(attributes, value)
            return attributes
        number = structures.DATA_TYPES[PrimitiveType.from_dtype(value.dtype)]
        data = self.data(value.tobytes())
        if kind_of(value) is AttributeKind.SCALAR:
            return self.structure(structures.Scalar, dtype=number, value=data)
        return self.structure(structures.Array, dtype=number, size=value.size, data=data)

    def _span(self, text: str) -> Value:
        data = text.encode("utf-8", "surrogateescape")
        return self.structure(structures.ByteSpan, ptr=self.data(data + b"\0"), len=len(data))
