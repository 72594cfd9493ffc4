"""Products, convolutions, Fourier transforms and linear systems."""

from __future__ import annotations

from collections.abc import Sequence

from xlakit.compat.xla_client.binding import member_of
from xlakit.compat.xla_client.enums import TriangularSolveOptions_Transpose
from xlakit.compat.xla_client.ops.operations import Ints, Kind, Op, Pairs, Record, operation
from xlakit.compat.xla_client.ops.records import convolution_numbers_of, dot_numbers_of, precision_of
from xlakit.ir.enums import FftType, Transpose
from xlakit.ops import convolution, dot, fft, linear_algebra


@operation
def Dot(
    lhs: Op,
    rhs: Op,
    precision_config: Record | None = None,
    preferred_element_type: Kind | None = None,
) -> Op:
    """The product of vectors and matrices."""
    return dot.dot(lhs, rhs, precision_of(precision_config), preferred_element_type)


@operation
def DotGeneral(
    lhs: Op,
    rhs: Op,
    dimension_numbers: Record,
    precision_config: Record | None = None,
    preferred_element_type: Kind | None = None,
) -> Op:
    """The product over any dimensions, with batch dimensions."""
    numbers = dot_numbers_of(dimension_numbers)
    return dot.dot_general(lhs, rhs, numbers, precision_of(precision_config), preferred_element_type)


@operation
def ConvGeneralDilated(
    lhs: Op,
    rhs: Op,
    window_strides: Ints,
    padding: Pairs,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    dimension_numbers: Record,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Record | None = None,
    preferred_element_type: Kind | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> Op:
    """A convolution."""
    return convolution.conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        convolution_numbers_of(dimension_numbers),
        feature_group_count,
        batch_group_count,
        precision_of(precision_config),
        preferred_element_type,
        tuple(window_reversal or ()),
    )


@operation
def Fft(operand: Op, fft_type: Record, fft_length: Ints) -> Op:
    """A Fourier transform along the last dimensions."""
    return fft.fft(operand, member_of(fft_type, FftType), fft_length)


@operation
def Cholesky(a: Op, lower: bool = True) -> Op:
    """The triangular factor of positive definite matrices."""
    return linear_algebra.cholesky(a, lower)


@operation
def TriangularSolve(a: Op, b: Op, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: Record) -> Op:
    """The solution of triangular systems."""
    kind = Transpose(member_of(transpose_a, TriangularSolveOptions_Transpose).value)
    return linear_algebra.triangular_solve(a, b, left_side, lower, unit_diagonal, kind)
