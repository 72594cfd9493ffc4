"""Calls of a compiled program from Python: through native code if the arguments fit, else through Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NoReturn

import numpy as np

from xlakit.cpu.runtime.context import Context, Status
from xlakit.cpu.runtime.host import take_error
from xlakit.cpu.runtime.library import runtime
from xlakit.cpu.runtime.native_call import LEAF, NOTHING
from xlakit.cpu.runtime.numpy_api import keep_for_ever
from xlakit.data.shape import Shape
from xlakit.errors import ExecutionError, ResourceError

Array = np.ndarray[Any, np.dtype[Any]]

_METH_FASTCALL: Final = 0x80


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def raise_status(status: int) -> NoReturn:
    """Raise the error of a status other than DONE: the exception of a host call, ExecutionError or ResourceError."""
    error = take_error() if status == Status.RAISED else None
    if error is not None:
        raise error
    if status == Status.INTERRUPTED:
        raise ExecutionError("the program was interrupted")
    if status == Status.OUT_OF_MEMORY:
        raise ResourceError("there is not enough memory for the program's intermediate values")
    raise ExecutionError(f"the program ended with status {status}")


def make_caller(
    context: Context,
    arguments: Sequence[Shape],
    result: Shape,
    fallback: Callable[..., Any],
) -> Callable[..., Any]:
    """A function that runs a program on arrays that fit its parameters, and calls ``fallback`` for other arguments.

    context: that of the program; the function keeps it alive. arguments: one array shape for each parameter. An
    argument fits if it is an np.ndarray (no subclass) of the same dtype and dimensions, C-contiguous and aligned; then
    its data is read in place.
    result: the shape of the result, tuples nested at will; tokens become None. The entry's ``results`` has a pointer
    for each array of it, in order, aligned to 64 bytes.
    fallback: called with the same arguments if one of them does not fit or their number is wrong.

    The GIL is released while the program runs. A status other than DONE raises, see :func:`raise_status`. Gives
    ``fallback`` itself if the layout of objects in this build of Python or NumPy is not known, or if a shape is not
    static.
    """
    signature = _signature(context, arguments, result)
    if signature is None or "xlakit_call" not in runtime().symbols:
        return fallback
    new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make = new_function(("PyCFunction_NewEx", ctypes.pythonapi))
    dtypes = tuple(shape.element_type.dtype for shape in (*arguments, *_arrays_of(result)))
    # In the order of native_call's HELD_ constants.
    held = (signature, fallback, raise_status, context, dtypes)
    return make(ctypes.addressof(_method()), held, None)


@cache
def _method() -> _MethodDef:
    method = _MethodDef(b"executable", runtime().symbols["xlakit_call"], _METH_FASTCALL, None)
    # Python functions point to it, and may be called while the interpreter finalizes, so it is never freed.
    keep_for_ever(method)
    return method


def execute(context: Context, arguments: Sequence[Array], results: Sequence[Array]) -> int:
    """Run a program on arrays that fit, with the GIL released, and write into ``results``; gives its status.

    Raises the exception of a signal handler that ran meanwhile, such as KeyboardInterrupt.
    """
    return _native("xlakit_execute_for_python", 3)(context.address, pointers(arguments), pointers(results))


def pointers(arrays: Sequence[Array]) -> Any:
    """The table of addresses of arrays that a program takes."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*map(array_address, arrays))


def array_address(array: Array) -> int:
    """The address of an array's first element; ``array.ctypes.data`` takes several times as long."""
    return array.__array_interface__["data"][0]


def execute_member(context: Context, arguments: Any, results: Any, run: int) -> int:
    """As :func:`execute`, on one device of the run at address ``run``, whose devices all have threads of their own.

    arguments, results: results of :func:`pointers`, or the addresses of such tables.
    """
    return _native("xlakit_execute_member", 4)(context.address, arguments, results, run)


def execute_replicas(replicas: int, arguments: Sequence[Array], results: Sequence[Array]) -> int:
    """Run a program on all of its devices, given the arrays of one device after the other; gives its status.

    Raises the exception of a signal handler that ran meanwhile, after all devices have ended.
    """
    return _native("xlakit_execute_replicas_for_python", 3)(replicas, pointers(arguments), pointers(results))


@cache
def _native(name: str, count: int) -> Callable[..., int]:
    # PYFUNCTYPE keeps the GIL, which the native function itself releases, and raises an exception that the function
    # sets.
    return ctypes.PYFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * count)(runtime().symbols[name])


def allocate_array(dimensions: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An uninitialized array, aligned to 64 bytes, whose memory is reused after the array and its views are gone."""
    if "xlakit_new_array" not in runtime().symbols:
        return np.empty(tuple(dimensions), dtype)
    return _new_array()(_packed_record(dtype, tuple(dimensions)))


@lru_cache(maxsize=1024)
def _packed_record(dtype: np.dtype[Any], dimensions: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    record = _array_record(dtype, dimensions)
    return (ctypes.c_int64 * len(record))(*record)


@cache
def _new_array() -> Callable[..., Array]:
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(runtime().symbols["xlakit_new_array"])


def nest(result: Shape, arrays: Sequence[Any]) -> Any:
    """The arrays of a result, nested as its shape."""
    stack: list[Any] = []
    following = iter(arrays)
    for word in _tree(result):
        if word == LEAF:
            stack.append(next(following))
        elif word == NOTHING:
            stack.append(None)
        else:
            keep = len(stack) - word
            stack[keep:] = [tuple(stack[keep:])]
    return stack[0]


def result_arrays(result: Shape) -> list[Array]:
    """New arrays for a result, in the order of the entry's ``results``."""
    return [allocate_array(leaf.dimensions, leaf.element_type.dtype) for leaf in _arrays_of(result)]


def _signature(context: Context, arguments: Sequence[Shape], result: Shape) -> bytes | None:
    arrays = _arrays_of(result)
    if not all(shape.is_array and not shape.is_dynamic for shape in (*arguments, *arrays)):
        return None
    tree = _tree(result)
    records = [word for s in (*arguments, *arrays) for word in _array_record(s.element_type.dtype, s.dimensions)]
    table_words = len(arguments) + 2 * len(arrays) + len(tree)
    head = (context.address, len(arguments), len(arrays), len(tree), 8 * table_words)
    words = [*head, *records, *tree]
    return bytes((ctypes.c_int64 * len(words))(*words))


def _array_record(dtype: np.dtype[Any], dimensions: tuple[int, ...]) -> list[int]:
    count = 1
    for size in dimensions:
        count *= size
    return [id(dtype), len(dimensions), count * dtype.itemsize, *dimensions]


def _arrays_of(result: Shape) -> list[Shape]:
    """The arrays of a result in order; tokens have none."""
    return [leaf for _, leaf in result.leaves() if not leaf.is_token]


def _tree(result: Shape) -> list[int]:
    if result.is_tuple:
        return [*(word for part in result.tuple_shapes for word in _tree(part)), len(result.tuple_shapes)]
    return [NOTHING if result.is_token else LEAF]
