"""Every operation of the document "Operation semantics" is there, with the document's argument names in PEP 8."""

import inspect

import pytest

import xlakit as xla
from xlakit.ops.registry import OPERATIONS

ARITHMETIC = ["add", "sub", "mul", "div", "rem", "max", "min", "logical_and", "logical_or"]
COMPARISONS = ["eq", "ne", "ge", "gt", "le", "lt"]
UNARY = ["abs", "ceil", "cos", "exp", "floor", "imag", "is_finite", "log", "logical_not", "logistic"]
UNARY += ["population_count", "neg", "real", "rsqrt", "sign", "sqrt", "cbrt", "tanh", "round", "round_nearest_even"]

BINARY = "lhs rhs broadcast_dimensions"
CONVOLUTION = "lhs rhs window_strides padding feature_group_count batch_group_count"

NAMES = {
    "after_all": "operands",
    "all_gather": "operand all_gather_dim shard_count replica_groups channel_id",
    "all_reduce": "operand computation replica_groups channel_id",
    "all_to_all": "operand split_dimension concat_dimension split_count replica_groups",
    "batch_norm_grad": "operand scale mean variance grad_output epsilon feature_index",
    "batch_norm_inference": "operand scale offset mean variance epsilon feature_index",
    "batch_norm_training": "operand scale offset epsilon feature_index",
    "bitcast_convert_type": "operand new_element_type",
    "broadcast": "operand broadcast_sizes",
    "broadcast_in_dim": "operand out_dim_size broadcast_dimensions",
    "call": "computation args",
    "cholesky": "a lower",
    "clamp": "min operand max",
    "collapse": "operand dimensions",
    "collective_permute": "operand source_target_pairs",
    "concat_in_dim": "operands dimension",
    "concatenate": "operands dimension",
    "conditional": "",
    "conv": CONVOLUTION,
    "conv_with_general_padding": CONVOLUTION,
    "conv_general_dilated": CONVOLUTION + " lhs_dilation rhs_dilation",
    "convert_element_type": "operand new_element_type",
    "cross_replica_sum": "operand",
    "custom_call": "target_name args shape",
    "dot": "lhs rhs",
    "dot_general": "lhs rhs dimension_numbers",
    "dynamic_slice": "operand start_indices size_indices",
    "dynamic_update_slice": "operand update start_indices",
    **dict.fromkeys(ARITHMETIC, BINARY),
    **dict.fromkeys(COMPARISONS, BINARY),
    **{f"{name}_total_order": BINARY for name in COMPARISONS},
    **dict.fromkeys(
        UNARY,
        "operand",
    ),
    "fft": "operand fft_type fft_length",
    "gather": "operand start_indices index_vector_dim offset_dims slice_sizes collapsed_slice_dims start_index_map "
    "indices_are_sorted unique_indices",
    "get_dimension_size": "operand dimension",
    "set_dimension_size": "operand size dimension",
    "get_tuple_element": "",
    "infeed": "shape",
    "iota": "shape iota_dimension",
    "map": "operands computation dimensions",
    "optimization_barrier": "operand",
    "pad": "operand padding_value padding_config",
    "recv": "shape channel_handle",
    "reduce": "operands init_values computation dimensions",
    "reduce_precision": "operand exponent_bits mantissa_bits",
    "reduce_scatter": "operand computation scatter_dimension shard_count replica_groups channel_id",
    "reduce_window": "operands init_values computation window_dimensions window_strides base_dilations "
    "window_dilations padding",
    "replica_id": "",
    "reshape": "operand dimensions new_sizes",
    "rev": "operand dimensions",
    "rng_normal": "mu sigma shape",
    "rng_uniform": "a b shape",
    "rng_bit_generator": "algorithm initial_state shape",
    "scatter": "operands scatter_indices updates update_computation index_vector_dim update_window_dims "
    "inserted_window_dims scatter_dims_to_operand_dims indices_are_sorted",
    "select": "pred on_true on_false",
    "select_and_scatter": "operand select window_dimensions window_strides padding source init_value scatter",
    "send": "operand channel_handle",
    "slice": "operand start_indices limit_indices strides",
    "sort": "operands comparator dimension is_stable",
    "transpose": "operand permutation",
    "triangular_solve": "a b left_side lower unit_diagonal transpose_a",
    "tuple_": "",
    "while_": "condition body init",
}


@pytest.mark.parametrize("name", NAMES)
def test_argument_names(name):
    parameters = inspect.signature(getattr(xla, name)).parameters
    assert [p for p in NAMES[name].split() if p not in parameters] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_names_its_source(name):
    assert "Source: " in (inspect.getdoc(getattr(xla, name)) or "")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("BroadcastInDim", "did you mean 'broadcast_in_dim'"),
        ("tuple", "did you mean 'tuple_'"),
        ("While", "did you mean 'while_'"),
        ("reducee", "did you mean 'reduce'"),
        ("subtract", "write xlakit.sub"),
        ("round_nearest_afz", "write xlakit.round$"),
        ("cond", "write xlakit.conditional"),
        ("CustomCallWithLayout", "write xlakit.custom_call"),
        ("ConstantLiteral", "write xlakit.constant"),
        ("f32", "did you mean 'F32'"),
    ],
)
def test_xla_s_own_names_lead_to_ours(name, meant):
    with pytest.raises(AttributeError, match=meant):
        getattr(xla, name)
    assert not hasattr(xla, "nothing_like_it")


# Operations of HLO for which the builder has functions of other names, or none.
PAIRS = [f"{name}_{half}" for name in ("all_gather", "all_reduce", "collective_permute") for half in ("start", "done")]


def test_the_names_of_all_operations_in_the_document_and_in_hlo_lead_to_functions():
    opcodes = {opcode.replace("-", "_") for opcode in OPERATIONS}.difference(PAIRS)
    for name in sorted(opcodes.union(*(operation.documents for operation in OPERATIONS.values()))):
        if not hasattr(xla, name):
            with pytest.raises(AttributeError, match=r"; (write xlakit\.|did you mean ')\w+"):
                getattr(xla, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [("Max", r"write xlakit\.max\(..\)"), ("parameter", r"write xlakit\.parameter"), ("Build", "did you mean 'build'")],
)
def test_methods_of_the_builder_in_the_document_s_examples_lead_to_functions(name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(xla.XlaBuilder("max"), name)


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        (xla.Padding, "kSame", "did you mean SAME"),
        (xla.ComparisonDirection, "kLt", "did you mean LT"),
        (xla.FftType, "DCT", "it has FFT, IFFT, RFFT, IRFFT"),
    ],
)
def test_names_of_enumerations_in_c_lead_to_the_members(kind, name, said):
    with pytest.raises(AttributeError, match=said):
        getattr(kind, name)


def test_an_enumeration_that_is_called_as_an_operation_leads_to_the_function():
    x = xla.parameter(xla.XlaBuilder("called"), 0, xla.make_shape(xla.F32, (2, 3)))
    with pytest.raises(xla.ArgumentError, match=r"xlakit\.transpose"):
        xla.Transpose(x, [1, 0])
