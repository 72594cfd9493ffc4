"""``import xlakit.compat.install`` makes ``from jaxlib import xla_client`` give :mod:`xlakit.compat.xla_client`.

For code that cannot be changed. It also answers for ``jaxlib.xla_extension``, and works where no jaxlib is installed.
``from xla.python import xla_client``, as code of XLA's own tree says, gives the same. So does ``from jax.lib import
xla_client`` where JAX is installed, as notebooks say; JAX has that no longer.
JAX itself keeps the module of its own jaxlib: where JAX is installed it is imported first.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from xlakit.compat import xla_client
from xlakit.compat.xla_client import xla_extension

# The submodules of jaxlib's extension module.
_PARTS = ("ops", "config", "guard_lib", "hlo_sharding_util", "ifrt_programs", "jax_jit", "mlir", "profiler", "pytree")
_REPLACED: dict[str, ModuleType] = {
    "xla_client": xla_client,
    "xla_extension": xla_extension,
    **{f"xla_extension.{name}": getattr(xla_extension, name) for name in _PARTS},
}
# The packages of XLA's source tree, which no distribution installs.
_XLA_PACKAGES = ("xla", "xla.python")
_IN_JAX = ("xla_client", "xla_extension")
_VERSION = (0, 6, 0)
_before: dict[str, ModuleType | None] = {}
_made: list[str] = []


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
    if getattr(package, "__xlakit__", False):
        _enter("jaxlib.weakref_lru_cache", import_module(xla_extension.weakref_lru_cache.__module__))
        _enter("jaxlib.version", _version())
    if find_spec("jax") is not None and find_spec("jax.lib") is not None:
        _replace_in_jax()
    if find_spec("xla") is None:
        _make_xla()


def _replace_in_jax() -> None:
    # JAX's own code imports from jax._src.lib, which keeps jaxlib's modules.
    package = import_module("jax.lib")
    for name in _IN_JAX:
        full = f"jax.lib.{name}"
        _before[full] = sys.modules.get(full) or vars(package).get(name)
        sys.modules[full] = _REPLACED[name]
        setattr(package, name, _REPLACED[name])


def _make_xla() -> None:
    for name in _XLA_PACKAGES:
        _enter(name, _empty(name))
    for name in ("xla_client", "xla_extension"):
        _enter(f"xla.python.{name}", _REPLACED[name])


def _enter(full: str, module: ModuleType) -> None:
    sys.modules[full] = module
    _made.append(full)
    package, _, name = full.rpartition(".")
    if package:
        setattr(sys.modules[package], name, module)


def uninstall() -> None:
    """Restore jaxlib's own modules, or remove the replacements if there were none."""
    for full, module in _before.items():
        parent, _, name = full.rpartition(".")
        if module is not None:
            sys.modules[full] = module
        else:
            del sys.modules[full]
        package = sys.modules.get(parent)
        if package is None or parent == "jaxlib.xla_extension":
            continue
        if module is not None:
            setattr(package, name, module)
        else:
            delattr(package, name)
    package = sys.modules["jaxlib"]
    if getattr(package, "__xlakit__", False):
        del sys.modules["jaxlib"]
    for full in _made:
        del sys.modules[full]
    _made.clear()
    _before.clear()


def _package() -> ModuleType:
    """The package jaxlib: the installed one, after JAX (if installed) has imported it, or an empty one."""
    if find_spec("jax") is not None:
        import_module("jax")
    if find_spec("jaxlib") is not None:
        return import_module("jaxlib")
    sys.modules["jaxlib"] = made = _empty("jaxlib")
    return made


def _version() -> ModuleType:
    """The module of the version, which jaxlib has in itself, too."""
    made = ModuleType("jaxlib.version")
    for name, value in (("__version__", ".".join(map(str, _VERSION))), ("__version_info__", _VERSION)):
        setattr(made, name, value)
        setattr(sys.modules["jaxlib"], name, value)
    return made


def _empty(name: str) -> ModuleType:
    made = ModuleType(name, f"Stands for {name}, with what xlakit.compat has of it.")
    made.__path__ = []
    made.__package__ = name
    # Without one, importlib.util.find_spec fails for the name.
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    setattr(made, "__xlakit__", True)  # noqa: B010
    return made


install()
