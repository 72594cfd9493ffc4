"""The functions behind custom calls: Python functions, C functions, and built-in ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xlakit.arguments import converting
from xlakit.errors import ArgumentError, ExecutionError, UnregisteredError, UnsupportedError, XlakitError, meant
from xlakit.execution.calls.at_sizes import at_sizes
from xlakit.execution.calls.c_calls import CTarget, is_c_function, returns_status
from xlakit.execution.calls.foreign.table import ForeignCall, foreign_calls
from xlakit.execution.calls.lapack import lapack_calls, transposed_target
from xlakit.execution.calls.size_checks import SIZE_CHECKS
from xlakit.execution.calls.tridiagonal import TARGETS, perturbed_solution
from xlakit.execution.values import read_only, to_device
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ir.operation import Array, Evaluation, Value
from xlakit.ops.custom_call import MANUAL_BOUNDARIES, UNWRITTEN, CustomCall
from xlakit.ops.dynamic import AT_SIZES
from xlakit.ops.sort import TopK, sort_order

if TYPE_CHECKING:
    from typing import TypeGuard

    from xlakit.execution.calls.ffi.target import FfiTarget

# Called with the Evaluation and the operands; gives the result.
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

    Calls of the versions API_VERSION_STATUS_RETURNING and API_VERSION_STATUS_RETURNING_UNIFIED give it a status, too,
    and the opaque text; its failure raises ExecutionError with its message. Those are made through Python.

    pointer: a ctypes function (of a shared library, say), an address, or a PyCapsule that holds one. It must stay
        valid.

    The buffers lie in the layouts of the operands' and the result's shapes (or of operand_layout_constraints), with
    elements of sub-byte types in a byte each; a tuple is a table of pointers to its elements. Results are zero when the
    function is called, but where output_to_operand_aliasing puts them in the memory of operands. The function must not
    write to its operands otherwise, and may be called on several threads at once. Compiled programs call it without
    Python in between. Raises ArgumentError.
    """
    _registered[name] = CTarget(name, pointer)


def register_ffi_handler(name: str, handlers: object) -> None:
    """Let custom calls named ``name``, of API_VERSION_TYPED_FFI, run a handler of XLA's typed FFI.

    handlers: ``XLA_FFI_Error* handler(XLA_FFI_CallFrame*)`` as a PyCapsule, an address or a ctypes function, as the
        macros of XLA's header make it; or a mapping from the stages ``instantiate``, ``prepare``, ``initialize`` and
        ``execute`` to such. They must stay valid.

    The handler gets the arrays in the layouts of their shapes, with elements of sub-byte types in a byte each, and the
    attributes that ``backend_config`` has. It may be called on several threads at once. The calls of one that has the
    stage execute alone are made by machine code, without Python. Each is called once when it is registered, for its
    version. Raises ArgumentError, also for most plain C functions, and UnsupportedError for a handler of a later
    version of the interface; a function that takes pointers from its operands or results, as those of tuples, crashes.
    """
    from xlakit.execution.calls.ffi.target import FfiTarget

    _registered[name] = FfiTarget(name, handlers)


def is_registered(name: str) -> bool:
    """Whether a function is registered for custom calls of a name."""
    return name in _registered


def _is_ffi_handler(target: object) -> TypeGuard[FfiTarget]:
    # The module is imported when the first handler is registered, as few programs have one.
    module = sys.modules.get("xlakit.execution.calls.ffi.target")
    return module is not None and isinstance(target, module.FfiTarget)


class CustomCalls:
    """The functions that one executable can call: its own, the registered ones, and the built-in ones."""

    def __init__(self, own: Mapping[str, object] | None = None) -> None:
        self._targets: dict[str, Target] = {**_BUILT_IN, **_registered}
        for name, target in _registered.items():
            if _is_ffi_handler(target):
                self._targets[name] = target.for_executable()
        for name, function in (own or {}).items():
            if is_c_function(function):
                self._targets[name] = CTarget(name, function)
            else:
                self._targets[name] = _python_target(name, cast("Target", function), with_context=False)

    def check(self, instruction: Instruction) -> None:
        """Raise UnsupportedError if no function is registered under the name of a call, or one of another kind.

        Raises UnsupportedError or ShapeError for a call of another backend's library with a config that has no meaning.
        """
        target = self._target(instruction.op_as(CustomCall).custom_call_target)
        if isinstance(target, (CTarget, ForeignCall)) or _is_ffi_handler(target):
            target.check(instruction)

    def native(self, name: str) -> int | None:
        """The address of the C function registered under a name, if machine code can call it directly; else None."""
        target = self._targets.get(name)
        if _is_ffi_handler(target):
            return target.address
        return target.address if isinstance(target, CTarget) and not target.needs_gil else None

    def _target(self, name: str) -> Target:
        target = self._targets.get(name)
        if target is None:
            from xlakit.execution.calls.foreign.opaque import what_is

            what = what_is(name)
            known = (
                f"it is {what}"
                if what
                else meant(name, self._targets, "docs/workbench.md lists those of others' backends")
            )
            raise UnregisteredError(
                f"no custom call is registered as '{name}'",
                hint="xlakit.register_custom_call(name, function) adds one, on the command line in a file that "
                f"--custom-calls names; {known}",
            )
        return target

    def call(self, context: Evaluation, target: str, operands: Sequence[Value]) -> Value:
        """The result of a target, checked; what its function raises is the cause of an ExecutionError."""
        function = self._target(target)
        try:
            result = function(context, *operands)
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


