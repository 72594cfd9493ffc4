"""Custom calls of C functions: machine code calls them at addresses that are known when the program is loaded.

A program imports the function under a symbol made from its name, so machine code in the cache contains the name and not
the address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from xlakit.cpu.llvm import PTR, VOID, Function, Module, Value
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.program import c_symbol
from xlakit.data.layout import Layout
from xlakit.data.shape import Shape
from xlakit.ir.enums import CustomCallApiVersion
from xlakit.ir.instruction import Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.analysis.cost_model import C_CALL


def operand_shapes(instruction: Instruction) -> tuple[Shape, ...]:
    """The shapes of the operands, with the layouts that the function requires."""
    constraints = instruction.op_as(CustomCall).operand_layout_constraints
    return constraints or tuple(o.shape for o in instruction.operands)


def is_plain(layout: Layout) -> bool:
    """Whether an array with this layout consists of its elements only, in any order, without padding or tiles."""
    return not layout.padded_dimensions and not layout.tiles


def lies_major_to_minor(instruction: Instruction) -> bool:
    """Whether all arrays of a call are laid out major to minor, as in compiled programs."""
    layouts = [
        leaf.layout_or_default
        for shape in (*operand_shapes(instruction), instruction.shape)
        for _, leaf in shape.leaves()
        if leaf.is_array
    ]
    return all(is_plain(layout) and layout.is_monotonic_with_dim0_major for layout in layouts)


def is_ffi_call(op: CustomCall) -> bool:
    """Whether the call is one of a handler of XLA's typed FFI."""
    return op.api_version is CustomCallApiVersion.API_VERSION_TYPED_FFI


def is_native_ffi_call(instruction: Instruction, functions: Collection[str]) -> bool:
    """Whether machine code calls the handler of an instruction; ``functions`` names the handlers it can call."""
    op = instruction.op
    return (
        isinstance(op, CustomCall)
        and is_ffi_call(op)
        and op.custom_call_target in functions
        and lies_major_to_minor(instruction)
    )


def emit_c_call(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of a custom call that is a C function, ``void name(void* out, void** in)``; it has one task."""
    op = instruction.op_as(CustomCall)
    symbol = module.declare(c_symbol(op.custom_call_target), VOID, [PTR, PTR])
    fn, table, *_ = kernel_function(module, "c_call")
    numbers = arrays_of([o.shape for o in instruction.operands])
    results = arrays_of([instruction.shape])
    pointers = [fn.pointer(table, n) for n in range(len(numbers) + len(results))]
    updates = updates_of(op, results, numbers)
    for (_, shape), number in zip(_leaves([instruction.shape]), results.values(), strict=True):
        if number not in updates and shape.byte_size:
            fn.fill(pointers[len(numbers) + number], 0, shape.byte_size)
    # An operand whose memory a result shares is passed at the result's address.
    moved = {operand: pointers[len(numbers) + result] for result, operand in updates.items()}
    inputs = iter([moved.get(number, pointers[number]) for number in range(len(numbers))])
    inputs_of_call = [_pointer(fn, operand.shape, inputs) for operand in instruction.operands]
    out = _pointer(fn, instruction.shape, iter(pointers[len(numbers) :]))
    fn.call(symbol, VOID, out, fn.table(inputs_of_call))
    accesses = Accesses.in_place(
        [n for n in range(len(numbers)) if n not in moved], [len(numbers) + n for n in range(len(results))]
    )
    return Kernel((Phase(fn.name, 1, C_CALL, nests=((accesses,),)),), updates)


def _leaves(shapes: Sequence[Shape]) -> list[tuple[tuple[int, ...], Shape]]:
    """The arrays in a list of shapes, each with its index: the number of its shape, and its tuple index there."""
    return [
        ((number, *path), leaf) for number, shape in enumerate(shapes) for path, leaf in shape.leaves() if leaf.is_array
    ]


def arrays_of(shapes: Sequence[Shape]) -> dict[tuple[int, ...], int]:
    """Maps the index of each array in a list of shapes to its number."""
    return {index: number for number, (index, _) in enumerate(_leaves(shapes))}


def in_place_of(instruction: Instruction) -> dict[int, int]:
    """Maps the results of a call that share the memory of operands to these operands, both by array number."""
    numbers = arrays_of([o.shape for o in instruction.operands])
    return updates_of(instruction.op_as(CustomCall), arrays_of([instruction.shape]), numbers)


def updates_of(
    op: CustomCall, results: Mapping[tuple[int, ...], int], operands: Mapping[tuple[int, ...], int]
) -> dict[int, int]:
    """Maps the results that share the memory of operands to these operands, both by array number."""
    updates: dict[int, int] = {}
    for pair in op.output_to_operand_aliasing:
        result, operand = (0, *pair.output_index), (pair.operand_number, *pair.operand_index)
        for index, number in results.items():
            if index[: len(result)] == result:
                updates[number] = operands[(*operand, *index[len(result) :])]
    return updates


def _pointer(fn: Function, shape: Shape, pointers: Iterator[Value]) -> Value:
    """The pointer that represents a value: an array's address, a table of pointers for a tuple, null for a token."""
    if shape.is_tuple:
        return fn.table([_pointer(fn, s, pointers) for s in shape.tuple_shapes])
    return next(pointers) if shape.is_array else fn.null()
