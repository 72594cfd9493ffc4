"""What is the same in all iterations of a loop, as far as it adds to the work of LLVM's loop vectorizer.

The vectorizer asks of each value whether one scalar will do for all lanes, and of the operands before it, each time
again: a value that two others use is visited twice, and what these are used by four times.

    a = load p            1 visit
    b = xor a, (shl a)    4
    c = xor b, (shl b)    10, and so on: a chain of 30 such steps takes minutes

Only values that are the same in all iterations are gone through to the end; the first operand that is not ends it.
Where it can, LLVM moves such values out of the loop beforehand, but not what is read from memory that the loop may
write to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

# More visits take longer than the loop's vectors are worth.
_MOST_VISITS: Final = 10_000
# Loops with fewer lines have not so many visits, or no chain that is worth a look.
_LEAST_LINES: Final = 48
# A function that is inlined uses its argument about so often.
_USES_IN_CALLS: Final = 16
_NAME: Final = re.compile(r"%[\w.]+")


def is_slow_to_vectorize(lines: Sequence[str], varying: Iterable[str]) -> bool:
    """Whether LLVM should leave a loop scalar, for the time that it would take otherwise.

    lines: of the loop's body, a definition before its uses. varying: values that each iteration has others of.
    """
    if len(lines) < _LEAST_LINES:
        return False
    changing = set(varying)
    visits: dict[str, int] = {}
    total = 0
    for line in lines:
        name, defines, made = line.partition(" = ")
        if not defines:
            continue
        name = name.strip()
        count = 1
        for found in _NAME.finditer(made):
            operand = found[0]
            if operand in changing:
                changing.add(name)
                break
            count += visits.get(operand, 0)
        if made.startswith(("call", "tail call")) and name not in changing:
            count *= _USES_IN_CALLS
        if name not in changing:
            visits[name] = count
        total += count
        if total > _MOST_VISITS:
            return True
    return False