def c_functions_of(module: HloModule, own: Mapping[str, object] | None) -> dict[str, int]:
    """The addresses, by name, of the C functions that a program calls and that machine code can call directly."""
    names = _called(module)
    if not names:
        return {}
    calls = CustomCalls(own)
    # Functions that return a status are called through Python, which raises their errors.
    names -= {i.op_as(CustomCall).custom_call_target for i in module.instructions if returns_status(i)}
    addresses = {name: calls.native(name) for name in names}
    return {name: address for name, address in addresses.items() if address is not None}


def lapack_calls_of(module: HloModule, own: Mapping[str, object] | None) -> frozenset[str]:
    """The names of a program's LAPACK calls, except those for which another function is registered."""
    names = {name for name in _called(module) if transposed_target(name) is not None}
    return frozenset(names.difference(own or {}, _registered))


def _called(module: HloModule) -> set[str]:
    return {i.op.custom_call_target for i in module.instructions if isinstance(i.op, CustomCall)}


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
    # Copied, as the function may keep a reference to its result and change it later.
    if isinstance(result, tuple):
        return tuple(_copied(r) for r in cast("tuple[object, ...]", result))
    return result.copy() if isinstance(result, np.ndarray) else result


# -- built-in --------------------------------------------------------------------------------------


def _same(context: Evaluation, *operands: Value) -> Value:
    """The operands unchanged: hints on placement, layout and sharding do not affect values."""
    return operands if len(operands) != 1 or _is_one_in_a_tuple(context, operands[0]) else operands[0]


def _is_one_in_a_tuple(context: Evaluation, operand: Value) -> bool:
    return context.shape.is_tuple and not isinstance(operand, tuple)


def _nothing(context: Evaluation, *operands: Value) -> Value:
    """The empty tuple, the result of a sharding group, which only constrains the shardings of its operands."""
    return ()


def _zeros(context: Evaluation, *operands: Value) -> Value:
    """Zeros, for a buffer that the program allocates and fills later."""
    return np.zeros(context.shape.dimensions, context.shape.element_type.dtype)


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
    """The first k elements of each row by the comparator (by default largest first), and their positions."""
    array: Array = operands[0]
    computations = context.instruction.op_as(CustomCall).computations
    k = context.shape.tuple_shapes[0].dimensions[-1]
    if not computations:
        return TopK(k=k).evaluate(context, array)
    rows = array.reshape(int(np.prod(array.shape[:-1])), array.shape[-1])
    positions = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)
    columns = [rows, positions][: len(computations[0].parameters) // 2]
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
    **SIZE_CHECKS,
    **lapack_calls(),
    **foreign_calls(),
    AT_SIZES: at_sizes,
    "PadToStatic": _pad_to_static,
    "SliceToDynamic": _slice_to_dynamic,
    "TopK": _top_k,
    "__gpu$TopK": _top_k,
    **dict.fromkeys(TARGETS, perturbed_solution),
    "AllocateBuffer": _zeros,
    UNWRITTEN: _zeros,
    "control_dep": _nothing,
    "xla.sdy.ShardingGroup": _nothing,
    **dict.fromkeys(
        (
            "AssumeGatherIndicesInBound",
            "AwsNeuronTransferWithStaticRing",
            "LayoutConstraint",
            "MoveToDevice",
            "MoveToHost",
            "SetBound",
            "Sharding",
            "InspectSharding",
            "ShardBarrierFrom",
            "ShardBarrierTo",
            "__xla_internal_call_marker_after",
            "__xla_internal_call_marker_before",
            "annotate_device_placement",
            "xla.sdy.FuncResultSharding",
            "xla.sdy.PropagationBarrier",
            "xla.sdy.Sharding",
        ),
        _same,
    ),
    **dict.fromkeys(MANUAL_BOUNDARIES, _same_on_one_partition),
}
