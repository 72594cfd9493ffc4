"""The targets of other backends' custom calls that have a meaning here."""

from __future__ import annotations

from xlakit.execution.calls.foreign.cudnn import backward_filter, backward_input, forward, graph, with_bias
from xlakit.execution.calls.foreign.cusolver import cholesky
from xlakit.execution.calls.foreign.gemm import eight_bit_gemm, gemm
from xlakit.execution.calls.foreign.meaning import ForeignCall
from xlakit.execution.calls.foreign.onednn import matmul, softmax

_GEMM = "gemm_backend_config"
_CONVOLUTION = "cudnn_conv_backend_config"


def foreign_calls() -> dict[str, ForeignCall]:
    """Their functions by name."""
    return {
        "__cublas$gemm": ForeignCall(_GEMM, gemm),
        "__cublas$lt$matmul": ForeignCall(_GEMM, gemm),
        "__cublas$lt$matmul$f8": ForeignCall(_GEMM, eight_bit_gemm),
        "__cudnn$convBackwardFilter": ForeignCall(_CONVOLUTION, backward_filter),
        "__cudnn$convBackwardInput": ForeignCall(_CONVOLUTION, backward_input),
        "__cudnn$convBiasActivationForward": ForeignCall(_CONVOLUTION, with_bias),
        "__cudnn$convForward": ForeignCall(_CONVOLUTION, forward),
        "__cudnn$convForwardGraph": ForeignCall(_CONVOLUTION, graph),
        "__cusolver$cholesky": ForeignCall("cholesky_options", cholesky),
        "__onednn$matmul": ForeignCall("onednn_matmul_config", matmul),
        "__onednn$softmax": ForeignCall("onednn_softmax_config", softmax),
    }
