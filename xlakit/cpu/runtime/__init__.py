"""What compiled programs need while they run, as native code that is written with the typed layer.

``pool.py`` runs jobs on several threads; ``memory.py`` keeps blocks for arenas, scratch and results; ``context.py`` and
``native_context.py`` are how a program is entered, ``host.py`` and ``native_host.py`` how native code turns to Python,
``call.py`` and ``native_call.py`` how Python calls it. ``text.py`` writes all of it; ``library.py`` compiles it once on
a machine, loads it once in a process, and knows the addresses for compiled programs.
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
