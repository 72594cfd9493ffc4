"""The functions behind custom calls: Python's, C's, and those whose meaning everybody knows.

Source: seed document "Operation semantics", section CustomCall, for the signature of C functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from xlakit.arguments import converting
from xlakit.data.literal import Literal
from xlakit.data.shape import Shape
from xlakit.errors import ArgumentError, ExecutionError, UnsupportedError, XlakitError
from xlakit.interpreter.values import read_only, to_device
from xlakit.ir.enums import CustomCallApiVersion
from xlakit.ir.operation import TOKEN, Array, Evaluation, Value
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.sort import TopK, sort_order

# A function of the evaluation and the operands.
Target = Callable[..., Any]

_registered: dict[str, Target] = {}


@converting
def register_custom_call(name: str, function: Callable[..., Any], *, with_context: bool = False) -> None:
    """Let custom calls named ``name`` run a Python function, in all programs that are compiled from now on.

    function: gets the operands (read-only arrays, tuples of them, None for tokens) and returns the result: what
        converts to the call's declared shape without loss.
    with_context: give the function an ``Evaluation`` as its first argument, which knows the instruction, its shape and
        attributes, and the replica.

    Registering a name again replaces its function. Raises ArgumentError.
    """
    _registered[name] = _python_target(name, function, with_context=with_context)


@converting
def register_c_custom_call(name: str, pointer: object) -> None:
    """Let custom calls named ``name`` run a C function ``void name(void* out, void** in)``.

    pointer: a ctypes function, an address, or a PyCapsule that holds one. It must stay valid.

    The buffers lie in the layouts of the operands' and the result's shapes (or of operand_layout_constraints), with
    elements of sub-byte types in a byte each; a tuple is a table of pointers to its elements. Raises ArgumentError.
    """
    _registered[name] = _c_target(pointer)


class CustomCalls:
    """The functions that one executable can call: its own, the registered ones, and the built-in ones."""

    def __init__(self, own: Mapping[str, object] | None = None) -> None:
        self._targets: dict[str, Target] = {**_BUILT_IN, **_registered}
        for name, function in (own or {}).items():
            if hasattr(function, "argtypes"):
                self._targets[name] = _c_target(function)
            else:
                self._targets[name] = _python_target(name, cast("Target", function), with_context=False)

    def check(self, target: str) -> None:
        """Raise UnsupportedError where nothing is registered under a name."""
        if target not in self._targets:
            raise UnsupportedError(
                f"no custom call is registered as '{target}'",
                hint="xlakit.register_custom_call(name, function) adds one; known: " + ", ".join(sorted(self._targets)),
            )

    def call(self, context: Evaluation, target: str, operands: Sequence[Value]) -> Value:
        """The result of a target, checked; what its function raises is the cause of an ExecutionError."""
        self.check(target)
        try:
            result = self._targets[target](context, *operands)
        except XlakitError:
            raise
        except Exception as error:
            raise ExecutionError(
                f"custom call '{target}' raised {type(error).__name__}: {error}",
                hint="the Python traceback above tells where in the function",
            ) from error
        try:
            return to_device(result, context.shape, f"the result of custom call '{target}'")
        except ArgumentError as error:
            raise ExecutionError(error.rule, hint=error.hint) from None


def _python_target(name: str, function: Callable[..., Any], *, with_context: bool) -> Target:
    if not callable(function):
        raise ArgumentError(
            f"{function!r}, given for custom call '{name}', is not a function",
            hint="give a Python function, or a ctypes function, an address or a PyCapsule",
        )

    def target(context: Evaluation, *operands: Value) -> Any:
        arguments = [read_only(operand) for operand in operands]
        result = function(context, *arguments) if with_context else function(*arguments)
        return _copied(result)

    return target


def _copied(result: object) -> object:
    # The function may keep its result and change it later.
    if isinstance(result, tuple):
        return tuple(_copied(r) for r in cast("tuple[object, ...]", result))
    return result.copy() if isinstance(result, np.ndarray) else result


# -- C ---------------------------------------------------------------------------------------------

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def _c_target(pointer: object) -> Target:
    function = _SIGNATURE(_address(pointer))

    def target(context: Evaluation, *operands: Value) -> Any:
        instruction = context.instruction
        op = instruction.op_as(CustomCall)
        version = op.api_version
        if version not in (CustomCallApiVersion.API_VERSION_ORIGINAL, CustomCallApiVersion.API_VERSION_UNSPECIFIED):
            raise UnsupportedError(
                f"custom call '{op.custom_call_target}' wants {version.name}",
                hint="C functions are called as void name(void* out, void** in), API_VERSION_ORIGINAL",
            )
        shapes = op.operand_layout_constraints or tuple(o.shape for o in instruction.operands)
        inputs = [_Buffer(shape, value) for shape, value in zip(shapes, operands, strict=True)]
        output = _Buffer(context.shape, None)
        function(output.pointer, (ctypes.c_void_p * len(inputs))(*(i.pointer for i in inputs)))
        return output.read()

    return target


def _address(pointer: object) -> int:
    """The address that a ctypes function, a number or a PyCapsule holds."""
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        found = pointer
    elif isinstance(pointer, ctypes.c_void_p):
        found = pointer.value or 0
    elif type(pointer).__name__ == "PyCapsule":
        api = ctypes.pythonapi
        name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
        found = get(pointer, name_of(pointer)) or 0
    elif hasattr(pointer, "argtypes"):
        found = ctypes.cast(cast("Any", pointer), ctypes.c_void_p).value or 0
    else:
        raise ArgumentError(f"{pointer!r} is no C function", hint="give a ctypes function, an address or a PyCapsule")
    if not 0 < found < 1 << 8 * ctypes.sizeof(ctypes.c_void_p):
        raise ArgumentError(f"the C function has no address, got {found}", hint="give a function that is loaded")
    return found


class _Buffer:
    """Memory that a C function reads or writes: the array in its shape's layout, or a table of a tuple's elements."""

    def __init__(self, shape: Shape, value: Value | None) -> None:
        self.shape = shape
        self.elements: list[_Buffer] = []
        if shape.is_dynamic:
            raise UnsupportedError(
                f"C functions cannot take or give the dynamic {shape}",
                hint="pad it to its bounds with set_dimension_size before the call",
            )
        if shape.is_tuple:
            values = value if value is not None else [None] * len(shape.tuple_shapes)
            self.elements = [_Buffer(s, v) for s, v in zip(shape.tuple_shapes, values, strict=True)]
            self.memory: Any = (ctypes.c_void_p * len(self.elements))(*(e.pointer for e in self.elements))
            self.pointer = ctypes.addressof(self.memory)
        elif shape.is_array:
            literal = Literal(shape, np.zeros(shape.dimensions, shape.element_type.dtype) if value is None else value)
            # A copy, since the function may write anywhere; an empty array still needs an address.
            linear = literal.to_linear()
            self.memory = np.array(linear) if linear.size else np.zeros(1, linear.dtype)
            self.count = linear.size
            self.pointer = self.memory.ctypes.data
        else:
            self.memory, self.pointer = None, None

    def read(self) -> Value:
        """The value that is there now."""
        if self.shape.is_tuple:
            return tuple(element.read() for element in self.elements)
        if self.memory is None:
            return TOKEN
        return Literal.from_linear(self.shape, self.memory[: self.count]).array


# -- built-in --------------------------------------------------------------------------------------


def _same(context: Evaluation, *operands: Value) -> Value:
    """The operands as they are: hints on placement, layout and sharding do not change values."""
    return operands[0] if len(operands) == 1 else operands


def _same_on_one_partition(context: Evaluation, *operands: Value) -> Value:
    """The operand, where a whole array and its one shard are the same."""
    shapes = [o.shape for o in context.instruction.operands]
    if context.num_partitions > 1 and not context.shape.compatible(shapes[0]):
        raise UnsupportedError(
            f"'{context.instruction.op_as(CustomCall).custom_call_target}' turns {shapes[0]} into {context.shape}",
            hint="partition the program first; the interpreter runs what each partition does",
        )
    return _same(context, *operands)


def _top_k(context: Evaluation, *operands: Value) -> Value:
    """The first k elements of each row in the order of the comparator (by default largest first), and their places."""
    array: Array = operands[0]
    computations = context.instruction.op_as(CustomCall).computations
    k = context.shape.tuple_shapes[0].dimensions[-1]
    if not computations:
        return TopK(k=k).evaluate(context, array)
    rows = array.reshape(int(np.prod(array.shape[:-1])), array.shape[-1])
    places = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)
    columns = [rows, places][: len(computations[0].parameters) // 2]
    order = sort_order(context, computations[0], columns)[:, :k].reshape(*array.shape[:-1], k)
    return np.take_along_axis(array, order, axis=-1), order.astype(np.int32)


def _pad_to_static(context: Evaluation, *operands: Value) -> Value:
    """A dynamic array padded with zeros to its bounds, and the sizes of its dimensions."""
    array: Array = operands[0]
    bounds = context.shape.tuple_shapes[0].dimensions
    padded = np.pad(array, [(0, bound - size) for size, bound in zip(array.shape, bounds, strict=True)])
    return padded, *(np.asarray(size, np.int32) for size in array.shape)


def _slice_to_dynamic(context: Evaluation, *operands: Value) -> Value:
    """The part of a padded array that is there, by the sizes of its dimensions."""
    array, *sizes = operands
    return array[tuple(slice(0, int(size)) for size in sizes)]


_BUILT_IN: dict[str, Target] = {
    "PadToStatic": _pad_to_static,
    "SliceToDynamic": _slice_to_dynamic,
    "TopK": _top_k,
    **dict.fromkeys(
        (
            "AssumeGatherIndicesInBound",
            "LayoutConstraint",
            "MoveToDevice",
            "MoveToHost",
            "SetBound",
            "Sharding",
            "annotate_device_placement",
            "xla.sdy.FuncResultSharding",
            "xla.sdy.PropagationBarrier",
            "xla.sdy.Sharding",
            "xla.sdy.ShardingGroup",
        ),
        _same,
    ),
    **dict.fromkeys(
        (
            "SPMDFullToShardShape",
            "SPMDShardToFullShape",
            "xla.sdy.GlobalToLocalShape",
            "xla.sdy.LocalToGlobalShape",
        ),
        _same_on_one_partition,
    ),
}
