"""The table of other backends' custom calls that are implemented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from xlakit.data.shape import Shape
from xlakit.errors import ShapeError, UnsupportedError, XlakitError
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ir.operation import Evaluation, Value
from xlakit.ops.custom_call import CustomCall

if TYPE_CHECKING:
    from xlakit.execution.calls.foreign.config import Config
    from xlakit.execution.calls.foreign.meaning import Foreign
    from xlakit.ops.handle import XlaOp

_GEMM = "gemm_backend_config"
_ATTENTION, _BLOCKS = "cudnn_fmha_backend_config", "block_scaled_dot_backend_config"
_CONVOLUTION = "cudnn_conv_backend_config"
_FFI = "attributes of the typed FFI"
_DESCRIPTOR = "descriptor of "
_NUMBERS = "numbers "
# The functions of neuron.py behind ``AwsNeuron``, and what their config is, if any.
_NEURON = {
    "ArgMax": ("arg_max", "dimension"),
    "ArgMin": ("arg_min", "dimension"),
    "Erf": ("erf", ""),
    "Gelu": ("gelu", ""),
    "GeluApprxTanh": ("approximate_gelu", ""),
    "GeluBackward": ("gelu_slope", ""),
    "RmsNorm": ("rms_norm", "dimension"),
    "Silu": ("silu", ""),
    "Softmax": ("softmax", "dimension"),
    "SoftmaxBackward": ("softmax_gradient", "dimension"),
    "TopK": ("top_k", "k"),
}
# The names of JAX's calls for GPUs behind ``cusolver_`` or ``hipsolver_``, and the functions of solvers.py for them.
_SOLVERS = {
    "csrlsvqr": "csrlsvqr",
    "geev": "geev",
    "geqrf": "geqrf",
    "gesdd": "svd",
    "gesvd": "svd",
    "gesvdj": "svd_with_columns",
    "gesvdp": "svd_with_columns",
    "getrf": "getrf",
    "orgqr": "orgqr",
    "ormqr": "ormqr",
    "potrf": "potrf",
    "syevd": "syevd",
    "syrk": "syrk",
    "sytrd": "sytrd",
}
# Those with an older form, whose name has no ``_ffi`` and whose config is a descriptor: see descriptors.py.
_DESCRIBED = {
    **{name: _SOLVERS[name] for name in ("geqrf", "gesvd", "gesvdj", "getrf", "orgqr", "syevd", "sytrd")},
    "syevj": "syevd",
}
# The names behind ``cu`` or ``hip``.
_KERNELS = {
    "_cholesky_update_ffi": "cholesky_update",
    "hybrid_eig_comp": "eig",
    "hybrid_eig_real": "eig",
    "hybrid_geqp3": "geqp3",
    "sparse_gtsv2_ffi": "gtsv2",
}
# Calls whose config is ignored, as everything follows from the shapes.
_PLAIN = {
    "_lu_pivots_to_permutation": "permutation",
    "blas_geqrf_batched": "geqrf",
    "blas_getrf_batched": "getrf",
    "sparse_gtsv2_f32": "gtsv2",
    "sparse_gtsv2_f64": "gtsv2",
}


class ForeignCall:
    """The function of a custom call's target, which builds the call as HLO and runs it in the interpreter.

    section: how backend_config is read: the key that has the config; ``_FFI`` for a dictionary of attributes of the
    typed FFI; ``_DESCRIPTOR`` and the routine for a descriptor; or ``_NUMBERS`` and the names of the numbers in a list.
    page, build: the file in this folder, imported at the first call, and its function that builds the HLO from the
    operands, the instruction and the config.
    """

    def __init__(self, section: str, page: str, build: str) -> None:
        self._section, self._page, self._build = section, page, build
        # Equal calls share a computation. The cache's keys refer to no program, so that programs can be freed.
        self._computation = lru_cache(maxsize=64)(self._make)

    def check(self, instruction: Instruction) -> None:
        """Raise ShapeError or UnsupportedError for a call that breaks the rules of its target, or has no meaning."""
        self._of(instruction)

    def __call__(self, context: Evaluation, *operands: Value) -> Value:
        """The call's result."""
        return context.call(self._of(context.instruction), *operands)

    def _of(self, instruction: Instruction) -> Computation:
        op, text = instruction.op_as(CustomCall), instruction.annotations.backend_config
        shapes = tuple(o.shape for o in instruction.operands)
        try:
            return self._computation(op, instruction.shape, shapes, text)
        except XlakitError as error:
            # The builder's error names operations and source lines of this package instead of the program's.
            kind = UnsupportedError if isinstance(error, UnsupportedError) else ShapeError
            name = f"custom-call '{instruction.name}'"
            raise kind(error.headline, operation=name, shapes=shapes, hint=error.hint) from None

    def _make(self, op: CustomCall, declared: Shape, shapes: Sequence[Shape], text: str) -> Computation:
        from xlakit.builder import XlaBuilder
        from xlakit.execution.calls.foreign.meaning import Foreign
        from xlakit.ops.data import parameter

        build: Callable[[Foreign], XlaOp] = getattr(import_module(f"{__package__}.{self._page}"), self._build)
        builder = XlaBuilder("foreign_call", source_metadata=False)
        operands = tuple(parameter(builder, i, shape.without_layout()) for i, shape in enumerate(shapes))
        root = build(Foreign(builder, op, declared, operands, self._config(text)))
        return builder.build(root).computation

    def _config(self, text: str) -> Config:
        from xlakit.execution.calls.foreign.config import Config

        if self._section == _FFI:
            return Config.of_attributes(text)
        if self._section.startswith(_DESCRIPTOR):
            from xlakit.execution.calls.foreign.descriptors import config_of

            return config_of(text, self._section.removeprefix(_DESCRIPTOR))
        if self._section.startswith(_NUMBERS):
            names = self._section.removeprefix(_NUMBERS)
            return Config.of_numbers(text, names.split(",") if names else [])
        return Config.parse(text, self._section)


