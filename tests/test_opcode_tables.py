"""Tables by opcode: rows of rules, one for each operation. What passes ask of operations, traits and classes tell."""

import ast
import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

import xlakit.cpu
import xlakit.formats
import xlakit.passes
import xlakit.tools
from xlakit.cpu.scalars import is_scalar_operation
from xlakit.errors import InternalError
from xlakit.ir.traits import Associative, Elementwise
from xlakit.ops.registry import OPERATIONS
from xlakit.passes.core.rules import Rules, opcodes_of

PACKAGE = Path(xlakit.__file__).parent
# In ir/ operations have no classes yet.
COMPARING = ("ir/",)
# The keys of rows.
SETS = {
    "xlakit.cpu.scalars.apply._OPCODES",
}

# A process loads what its programs need; here are all tables.
for _package in (xlakit.passes, xlakit.cpu, xlakit.formats, xlakit.tools):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)


def _tables():
    """Each table whose keys are opcodes, most of them at least, by its name, and those keys that are none."""
    for name, module in sorted(sys.modules.items()):
        # Elementary functions have names of their own.
        if not name.startswith("xlakit.") or name.startswith("xlakit.cpu.math"):
            continue
        for variable, table in vars(module).items():
            if isinstance(table, (frozenset, dict)) and all(isinstance(key, str) for key in table):
                strange = [key for key in table if key not in OPERATIONS]
                if len(strange) * 2 < len(table):
                    yield f"{name}.{variable}", table, strange


def test_tables_by_opcode_name_operations():
    tables = list(_tables())
    assert len(tables) > 20
    assert not {name: strange for name, _, strange in tables if strange}


def test_sets_of_opcodes_are_traits():
    left = tuple(f"xlakit.{folder.replace('/', '.')}" for folder in COMPARING)
    assert {n for n, table, _ in _tables() if isinstance(table, frozenset) and not n.startswith(left)} == SETS


def test_opcodes_are_not_compared_with_names():
    found = []
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(COMPARING):
            continue
        # Most files have no opcodes; to read all of them as programs takes seconds.
        if ".opcode" not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "opcode":
                names = [n.value for n in ast.walk(node.comparators[0]) if isinstance(n, ast.Constant)]
                if any(name in OPERATIONS for name in names):
                    found.append(f"{place}:{node.lineno}")
    assert not found


def test_every_elementwise_operation_has_code():
    wanted = {opcode for opcode, op in OPERATIONS.items() if issubclass(op, Elementwise)}
    assert {opcode for opcode in OPERATIONS if is_scalar_operation(opcode)} == wanted | {"bitcast-convert"}


def test_rules_are_entered_for_operations_and_traits():
    assert set(opcodes_of([Associative])) == {"add", "and", "maximum", "minimum", "multiply", "or", "xor"}
    with pytest.raises(InternalError, match="addd"):
        Rules("table").rule("addd")
