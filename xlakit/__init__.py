"""XLA in Python: HLO programs built, read, checked, run and converted.

All public names are listed in :mod:`xlakit.face`. A name is imported at its first use, so that ``import xlakit`` costs
nothing, and a program loads only what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Old public names, which work for one more version.
_RENAMED = {"World": "ExecutionContext"}

# The result of _module_of_name(), once it is known.
_modules: dict[str, str] = {}

if TYPE_CHECKING:
    from xlakit.face import *  # noqa: F403
else:
    # Type checkers do not see this function: it would tell them that every name exists.
    def __getattr__(name: str) -> Any:
        if name == "__all__":  # what `from xlakit import *` asks for
            return _offered()
        if name.startswith("_"):
            raise AttributeError(f"module 'xlakit' has no attribute '{name}'")
        from importlib import import_module

        if _is_module(name):
            # `from xlakit import options` asks here before it imports the module: that must not load all public names.
            return import_module(f"xlakit.{name}")
        if name in _RENAMED:
            from xlakit.deprecation import warn_renamed

            warn_renamed(f"xlakit.{name}", f"xlakit.{_RENAMED[name]}")
            return __getattr__(_RENAMED[name])
        module = _module_of_name().get(name)
        if module is None:
            from xlakit.ops.shared.subscript import function_instead_of

            more = function_instead_of(name, __dir__())
            raise AttributeError(f"module 'xlakit' has no attribute '{name}'{more}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def _is_module(name: str) -> bool:
    """Whether the package has a module or a folder of that name."""
    from importlib.util import find_spec

    return find_spec(f"xlakit.{name}") is not None


def __dir__() -> list[str]:
    return sorted([*_offered(), *(name for name in globals() if name.startswith("__"))])


def _offered() -> list[str]:
    """The public names of the package."""
    return sorted(_module_of_name())


def _module_of_name() -> dict[str, str]:
    """The module of each public name, from the source of face.py."""
    if not _modules:
        import ast
        from importlib.resources import files

        for line in ast.parse((files("xlakit") / "face.py").read_text("utf-8")).body:
            if isinstance(line, ast.ImportFrom) and line.module:
                _modules.update(dict.fromkeys((alias.name for alias in line.names), line.module))
    return _modules
