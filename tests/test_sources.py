"""The package's sources: files, functions and folders stay short enough to be read at once, and no module is imported,
not even for its types, by what it imports; nor a folder by what it imports.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
# What is contained names the type of what contains it, which imports it: these may be imported for their types alone.
OWNERS = {
    "xlakit.data.shape": "a tiled layout has the shape that its buffer has in memory",
    "xlakit.ir.instruction": "an operation may have computations as attributes",
    "xlakit.runtime.client": "devices and executables are those of a client",
    "xlakit.runtime.device": "buffers are on a device, which makes them",
    "xlakit.cpu.llvm.function": "a value appends what is made of it to its function",
    "xlakit.cpu.llvm.module": "a function declares what it calls in its module",
}
# Imported inside of functions, when these are called: what a module offers without needing it.
WHEN_CALLED = {
    ("xlakit.ir.instruction", "xlakit.formats"): "from_text, to_text and their kin are methods of modules",
    ("xlakit.ir.instruction", "xlakit.verifier"): "HloModule.verify",
    ("xlakit.ir.instruction", "xlakit.tools.view"): "HloModule.view",
    ("xlakit.ir.instruction", "xlakit.ir.structure"): "HloModule.__eq__",
    ("xlakit.ops.handle", "xlakit.ops"): "the operators of XlaOp are operations of pages",
    ("xlakit.ops.shared.subscript", "xlakit.ops"): "x[...] makes operations of pages",
    ("xlakit.ops.shared.broadcasting", "xlakit.ops.movement"): "operands that broadcast are reshaped",
    ("xlakit.runtime.buffer", "xlakit.runtime.transfer"): "Buffer.copy_to_device",
    ("xlakit.runtime.buffer", "xlakit.runtime.device"): "Buffer.copy_to_device says what is no device",
    ("xlakit.cpu.threads", "xlakit.cpu.runtime"): "naming threads() costs nothing",
    ("xlakit.cpu.kernels.shared.common_code", "xlakit.cpu.kernels.common_families"): "code that is kept is not written",
}

Graph = dict[str, set[str]]
Import = ast.Import | ast.ImportFrom


class Source(NamedTuple):
    """What is looked at of a file, which is parsed once, as that takes longest."""

    lines: int
    # The name and the number of lines of each function.
    functions: list[tuple[str, int]]
    # Whether each import is for types alone, and whether it is inside of a function.
    imports: list[tuple[Import, bool, bool]]


def functions_of(tree):
    """Name and number of lines of each function, decorators apart."""
    # Only statements are gone through: in expressions are no functions but lambdas.
    waiting = [tree]
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


def _modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imports(
    node: ast.AST, *, for_types: bool, inside: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """The imports below a node: whether each is for types alone, and whether inside of a function."""
    # Statements are in these parts of others; expressions have no imports.
    for child in (c for part in ("body", "orelse", "handlers", "finalbody", "cases") for c in getattr(node, part, ())):
        if isinstance(child, Import):
            yield child, for_types, inside
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, for_types=for_types or _is_for_types(child), inside=inside or function)


def _targets(node: Import, modules: dict[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
        return
    assert not node.level, "imports are absolute"
    for alias in node.names:
        submodule = f"{node.module}.{alias.name}"
        if submodule in modules:
            yield submodule
        elif node.module in modules:
            yield node.module


@cache
def _sources() -> dict[str, Source]:
    found = {}
    # Syntax trees are many objects without circles.
    with collecting_less():
        for name, path in _modules().items():
            tree = ast.parse(text := path.read_text())
            imports = list(_imports(tree, for_types=False, inside=False))
            found[name] = Source(text.count("\n"), list(functions_of(tree)), imports)
    return found


@cache
def _graphs() -> tuple[Graph, Graph]:
    """What each module imports when it is loaded or for its types, but for owners; and inside of functions."""
    modules = _modules()
    eager: Graph = {name: set() for name in modules}
    late: Graph = {name: set() for name in modules}
    for name, source in _sources().items():
        for node, for_types, inside in source.imports:
            for target in _targets(node, modules):
                if target != name and not (for_types and target in OWNERS):
                    (late if inside else eager)[name].add(target)
    return eager, late


def _circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one node, found by Kosaraju's two passes."""
    backward: Graph = defaultdict(set)
    for node, targets in graph.items():
        for target in targets:
            backward[target].add(node)
    order: list[str] = []
    seen: set[str] = set()
    for root in graph:
        _walk(root, graph, seen, order)
    found, done = [], set()
    for root in reversed(order):
        component: list[str] = []
        _walk(root, backward, done, component)
        if len(component) > 1:
            found.append(sorted(component))
    return found


def _walk(root: str, graph: Graph, seen: set[str], order: list[str]) -> None:
    """Append what is reached from a root and was not seen, each behind what it reaches."""
    stack = [(root, False)]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((target, False) for target in graph.get(node, ()))


def _folders(graph: Graph, folder: str) -> Graph:
    """What the rooms and files of a folder import of each other."""
    depth = folder.count(".") + 1
    found: Graph = defaultdict(set)
    for name, targets in graph.items():
        parts = name.split(".")
        if name.startswith(f"{folder}."):
            for other in (target.split(".") for target in targets if target.startswith(f"{folder}.")):
                if other[depth] != parts[depth]:
                    found[parts[depth]].add(other[depth])
                    found.setdefault(other[depth], set())
    return dict(found)


def test_circles_are_found():
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert not _circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_no_module_imports_itself_through_others():
    eager, _ = _graphs()
    assert len(eager) > 400
    assert not _circles(eager)


def test_no_folder_imports_itself_through_others():
    eager, _ = _graphs()
    folders = sorted({name.rpartition(".")[0] for name in eager} - {""})
    assert not {folder: found for folder in folders if (found := _circles(_folders(eager, folder)))}


def test_imports_inside_of_functions_that_close_a_circle_have_a_reason():
    eager, late = _graphs()
    named = {
        (name, target)
        for name, targets in late.items()
        for target in targets
        if any(name == a and (target == b or target.startswith(f"{b}.")) for a, b in WHEN_CALLED)
    }
    left = {name: eager[name] | {t for t in late[name] if (name, t) not in named} for name in eager}
    assert not _circles(left)
    # Reasons for what is not imported any more mislead.
    assert {(a, b) for a, b in WHEN_CALLED for n, t in named if n == a and (t == b or t.startswith(f"{b}."))} == set(
        WHEN_CALLED
    )


def test_files_and_functions_are_short():
    found = []
    for name, source in _sources().items():
        if source.lines > LINES_OF_A_FILE:
            found.append(f"{name} has {source.lines} lines")
        found += [f"{name}: {f} has {n} lines" for f, n in source.functions if n > LINES_OF_A_FUNCTION]
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
    assert list(functions_of(ast.parse(f"@decorated\ndef f():\n{body}\n"))) == [("f", lines)]


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
    assert ("f", 2) in list(functions_of(ast.parse(f"{around}    def f():\n        pass\n")))


def test_names_of_test_files_differ():
    """Test folders are no packages, so that pytest imports files by their names alone."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]
