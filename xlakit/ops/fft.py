"""Fourier transforms.

Source: XLA's document "Operation semantics", section Fft.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import UNBOUNDED, Shape
from xlakit.errors import ShapeError
from xlakit.ir.enums import FftType
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute, operation
from xlakit.ops.handle import OperandLike, XlaOp, as_op, building, common_builder, emit


@operation("fft", arity=1, documents=("Fft",))
class Fft(Op):
    """A forward or inverse Fourier transform along the last one, two or three dimensions."""

    fft_type: FftType = attribute(Kind.ENUM, enum=FftType, always=True)
    fft_length: tuple[int, ...] = attribute(Kind.INT64_LIST, always=True)

    def result_shape(self, operands: Sequence[Shape], declared: Shape | None) -> Shape:
        (operand,) = operands
        if not 1 <= len(self.fft_length) <= 3:
            raise ShapeError(
                f"fft_length {list(self.fft_length)} must have 1 to 3 lengths",
                hint="transform more dimensions in several steps",
            )
        if not operand.is_array or operand.rank < len(self.fft_length):
            raise ShapeError(
                f"a transform of {len(self.fft_length)} dimensions takes at least that rank, got {operand}",
                hint="give one length for each innermost dimension that is transformed",
            )
        self._check_type(operand.element_type)
        length, bound = self.fft_length[-1], operand.dimensions[-1]
        wanted = list(self.fft_length)
        if self.fft_type is FftType.IRFFT:
            # The spectrum of a real signal of this length, without its mirrored half; that of an empty one is empty.
            wanted[-1] = length // 2 + 1 if length or bound else 0
        given = operand.dimensions[-len(wanted) :]
        if not all(map(self._fits, given, wanted)):
            raise ShapeError(
                f"{self.fft_type.name} with fft_length {list(self.fft_length)} takes innermost dimensions {wanted}, "
                f"not {list(given)}",
                hint=self._length_hint(given),
            )
        last = bound
        if self.fft_type is FftType.RFFT:
            last = length // 2 + 1 if length else bound
        elif self.fft_type is FftType.IRFFT:
            last = length
        dynamic = (*operand.dynamic_dimensions[:-1], operand.dynamic_dimensions[-1] and last == bound)
        kind = self._result_type(operand.element_type)
        return Shape(kind, (*operand.dimensions[:-1], last), None, dynamic)

    def _length_hint(self, given: Sequence[int]) -> str:
        if self.fft_type is FftType.IRFFT:
            return f"give {self.fft_length[-1] // 2 + 1} innermost elements, or the length {2 * given[-1] - 2}"
        return f"give fft_length {list(given)}, or pad or slice the operand"

    def _fits(self, size: int, wanted: int) -> bool:
        # FFT and IFFT also take a length of 0 or an empty dimension; the result is zeros, or empty.
        is_complex = self.fft_type in (FftType.FFT, FftType.IFFT)
        return size in (UNBOUNDED, wanted) or (is_complex and 0 in (size, wanted))

    def _check_type(self, kind: PrimitiveType) -> None:
        if self.fft_type is FftType.RFFT:
            if kind not in (PrimitiveType.F32, PrimitiveType.F64):
                raise ShapeError(
                    f"RFFT takes f32 or f64, not {kind.hlo_name}",
                    hint="convert it with convert_element_type to f32, or use FFT for complex numbers",
                )
        elif not kind.is_complex:
            raise ShapeError(
                f"{self.fft_type.name} takes a complex type, not {kind.hlo_name}",
                hint="make it complex with complex or convert_element_type, or use RFFT for real numbers",
            )

    def _result_type(self, kind: PrimitiveType) -> PrimitiveType:
        if self.fft_type is FftType.RFFT:
            return PrimitiveType.C64 if kind is PrimitiveType.F32 else PrimitiveType.C128
        return kind.real_part if self.fft_type is FftType.IRFFT else kind

    def evaluate(self, context: Evaluation, *operands: Value) -> Value:
        import scipy.fft

        operand: Array = operands[0]
        kind = self._result_type(PrimitiveType.from_dtype(operand.dtype)).dtype
        axes = tuple(range(-len(self.fft_length), 0))
        sizes = [*operand.shape[axes[0] : -1], self.fft_length[-1]]
        if 0 in operand.shape or 0 in self.fft_length:
            return np.zeros(tuple(d for d in context.shape.dimensions), dtype=kind)
        wide = operand.astype(np.float64 if self.fft_type is FftType.RFFT else np.complex128)
        with np.errstate(all="ignore"):
            if self.fft_type is FftType.FFT:
                result = scipy.fft.fftn(wide, axes=axes)
            elif self.fft_type is FftType.IFFT:
                result = scipy.fft.ifftn(wide, axes=axes)
            elif self.fft_type is FftType.RFFT:
                result = scipy.fft.rfftn(wide, axes=axes)
            else:
                result = scipy.fft.irfftn(wide, s=sizes, axes=axes)
            return np.asarray(result).astype(kind)


@building
def fft(operand: OperandLike, fft_type: FftType | str, fft_length: Sequence[int]) -> XlaOp:
    """A Fourier transform along the innermost one, two or three dimensions.

    operand: complex for FFT, IFFT and IRFFT; F32 or F64 for RFFT.
    fft_type: FFT and IFFT keep the shape; RFFT gives the first ``n // 2 + 1`` of ``n`` complex results in the last
        dimension, and IRFFT takes those. The inverse transforms divide by the number of points.
    fft_length: the lengths in the time domain. They are the innermost dimensions of the operand, but for the last
        one of IRFFT, which its operand leaves open.

    Raises ShapeError. Source: Operation semantics, Fft.
    """
    op = Fft(fft_type=FftType.of(fft_type), fft_length=tuple(fft_length))
    return emit(op, as_op(common_builder([operand]), operand))
