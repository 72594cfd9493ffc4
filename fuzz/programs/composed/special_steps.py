"""Steps that compute functions of special values: infinities, NaN, zeros of either sign, subnormal numbers."""

from __future__ import annotations

import numpy as np

from fuzz.programs.composed.body import Body
from fuzz.programs.draft import Named
from fuzz.programs.operations.elementwise import ELEMENTARY_UNARY, UNARY
from fuzz.programs.values import COMPLEX, FLOATS, Array, dtype_of, float_edges

# No number is so large that roundings of its functions hide what becomes of the others.
_PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan)
_FUNCTIONS = {
    opcode: kinds
    for opcode, kinds in {**UNARY, **ELEMENTARY_UNARY}.items()
    if opcode not in ("is-finite", "real", "imag", "copy", "not")
}
# So many of them are in one step.
_MOST = 5


def special_functions(body: Body) -> None:
    """Some functions of one type, of all its special values in every pairing, as one result.

    What they give goes into nothing else: an infinity would hide the faults of all that it meets.
    """
    draft = body.draft
    if body.prefix:
        return
    kind = draft.pick([*COMPLEX, draft.pick(FLOATS)])
    given = _values(kind)
    # The absolute value of a complex number is of another type.
    known = [o for o, kinds in _FUNCTIONS.items() if kind in kinds and (o != "abs" or kind not in COMPLEX)]
    opcodes = [known[i] for i in draft.permutation(len(known))[:_MOST]]
    shape = f"{kind}[{given.size}]"
    x = draft.parameter(kind, [given.size], values=given)
    made = [body.emit(shape, f"{opcode}({x})") for opcode in opcodes]
    total = given.size * len(made)
    joined = body.emit(f"{kind}[{total}]", f"concatenate({', '.join(made)}), dimensions={{0}}")
    body.results.insert(0, Named(joined, kind, (total,)))


def _values(kind: str) -> Array:
    if kind in COMPLEX:
        return np.array([complex(x, y) for x in _PARTS for y in _PARTS], dtype_of(kind))
    small = [x for x in float_edges(kind) if abs(x) <= 1]
    return np.array([*_PARTS, *small]).astype(dtype_of(kind))
