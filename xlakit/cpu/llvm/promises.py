"""Every promise that generated code makes to LLVM, with the reason why it holds wherever the code is inlined.

LLVM may use a promise in every function that the code is inlined into, and in any order of its passes. A single broken
promise gives wrong numbers without an error, so LLVM's words for promises stand in this file and in no other; what is
not here is not promised. No memory is promised to be constant, non-null or of a known extent, no function to return or
to leave memory unchanged, and no arithmetic to have properties other than those below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlakit.cpu.llvm.types import Type
from xlakit.errors import InternalError
from xlakit.options import current

# -- functions -----------------------------------------------------------------------------------

# No exception passes through a function. The code raises none, and it calls C functions only; callbacks into Python
# return errors as numbers. A thread that Python ends is unwound from outside, and no code here has anything to clean
# up.
NO_UNWIND: Final = "nounwind"
# The function is inlined into its callers. This asks LLVM for work and states nothing about memory. The promises that
# the function makes about its own loops hold in every copy, because such a promise names its loop. Functions with
# memory on their stack may not be called in a loop of independent iterations (Function.call refuses it): all iterations
# would share that memory.
ALWAYS_INLINE: Final = "alwaysinline"
# Hints: NO_INLINE keeps a call a call; COLD marks a function that is seldom called.
NO_INLINE: Final = "noinline"
COLD: Final = "cold"
_ATTRIBUTES: Final = frozenset({ALWAYS_INLINE, NO_INLINE, COLD})
# The function consists of its assembly alone (Function.is_assembly), which itself follows the calling convention. It
# may do anything to memory.
ASSEMBLY: Final = "naked"
# The instruction after such assembly, whose last instruction returns.
BEHIND_ASSEMBLY: Final = "unreachable"

# While the function runs, the memory of the parameter is accessed through that parameter alone. Used by functions that
# get a buffer of their task as one parameter: the transpose of a block into a buffer on the stack, and passes of
# Fourier transforms from one half of the scratch to the other, with constant twiddles. All of them stay calls.
NO_ALIAS: Final = "noalias"

# -- memory --------------------------------------------------------------------------------------

# The alignment that every allocator guarantees, NumPy's included.
_MOST_ALIGNED: Final = 8


def alignment(type: Type) -> int:
    """The alignment of an access that states none itself: that of one element.

    Arrays have the alignment of their elements: NumPy's flag is checked for arrays from Python, and the addresses of
    arrays from DLPack and PJRT; misaligned arrays are copied. The parts of 16-byte elements have 8 bytes. All buffers
    in scratch memory, in the arena and on the stack begin at multiples of at least this.
    """
    return min(type.element.bytes, _MOST_ALIGNED)


def non_temporal(one: str) -> str:
    """Marks a store that bypasses the caches; ``one`` is the node ``!{i32 1}``.

    Other threads may see the store late: a function with such stores ends with a fence.
    """
    return f", !nontemporal {one}"


def in_group(group: str) -> str:
    """Marks an access as a member of a group, which :func:`parallel` refers to."""
    return f", !llvm.access.group {group}"


def parallel(group: str) -> str:
    """No iteration of this loop reads or writes memory that another iteration writes, by accesses of the group.

    This holds for every loop that is written as independent. Its iterations store different elements of arrays that
    the loop owns, at addresses that differ between iterations. They read memory that the loop does not write, or
    elements that the same iteration writes afterwards (where a result is in the memory of an operand, the operand
    is read at the offsets of the writes alone, see entry/in_place.py). Sums are carried from iteration to iteration
    in registers. A loop over rows that keeps a row in scratch is not independent, nor is a loop with a buffer. Each
    loop has a group of its own; an inlined copy of the loop makes the promise for its own accesses.
    """
    return f'"llvm.loop.parallel_accesses", {group}'


# -- numbers -------------------------------------------------------------------------------------

# The addition of the step to a loop index does not overflow as a signed number. The end is a number of elements or
# bytes in memory, and a step is small. A loop may begin below zero, so nothing is promised for unsigned numbers.
COUNTS: Final = "nsw"
# An address is not promised to lie inside of its array: its loop-invariant part is computed before the loop, and may
# lie outside where the element is one of a padding, which is not loaded.
ADDRESS: Final = "getelementptr"

# How LLVM folds operations on subnormal constants. By default it takes it for promised that they are computed exactly.
# The mode of the thread is what a program was compiled for (runtime/float_mode.py), so constants are flushed to zero
# where it flushes. Functions that programs of both modes share are compiled without that option, and are not folded.
_FLUSHES: Final = '"denormal-fp-math"="preserve-sign"'
_EITHER_MODE: Final = '"denormal-fp-math"="dynamic"'

# Sums and products of a reduction may be reassociated, as XLA allows; nothing is promised about zeros and NaN.
REASSOCIATES: Final = "reassoc"
# A product and a sum may be fused and rounded once: in Fourier transforms, whose error bounds allow for it.
CONTRACTS: Final = "contract"
_FAST_MATH: Final = frozenset({"", REASSOCIATES, CONTRACTS})

# Lanes that are all filled before they are read, and lanes that are never read.
UNDEFINED: Final = "poison"

# -- hints ---------------------------------------------------------------------------------------

# Loop hints that promise nothing about the loop, and only control code generation.
_HINTS: Final = ('"llvm.loop.unroll.', '"llvm.loop.vectorize.', '"llvm.loop.interleave.')


def float_mode() -> str:
    """The attribute of a function that tells whether its program takes subnormal numbers for zero."""
    return _FLUSHES if current().flush_subnormals else _EITHER_MODE


def checked_attributes(attributes: Sequence[str]) -> Sequence[str]:
    """The attributes of a function; raises InternalError for an attribute that is not listed above."""
    if not _ATTRIBUTES.issuperset(attributes):
        raise InternalError(f"a function is promised to be {', '.join(attributes)}")
    return attributes


def checked_hints(hints: Sequence[str]) -> Sequence[str]:
    """The hints of a loop; raises InternalError for a property that is not a hint."""
    if not all(hint.startswith(_HINTS) for hint in hints):
        raise InternalError(f"a loop is promised to be {', '.join(hints)}")
    return hints


def checked_fast_math(flags: str) -> str:
    """The fast-math flags; raises InternalError for flags that are not listed above."""
    if flags not in _FAST_MATH:
        raise InternalError(f"numbers are promised to be {flags}")
    return flags
