"""Calls of handlers of XLA's typed FFI in machine code: a function that writes the call frame and calls the handler.

The frame and the structures that it points to are written to the stack for each call, some hundred bytes. The handler
is imported like other C functions; see :mod:`xlakit.cpu.kernels.c_call`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, cast

from xlakit.cpu.kernels.c_call import in_place_of
from xlakit.cpu.llvm import I8, I32, I64, PTR, Effort, Function, Module, Value
from xlakit.cpu.program import FFI_TABLE, c_symbol
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.attributes import parse_attributes
from xlakit.execution.calls.ffi.frames import Structure, call_frame
from xlakit.execution.calls.ffi.structures import Stage
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
    addresses = iter(pointers)
    frame = call_frame(
        [(shape, next(addresses) if shape.is_array else fn.null()) for shape in operands],
        [(shape, next(addresses) if shape.is_array else fn.null()) for shape in results],
        parse_attributes(instruction.annotations.backend_config),
        api=fn.address(module.declare(FFI_TABLE, PTR, [])),
        ctx=Structure(structures.Context, ordinal=ordinal),
        stage=int(Stage.EXECUTE),
    )
    fn.ret(fn.call(handler, PTR, _address(fn, frame)))
    fn.effort = Effort.LITTLE
    return fn


def _leaves(shape: Shape) -> list[Shape]:
    return [leaf if leaf.is_array else _TOKEN for _, leaf in shape.leaves()]


def _address(fn: Function, value: Any) -> Value:
    """The address of what a field points to: structures are on the stack of the function, bytes are constants."""
    if isinstance(value, bytes):
        return fn.address(fn.module.constant_data("ffi_data", value.ljust(8, b"\0"), align=16))
    if isinstance(value, list):
        return fn.table([_address(fn, item) for item in cast("list[Any]", value)])
    if not isinstance(value, Structure):
        return value
    memory = fn.alloca(I64, -(-ctypes.sizeof(value.kind) // 8))
    fn.fill(memory, 0, ctypes.sizeof(value.kind))
    _write(fn, memory, value)
    return memory


def _write(fn: Function, memory: Value, structure: Structure) -> None:
    types: dict[str, type] = dict(structure.kind._fields_)  # pyright: ignore
    for name, value in structure.fields.items():
        field: Any = getattr(structure.kind, name)
        place = fn.at(memory, I8, field.offset)
        if isinstance(value, int):
            fn.store(fn.constant(I32 if field.size == 4 else I64, value), place)
        elif issubclass(types[name], ctypes.Structure):
            _write(fn, place, value)
        else:
            fn.store(_address(fn, value), place)
