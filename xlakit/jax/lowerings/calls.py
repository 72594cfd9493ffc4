"""The custom calls that JAX's programs make on this platform."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

# The prefix of jaxlib's handlers for LAPACK, in place of which SciPy's LAPACK and generated code are used.
_OF_LAPACK: Final = "lapack_"
_TYPED: Final = 1
# Handlers that were registered before the first program was compiled. They are passed on then, as the modules that call
# handlers are slow to import and rarely needed.
_waiting: list[tuple[str, Any, int]] = []


@cache
def register_calls() -> None:
    """Register them before the first program is compiled. Their functions are loaded when they are first called."""
    from xlakit.execution.calls.custom_calls import register_custom_call
    from xlakit.jax.lowerings import callbacks, sparse

    for name, handler, api_version in _waiting:
        _register(name, handler, api_version)
    for target in (callbacks.TARGET, callbacks.TARGET_ON_PARTS):
        register_custom_call(target, callbacks.answer, with_context=True)
    register_custom_call(sparse.TARGET, sparse.sparse_solve)
    # A custom call with side effects, which keeps its operands from being removed as dead code.
    register_custom_call("dce_sink", _sink)


def take_handlers(platform: str) -> None:
    """Make ``jax.ffi.register_ffi_target`` and ``register_ffi_type`` for the platform register with xlakit.

    Handlers that were registered before are registered, too.
    """
    # JAX's reference to jaxlib's module: under its public name another module may be installed for old programs.
    from jax._src import lib

    library: Any = lib
    interface = library.xla_client
    interface.register_custom_call_handler(platform, _take)
    interface.register_custom_type_handler(platform, _take_type)


def _take(name: Any, handler: Any, platform: str, api_version: int = _TYPED, traits: Any = 0) -> None:
    text = name.decode() if isinstance(name, bytes) else str(name)
    if text.startswith(_OF_LAPACK):
        return
    if register_calls.cache_info().currsize:
        _register(text, handler, api_version)
    else:
        _waiting.append((text, handler, api_version))


def _register(name: str, handler: Any, api_version: int) -> None:
    from xlakit.execution.calls.custom_calls import register_c_custom_call, register_ffi_handler

    if api_version == _TYPED:
        register_ffi_handler(name, handler)
    else:
        register_c_custom_call(name, handler)


def _take_type(name: str, registration: Any, platform: str = "") -> None:
    from xlakit.execution.calls.c_calls import address_of
    from xlakit.execution.calls.ffi.interface import register_type

    fields = registration if isinstance(registration, dict) else {"type_id": registration}
    info: Any = fields.get("type_info")
    register_type(str(name), address_of(fields["type_id"]), 0 if info is None else address_of(info))


def _sink(*_: Any) -> tuple[()]:
    return ()
