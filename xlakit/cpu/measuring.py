"""Measures a machine: bandwidths of caches and memory, arithmetic throughput of a core, costs of threads and pages.

Each measurement times a small piece of generated code. All of them are repeated several times in turn, and the best of
each counts: a temporary disturbance of the machine makes some repetitions slower, never faster. All of them take less
than a second of processor time. The results are part of the machine's description (:mod:`xlakit.machine`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from xlakit import machine, options, target
from xlakit.cpu.llvm import BF16, F32, F64, I64, PTR, VOID, Effort, Function, Module, Type, Value, engine, vector
from xlakit.cpu.llvm.library import Library
from xlakit.ir.operation import Array
from xlakit.machine import Machine

# Independent accumulators, enough that none waits for the latency of its own last operation.
_SUMS: Final = 12
_ROUNDS = 20_000
# Operation pairs per iteration of the dependent chain; each takes two cycles and depends on the one before.
_CHAIN: Final = 8
# The least number of bytes that a measurement of bandwidth moves, and the least and largest size of the large array.
_MOVED = 32 << 20
_LARGE = (64 << 20, 256 << 20)
_REPEATED: Final = 3
_WAKINGS: Final = 100
_PAGES: Final = 2048


def described() -> Machine:
    """The machine that code is generated for, with LLVM's description of the processor."""
    current, made_for = machine.current(), target.processor()
    if machine.is_given() or current.vector_bytes:
        return current
    return replace(current, **_processor(made_for))


def _processor(processor: target.Processor) -> dict[str, Any]:
    extensions = tuple(sorted(feature[1:] for feature in processor.features if feature.startswith("+")))
    return {"processor": processor.name, "vector_bytes": processor.vector_bytes, "extensions": extensions}


def is_measurable() -> bool:
    """Whether a measurement describes this machine.

    It does not if the environment names a description, or if code is generated with other than the default options.
    """
    return not machine.is_given() and options.current().text == options.DEFAULT.text


def measure() -> Machine:
    """Measure the machine, and save its description.

    Gives the description in force if nothing can be measured (:func:`is_measurable`).
    """
    if not is_measurable():
        return described()
    code = _code()
    # Virtual machines may report a shared L3 that is larger than a reasonable array.
    large = min(max(_LARGE[0], 2 * machine.own().l3), _LARGE[1])
    # One array, copied from one half to the other: its page faults take longer than all measurements.
    array = np.ones(large // 8, np.int64)
    repetitions = [_measured(code, array) for _ in range(_REPEATED)]
    measured: dict[str, float] = {}
    for name in repetitions[0]:
        best = min if name.endswith("_nanoseconds") else max
        measured[name] = _rounded(best(repetition[name] for repetition in repetitions))
    wake = measured.pop("wake_nanoseconds")
    description = replace(machine.current(), **_processor(target.processor()))
    return machine.store(replace(description, wake_nanoseconds=wake, measured=measured))


def _measured(code: _Code, array: Array) -> dict[str, float]:
    """One repetition of all measurements: times are named in nanoseconds, all other numbers are rates."""
    measured = {"cycle_nanoseconds": _cycle(code)}
    for name, type in (("f32", F32), ("f64", F64)):
        measured[f"fused_per_nanosecond_{name}"] = _peak(code, f"fused_{name}", type)
    if _has_pairs():
        measured["bf16_products_per_nanosecond"] = 2 * _peak(code, "pairs_bf16", F32)
    measured |= _bandwidths(code, array)
    measured["page_fault_nanoseconds"] = _page_fault()
    measured["wake_nanoseconds"] = _wake()
    return measured


def _rounded(number: float) -> float:
    """The number rounded to two significant digits; further digits are noise."""
    return float(f"{number:.2g}")


@cache
def _code() -> _Code:
    # Cached, because a library's name can be used only once in a process.
    return _Code()


class _Code:
    """The timed functions, as machine code."""

    def __init__(self) -> None:
        module = Module("measuring")
        for name, type in (("f32", F32), ("f64", F64)):
            _write_fused(module.function(f"fused_{name}", VOID, [PTR, I64], external=True), type, _fused)
        _write_read(module.function("read", VOID, [PTR, I64, PTR, I64], external=True))
        _write_copy(module.function("copy", VOID, [PTR, I64, PTR], external=True))
        _write_chain(module.function("chain", VOID, [PTR, I64], external=True))
        names = ["fused_f32", "fused_f64", "read", "copy", "chain"]
        if _has_pairs():
            names.append("pairs_bf16")
            _write_fused(module.function("pairs_bf16", VOID, [PTR, I64], external=True), F32, _pairs)
        self._library = Library("measuring", engine.compiled(module.text(), Effort.ALL), names, {})

    def function(self, name: str) -> Callable[..., None]:
        """The function of a name, with its C signature."""
        more = {"read": (ctypes.c_void_p, ctypes.c_int64), "copy": (ctypes.c_void_p,)}.get(name, ())
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, *more)(self._library.address(name))


