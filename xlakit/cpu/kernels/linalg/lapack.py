"""Calls of LAPACK from machine code: a task is one matrix.

A custom call ``lapack_*_transposed`` (see execution/calls/lapack.py) becomes a kernel that calls the routine by its
address, which is looked up when the program is loaded. The call does not involve Python, so it works in loops and on
any thread.

    table: operands | results            workspaces of a task
    a [batch, n, m] -> a (in place)      work, iwork, ... | copies of operands that the routine changes

Memory. The routine writes only results and workspaces. A result that updates an operand in place begins as that
operand, by the memory plan; other results begin as zeros, so that they have the same bits if LAPACK stops early. Small
workspaces are on the stack of the kernel; for larger ones the thread acquires memory once for all of its tasks.

Threads. The program limits LAPACK's library to one thread (entry/emit.py), and its tasks are distributed like those of
other kernels, so results do not depend on the number of threads, except that few large matrices are factored otherwise
on one thread than on more (see lapack_blocked.py). LAPACK's own variables take less than 100 KiB of stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from xlakit import machine
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.linalg import lapack_routines as routines
from xlakit.cpu.kernels.linalg.lapack_blocked import (
    LEAST_BLOCKED,
    Arrays,
    Blocked,
    BlockedLu,
    BlockedQ,
    BlockedQr,
    Method,
)
from xlakit.cpu.kernels.linalg.lapack_eigen import BlockedEigh
from xlakit.cpu.kernels.linalg.lapack_small import small_method
from xlakit.cpu.kernels.linalg.lapack_svd import BlockedSvd, is_nearly_square
from xlakit.cpu.kernels.linalg.lapack_vectors import LEAST_VECTORS
from xlakit.cpu.kernels.linalg.lapack_workspaces import workspace_counts
from xlakit.cpu.kernels.shared import blas
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import I1, I8, I64, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.bounds import within
from xlakit.cpu.llvm.loop import NO_UNROLL
from xlakit.cpu.loops.emit.accesses import Accesses
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.scalars import constant, store
from xlakit.cpu.scalars.memory import memory_type
from xlakit.cpu.scalars.real import is_finite
from xlakit.data.shape import Shape
from xlakit.execution.calls.lapack import batch_rank, call_attributes, split_target
from xlakit.ir.instruction import Instruction
from xlakit.ops.custom_call import CustomCall
from xlakit.passes.analysis.cost_model import cost_model

# Larger workspaces are not on the stack.
_MOST_STACK_BYTES = 4096
_ALIGNMENT = 64
_LARGEST = 2**31 - 1
# The overhead of a call in cycles, and the cycles per multiplication.
_CALL_CYCLES = 1000.0
_PRODUCT_CYCLES = 0.6
# Routines that OpenBLAS implements in C, which take no lengths of their character arguments.
_WITHOUT_LENGTHS = ("potrf", "trsm")
# The methods for few large matrices.
_WITH_VECTORS: Final = {"syevd": BlockedEigh, "heevd": BlockedEigh, "gesdd": BlockedSvd}
_METHODS: Final[Mapping[str, Callable[[Function, routines.Problem], Blocked]]] = {
    "getrf": BlockedLu,
    "geqrf": BlockedQr,
    "orgqr": BlockedQ,
    "ungqr": BlockedQ,
    **_WITH_VECTORS,
}


def emit_lapack(module: Module, instruction: Instruction) -> Kernel:
    """The kernel of a call of LAPACK on transposed matrices.

    Raises DeclinedError if its arrays do not fit the routine, or are too large.
    """
    prefix, name = split_target(instruction.op_as(CustomCall).custom_call_target) or ("", "")
    operands = [o.shape for o in instruction.operands]
    results = [leaf for _, leaf in instruction.shape.leaves()]
    if not all(s.is_array for s in (*operands, *results)):
        raise DeclinedError(f"LAPACK's {name} of values that are no arrays")
    rank = batch_rank(s.rank for s in operands)
    batch = operands[[s.rank for s in operands].index(rank + 2)].dimensions[: max(0, rank)] if operands else ()
    if rank < 0 or any(s.dimensions[:rank] != batch for s in (*operands, *results)):
        raise DeclinedError(f"LAPACK's {name} of arrays with other batches")
    attributes = call_attributes(instruction)
    problem = routines.Problem(prefix, _each(operands, rank), _each(results, rank), attributes)
    try:
        call = routines.CALLS[name](problem)
    except (KeyError, IndexError) as error:
        raise DeclinedError(f"LAPACK's {name} without {error}") from None
    count = math.prod(batch)
    # A few large matrices are factored one after the other, each by all threads.
    is_shared = count < machine.current().threads and _is_blocked(problem, name)
    kernel = _Kernel(module, problem, call, workspace_counts(call))
    changed = [dims for _, dims in problem.operands if len(dims) == 2][-1]
    function = kernel.write_zeros() if not math.prod(changed) else kernel.write(count if is_shared else None)
    cost = cost_model().cycles(_CALL_CYCLES + _PRODUCT_CYCLES * call.products)
    nests = ((_accesses(call, len(operands), len(results)),),)
    return Kernel((Phase(function.name, 1 if is_shared else count, count * cost, nests=nests),), dict(call.updates))


def _accesses(call: routines.Call, operands: int, results: int) -> Accesses:
    """Those of a call: of operands that a result begins as a copy of, only what is an argument itself is read."""
    read = {a.number for a in call.arguments if isinstance(a, routines.Operand)} | {work.copy_of for work in call.works}
    updated = set(call.updates.values())
    return Accesses.in_place(
        [n for n in range(operands) if n in read or n not in updated], range(operands, operands + results)
    )


def _is_blocked(problem: routines.Problem, routine: str) -> bool:
    """Whether a routine has a blocked method that pays off for a matrix of this size."""
    if routine not in _METHODS:
        return False
    least = min(problem.sizes())
    if routine in _WITH_VECTORS:
        has_vectors = chr(problem.attributes["mode"]) != "N"
        return has_vectors and least >= LEAST_VECTORS.value and (routine != "gesdd" or is_nearly_square(problem))
    return (problem.length(1) if routine in ("orgqr", "ungqr") else least) >= LEAST_BLOCKED.value


def _each(shapes: Sequence[Shape], rank: int) -> tuple[routines.ArrayType, ...]:
    """The types of the arrays of one matrix, without the batch."""
    return tuple((s.element_type, s.dimensions[rank:]) for s in shapes)


class _Kernel:
    """Writes the function of a call."""

    def __init__(
        self, module: Module, problem: routines.Problem, call: routines.Call, counts: Mapping[str, int]
    ) -> None:
        self._problem = problem
        self._call = call
        self._counts = counts
        numbers = [a.number for a in call.arguments if isinstance(a, routines.Integer)]
        if max(numbers, default=0) > _LARGEST:
            raise DeclinedError(f"{call.routine} with numbers that LAPACK's integers do not hold")
        self._fn, table, begin, end = kernel_function(module, f"lapack_{call.routine}")
        self._fn.effort, self._tasks = Effort.LITTLE, (begin, end)
        self._arguments = blas.Arguments(self._fn)
        arrays = (*problem.operands, *problem.results)
        self._bases = [self._fn.pointer(table, number) for number in range(len(arrays))]
        self._operands: Sequence[Value] = ()
        self._results: Sequence[Value] = ()
        self._works: Mapping[str, Value] = {}
        self._method: Method | None = None

    def write_zeros(self) -> Function:
        """Results for matrices without elements: zeros."""
        fn = self._fn
        with fn.loop(*self._tasks, hints=NO_UNROLL) as task:
            self._begin(task.index)
            for result, (_, dims) in enumerate(self._problem.results):
                if result not in self._call.updates or not math.prod(dims):
                    self._clear(result)
        return fn

    def write(self, shared: int | None = None) -> Function:
        """Each task calls the routine once; with ``shared``, one task factors that many matrices by all threads."""
        fn, call = self._fn, self._call
        if shared is not None:
            self._method = _METHODS[call.routine[1:]](fn, self._problem)
        else:
            self._method = small_method(fn, call.routine[1:], self._problem)
            if self._method is not None:
                # Loops over rows become vectors.
                fn.effort = Effort.ALL
        offsets, total = self._layout()
        is_on_stack = total <= _MOST_STACK_BYTES
        memory = fn.alloca(I64, -(-total // 8), align=_ALIGNMENT) if is_on_stack else acquire(fn, total)
        sizes = {work.name: self._counts[work.name] * work.kind.byte_width for work in call.works}
        self._works = {name: within(fn, fn.at(memory, I8, o), sizes[name]) for name, o in offsets.items()}
        with fn.loop(*(self._tasks if shared is None else (0, shared)), hints=NO_UNROLL) as task:
            self._begin(task.index)
            if call.is_finite_only:
                fn.if_else(self._is_finite(), self._routine, self._spoiled)
            else:
                self._routine()
        if not is_on_stack:
            release(fn, memory)
        return fn

    def _layout(self) -> tuple[dict[str, int], int]:
        """The offset of each workspace, and the bytes of all."""
        offsets: dict[str, int] = {}
        total = 0
        for work in self._call.works:
            offsets[work.name] = total
            total += -(-self._counts[work.name] * work.kind.byte_width // _ALIGNMENT) * _ALIGNMENT
        return offsets, total

    # -- a task ----------------------------------------------------------------------------------

    def _begin(self, task: Value) -> None:
        """Compute the addresses of the arrays of a task's matrix."""
        arrays = (*self._problem.operands, *self._problem.results)
        addresses = [
            self._fn.at(base, I8, task * _bytes(array)) for base, array in zip(self._bases, arrays, strict=True)
        ]
        self._operands = addresses[: len(self._problem.operands)]
        self._results = addresses[len(self._problem.operands) :]

    def _routine(self) -> None:
        fn, call = self._fn, self._call
        unpacked = set(call.unpacked.values())
        for result in range(len(self._results)):
            if result not in call.updates and result not in unpacked:
                self._clear(result)
        for work in call.works:
            if work.copy_of is not None:
                source = self._operands[work.copy_of]
                fn.copy(self._works[work.name], source, _bytes(self._problem.operands[work.copy_of]))
        if self._method is None:
            self._library()
        else:
            self._blocks(self._method)

    def _blocks(self, method: Method) -> None:
        """Factor by own code, or on a condition only."""

        def factor() -> None:
            method.factor(Arrays(self._operands, self._results, self._works, self._counts))

        condition = method.condition(self._results)
        if condition is None:
            factor()
        else:
            self._fn.if_else(condition, factor, self._library)

    def _library(self) -> None:
        """Call the routine."""
        fn, call = self._fn, self._call
        has_lengths = call.routine[1:] not in _WITHOUT_LENGTHS
        letters = sum(isinstance(a, routines.Letter) for a in call.arguments) if has_lengths else 0
        symbol = blas.declare(fn.module, call.routine, len(call.arguments), letters)
        fn.call(symbol, VOID, *map(self._argument, call.arguments), *[fn.i64(1)] * letters)
        for work, result in call.unpacked.items():
            self._unpack(self._works[work], self._results[1], self._results[result])

    def _argument(self, argument: routines.Argument) -> Value:
        if isinstance(argument, routines.Letter):
            return self._arguments.letter(argument.text)
        if isinstance(argument, routines.Integer):
            return self._arguments.integer(argument.number)
        if isinstance(argument, routines.Data):
            return self._arguments.data(argument.data)
        if isinstance(argument, routines.Operand):
            return self._operands[argument.number]
        if isinstance(argument, routines.Result):
            kind = self._problem.results[argument.number][0]
            return self._fn.at(self._results[argument.number], I8, argument.start * kind.byte_width)
        if isinstance(argument, routines.Work):
            return self._works[argument.name]
        if isinstance(argument, routines.Null):
            return self._fn.null()
        return self._arguments.integer(self._counts[argument.work])

    def _clear(self, result: int) -> None:
        size = _bytes(self._problem.results[result])
        if size:
            self._fn.fill(self._results[result], 0, size)

    # -- pre- and postprocessing --------------------------------------------------------

    def _is_finite(self) -> Value:
        """Whether all elements of the first operand are finite."""
        fn, (kind, dims) = self._fn, self._problem.operands[0]
        matrix = next((self._results[r] for r, o in self._call.updates.items() if o == 0), self._operands[0])
        type = memory_type(kind)
        parts = math.prod(dims) * (2 if kind.is_complex else 1)
        with fn.loop(0, parts, carried=[fn.constant(I1, 1)], hints=NO_UNROLL) as loop:
            element = fn.load(type, fn.at(matrix, type, loop.index))
            loop.next(loop.carried[0] & is_finite(fn, element))
        return loop.results[0]

    def _spoiled(self) -> None:
        """Fill results for an operand that is not finite: floats are NaN, integers are 0, and info is 1."""
        fn = self._fn
        for result, (pointer, (kind, dims)) in enumerate(zip(self._results, self._problem.results, strict=True)):
            if kind is routines.S32:
                fn.store(fn.i32(int(result == len(self._results) - 1)), pointer)
                continue
            nan = constant(fn, kind, kind.dtype.type(math.nan))
            with fn.loop(0, math.prod(dims), hints=NO_UNROLL) as loop:
                store(fn, kind, nan, pointer, loop.index)

    def _unpack(self, packed: Value, imaginary: Value, vectors: Value) -> None:
        """Write complex eigenvectors from the packed form that ``geev`` gives for real matrices.

        The imaginary part of a value tells the columns of its vector::

            imaginary part of value j    vector j
            0                            column j
            positive: first of a pair    column j     + i column j + 1
            negative: second of a pair   column j - 1 - i column j
        """
        fn, real = self._fn, memory_type(self._problem.real)
        order = self._problem.sizes()[0]
        zero = fn.constant(real, 0.0)
        with fn.loop(0, order, hints=NO_UNROLL) as columns:
            column = columns.index
            value = fn.load(real, fn.at(imaginary, real, column))
            is_first, is_second = value > 0.0, value < 0.0
            # LAPACK gives only complete pairs; the clamps keep reads inside of the array for any data.
            after = (column + 1).smin(order - 1)
            before = (column - 1).smax(0)
            reals = fn.select(is_second, before, column) * order
            imaginaries = fn.select(is_first, after, column) * order
            with fn.loop(0, order, hints=NO_UNROLL) as rows:
                part = fn.load(real, fn.at(packed, real, imaginaries + rows.index))
                signed = fn.select(is_first, part, fn.select(is_second, -part, zero))
                target = fn.at(vectors, real, (column * order + rows.index) * 2)
                fn.store(fn.load(real, fn.at(packed, real, reals + rows.index)), target)
                fn.store(signed, fn.at(target, real, 1))


def _bytes(array: routines.ArrayType) -> int:
    kind, dims = array
    return math.prod(dims) * kind.byte_width
