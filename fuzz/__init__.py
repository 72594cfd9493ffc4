"""Commands that test the package on generated programs, against jaxlib, the interpreter and itself, and on damage."""

import os

# A command checks the memory plan of every program that it compiles, also in the processes that it starts.
os.environ.setdefault("XLAKIT_CHECK_MEMORY", "1")
