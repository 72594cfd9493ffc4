"""The default number of devices of a client, from the environment."""

from __future__ import annotations

import os

from xlakit.errors import ArgumentError, ResourceError

_MAX_DEVICES = 4096


def default_devices() -> int:
    """What the environment variable ``XLAKIT_DEVICES`` says, or 1. Raises ArgumentError or ResourceError."""
    text = os.environ.get("XLAKIT_DEVICES") or "1"
    if not text.isdecimal():
        raise ArgumentError(f"XLAKIT_DEVICES is {text!r}, not a number of devices", hint="set it to 1 or more")
    count = int(text)
    check_count(count, "XLAKIT_DEVICES")
    return count


def check_count(count: int, name: str) -> None:
    """Raise ArgumentError or ResourceError for an invalid number of devices; ``name``: the setting that gave it."""
    if count < 1:
        raise ArgumentError(f"{name} is {count}", hint="a client has at least one device")
    if count > _MAX_DEVICES:
        raise ResourceError(f"{name} is {count:,}, a client has at most {_MAX_DEVICES:,}", hint="give fewer")
