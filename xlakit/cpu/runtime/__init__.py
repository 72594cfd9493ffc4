"""The runtime of compiled programs: native code, written with the typed LLVM layer, and its interface to Python.

``pool.py`` runs jobs on several threads; ``memory.py`` allocates arenas, scratch and results; ``context.py`` and
``native_context.py`` enter a program; ``host.py`` and ``native_host.py`` call Python from native code; ``call.py`` and
``native_call.py`` call a program from Python. ``text.py`` writes the LLVM IR of all of them; ``library.py`` compiles it
once on a machine, loads it once in a process, and gives its addresses to compiled programs.
"""

from xlakit.cpu.runtime.context import CONTEXT, Context, Status
from xlakit.cpu.runtime.library import Runtime, runtime, runtime_object, runtime_symbols

__all__ = [
    "CONTEXT",
    "Context",
    "Runtime",
    "Status",
    "runtime",
    "runtime_object",
    "runtime_symbols",
]
