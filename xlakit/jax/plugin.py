"""The table of functions that jaxlib calls, and its registration with JAX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from xlakit.errors import UnsupportedError
from xlakit.jax.api import slots as interface
from xlakit.jax.devices import PLATFORM
from xlakit.jax.native.library import Native
from xlakit.jax.records import keep_for_ever, words_of
from xlakit.jax.replaced import replace
from xlakit.jax.slots import State, callbacks, failure_callback

# The versions of jax and jaxlib that are tested. JAX's inside changes with each.
VERSIONS: Final = ("0.10.2",)
_CAPSULE_NAME: Final = b"pjrt_c_api"

_registered: list[Any] = []


def register(*, is_default: bool) -> None:
    """Register the platform, once. With a jax or jaxlib of a version that is not tested it says so, and does no more.

    is_default: whether JAX puts on it what nobody puts elsewhere.
    """
    if _registered:
        return
    from jax._src import xla_bridge

    try:
        _check_versions()
    except UnsupportedError as error:
        # JAX writes down what is raised here, and goes on to fail with less; what is raised there ends the program.
        xla_bridge.register_backend_factory(PLATFORM, _refusing(error), fail_quietly=False)
        return

    state = State()
    capsule = _capsule(_table(state))
    _registered.append((state, capsule))
    nonexperimental = getattr(xla_bridge, "_nonexperimental_plugins", None)
    if nonexperimental is not None:
        nonexperimental.add(PLATFORM)
    xla_bridge.register_plugin(PLATFORM, c_api=capsule)
    from xlakit.jax.lowerings import register_lowerings

    register_lowerings()
    replace(state.text_of, is_default=is_default)


def _check_versions() -> None:
    from importlib.metadata import version as version_of

    for name in ("jax", "jaxlib"):
        version = version_of(name)
        if version not in VERSIONS:
            raise UnsupportedError(
                f"xlakit runs programs of jax {', '.join(VERSIONS)}; this is {name} {version}",
                hint="pip install 'xlakit[jax]' installs the versions that fit together",
            )


def _refusing(error: UnsupportedError) -> Callable[[], Any]:
    def make_client() -> Any:
        raise error

    return make_client


def _table(state: State) -> Any:
    """The structure: its size, its extensions, its version, and a pointer for each function."""
    failure = failure_callback(state)
    of_python = callbacks(state)
    state.native = Native(tuple(of_python), ctypes.cast(failure, ctypes.c_void_p).value or 0)
    addresses = dict(state.native.slots)
    addresses.update({name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in of_python.items()})
    version = interface.MAJOR | interface.MINOR << 32
    head = [interface.TABLE_BYTES, 0, interface.VERSION_BYTES, 0, version]
    table = words_of([*head, *(addresses[name] for name in interface.SLOTS)])
    for thing in (table, failure, of_python, state):
        keep_for_ever(thing)
    return table


def _capsule(table: Any) -> Any:
    name = ctypes.create_string_buffer(_CAPSULE_NAME)
    keep_for_ever(name)
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    make = prototype(("PyCapsule_New", ctypes.pythonapi))
    capsule: Any = make(ctypes.addressof(table), ctypes.addressof(name), None)
    keep_for_ever(capsule)
    return capsule
