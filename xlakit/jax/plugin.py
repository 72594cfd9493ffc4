"""The table of functions that jaxlib calls, and its registration with JAX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from xlakit.cpu.runtime.numpy_api import keep_for_ever, lasting_capsule
from xlakit.errors import ExecutionError
from xlakit.jax import versions
from xlakit.jax.api import slots as interface
from xlakit.jax.identity import CPU
from xlakit.jax.native.library import Native
from xlakit.jax.patches import replace
from xlakit.jax.profiler import Profiler, announce
from xlakit.jax.records import words_of
from xlakit.jax.slots import State, callbacks, failure_callback

# JAX's default platform is the one with the highest priority. As ``cpu`` xlakit has jaxlib's priority, below all
# accelerators; as a plugin it has a plugin's, above them.
_PRIORITIES: Final = {CPU: 0}
_PLUGIN_PRIORITY: Final = 400

# The platform that is registered in this process, with the objects that must not be freed.
_registered: dict[str, Any] = {}


def register(platform: str, *, is_default: bool) -> None:
    """Register the platform, once. Errors are raised when JAX makes a client of it.

    is_default: whether JAX puts arrays without an explicit device on it.
    """
    if _registered:
        return
    try:
        _register(platform, is_default=is_default)
    except Exception as error:
        # Raised later: JAX only logs errors of a plugin's registration, and then fails less clearly or runs elsewhere.
        refuse(platform, error)


def refuse(platform: str, error: Exception) -> None:
    """Register a platform whose client, when JAX makes it, raises an error."""
    from jax._src import xla_bridge

    xla_bridge.register_backend_factory(platform, _refusing(error), fail_quietly=False)


def take_over(platform: str) -> None:
    """Register the platform; it replaces JAX's own of that name; see :func:`xlakit.jax.take_over`."""
    from jax._src import xla_bridge

    if platform in _registered:
        return
    if _registered:
        raise ExecutionError(
            f"xlakit is JAX's platform {', '.join(_registered)} in this process",
            hint=f"unset JAX_PLATFORMS, or set it to {platform}",
        )
    if xla_bridge.backends_are_initialized():
        raise ExecutionError(
            "JAX has made its devices already, and arrays may be on them",
            hint="call xlakit.jax.take_over() right after import jax, or set XLAKIT_AS=cpu",
        )
    _register(platform, is_default=True)


def _register(platform: str, *, is_default: bool) -> None:
    from jax._src import xla_bridge

    _check_versions()
    state = State(platform)
    capsule = lasting_capsule(_table(state), b"pjrt_c_api")
    bridge: Any = xla_bridge
    bridge._nonexperimental_plugins.add(platform)
    bridge.register_plugin(platform, priority=_PRIORITIES.get(platform, _PLUGIN_PRIORITY), c_api=capsule)
    # Topologies without devices are not supported; without a factory JAX raises that error itself.
    bridge._topology_factories.pop(platform)
    _registered[platform] = state, capsule
    announce(capsule)
    from xlakit.jax.lowerings import register_lowerings
    from xlakit.jax.lowerings.calls import take_handlers

    register_lowerings(platform)
    take_handlers(platform)
    replace(state.text_of, state.reading_whole_programs, platform, is_default=is_default)


def _check_versions() -> None:
    import jax
    import jaxlib.version

    for name, version in (("jax", jax.__version__), ("jaxlib", jaxlib.version.__version__)):
        if version not in versions.VERSIONS:
            raise versions.unsupported(name, version)


def _refusing(error: Exception) -> Callable[[], Any]:
    def make_client() -> Any:
        raise error

    return make_client


def _table(state: State) -> Any:
    """The structure: its size, its extensions, its version, and a pointer for each function."""
    state.native = Native(callbacks(state), failure_callback(state))
    addresses = state.native.slots
    version = interface.MAJOR | interface.MINOR << 32
    functions = [addresses[name] for name in interface.LAYOUTS]
    following = ctypes.addressof(Profiler(state).extension(0))
    # The last two functions, for layouts of programs, are null: jaxlib then reads them from the program.
    layouts = words_of([8 * (len(functions) + 5), interface.LAYOUTS_NUMBER, following, *functions, 0, 0])
    head = [interface.TABLE_BYTES, ctypes.addressof(layouts), interface.VERSION_BYTES, 0, version]
    table = words_of([*head, *(addresses[name] for name in interface.SLOTS)])
    for part in (layouts, state):
        keep_for_ever(part)
    return table
