"""A backend that is wrong on purpose: the interpreter, with one operation that miscomputes where a condition holds.

``xlakit reduce --load fuzz/workbench/faulty.py`` registers it as ``faulty``; FAULT in the environment names the fault.
"""

import os

import numpy as np

import xlakit as xla
from xlakit.ops.registry import OPERATIONS

# What surrounds the operation that runs now: the opcodes of the instructions that call computations.
_around = []


FAULTS = {
    "opcode": ("exponential", lambda context, x: True),
    "size": ("dot", lambda context, x, y: x.shape[-1] == 32),
    "type": ("dot", lambda context, x, y: context.shape.element_type is xla.BF16),
    "permutation": ("transpose", lambda context, x: context.instruction.op.dimensions[-1] != x.ndim - 1),
    "layout": ("subtract", lambda context, x, y: x.ndim > 1 and _layout(context.shape) == tuple(range(x.ndim))),
    "attribute": ("reduce", lambda context, x, init: context.instruction.op.dimensions == (x.ndim - 1,)),
    "value": ("exponential", lambda context, x: (x.real < 0).any()),
    "operands": ("gather", lambda context, x, indices: indices.size > 1),
    "body": ("abs", lambda context, x: True),
    "branch": ("sine", lambda context, x: True),
    "fusion": ("multiply", lambda context, x, y: "fusion" in _around and x.dtype.kind == "f"),
    "sort": ("sort", lambda context, *xs: np.size(xs[0]) >= 4),
    "none": ("abs", lambda context, x: False),
    "loop": ("abs", lambda context, x: "while" in _around),
    "looped": ("dot", lambda context, x, y: "while" in _around),
    "nested": ("dot", lambda context, x, y: _around.count("while") > 1),
    "chosen": ("sine", lambda context, x: "conditional" in _around),
    "compared": ("compare", lambda context, x, y: "sort" in _around and x.dtype.kind == "f"),
    # For values that arguments, which are made up, do not have.
    "late": ("multiply", lambda context, x, y: x.dtype.kind == "i" and (x > 300).any()),
    "large": ("exponential", lambda context, x: (x > 5).any()),
    # In programs of JAX.
    "rank": ("divide", lambda context, x, y: x.ndim == 3),
    "contraction": ("dot", lambda context, x, y: x.shape[-1] == 64),
    "rows": ("scatter", lambda context, x, indices, updates: x.shape[0] == 40),
    "bfloat16": ("multiply", lambda context, x, y: context.shape.element_type is xla.BF16),
    "columns": ("tanh", lambda context, x: x.shape[-1] == 8),
    "dilation": ("convolution", lambda context, x, w: context.instruction.op.window.dimensions[0].base_dilation == 2),
    "window": ("select-and-scatter", lambda context, x, y, init: True),
    "matrices": ("broadcast", lambda context, x: x.ndim == 2),
    "amount": ("shift-right-logical", lambda context, x, y: (y == 6).any()),
    "indices": ("gather", lambda context, x, indices: indices.size > 3),
    "reducer": ("scatter", lambda context, *xs: context.instruction.op.to_apply.root.opcode == "maximum"),
    "kind": ("fft", lambda context, x: context.instruction.op.fft_type.name == "IFFT"),
    "integers": ("dot", lambda context, x, y: context.shape.element_type is xla.S32),
    # In programs with the tiles of a TPU.
    "tile": ("tanh", lambda context, x: x.ndim > 1 and bool(context.shape.layout and context.shape.layout.tiles)),
}


def _layout(shape):
    return None if shape.layout is None else shape.layout.minor_to_major


def wrong(value):
    if isinstance(value, tuple):
        return (wrong(value[0]), *value[1:])
    with np.errstate(all="ignore"):
        return ~value if value.dtype == bool else (value + value.dtype.type(1)).astype(value.dtype)


def _patched(cls, change):
    evaluate = cls.evaluate
    cls.evaluate = change(evaluate)
    return lambda: setattr(cls, "evaluate", evaluate)


def _noting(opcode):
    def change(evaluate):
        def noted(self, context, *operands):
            _around.append(opcode)
            try:
                return evaluate(self, context, *operands)
            finally:
                _around.pop()

        return noted

    return change


def make(module, *, seed=0, **_):
    """The module on the interpreter, with the fault."""
    opcode, condition = FAULTS[os.environ["FAULT"]]
    executable = xla.compile(module, backend="interpreter", seed=seed)

    def faulty(evaluate):
        def miscomputed(self, context, *operands):
            right = evaluate(self, context, *operands)
            return wrong(right) if condition(context, *operands) else right

        return miscomputed

    def run(*arguments):
        undo = [_patched(OPERATIONS[opcode], faulty)]
        undo += [_patched(OPERATIONS[name], _noting(name)) for name in ("while", "fusion", "conditional", "sort")]
        try:
            return executable(*arguments)
        finally:
            for restore in reversed(undo):
                restore()

    return run


xla.register_backend("faulty", make)
