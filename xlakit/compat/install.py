"""``import xlakit.compat.install``: ``from jaxlib import xla_client`` then gives :mod:`xlakit.compat.xla_client`.

For code that cannot be changed. It also answers for ``jaxlib.xla_extension``, and works where no jaxlib is installed.
JAX itself keeps the module of its own jaxlib: where JAX is installed it is imported first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from xlakit.compat import xla_client
from xlakit.compat.xla_client import xla_extension

_REPLACED = {"xla_client": xla_client, "xla_extension": xla_extension, "xla_extension.ops": xla_client.ops}
_before: dict[str, ModuleType | None] = {}


def install() -> None:
    """Replace jaxlib's modules. Importing this module does so; doing it again changes nothing."""
    if _before:
        return
    package = _package()
    for name, module in _REPLACED.items():
        full = f"jaxlib.{name}"
        _before[full] = sys.modules.get(full)
        sys.modules[full] = module
        if "." not in name:
            setattr(package, name, module)


def uninstall() -> None:
    """Put back jaxlib's own modules, where there are any."""
    package = sys.modules["jaxlib"]
    for full, module in _before.items():
        name = full.removeprefix("jaxlib.")
        if module is not None:
            sys.modules[full] = module
        else:
            del sys.modules[full]
        if "." not in name and module is not None:
            setattr(package, name, module)
        elif "." not in name:
            delattr(package, name)
    if getattr(package, "__xlakit__", False):
        del sys.modules["jaxlib"]
    _before.clear()


def _package() -> ModuleType:
    """The package jaxlib: the installed one, once JAX has what it needs of it, or an empty one."""
    if find_spec("jax") is not None:
        import_module("jax")
    if find_spec("jaxlib") is not None:
        return import_module("jaxlib")
    made = ModuleType("jaxlib", "Stands for jaxlib, with what xlakit.compat has of it.")
    made.__path__ = []
    setattr(made, "__xlakit__", True)  # noqa: B010
    sys.modules["jaxlib"] = made
    return made


install()
