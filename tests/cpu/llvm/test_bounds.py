"""The pass that puts bounds checks into LLVM IR: each form of access and of pointer, in bounds and outside."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from xlakit.cpu.llvm import F32, I8, I32, I64, PTR, VOID, Effort, Function, Module, Value, engine, vector
from xlakit.cpu.llvm.bounds import within
from xlakit.cpu.llvm.bounds_checks import BoundsChecks, fixed_functions
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime.bounds import BoundsFault, bounds_symbols, note_bounds, take_faults
from xlakit.errors import InternalError
from xlakit.options import compiling

Body = Callable[[Function, Value, Value], None]
# The array that functions are given has 64 bytes, in memory with as many before and behind.
SIZE = 64
_numbers = itertools.count()


def run(body: Body, number: int, effort: Effort = Effort.LITTLE) -> tuple[list[BoundsFault], np.ndarray]:
    """What is refused of a function of an array and a number, and the memory of the array afterwards."""
    module = Module("test")
    fn = module.function("f", VOID, [PTR, I64, I64], external=True)
    with compiling(sanitize=True):
        body(fn, fn.load(PTR, fn.parameters[0]), fn.parameters[1])
    fn.ret()
    text = BoundsChecks(module.functions, "common.", fixed_functions(module.functions, ["f"])).checked(module.text())
    library = Library(f"bounds{next(_numbers)}", engine.compiled(text, effort), ["f"], bounds_symbols())
    memory = np.arange(3 * SIZE, dtype=np.uint8)
    table = (ctypes.c_void_p * 1)(memory.ctypes.data + SIZE)
    note_bounds(ctypes.addressof(table), memory.ctypes.data + SIZE, SIZE)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address("f"))
    call(ctypes.addressof(table), number, 0)
    return take_faults(), memory


def copies(fn: Function, array: Value, number: Value) -> None:
    memory = fn.alloca(I8, 2 * SIZE)
    fn.fill(memory, 7, 2 * SIZE)
    fn.copy(array, memory, number * 4 + 4)


def moves(fn: Function, array: Value, number: Value) -> None:
    memory = fn.alloca(I8, 2 * SIZE)
    fn.copy(memory, array, number * 4 + 4, moves=True)


def fills(fn: Function, array: Value, number: Value) -> None:
    fn.fill(array, 3, number * 4 + 4)


def loads(fn: Function, array: Value, number: Value) -> None:
    fn.store(fn.load(F32, fn.at(array, F32, number)), fn.alloca(F32))


def stores(fn: Function, array: Value, number: Value) -> None:
    fn.store(fn.constant(F32, 1.0), fn.at(array, F32, number))


def loads_vectors(fn: Function, array: Value, number: Value) -> None:
    kind = vector(F32, 4)
    fn.store(fn.load(kind, fn.at(array, F32, number - 3)), fn.alloca(kind))


def stores_vectors(fn: Function, array: Value, number: Value) -> None:
    fn.store(fn.constant(vector(F32, 4), 2.0), fn.at(array, F32, number - 3), align=4)


def updates(fn: Function, array: Value, number: Value) -> None:
    fn.atomic_update("add", fn.at(array, I32, number), fn.i32(1))


def exchanges(fn: Function, array: Value, number: Value) -> None:
    fn.compare_exchange(fn.at(array, I32, number), fn.i32(1), fn.i32(2))


def atomics(fn: Function, array: Value, number: Value) -> None:
    place = fn.at(array, I32, number)
    fn.atomic_store(fn.atomic_load(I32, place) + 1, place)


def loops(fn: Function, array: Value, number: Value) -> None:
    with fn.loop(0, number + 1, independent=True) as each:
        place = fn.at(array, F32, each.index)
        fn.store(fn.load(F32, place) + 1.0, place)


def goes_on(fn: Function, array: Value, number: Value) -> None:
    with fn.loop(0, number + 1, carried=[array]) as each:
        fn.store(fn.constant(F32, 1.0), each.carried[0])
        each.next(fn.at(each.carried[0], F32, 1))


def chooses(fn: Function, array: Value, number: Value) -> None:
    own = fn.alloca(F32, 64)
    chosen = fn.select(number < 0, own, fn.at(array, F32, 1))
    fn.store(fn.constant(F32, 1.0), fn.at(chosen, F32, number - 1))


def calls(fn: Function, array: Value, number: Value) -> None:
    other = fn.module.function("other", VOID, [I64, PTR])
    other.store(other.constant(F32, 1.0), other.at(other.parameters[1], F32, other.parameters[0]))
    other.ret()
    fn.call(other, VOID, number - 2, fn.at(array, F32, 2))


def calls_by_pointer(fn: Function, array: Value, number: Value) -> None:
    other = fn.module.function("other", VOID, [I64, PTR])
    other.store(other.constant(F32, 1.0), other.at(other.parameters[1], F32, other.parameters[0]))
    other.ret()
    place = fn.alloca(PTR)
    fn.store(fn.address("other"), place)
    fn.call_pointer(fn.load(PTR, place), VOID, number, array)


def keeps_pointers(fn: Function, array: Value, number: Value) -> None:
    rows = fn.alloca(PTR, 2)
    fn.store(fn.at(array, F32, 1), fn.at(rows, PTR, 1))
    fn.store(fn.constant(F32, 1.0), fn.at(fn.load(PTR, fn.at(rows, PTR, 1)), F32, number - 1))


def has_parts(fn: Function, array: Value, number: Value) -> None:
    parts = fn.alloca(I8, 4 * SIZE)
    fn.store(fn.constant(F32, 1.0), fn.at(within(fn, fn.at(parts, I8, SIZE), SIZE), F32, number))


def has_memory(fn: Function, array: Value, number: Value) -> None:
    fn.store(fn.constant(F32, 1.0), fn.at(fn.alloca(I8, SIZE), F32, number))


def has_constants(fn: Function, array: Value, number: Value) -> None:
    name = fn.module.constant_data("numbers", bytes(SIZE))
    fn.store(fn.load(F32, fn.at(fn.address(name), F32, number)), fn.alloca(F32))


FORMS = [
    *(copies, moves, fills, loads, stores, loads_vectors, stores_vectors, updates, exchanges, atomics, loops, goes_on),
    *(chooses, calls, calls_by_pointer, keeps_pointers, has_parts, has_memory, has_constants),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@pytest.mark.parametrize("effort", [Effort.LITTLE, Effort.ALL], ids=lambda effort: effort.name)
def test_an_access_outside_is_told_and_not_done(form: Body, effort: Effort):
    assert run(form, 15, effort)[0] == []
    faults, memory = run(form, 16, effort)
    assert [fault.high - fault.low for fault in faults][:1] == [SIZE]
    assert all(fault.address + fault.size > fault.high for fault in faults)
    np.testing.assert_array_equal(memory[2 * SIZE :], np.arange(2 * SIZE, 3 * SIZE))


@pytest.mark.parametrize("form", [loads, stores, updates, chooses, calls, keeps_pointers, has_parts, has_constants])
@pytest.mark.parametrize("number", [-1, -(1 << 40), 1 << 60])
def test_far_away_and_before_the_beginning(form: Body, number: int):
    faults, memory = run(form, number)
    if form is chooses and number < 0:
        number += 64 if number == -1 else 0  # It is memory of its own that is left.
    assert len(faults) >= 1
    np.testing.assert_array_equal(memory, np.arange(3 * SIZE))


def test_null_is_refused_where_bounds_are_unknown():
    def touches(fn: Function, array: Value, number: Value) -> None:
        fn.store(fn.constant(I32, 1), fn.at(fn.null(), I32, number))

    (fault,), _ = run(touches, 3)
    assert fault.text == "f accesses null, with an offset of 12 bytes (store i32)"


def test_what_is_told():
    (fault,), memory = run(stores, -9)
    assert fault.text == "f accesses 4 bytes at offset -36 of an array of 64 bytes (store float)"
    assert fault.low == memory.ctypes.data + SIZE


def test_a_form_of_memory_access_that_is_not_known_is_refused():
    def masked(fn: Function, array: Value, number: Value) -> None:
        fn.module.declare("llvm.masked.load.v4f32.p0", vector(F32, 4), [PTR, vector(F32, 4)])
        fn.call("llvm.masked.load.v4f32.p0", vector(F32, 4), array, fn.constant(vector(F32, 4), 0.0))

    with pytest.raises(InternalError, match="no bounds check is known for"):
        run(masked, 0)


def test_without_the_sanitizer_nothing_is_there():
    module = Module("test")
    fn = module.function("f", VOID, [PTR], external=True)
    assert within(fn, fn.parameters[0], 8) is fn.parameters[0]
    fn.ret()
    assert "within" not in module.text()
