"""Every promise that code makes to LLVM, with the reason why it holds wherever the code is put.

LLVM may use a promise for everything that a function is inlined into, and in any order of its passes. A promise that is
broken once gives wrong numbers without an error, so the words of LLVM for them stand here and nowhere else; what is not
here is not promised. No memory is said to be constant, not null or of a known extent, no function to return or to leave
memory as it is, no sum to have an end but those below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.cpu.llvm.types import Type
from xlakit.errors import InternalError

# -- functions -----------------------------------------------------------------------------------

# No exception passes through a function. Code raises none, and what it calls is C; Python's callbacks hand errors on as
# numbers. A thread that Python ends is unwound from outside, and nothing here has anything to clean up then.
NO_UNWIND: Final = "nounwind"
# A function is put into its callers. It asks LLVM for work and says nothing of memory; what the function promises of
# its own loops holds in every copy, since such a promise names the loop that it stands in. Functions with memory of
# their own that are called in a loop of independent iterations are refused (Function.call): all iterations would share
# it.
ALWAYS_INLINE: Final = "alwaysinline"
# Hints: where LLVM would rather have a call, and what is seldom called.
NO_INLINE: Final = "noinline"
COLD: Final = "cold"
_ATTRIBUTES: Final = frozenset({ALWAYS_INLINE, NO_INLINE, COLD})
# A function is its assembly alone (Function.is_assembly), which keeps the rules of calls itself. It may do anything to
# memory.
ASSEMBLY: Final = "naked"
# What is behind such assembly, whose last instruction returns.
BEHIND_ASSEMBLY: Final = "unreachable"

# What a parameter points at is reached through it alone while the function runs. Said by functions that are given
# memory of a task for one of them: the transpose of a block into a buffer on the stack, and passes of Fourier
# transforms from one half of a scratch to the other, with twiddles that are constants. All of them stay calls.
NO_ALIAS: Final = "noalias"

# -- memory --------------------------------------------------------------------------------------

# What allocations of all kinds are aligned to, NumPy's among them.
_MOST_ALIGNED: Final = 8


def alignment(type: Type) -> int:
    """The alignment of an access that says nothing of its own: that of one element.

    Arrays have the alignment of their elements: NumPy's flag is checked for those that come from Python, and the
    addresses of those from DLPack and PJRT; misaligned ones are copied. Parts of 16-byte elements are 8 bytes. All
    buffers in scratch memory, in the arena and on the stack begin at multiples of at least this.
    """
    return min(type.element.bytes, _MOST_ALIGNED)


def non_temporal(one: str) -> str:
    """A store past the caches; ``one`` is the node ``!{i32 1}``.

    Other threads may see it late: a function with such stores ends with a fence.
    """
    return f", !nontemporal {one}"


def in_group(group: str) -> str:
    """An access belongs to a group, of which :func:`parallel` speaks."""
    return f", !llvm.access.group {group}"


def parallel(group: str) -> str:
    """No iteration of this loop reads or writes what another iteration writes, as far as accesses of the group go.

    True of every loop that is written as independent: its iterations store different elements of arrays of their own,
    at addresses that differ between iterations, and read what the loop leaves as it is, or what the same iteration then
    writes (results that lie where an operand does are read at that element alone, see entry/in_place.py). Sums go from
    iteration to iteration in registers. A loop over rows that keeps a row in scratch is not independent, nor is one
    with a buffer. A group is made for one loop; a copy of the loop, inlined somewhere, speaks of its own accesses.
    """
    return f'"llvm.loop.parallel_accesses", {group}'


# -- numbers -------------------------------------------------------------------------------------

# Counting up to the end of a loop does not overflow as a signed number. The end is a number of elements or bytes that
# are in memory, and a step is small. A loop may begin below zero, so nothing is said of unsigned numbers.
COUNTS: Final = "nsw"
# An address is not promised to lie inside of its array: the parts of it that do not change in a loop are computed
# before it, and may lie outside where elements of a padding are asked for, which are then not read.
ADDRESS: Final = "getelementptr"

# Sums and products of a reduction may be combined in another order, as XLA allows; nothing is said of zeros and NaN.
REASSOCIATES: Final = "reassoc"
# A product and a sum may be rounded once: in Fourier transforms, whose bounds allow for it.
CONTRACTS: Final = "contract"
_FAST_MATH: Final = frozenset({"", REASSOCIATES, CONTRACTS})

# Lanes that are filled before they are read, all of them, and lanes that no one reads.
UNDEFINED: Final = "poison"

# -- hints ---------------------------------------------------------------------------------------

# Hints on a loop that promise nothing of what it does: only how to make code of it.
_HINTS: Final = ('"llvm.loop.unroll.', '"llvm.loop.vectorize.', '"llvm.loop.interleave.')


def checked_attributes(attributes: Sequence[str]) -> Sequence[str]:
    """The attributes of a function; raises InternalError for one that is not above."""
    if not _ATTRIBUTES.issuperset(attributes):
        raise InternalError(f"a function is promised to be {', '.join(attributes)}")
    return attributes


def checked_hints(hints: Sequence[str]) -> Sequence[str]:
    """The hints of a loop; raises InternalError for one that promises something."""
    if not all(hint.startswith(_HINTS) for hint in hints):
        raise InternalError(f"a loop is promised to be {', '.join(hints)}")
    return hints


def checked_fast_math(flags: str) -> str:
    """Fast-math flags; raises InternalError for others than those above."""
    if flags not in _FAST_MATH:
        raise InternalError(f"numbers are promised to be {flags}")
    return flags