def _has_pairs() -> bool:
    """Whether the processor has an instruction for pairs of products of BF16, in registers of 64 bytes."""
    return target.has_feature("avx512bf16") and target.vector_bytes() == 64


def _fused(fn: Function, x: Value, y: Value, z: Value) -> Value:
    return fn.intrinsic("llvm.fmuladd", x.type, x, y, z)


def _pairs(fn: Function, x: Value, y: Value, z: Value) -> Value:
    name, pairs = "llvm.x86.avx512bf16.dpbf16ps.512", vector(BF16, 2 * x.type.lanes)
    fn.module.declare(name, x.type, [x.type, pairs, pairs])
    return fn.call(name, x.type, x, y.bits_as(pairs), z.bits_as(pairs))


def _write_fused(fn: Function, type: Type, fused: Callable[[Function, Value, Value, Value], Value]) -> None:
    """Multiply-adds on registers alone: x becomes that of x, y and z, ``rounds`` times."""
    numbers, rounds = fn.parameters
    wide = vector(type, target.vector_bytes() // type.bytes)
    sums = [fn.load(wide, fn.at(numbers, wide, n)) for n in range(_SUMS)]
    y, z = (fn.load(wide, fn.at(numbers, wide, _SUMS + n)) for n in (0, 1))
    with fn.loop(0, rounds, carried=sums) as loop:
        loop.next(*(fused(fn, x, y, z) for x in loop.carried))
    for n, x in enumerate(loop.results):
        fn.store(x, fn.at(numbers, wide, n))


def _write_chain(fn: Function) -> None:
    """A dependent chain of rotations and additions, ``rounds`` times."""
    numbers, rounds = fn.parameters
    y = fn.load(I64, fn.at(numbers, I64, 1))
    with fn.loop(0, rounds, carried=[fn.load(I64, numbers)]) as loop:
        (x,) = loop.carried
        for _ in range(_CHAIN):
            x = fn.intrinsic("llvm.fshl", I64, x, x, fn.constant(I64, 1)) + y
        loop.next(x)
    fn.store(loop.results[0], numbers)


def _write_read(fn: Function) -> None:
    """Read an array ``times`` times; the sum of all elements is stored, so that no load is dead."""
    wide = vector(I64, target.vector_bytes() // 8)
    source, blocks, result, times = fn.parameters
    with fn.loop(0, times, carried=[fn.constant(wide, 0)] * 8) as again:
        with fn.loop(0, blocks, carried=again.carried) as loop:
            start = fn.at(source, wide, loop.index * 8)
            read = [fn.load(wide, fn.at(start, wide, n)) for n in range(8)]
            loop.next(*(a + b for a, b in zip(loop.carried, read, strict=True)))
        again.next(*loop.results)
    for n, total in enumerate(again.results):
        fn.store(total, fn.at(result, wide, n))


def _write_copy(fn: Function) -> None:
    """Copy one array to another, both a number of blocks long."""
    wide = vector(I64, target.vector_bytes() // 8)
    source, blocks, result = fn.parameters
    with fn.loop(0, blocks) as loop:
        first: Value = loop.index * 8
        for n in range(8):
            index = first + n
            fn.store(fn.load(wide, fn.at(source, wide, index)), fn.at(result, wide, index))


def _time(run: Callable[[], object]) -> float:
    """The time of a run, in nanoseconds, after one warm-up run."""
    run()
    start = time.perf_counter_ns()
    run()
    return max(time.perf_counter_ns() - start, 1.0)


def _cycle(code: _Code) -> float:
    """Nanoseconds of a cycle: a rotation and an addition each take one on every processor of the last twenty years."""
    numbers = np.ones(2, np.int64)
    run = code.function("chain")
    return _time(lambda: run(numbers.ctypes.data, _ROUNDS)) / (2 * _CHAIN * _ROUNDS)


def _peak(code: _Code, name: str, type: Type) -> float:
    """Multiply-adds per nanosecond, one for each element of a result, on one thread."""
    lanes = target.vector_bytes() // type.bytes
    # Zeros stay zeros: no operation becomes slow because of subnormal or infinite numbers.
    numbers = np.zeros((_SUMS + 2) * lanes, np.float32 if type is F32 else np.float64)
    run = code.function(name)
    return _SUMS * lanes * _ROUNDS / _time(lambda: run(numbers.ctypes.data, _ROUNDS))


def _bandwidths(code: _Code, source: Array) -> dict[str, float]:
    """Bytes per nanosecond: read from each cache and from memory by one thread, copied by one thread and by all."""
    known, unit, large = machine.own(), 8 * target.vector_bytes(), source.nbytes
    half, other = np.split(source, 2)
    result = np.zeros(unit // 8, np.int64)
    read, copy = code.function("read"), code.function("copy")
    bandwidths: dict[str, float] = {}
    for name, size in (("l1", known.l1 // 2), ("l2", known.l2 // 2), ("l3", known.l3 // 4), ("memory", large)):
        blocks = min(size, large) // unit
        times = max(1, _MOVED // (blocks * unit))

        def run(blocks: int = blocks, times: int = times) -> None:
            read(source.ctypes.data, blocks, result.ctypes.data, times)

        bandwidths[f"read_bytes_per_nanosecond_{name}"] = blocks * unit * times / _time(run)
    for name, threads in (("one_thread", 1), ("all_threads", known.threads)):
        bandwidths[f"copy_bytes_per_nanosecond_{name}"] = _copied(copy, half, other, unit, threads)
    return bandwidths


def _copied(copy: Callable[..., None], source: Array, other: Array, unit: int, threads: int) -> float:
    """Bytes per nanosecond that ``threads`` threads copy together, each its own part."""
    blocks = source.nbytes // unit // threads

    def part(number: int) -> None:
        begin = number * blocks * unit
        copy(source.ctypes.data + begin, blocks, other.ctypes.data + begin)

    def run() -> None:
        helpers = [threading.Thread(target=part, args=(number,)) for number in range(1, threads)]
        for helper in helpers:
            helper.start()
        part(0)
        for helper in helpers:
            helper.join()

    return blocks * unit * threads / _time(run)


def _wake() -> float:
    """Nanoseconds to wake a sleeping thread: half of the round trip of a byte through two pipes."""
    (question_in, question_out), (answer_in, answer_out) = os.pipe(), os.pipe()

    def answer() -> None:
        while os.read(question_in, 1) != b"e":
            os.write(answer_out, b"a")

    other = threading.Thread(target=answer)
    other.start()
    best = float("inf")
    try:
        for _ in range(_WAKINGS):
            start = time.perf_counter_ns()
            os.write(question_out, b"q")
            os.read(answer_in, 1)
            best = min(best, time.perf_counter_ns() - start)
    finally:
        os.write(question_out, b"e")
        other.join()
        for pipe in (question_in, question_out, answer_in, answer_out):
            os.close(pipe)
    return best / 2


def _page_fault() -> float:
    """Nanoseconds of a page fault at the first touch of a page."""
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as pages:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        touched = np.frombuffer(pages, np.uint8)
        start = time.perf_counter_ns()
        touched[:: mmap.PAGESIZE] = 1
        taken = time.perf_counter_ns() - start
        del touched
    return taken / _PAGES
