"""Estimates the work of LLVM's loop vectorizer on values that are the same in all iterations of a loop.

For each value, the vectorizer asks whether one scalar serves all lanes, and walks through its operands to decide, each
time again: a value with two uses is visited twice, and the operands of its users four times.

    a = load p            1 visit
    b = xor a, (shl a)    4
    c = xor b, (shl b)    10, and so on: a chain of 30 such steps takes minutes

The walk ends at the first operand that differs between iterations, so only uniform values are walked through
completely. LLVM hoists them out of the loop beforehand where it can, but not if they depend on memory that the loop may
write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

# More visits than this take longer than vectorizing the loop saves.
_MOST_VISITS: Final = 10_000
# Loops with fewer lines cannot have that many visits, or have no chain that is worth checking.
_LEAST_LINES: Final = 48
# The assumed number of uses of an argument in a function that is inlined.
_USES_IN_CALLS: Final = 16
_NAME: Final = re.compile(r"%[\w.]+")


def is_slow_to_vectorize(lines: Sequence[str], varying: Iterable[str]) -> bool:
    """Whether LLVM should leave a loop scalar, because vectorizing it would take too long.

    lines: of the loop's body, definitions before uses. varying: values that differ between iterations.
    """
    if len(lines) < _LEAST_LINES:
        return False
    changing = set(varying)
    visits: dict[str, int] = {}
    total = 0
    for line in lines:
        name, defines, text = line.partition(" = ")
        if not defines:
            continue
        name = name.strip()
        count = 1
        for match in _NAME.finditer(text):
            operand = match[0]
            if operand in changing:
                changing.add(name)
                break
            count += visits.get(operand, 0)
        if text.startswith(("call", "tail call")) and name not in changing:
            count *= _USES_IN_CALLS
        if name not in changing:
            visits[name] = count
        total += count
        if total > _MOST_VISITS:
            return True
    return False