def foreign_calls() -> dict[str, ForeignCall]:
    """The functions of all targets, by name."""
    return {
        "__cublas$gemm": ForeignCall(_GEMM, "gemm", "gemm"),
        "__cublas$lt$matmul": ForeignCall(_GEMM, "gemm", "gemm"),
        "__cublas$lt$matmul$f8": ForeignCall(_GEMM, "gemm", "eight_bit_gemm"),
        "__cublas$lt$groupedMatmul": ForeignCall("grouped_gemm_backend_config", "gemm", "grouped_gemm"),
        "__cudnn$convBackwardFilter": ForeignCall(_CONVOLUTION, "cudnn", "backward_filter"),
        "__cudnn$convBackwardInput": ForeignCall(_CONVOLUTION, "cudnn", "backward_input"),
        "__cudnn$convBiasActivationForward": ForeignCall(_CONVOLUTION, "cudnn", "with_bias"),
        "__cudnn$convForward": ForeignCall(_CONVOLUTION, "cudnn", "forward"),
        **{
            f"__cudnn$fmha{bias}Softmax{dropout}{side}": ForeignCall(_ATTENTION, "attention", build)
            for bias in ("", "ScaleBias")
            for dropout in ("", "Dropout")
            for side, build in (("", "forward"), ("Backward", "backward"))
        },
        "__cudnn$norm": ForeignCall("cudnn_norm_backend_config", "norms", "norm"),
        "__cudnn$fmhaSoftmaxF8": ForeignCall(_ATTENTION, "attention", "eight_bits"),
        "__cudnn$fmhaSoftmaxBackwardF8": ForeignCall(_ATTENTION, "attention", "eight_bits"),
        "__cudnn$convForwardGraph": ForeignCall(_CONVOLUTION, "cudnn", "graph"),
        "__cusolver$cholesky": ForeignCall("cholesky_options", "factorizations", "cholesky"),
        "__op$block_scaled_dot": ForeignCall(_BLOCKS, "gemm", "block_scaled_dot"),
        "__op$dequantize": ForeignCall(_BLOCKS, "gemm", "dequantize"),
        "__op$quantize": ForeignCall(_BLOCKS, "gemm", "quantize"),
        **{
            f"AwsNeuron{name}": ForeignCall(f"{_NUMBERS}{config}", "neuron", build)
            for name, (build, config) in _NEURON.items()
        },
        "ApproxTopK": ForeignCall("partial_reduce", "sorts", "partial_reduce"),
        "Eigh": ForeignCall(f"{_NUMBERS}lower,sort_eigenvalues,max_iter,tolerance", "factorizations", "eigh"),
        "LuDecomposition": ForeignCall("lu", "factorizations", "lu"),
        "PartialReduce": ForeignCall("partial_reduce", "sorts", "partial_reduce"),
        "ProductOfElementaryHouseholderReflectors": ForeignCall("qr", "factorizations", "householder_product"),
        "Qr": ForeignCall("qr", "factorizations", "qr"),
        "__cub$DeviceRadixSort": ForeignCall("sort", "sorts", "radix_sort"),
        "xla.gpu.ext.cub_sort_keys": ForeignCall(_FFI, "sorts", "radix_sort"),
        "xla.gpu.ext.cub_sort_pairs": ForeignCall(_FFI, "sorts", "radix_sort"),
        "xla.gpu.ext.cub_sort_unassigned_scratch_size": ForeignCall("sort", "sorts", "radix_sort"),
        **_jax_calls(),
        "X64Combine": ForeignCall("x64", "x64", "combined"),
        "X64SplitHigh": ForeignCall("x64", "x64", "high"),
        "X64SplitLow": ForeignCall("x64", "x64", "low"),
        "__onednn$layernorm": ForeignCall("onednn_layer_norm_config", "onednn", "layer_norm"),
        "__onednn$matmul": ForeignCall("onednn_matmul_config", "onednn", "matmul"),
        "__onednn$softmax": ForeignCall("onednn_softmax_config", "onednn", "softmax"),
    }


def _jax_calls() -> dict[str, ForeignCall]:
    """The functions of the targets in JAX's programs for GPUs, by name."""
    return {
        **{
            f"{library}solver_{name}_ffi": ForeignCall(_FFI, "solvers", build)
            for library in ("cu", "hip")
            for name, build in _SOLVERS.items()
        },
        **{
            f"{library}solver_{name}": ForeignCall(f"{_DESCRIPTOR}{name}", "solvers", build)
            for library in ("cu", "hip")
            for name, build in _DESCRIBED.items()
        },
        **{
            f"{library}{name}": ForeignCall(section, "solvers", build)
            for library in ("cu", "hip")
            for section, table in ((_FFI, _KERNELS), (_DESCRIPTOR, _PLAIN))
            for name, build in table.items()
        },
        **{
            f"{library}dnn_rnn{side}{suffix}": ForeignCall(section, "rnn", build)
            for library in ("cu", "hip")
            for side, build in (("", "forward"), ("_bwd", "backward"))
            for suffix, section in (("", f"{_DESCRIPTOR}rnn"), ("_ffi", _FFI))
        },
        "cuda_lu_pivots_to_permutation": ForeignCall(_DESCRIPTOR, "solvers", "permutation"),
        **{
            f"{library}_threefry2x32{suffix}": ForeignCall(section, "random", "threefry2x32")
            for library in ("cu", "hip")
            for suffix, section in (("", _DESCRIPTOR), ("_ffi", _FFI))
        },
    }
