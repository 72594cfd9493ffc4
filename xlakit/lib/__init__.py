"""XLA's math library on XlaBuilder: functions of XlaOps that make many operations each.

All functions are exported here (``xlakit.lib.max_pool``) and by the modules that define them, including those that are
also operations of ``xlakit`` (``sinh``).
"""

from xlakit.lib.approx_topk import (
    approx_top_k as approx_top_k,
    approx_top_k_fallback as approx_top_k_fallback,
    approx_top_k_reduction_output_size as approx_top_k_reduction_output_size,
)
from xlakit.lib.arithmetic import (
    all as all,
    any as any,
    arg_max as arg_max,
    arg_min as arg_min,
    arg_min_max as arg_min_max,
    create_scalar_add_computation as create_scalar_add_computation,
    create_scalar_and_computation as create_scalar_and_computation,
    create_scalar_computation as create_scalar_computation,
    create_scalar_ge_computation as create_scalar_ge_computation,
    create_scalar_identity_with_zero_computation as create_scalar_identity_with_zero_computation,
    create_scalar_max_computation as create_scalar_max_computation,
    create_scalar_min_computation as create_scalar_min_computation,
    create_scalar_multiply_computation as create_scalar_multiply_computation,
    create_scalar_or_computation as create_scalar_or_computation,
)
from xlakit.lib.broadcast import broadcast_to as broadcast_to
from xlakit.lib.comparators import (
    create_scalar_comparison_computation as create_scalar_comparison_computation,
    create_scalar_gt_computation as create_scalar_gt_computation,
    create_scalar_lt_computation as create_scalar_lt_computation,
)
from xlakit.lib.constants import (
    constant_r0_with_type as constant_r0_with_type,
    epsilon as epsilon,
    full_like as full_like,
    max_finite_value as max_finite_value,
    max_value as max_value,
    min_finite_value as min_finite_value,
    min_positive_normal_value as min_positive_normal_value,
    min_value as min_value,
    nan_value as nan_value,
    one as one,
    scalar_like as scalar_like,
    zero as zero,
    zeros as zeros,
    zeros_like as zeros_like,
)
from xlakit.lib.conv_grad_size_util import (
    SpatialDimensionOutputSizeAndPadding as SpatialDimensionOutputSizeAndPadding,
    conv_grad_extract_and_verify_dimension as conv_grad_extract_and_verify_dimension,
)
from xlakit.lib.dynamic_shaped_ops import (
    dynamic_conditional as dynamic_conditional,
    set_all_dimension_sizes as set_all_dimension_sizes,
    set_dimension_size_with_rebound as set_dimension_size_with_rebound,
)
from xlakit.lib.linear_algebra import (
    eigh as eigh,
    lu as lu,
    lu_pivots_to_permutation as lu_pivots_to_permutation,
    product_of_elementary_householder_reflectors as product_of_elementary_householder_reflectors,
    qr as qr,
    qr_decomposition as qr_decomposition,
    svd as svd,
)
from xlakit.lib.logdet import SignAndLogDet as SignAndLogDet, log_det as log_det, slog_det as slog_det
from xlakit.lib.loops import for_each_index as for_each_index, while_loop_helper as while_loop_helper
from xlakit.lib.math import (
    evaluate_chebyshev_polynomial as evaluate_chebyshev_polynomial,
    evaluate_polynomial as evaluate_polynomial,
    is_neg_zero as is_neg_zero,
    maybe_conjugate as maybe_conjugate,
    round_to_even as round_to_even,
)
from xlakit.lib.matrix import (
    diagonal_mask as diagonal_mask,
    identity_matrix as identity_matrix,
    lower_triangle as lower_triangle,
    matrix_diagonal as matrix_diagonal,
    maybe_transpose_in_minor_dims as maybe_transpose_in_minor_dims,
    set_matrix_diagonal as set_matrix_diagonal,
    symmetrize as symmetrize,
    transpose_in_minor_dims as transpose_in_minor_dims,
    triangle as triangle,
    triangle_mask as triangle_mask,
    upper_triangle as upper_triangle,
)
from xlakit.lib.pooling import (
    TensorFormat as TensorFormat,
    avg_pool as avg_pool,
    avg_pool_grad as avg_pool_grad,
    make_spatial_padding as make_spatial_padding,
    max_pool as max_pool,
)
from xlakit.lib.prng import (
    BitGenerator as BitGenerator,
    RngOutput as RngOutput,
    concat_scalars as concat_scalars,
    convert_random_bits_to_uniform_floating_point as convert_random_bits_to_uniform_floating_point,
    normal_floating_point_distribution as normal_floating_point_distribution,
    philox_bit_generator as philox_bit_generator,
    philox_increase_counter as philox_increase_counter,
    scramble_philox_key as scramble_philox_key,
    three_fry_bit_generator as three_fry_bit_generator,
    uniform_floating_point_distribution as uniform_floating_point_distribution,
    uniform_int_distribution as uniform_int_distribution,
)
from xlakit.lib.products import batch_dot as batch_dot, einsum as einsum
from xlakit.lib.quantize import (
    QuantizedRange as QuantizedRange,
    dequantize as dequantize,
    pack_to_uint32 as pack_to_uint32,
)
from xlakit.lib.slicing import (
    concat_vectors as concat_vectors,
    dynamic_slice_in_minor_dims as dynamic_slice_in_minor_dims,
    dynamic_strided_slice as dynamic_strided_slice,
    dynamic_update_slice_in_minor_dims as dynamic_update_slice_in_minor_dims,
    slice_in_minor_dims as slice_in_minor_dims,
    torch_gather as torch_gather,
    torch_index_select as torch_index_select,
    torch_scatter_dense as torch_scatter_dense,
    update_slice as update_slice,
    update_slice_in_minor_dims as update_slice_in_minor_dims,
)
from xlakit.lib.sorting import top_k as top_k, top_k_with_partitions as top_k_with_partitions
from xlakit.lib.special import (
    bessel_i0e as bessel_i0e,
    bessel_i1e as bessel_i1e,
    digamma as digamma,
    erf_inv as erf_inv,
    erfc as erfc,
    igamma as igamma,
    igamma_grad_a as igamma_grad_a,
    igammac as igammac,
    lgamma as lgamma,
    next_after as next_after,
    polygamma as polygamma,
    random_gamma_grad as random_gamma_grad,
    regularized_incomplete_beta as regularized_incomplete_beta,
    zeta as zeta,
)
from xlakit.lib.tridiagonal import tridiagonal_mat_mul as tridiagonal_mat_mul, tridiagonal_solver as tridiagonal_solver
from xlakit.lib.value_inference import ValueBounds as ValueBounds, value_bounds as value_bounds
from xlakit.ops.elementwise.binary import atan as atan
from xlakit.ops.elementwise.elementary import (
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atanh as atanh,
    cosh as cosh,
    erf as erf,
    sinh as sinh,
    tan as tan,
)
from xlakit.ops.elementwise.math_library import (
    is_inf as is_inf,
    is_nan as is_nan,
    is_neg_inf as is_neg_inf,
    is_pos_inf as is_pos_inf,
    reciprocal as reciprocal,
    square as square,
)
