"""The platform of JAX that xlakit is: an additional one, ``xlakit``, or ``cpu``, in place of jaxlib's.

The choice is made once in each process, when the platform is registered; all other modules query this one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from xlakit.errors import ArgumentError
from xlakit.runtime.device_count import check_count, default_devices

OWN: Final = "xlakit"
CPU: Final = "cpu"
_VARIABLE: Final = "XLAKIT_AS"
_FLAG: Final = "--xla_force_host_platform_device_count"


def is_asked_for() -> bool:
    """Whether the environment variable that chooses xlakit's platform is set."""
    return bool(os.environ.get(_VARIABLE))


def asked_for(platforms: Sequence[str]) -> str:
    """The requested platform, by XLAKIT_AS or in the list of JAX's platforms. Raises ArgumentError."""
    name = os.environ.get(_VARIABLE) or OWN
    if name not in (OWN, CPU):
        raise ArgumentError(f"{_VARIABLE} is {name!r}", hint="set it to cpu, or unset it")
    if name == CPU and OWN in platforms:
        raise ArgumentError(
            f"{_VARIABLE}=cpu makes xlakit JAX's platform cpu, and JAX_PLATFORMS asks for the platform xlakit",
            hint="unset one of them",
        )
    return name


def device_count(platform: str) -> int:
    """The number of devices for JAX: as ``cpu``, the number that JAX would request of jaxlib; else XLAKIT_DEVICES.

    Raises ArgumentError or ResourceError.
    """
    if platform != CPU:
        return default_devices()
    from jax._src import xla_bridge

    settings: Any = xla_bridge
    count: int = settings.num_cpu_devices.value
    name = "jax_num_cpu_devices"
    if count < 0:
        text = _flag(os.environ.get("XLA_FLAGS", ""))
        if text is None:
            return default_devices()
        name = _FLAG
        if not text.isdecimal():
            raise ArgumentError(f"{name} is {text!r} in XLA_FLAGS, not a number of devices", hint="set it to 1 or more")
        count = int(text)
    check_count(count, name)
    return count


def _flag(flags: str) -> str | None:
    """The number of devices in XLA_FLAGS, or in the file that it names; the last one takes precedence."""
    if flags and not flags.lstrip().startswith("-"):
        path = Path(flags.strip())
        flags = path.read_text() if path.is_file() else ""
    found = [word.partition("=")[2] for word in flags.split() if word.partition("=")[0] == _FLAG]
    return found[-1] if found else None
