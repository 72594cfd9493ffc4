"""All pages of operations: importing this module enters every operation in ``OPERATIONS``.

A new page is one line here.
"""

from xlakit.ir.operation import OPERATIONS, Op
from xlakit.ops import (
    batch_norm,
    control,
    convolution,
    custom_call,
    data,
    dot,
    dot_variants,
    dynamic,
    fft,
    gather,
    linear_algebra,
    movement,
    random,
    reduction,
    scatter,
    shuffle,
    sort,
    windows,
)
from xlakit.ops.communication import asynchronous, collective_moves, collective_pairs, collectives, transfer
from xlakit.ops.elementwise import binary, compare, convert, elementary, math_library, select, unary

# In the order of the generated documents.
PAGES = (
    data,
    unary,
    elementary,
    math_library,
    binary,
    compare,
    select,
    convert,
    movement,
    dynamic,
    dot,
    dot_variants,
    convolution,
    reduction,
    windows,
    gather,
    scatter,
    sort,
    shuffle,
    random,
    fft,
    linear_algebra,
    batch_norm,
    control,
    collectives,
    collective_moves,
    collective_pairs,
    transfer,
    asynchronous,
    custom_call,
)

__all__ = ["OPERATIONS", "PAGES", "Op"]
