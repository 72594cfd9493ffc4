"""Transforms of as many rows at once as a vector register has lanes, by Stockham's passes.

Points are stored one after the other, each as the real parts of all lanes followed by the imaginary parts. A pass reads
one memory and writes the other, so that the points come out in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xlakit.cpu.kernels.fft.butterfly import Point, butterfly, swapped
from xlakit.cpu.kernels.fft.plan import convolution_length, is_smooth, radices
from xlakit.cpu.kernels.fft.tables import Tables, chirp, chirp_spectrum, load_point, roots, symbol
from xlakit.cpu.kernels.shared import common
from xlakit.cpu.llvm import F32, F64, I64, PTR, VOID, Effort, Function, Module, Type, Value, vector
from xlakit.cpu.llvm.loop import AS_WRITTEN
from xlakit.cpu.llvm.promises import CONTRACTS, NO_INLINE
from xlakit.cpu.scalars.complex_arithmetic import plain_product
from xlakit.dataclass import dataclass
from xlakit.target import vector_bytes


def lane_count(part: Type) -> int:
    """The number of transforms that run at once."""
    return vector_bytes() // part.bytes


def store_point(fn: Function, point: Point, memory: Value, index: Value | int) -> None:
    """Write point ``index`` of a memory of lanes."""
    type = point[0].type
    pair = fn.at(memory, type, index * 2)
    fn.store(point[0], pair)
    fn.store(point[1], fn.at(pair, type, 1))


def splat_point(fn: Function, part: Type, lanes: int, table: Value, index: Value | int) -> Point:
    """Entry ``index`` of a table of pairs, replicated in all lanes."""
    real, imag = load_point(fn, part, table, index)
    return fn.splat(real, lanes), fn.splat(imag, lanes)


def is_moved(n: int) -> bool:
    """Whether the result of a lane transform is in the second memory."""
    if not is_smooth(n):
        return False
    return len(radices(n)) % 2 == 1


def lane_transform(module: Module, part: Type, n: int) -> Function:
    """``void(ptr points, ptr other)``: transform the points; the result is in ``other`` if :func:`is_moved`.

    The memories have room for ``fft_plan.lane_points`` points.
    """
    name = symbol(part, ("lanes", n))
    function = module.functions.get(name)
    if function is None:
        smooth = is_smooth(n)
        inner = None if smooth else lane_transform(module, part, convolution_length(n))
        function = module.function(name, VOID, [PTR, PTR], attributes=[NO_INLINE])
        function.never_overlap(0, 1)
        function.fast_math = CONTRACTS
        # The passes are calls, so code of a smooth length needs no optimization.
        function.effort = Effort.LITTLE if smooth else Effort.CODE
        writer = _Writer(function, part)
        if inner is None:
            writer.passes(n)
        else:
            writer.convolution(n, inner)
    return function


@dataclass(frozen=True, slots=True)
class Pass:
    """One of Stockham's passes, with butterflies of ``radix`` points, with or without twiddle factors.

    ``(ptr source, ptr target, ptr twiddles, i64 count, i64 stride)``: ``stride`` transforms of ``radix * count`` points
    become ``radix`` times as many transforms of ``count`` points.
    """

    part: str
    radix: int
    has_twiddles: bool

    family: ClassVar[str] = "fft"
    parameters: ClassVar[Sequence[Type]] = (PTR, PTR, PTR, I64, I64)

    def write(self, fn: Function) -> None:
        """Write its body."""
        fn.never_overlap(0, 1, 2)
        fn.fast_math = CONTRACTS
        source, target, table, count, stride = fn.parameters
        part, radix = (F32 if self.part == F32.name else F64), self.radix
        lanes = lane_count(part)
        type = vector(part, lanes)
        distance = count * stride
        with fn.loop(0, count, hints=AS_WRITTEN) as outer:
            twiddles: list[Point] = []
            if self.has_twiddles:
                base = outer.index * (radix - 1)
                twiddles = [splat_point(fn, part, lanes, table, base + k) for k in range(radix - 1)]
            reads, writes = outer.index * stride, outer.index * (stride * radix)
            with fn.loop(0, stride, independent=True, hints=AS_WRITTEN) as loop:
                points = [load_point(fn, type, source, reads + loop.index + distance * k) for k in range(radix)]
                outputs = butterfly(points)
                for k, twiddle in enumerate(twiddles, 1):
                    outputs[k] = plain_product(outputs[k], twiddle)
                for k, point in enumerate(outputs):
                    store_point(fn, point, target, writes + loop.index + stride * k)


class _Writer:
    def __init__(self, fn: Function, part: Type) -> None:
        self.fn = fn
        self.part = part
        self.lanes = lane_count(part)
        self.type = vector(part, self.lanes)
        self.tables = Tables(fn, part)

    # -- passes ----------------------------------------------------------------------------------

    def passes(self, n: int) -> None:
        """Write all passes of a smooth length."""
        source, target = self.fn.parameters
        length, stride = n, 1
        for radix in radices(n):
            self._pass(source, target, length, stride, radix)
            source, target = target, source
            length, stride = length // radix, stride * radix

    def _pass(self, source: Value, target: Value, length: int, stride: int, radix: int) -> None:
        """Write a pass: ``stride`` transforms of ``length`` points become ``radix`` times as many shorter ones."""
        fn, count = self.fn, length // radix
        table = fn.null()
        if count > 1:
            exponents = np.outer(np.arange(count), np.arange(1, radix))
            table = self.tables.pairs(f"twiddles.{length}.{radix}", roots(exponents, length))
        pass_ = Pass(self.part.name, radix, count > 1)
        common.call(fn, pass_, source, target, table, fn.i64(count), fn.i64(stride))

    # -- other lengths ---------------------------------------------------------------------------

    def convolution(self, n: int, inner: Function) -> None:
        """Bluestein's algorithm: the transform is a convolution with a chirp, computed by longer transforms."""
        fn, length = self.fn, convolution_length(n)
        points, other = fn.parameters
        table = self.tables.pairs(f"chirp.{n}", chirp(n))
        spectrum = self.tables.pairs(f"spectrum.{n}.{length}", chirp_spectrum(n, length))
        self._multiply(points, table, n)
        zero = fn.constant(self.type, 0.0)
        with fn.loop(n, length, hints=AS_WRITTEN) as loop:
            store_point(fn, (zero, zero), points, loop.index)
        fn.call(inner, VOID, points, other)
        source, target = (other, points) if is_moved(length) else (points, other)
        # Exchanging real and imaginary parts turns the forward transform into the backward one.
        self._multiply(source, spectrum, length, swaps=True)
        fn.call(inner, VOID, source, target)
        result = target if is_moved(length) else source
        with fn.loop(0, n, hints=AS_WRITTEN) as loop:
            point = swapped(load_point(fn, self.type, result, loop.index))
            factor = splat_point(fn, self.part, self.lanes, table, loop.index)
            store_point(fn, plain_product(point, factor), points, loop.index)

    def _multiply(self, points: Value, table: Value, count: int, swaps: bool = False) -> None:
        fn = self.fn
        with fn.loop(0, count, hints=AS_WRITTEN) as loop:
            factor = splat_point(fn, self.part, self.lanes, table, loop.index)
            point = plain_product(load_point(fn, self.type, points, loop.index), factor)
            store_point(fn, swapped(point) if swaps else point, points, loop.index)
