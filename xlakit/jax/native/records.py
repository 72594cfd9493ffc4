"""The fields of the interface's objects, which native code and Python both access by name.

A field that a function of the interface returns has the name that it has in the function's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from xlakit.cpu.runtime.record import Record


class Mode(IntEnum):
    """Which of the eligible calls enter the queue: with OFF none, with ON all; with LEARNED calls of short programs if
    they have pending arguments, and calls of long programs as dispatch.py decides.

    OFF: XLAKIT_ASYNC=0, or JAX's jax_cpu_enable_async_dispatch is off. ON: XLAKIT_ASYNC=1.
    """

    OFF = 0
    LEARNED = 1
    ON = 2


# An error; its text follows.
ERROR: Final = Record(code=1, message_size=1)

# An event, for which threads wait. callbacks: a list of CALLBACK. error: of a failed program, once it is ready; else
# null. waited_since: the time of the first wait for it, in nanoseconds of the monotonic clock; 0 before. is_from_host:
# whether it completes a transfer from the host; all other pending events are completed by calls in the queue.
EVENT: Final = Record(references=1, is_ready=1, callbacks=1, error=1, waited_since=1, is_from_host=1, _fill=2)
CALLBACK: Final = Record(function=1, argument=1, next=1)

# Memory that buffers share. Small memory of our own follows this record. For foreign memory (``is_foreign``), the
# release of the last reference completes ``event``, or calls ``deleter`` with the data and its argument. references:
# the lower 32 bits count buffers and running functions, the upper 32 bits calls in the queue.
BLOCK: Final = Record(references=1, data=1, is_foreign=1, event=1, deleter=1, deleter_argument=1, _fill=2)

# The base of layout numbers (see layout_number), which are unique for up to twelve dimensions.
LAYOUT_BASE: Final = 32

# An array on a device; its dimensions follow, and then their order in memory, from the minor one on.
# lock: held while ``block`` and ``event`` change. external: how many readers outside of the plugin hold the memory.
# layout: the number of that order, see layout_number; 0 if it is major to minor. event: of the program that computes
# it, if that is not done or has failed; else null.
BUFFER: Final = Record(
    lock=1, block=1, type=1, num_dims=1, size=1, device=1, memory=1, is_deleted=1, external=1, layout=1, event=1,
    _fill=5,
)  # fmt: skip

# Records that Python makes and keeps alive.
CLIENT: Final = Record(
    platform_name=1, platform_name_size=1, platform_version=1, platform_version_size=1, process_index=1, topology=1,
    devices=1, num_devices=1, local_devices=1, num_local_devices=1, first_local=1, memories=1, num_memories=1,
)  # fmt: skip
TOPOLOGY: Final = Record(
    platform_name=1, platform_name_size=1, platform_version=1, platform_version_size=1, descriptions=1,
    num_descriptions=1, attributes=1, num_attributes=1,
)  # fmt: skip
DESCRIPTION: Final = Record(
    id=1, process_index=1, attributes=1, num_attributes=1, kind=1, kind_size=1, text=1, text_size=1, debug_text=1,
    debug_text_size=1,
)  # fmt: skip
DEVICE: Final = Record(
    description=1, is_addressable=1, local_hardware_id=1, memories=1, num_memories=1, memory=1
)  # fmt: skip
MEMORY: Final = Record(
    id=1, kind=1, kind_size=1, kind_id=1, text=1, text_size=1, devices=1, num_devices=1, device=1
)  # fmt: skip

# A loaded program. references: of the caller. next: link of the list of programs without references.
# run: ``i64 (context, ptr arguments, ptr results)``, which gives 0 for success; it gets the arrays of one device after
# the other. results: for each a RESULT. donated: for each argument whether the program takes its buffer. layouts: for
# each argument the number of the layout that it must have. is_pure: whether a call may run later, on another thread.
# The fields from ``runs`` on are the statistics of dispatch.py.
EXECUTABLE: Final = Record(
    references=1, next=1, run=1, context=1, num_args=1, results=1, donated=1, layouts=1, devices=1, num_devices=1,
    is_deleted=1, name=1, name_size=1, num_replicas=1, num_partitions=1, num_outputs=1, size=1, kinds=1, kind_sizes=1,
    types=1, num_types=1, dims=1, dim_sizes=1, fingerprint=1, fingerprint_size=1, is_pure=1, runs=1, time=1, left=1,
    waited=1, gap=1, entered=1, way=1, phase=1, count=1, periods=3, recent=1,
)  # fmt: skip
# donor: the number of the argument in whose memory the result may be computed, or -1. memory: the number of its memory
# kind. order: its dimensions from the minor to the major one, or null for major to minor.
RESULT: Final = Record(type=1, num_dims=1, size=1, dims=1, donor=1, memory=1, order=1)

# A call of a program. total_args: the number of arguments, of all devices; count: of arguments and results. Three
# tables follow: the blocks of all arguments and then of all results; the addresses of their data, as programs take
# them; and for each argument the event of the program that computes it, or null. num_pending: the number of these
# events; is_from_host: whether one of them is. For the queue: next; event: the call's own; weight: its share of the
# queue's limit; threads: the most that it may use; and the processor on which its caller ran.
CALL: Final = Record(
    next=1, executable=1, event=1, weight=1, total_args=1, count=1, num_pending=1, is_from_host=1,
    threads=1, processor=1, _fill=6
)  # fmt: skip


def layout_number(minor_to_major: Sequence[int]) -> int:
    """A number that identifies an order of dimensions, for comparisons in native code; 0 for major to minor."""
    number, rank = 0, len(minor_to_major)
    for at, dimension in enumerate(minor_to_major):
        number = number * LAYOUT_BASE + (dimension ^ (rank - 1 - at))
    return number & ((1 << 64) - 1)


# The function, written in Python, that makes the error of a program that ended with a nonzero status.
FAILURE: Final = "failure_of"


def object_symbol(function: str) -> str:
    """The symbol of the Python object that a function calls."""
    return f"python_{function}"
