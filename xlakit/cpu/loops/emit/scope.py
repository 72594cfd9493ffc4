"""A block of the code that an emitter writes: what is known in it, and how nodes are written there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from xlakit.cpu.llvm import Value
from xlakit.cpu.loops.emit.iterations import ONE_ITERATION, Iterations


class Redirection(NamedTuple):
    """The buffer that elements of an array are written to for a while: it begins with element ``first``."""

    buffer: Value
    first: Value


class Scope(NamedTuple):
    """A block of code: the values known in it, by node, variable or key, and how nodes are written there.

    iterations: whether values are scalars or vectors. selects: whether conditions become selects, with addresses of
    loads clamped, or branches; None outside of conditions. redirected: the arrays that are written to a buffer.
    """

    values: dict[Any, Any]
    iterations: Iterations = ONE_ITERATION
    selects: bool | None = None
    redirected: Mapping[int, Redirection] = MappingProxyType({})
