"""The targets of other backends' custom calls that have a meaning here."""

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
    from xlakit.execution.calls.foreign.meaning import Foreign
    from xlakit.ops.handle import XlaOp

_GEMM = "gemm_backend_config"
_ATTENTION, _BLOCKS = "cudnn_fmha_backend_config", "block_scaled_dot_backend_config"
_CONVOLUTION = "cudnn_conv_backend_config"


class ForeignCall:
    """The function of a target: another one builds what a call computes of its operands, instruction and config.

    section: the key of backend_config that has the config. page, build: that other function, and its file in this
    folder, which is loaded for the first call: few programs have any.
    """

    def __init__(self, section: str, page: str, build: str) -> None:
        self._section, self._page, self._build = section, page, build
        # Equal calls have one computation, which keeps no program alive.
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
            # Errors of the builder name an operation and lines that are not the program's.
            rule = f"{error.operation}: {error.rule}" if error.operation else error.rule
            kind = UnsupportedError if isinstance(error, UnsupportedError) else ShapeError
            name = f"custom-call '{instruction.name}'"
            raise kind(rule, operation=name, shapes=shapes, hint=error.hint) from None

    def _make(self, op: CustomCall, declared: Shape, shapes: Sequence[Shape], text: str) -> Computation:
        from xlakit.builder import XlaBuilder
        from xlakit.execution.calls.foreign.config import Config
        from xlakit.execution.calls.foreign.meaning import Foreign
        from xlakit.ops.data import parameter

        build: Callable[[Foreign], XlaOp] = getattr(import_module(f"{__package__}.{self._page}"), self._build)
        builder = XlaBuilder("foreign_call")
        operands = tuple(parameter(builder, i, shape.without_layout()) for i, shape in enumerate(shapes))
        root = build(Foreign(builder, op, declared, operands, Config.parse(text, self._section)))
        return builder.build(root).computation


def foreign_calls() -> dict[str, ForeignCall]:
    """Their functions by name."""
    return {
        "__cublas$gemm": ForeignCall(_GEMM, "gemm", "gemm"),
        "__cublas$lt$matmul": ForeignCall(_GEMM, "gemm", "gemm"),
        "__cublas$lt$matmul$f8": ForeignCall(_GEMM, "gemm", "eight_bit_gemm"),
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
        "__cusolver$cholesky": ForeignCall("cholesky_options", "cusolver", "cholesky"),
        "__op$block_scaled_dot": ForeignCall(_BLOCKS, "gemm", "block_scaled_dot"),
        "__op$dequantize": ForeignCall(_BLOCKS, "gemm", "dequantize"),
        "__onednn$matmul": ForeignCall("onednn_matmul_config", "onednn", "matmul"),
        "__onednn$softmax": ForeignCall("onednn_softmax_config", "onednn", "softmax"),
    }
