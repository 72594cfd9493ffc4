"""What a process does first in which JAX runs on xlakit; in a module with a name of its own, for the process to find."""

import os


def start():
    os.environ["JAX_PLATFORMS"] = "xlakit"
    os.environ["XLAKIT_DEVICES"] = "2"
    # Also where the package's entry points are not installed.
    from xlakit.jax import initialize

    initialize()
