"""JAX on xlakit: ``JAX_PLATFORMS=xlakit python train.py`` runs a JAX program on this compiler.

JAX finds :func:`initialize` through the entry point ``jax_plugins``, and calls it before it makes the first array. It
hands JAX a table of functions (PJRT's C interface), which jaxlib then drives like any accelerator.

api/           the interface: functions and their arguments
native/        the functions in machine code
slots.py       those in Python
devices.py     the client and its devices
compiling.py   from JAX's programs to programs here
kept.py        those that the compile cache has, by JAX's bytes
outline.py     what JAX is told of every program
sources.py     programs as they travel
program.py     a loaded program
partitions.py  programs for several devices
lowerings/     what JAX makes of some operations
serialized.py  programs as bytes, for files
replaced.py    what stands in the place of some of JAX's own Python
plugin.py      the table, and its registration
"""

from __future__ import annotations

from typing import Any


def initialize() -> None:
    """Have JAX know the platform ``xlakit``, where JAX_PLATFORMS (or ``jax_platforms``) asks for it.

    Otherwise nothing happens: JAX would make a client of every platform that it knows.
    """
    import jax

    config: Any = jax.config
    asked = (config.jax_platforms or "").split(",")
    if "xlakit" in asked:
        from xlakit.jax.plugin import register

        register(is_default=asked[0] == "xlakit")
        if "cpu" not in asked:
            # JAX's callbacks put their arguments on a device of this platform.
            config.update("jax_platforms", ",".join([*asked, "cpu"]))
