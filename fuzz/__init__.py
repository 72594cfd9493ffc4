"""Commands that test the package against what stands outside it: jaxlib's results, and damaged input."""

import os

# The memory plan of every program that a proof compiles is proved, in the processes that it starts, too.
os.environ.setdefault("XLAKIT_CHECK_MEMORY", "1")
