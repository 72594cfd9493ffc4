"""JAX on xlakit: ``XLAKIT_AS=cpu python train.py`` runs a JAX program on this compiler.

JAX finds :func:`initialize` through the entry point ``jax_plugins``, and calls it before it makes the first array. It
hands JAX a table of functions (PJRT's C interface), which jaxlib then drives like any accelerator.

identity.py             the name under which xlakit is a platform of JAX, and the number of its devices
api/                    the interface: functions and their arguments
native/                 the functions in machine code
slots.py                the functions in Python; arguments.py reads and writes their argument structures
processes.py            the processes of jax.distributed; spanning.py programs on the devices of several of them
devices.py              the client, its devices and their memories
float_environment.py    the floating-point environment that Python expects, on threads of jaxlib
compiling.py            compilation of JAX's programs: options, device assignment, code
program_cache.py        programs in the compile cache, found by the bytes of JAX's program
executable_metadata.py  the metadata of programs that JAX queries: name, arguments, results
sources.py              the formats in which programs pass between JAX and the plugin; wire.py fields of messages
program.py              a loaded program
queue.py                the queue of asynchronous calls: whether it is used, and its end
lowerings/              lowering rules of JAX's operations for this platform
serialized.py           executables as bytes, for files
patches.py              functions of JAX that are replaced, because PJRT has no means for what they do
versions.py             differences between JAX's versions
profiler.py             steps of programs in JAX's traces
records.py              records of words that native code reads; arguments.py structures that JAX gives and reads
plugin.py               the table of functions, and its registration
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def initialize() -> None:
    """Register xlakit with JAX, as the platform that XLAKIT_AS and JAX_PLATFORMS (or ``jax_platforms``) ask for.

    If neither does, nothing is registered, because JAX makes a client of every registered platform.
    """
    import jax

    from xlakit.jax import identity

    config: Any = jax.config
    platforms = (config.jax_platforms or "").split(",")
    if identity.OWN not in platforms and not identity.is_asked_for():
        return
    from xlakit.collector import collecting_less

    with collecting_less():
        _register(platforms)


def _register(platforms: Sequence[str]) -> None:
    """Register the requested platform; if that fails, register a platform whose client raises the error."""
    import jax

    from xlakit.errors import XlakitError
    from xlakit.jax import identity
    from xlakit.jax.plugin import refuse, register

    try:
        platform = identity.asked_for(platforms)
    except XlakitError as error:
        for name in (identity.OWN, identity.CPU):
            refuse(name, error)
        return
    register(platform, is_default=platforms[0] == platform)
    if platform == identity.OWN and identity.CPU not in platforms:
        # JAX's callbacks put their arguments on a device of JAX's platform cpu, so that must be available, too.
        config: Any = jax.config
        config.update("jax_platforms", ",".join([*platforms, identity.CPU]))


def take_over() -> None:
    """Register xlakit as JAX's platform ``cpu`` in this process, as XLAKIT_AS=cpu does, instead of jaxlib's CPU.

    To be called before JAX makes its first array or is asked for its devices; a second call changes nothing. Raises
    ExecutionError where it is too late, and UnsupportedError for a version of JAX that is not tested.
    """
    from xlakit.jax import identity
    from xlakit.jax.plugin import take_over as take

    take(identity.CPU)
