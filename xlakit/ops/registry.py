"""All pages of operations: importing this module enters every operation in ``OPERATIONS``.

A new page is one line here.
"""

from xlakit.ir.operation import OPERATIONS, Op
from xlakit.ops import (
    asynchronous,
    batch_norm,
    collective_moves,
    collective_pairs,
    collectives,
    compare,
    control,
    convert,
    convolution,
    custom_call,
    data,
    dot,
    dot_variants,
    dynamic,
    elementary,
    elementwise_binary,
    elementwise_unary,
    fft,
    gather,
    linear_algebra,
    math_library,
    movement,
    random,
    reduction,
    scatter,
    select,
    shuffle,
    sort,
    transfer,
    windows,
)

# In the order in which a reader meets them; the generated documents follow it.
PAGES = (
    data,
    elementwise_unary,
    elementary,
    math_library,
    elementwise_binary,
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
