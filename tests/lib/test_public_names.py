"""The names that xlakit.lib offers: the documents' table has them all, and each says where it is from."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

from xlakit import lib

PAGE = Path(__file__).parents[2] / "docs" / "lib.md"
# What XLA's library does not have.
OURS = {"all", "concat_vectors"}


def offered():
    return {name: v for name, v in vars(lib).items() if not name.startswith("_") and not inspect.ismodule(v)}


def test_the_table_has_every_function_with_its_module():
    rows = re.findall(r"^\| `(\w+)`[^|]*\| (`.*) \|$", PAGE.read_text(encoding="utf-8").split("## Random")[0], re.M)
    named = {name: module for module, names in rows for name in re.findall(r"`(\w+)`", names)}
    operations = re.search(r"^\| operations of `xlakit`[^|]*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    named |= dict.fromkeys(re.findall(r"`(\w+)`", operations[1]), "")
    values = offered()
    assert set(named) == set(values)
    for name, module in named.items():
        assert not module or getattr(importlib.import_module(f"xlakit.lib.{module}"), name) is values[name]


def test_every_public_function_is_offered_and_told():
    values = offered()
    for info in pkgutil.iter_modules(lib.__path__):
        module = importlib.import_module(f"xlakit.lib.{info.name}")
        for name, value in vars(module).items():
            is_own = inspect.isfunction(value) and value.__module__.startswith(module.__name__)
            if is_own and not name.startswith("_"):
                assert values.get(name) is value, (info.name, name)
                assert "Source: " in value.__doc__ or name in OURS, name


def test_the_reference_has_every_module():
    page = (PAGE.parent / "reference" / "library.md").read_text(encoding="utf-8")
    assert re.findall(r"::: xlakit\.lib\.(\w+)", page) == sorted(i.name for i in pkgutil.iter_modules(lib.__path__))
