"""Custom calls that a dump does not define: kernels in a device's machine code, functions of another process, and
those of which too little is public.
"""

from __future__ import annotations

from typing import Final

_TRITON: Final = "a kernel of Triton's, which the program has as code for a GPU"
_MOSAIC: Final = "a kernel of Mosaic's (Pallas), which the program has as code for a TPU or GPU"
_CALLBACK: Final = "a callback: a function of the Python process that made the program"

_SILU: Final = "the gradient of x logistic(x) in AWS Neuron's compiler, and which operands it takes is not public"

# The description of a target, by its name or a prefix of its name.
_WHAT: Final = {
    "AwsNeuronSiluBackward": _SILU,
    "__gpu$xla.gpu.triton": _TRITON,
    "triton_kernel_call": _TRITON,
    "tpu_custom_call": _MOSAIC,
    "mosaic_gpu": _MOSAIC,
    "xla_python_": _CALLBACK,
    "xlakit_python_": _CALLBACK,
    "xla_ffi_python_": _CALLBACK,
    "xla_ffi_partitioned_python_": _CALLBACK,
    "__cudnn$fusion": "a graph of cuDNN's, which the program has in another form than HLO",
}


def what_is(target: str) -> str:
    """A description, for errors, of a target that other backends are known to call; empty for any other target."""
    return next((what for name, what in _WHAT.items() if target.startswith(name)), "")
