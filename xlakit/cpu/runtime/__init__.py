"""What compiled programs need while they run, as native code that is written with the typed layer.

``pool.py`` runs jobs on several threads; ``memory.py`` keeps blocks for arenas, scratch and results; ``context.py`` is
how a program is entered, ``host.py`` how native code turns to Python, ``call.py`` and ``native_call.py`` how Python
calls it. ``library.py`` compiles all of it once in a process, and knows the addresses for compiled programs.
"""

from xlakit.cpu.runtime.context import CONTEXT, Context, Status
from xlakit.cpu.runtime.library import Runtime, runtime, runtime_object, runtime_symbols, runtime_text

__all__ = [
    "CONTEXT",
    "Context",
    "Runtime",
    "Status",
    "runtime",
    "runtime_object",
    "runtime_symbols",
    "runtime_text",
]
