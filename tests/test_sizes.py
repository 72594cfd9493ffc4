"""Files, functions and folders of the package stay short enough to be read at once."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import xlakit
from xlakit.collector import collecting_less

PACKAGE = Path(xlakit.__file__).parent
LINES_OF_A_FILE = 500
LINES_OF_A_FUNCTION = 60
# Beside its __init__.py.
FILES_OF_A_FOLDER = 20
# Folders beside the package that are as small. fuzz/ itself has a file for each command, ``python -m fuzz.NAME``.
OTHERS = ("tests", "fuzz", "benchmarks", "examples")
OF_COMMANDS = {Path("fuzz")}


def functions_of(text):
    """Name and number of lines of each function, decorators apart."""
    # Only statements are gone through: in expressions are no functions but lambdas.
    waiting = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1
        waiting += (
            child for part in ("body", "orelse", "handlers", "finalbody", "cases") for child in getattr(node, part, ())
        )


def files_in(folder):
    """How many files each folder in a folder has, itself among them."""
    paths = (path for path in folder.rglob("*.py") if path.name != "__init__.py")
    return Counter(path.parent.relative_to(folder.parent) for path in paths)


def test_files_and_functions_are_short():
    found = []
    # Syntax trees are many objects without circles.
    with collecting_less():
        for path in sorted(PACKAGE.rglob("*.py")):
            text, name = path.read_text(), path.relative_to(PACKAGE)
            if text.count("\n") > LINES_OF_A_FILE:
                found.append(f"{name} has {text.count(chr(10))} lines")
            found += [f"{name}: {f} has {n} lines" for f, n in functions_of(text) if n > LINES_OF_A_FUNCTION]
    assert not found


def test_folders_are_small():
    assert not {str(folder): count for folder, count in files_in(PACKAGE).items() if count > FILES_OF_A_FOLDER}


@pytest.mark.parametrize("folder", OTHERS)
def test_folders_beside_the_package_are_small(folder):
    files = files_in(PACKAGE.parent / folder)
    assert files
    assert not {str(f): n for f, n in files.items() if n > FILES_OF_A_FOLDER and f not in OF_COMMANDS}


@pytest.mark.parametrize(("body", "lines"), [("    pass", 2), ("    x = 1\n\n    return x", 4)])
def test_lines_of_a_function_are_counted(body, lines):
    assert list(functions_of(f"@decorated\ndef f():\n{body}\n")) == [("f", lines)]


@pytest.mark.parametrize(
    "around",
    [
        "class C:\n",
        "if x:\n    pass\nelse:\n",
        "for x in y:\n    pass\nelse:\n",
        "try:\n    pass\nexcept E:\n",
        "try:\n    pass\nfinally:\n",
        "match x:\n  case 1:\n",
        "with x:\n",
        "async def g():\n",
    ],
)
def test_functions_inside_of_statements_are_found(around):
    assert ("f", 2) in list(functions_of(f"{around}    def f():\n        pass\n"))


def test_names_of_test_files_differ():
    """Test folders are no packages, so that pytest imports files by their names alone."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]
