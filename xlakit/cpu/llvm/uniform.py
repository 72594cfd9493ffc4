"""Estimates the work of LLVM's loop vectorizer on values that are the same in all iterations of a loop.

For each value, the vectorizer asks whether one scalar serves all lanes, and walks through its operands to decide, each
time again: a value with two uses is visited twice, and the operands of its users four times.

    a = load p            1 visit
    b = xor a, (shl a)    4
    c = xor b, (shl b)    10, and so on: a chain of 30 such steps takes minutes

The walk ends at the first operand that differs between iterations, so only uniform values are walked through
completely. LLVM hoists them out of the loop beforehand where it can, but not if they depend on memory that the loop may
write.

It cannot hoist the masks that it makes of branches. The mask of a block is that of the blocks before it, each with a
condition, and where conditions are the same in all iterations, so are masks: LLVM has threaded the jumps between
branches that depend on each other, so that a block has several before it, and a chain of 70 such branches takes
forever. Only interleaving asks for the masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from xlakit.cpu.llvm.loop import SCALAR

# More visits than this take longer than vectorizing the loop saves.
_MOST_VISITS: Final = 10_000
# Loops with fewer lines cannot have that many visits, or have no chain that is worth checking.
_LEAST_LINES: Final = 48
# The assumed number of uses of an argument in a function that is inlined.
_USES_IN_CALLS: Final = 16
# Interleaving a loop of more branches that do not change may take longer than it saves: a walk through the masks of n
# branches has up to 2^n visits, all walks together have twice as many, and each is made for some users.
_MOST_BRANCHES: Final = (_MOST_VISITS // (2 * _USES_IN_CALLS)).bit_length() - 1
# Interleaving keeps a processor busy where operations wait for each other. If there are so many times as many as in the
# longest chain, two units have something to do while results of four cycles are awaited.
_WIDE: Final = 8
_BRANCH: Final = "br i1 "
_NAME: Final = re.compile(r"%[\w.]+")


def hints_for_body(hints: Sequence[str], lines: Sequence[str], varying: Sequence[str]) -> list[str]:
    """The hints of a loop that LLVM can follow in little time: all of them, but for loops whose bodies keep it busy.

    lines: of the loop's body, definitions before uses. varying: values that differ between iterations.
    """
    # The vectorizer, which interleaves, too, leaves such a loop alone; and its body may be long.
    if SCALAR in hints:
        return list(hints)
    if is_slow_to_vectorize(lines, varying):
        return [*hints, SCALAR]
    others = [hint for hint in hints if "interleave" not in hint]
    if len(others) < len(hints) and (is_slow_to_interleave(lines, varying) or _is_wide(lines)):
        return others
    return list(hints)


def _is_wide(lines: Sequence[str]) -> bool:
    """Whether a loop's body has enough to do while results are awaited, so that more of it is only more code."""
    if len(lines) < _LEAST_LINES * _WIDE:
        return False
    depths: dict[str, int] = {}
    for line in lines:
        name, defines, text = line.partition(" = ")
        if defines:
            depths[name.strip()] = 1 + max((depths.get(used, 0) for used in _NAME.findall(text)), default=0)
    return len(depths) >= _WIDE * max(depths.values(), default=1)


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
        if " = " not in line:
            continue
        # The first is the name of the line's value, which has no visits yet.
        names = _NAME.findall(line)
        count = 1
        for operand in names:
            if operand in changing:
                changing.add(names[0])
                break
            if operand in visits:
                count += visits[operand]
        else:
            if "call" in line and line.partition(" = ")[2].startswith(("call", "tail call")):
                count *= _USES_IN_CALLS
            visits[names[0]] = count
        total += count
        if total > _MOST_VISITS:
            return True
    return False


def is_slow_to_interleave(lines: Sequence[str], varying: Iterable[str]) -> bool:
    """Whether LLVM should not execute several iterations of a loop at once, because of its branches.

    Those that differ between iterations are no matter: the walk through masks ends there.
    """
    if sum(line.lstrip().startswith(_BRANCH) for line in lines) <= _MOST_BRANCHES:
        return False
    changing = set(varying)
    branches = 0
    for line in lines:
        name, defines, text = line.partition(" = ")
        if defines and not changing.isdisjoint(_NAME.findall(text)):
            changing.add(name.strip())
        elif not defines and line.lstrip().startswith(_BRANCH):
            condition = line.lstrip().removeprefix(_BRANCH).partition(",")[0]
            branches += condition not in changing
    return branches > _MOST_BRANCHES
