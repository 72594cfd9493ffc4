"""Functions that custom calls run, registered by name and platform."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from xlakit.compat.xla_client.binding import bound
from xlakit.compat.xla_client.enums import CustomCallTargetTraits
from xlakit.compat.xla_client.errors import with_status
from xlakit.errors import ArgumentError, UnsupportedError
from xlakit.execution.calls.c_calls import address_of
from xlakit.execution.calls.custom_calls import register_c_custom_call, register_custom_call, register_ffi_handler

xla_platform_names = {"cpu": "Host", "gpu": "CUDA"}

_lock = threading.RLock()
_registered: dict[str, dict[str, Any]] = {}


class CustomCallHandler(Protocol):
    """Registers functions for one platform."""

    def __call__(
        self,
        name: str,
        fn: Any,
        platform: str,
        /,
        api_version: int = ...,
        traits: CustomCallTargetTraits = ...,
    ) -> None:
        """Register one function."""
        ...


class CustomTypeIdHandler(Protocol):
    """Registers types of XLA's FFI for one platform."""

    def __call__(self, name: str, capsule: Any) -> None:
        """Register one type."""
        ...


@bound
def register_on_host(
    fn_name: str | bytes,
    fn: Any,
    platform: str = "Host",
    api_version: int = 0,
    traits: CustomCallTargetTraits | int = CustomCallTargetTraits.DEFAULT,
) -> None:
    """Let custom calls of a name run a function on this machine's processors.

    fn: a PyCapsule, or an address or ctypes function, of ``void fn(void* out, const void** in)``, with a status and the
        opaque text for calls of such versions; or a Python function of NumPy's arrays. With
        api_version 1 a handler of XLA's typed FFI, or a mapping from its stages to handlers.

    Raises XlaRuntimeError for another platform.
    """
    name = fn_name.decode() if isinstance(fn_name, bytes) else fn_name
    if xla_platform_names.get(platform, platform) != "Host":
        raise UnsupportedError(f"there is no platform '{platform}' here", hint="register functions for cpu")
    if api_version not in (0, 1):
        raise UnsupportedError(
            f"custom calls have API versions 0 and 1, not {api_version}",
            hint="0 is for C functions of any version that a call asks for, 1 for the typed FFI",
        )
    if api_version == 1 or isinstance(fn, dict):
        register_ffi_handler(name, fn)
    elif callable(fn) and not hasattr(fn, "argtypes"):
        register_custom_call(name, fn)
    else:
        register_c_custom_call(name, fn)
    _registered.setdefault("Host", {})[name] = fn


class _Handlers:
    """The registration handlers by platform; registrations for a platform without a handler wait for one."""

    def __init__(self, on_host: Callable[..., None]) -> None:
        self._handlers = {"Host": on_host}
        self._waiting: dict[str, list[tuple[Any, ...]]] = {}

    def register(self, platform: str, *arguments: Any) -> None:
        with _lock:
            if platform in self._handlers:
                self._handlers[platform](*arguments)
            else:
                self._waiting.setdefault(platform, []).append(arguments)

    def add(self, platform: str, handler: Callable[..., None]) -> None:
        with _lock:
            if platform not in self._handlers:
                self._handlers[platform] = handler
                for arguments in self._waiting.pop(platform, []):
                    handler(*arguments)


@with_status
def register_type_on_host(type_name: str, type_id: Any) -> None:
    """Register the type whose ``XLA_FFI_TypeId`` a capsule holds. Raises XlaRuntimeError for what is no capsule."""
    if type(type_id).__name__ != "PyCapsule":
        raise ArgumentError(
            "The type_id argument to register_custom_call_type_id must be a PyCapsule object holding a pointer to a "
            f"XLA_FFI_TypeId, got a {type(type_id).__name__}",
            hint="give the capsule that the library makes",
        )
    from xlakit.execution.calls.ffi.interface import register_type

    register_type(type_name, address_of(type_id))


_calls = _Handlers(register_on_host)
_types = _Handlers(register_type_on_host)


def register_custom_call_target(
    name: str | bytes,
    fn: Any,
    platform: str = "cpu",
    api_version: int = 0,
    traits: CustomCallTargetTraits = CustomCallTargetTraits.DEFAULT,
) -> None:
    """Register a function for a platform; see :func:`register_on_host`. Those of others wait for a handler."""
    platform = xla_platform_names.get(platform, platform)
    text = name.decode() if isinstance(name, bytes) else name
    _calls.register(platform, text, fn, platform, api_version, traits)


def register_custom_call_handler(platform: str, handler: CustomCallHandler) -> None:
    """Let a function register the custom calls of a platform, those that wait first; the first handler stays."""
    _calls.add(xla_platform_names.get(platform, platform), handler)


def register_custom_type_id(type_name: str, type_id: Any, platform: str = "cpu") -> None:
    """Register a type of XLA's FFI with the handler of its platform; those of others wait for one."""
    _types.register(xla_platform_names.get(platform, platform), type_name, type_id)


def register_custom_type_id_handler(platform: str, handler: CustomTypeIdHandler) -> None:
    """Let a function register the types of a platform, those that wait first; the first handler stays."""
    _types.add(xla_platform_names.get(platform, platform), handler)


@bound
def custom_call_targets(platform: str) -> dict[str, Any]:
    """The functions that were registered here for a platform, by name."""
    return dict(_registered.get(xla_platform_names.get(platform, platform), {}))


@bound
def register_custom_call_partitioner(
    name: str,
    prop_user_sharding: Any,
    partition: Any,
    infer_sharding_from_operands: Any,
    can_side_effecting_have_replicated_sharding: bool = False,
    c_api: Any = None,
) -> None:
    """Functions that could split custom calls of a name: xlakit gathers their operands and computes them whole."""


@bound
def register_custom_call_as_batch_partitionable(target_name: str, c_api: Any = None) -> None:
    """Let custom calls of a name be split along their leading dimensions; xlakit computes them whole."""


@bound
def encode_inspect_sharding_callback(handler: Any, /) -> bytes:
    """Raises XlaRuntimeError: xlakit calls nothing back with shardings."""
    raise UnsupportedError("shardings are not inspected by callbacks", hint="xlakit inspect prints the split program")
