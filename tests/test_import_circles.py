"""No module is imported, not even for its types, by what it imports; and no folder by what it imports."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import xlakit
from xlakit.collector import collecting_less

PACKAGE = Path(xlakit.__file__).parent
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
def _graphs() -> tuple[Graph, Graph]:
    """What each module imports when it is loaded or for its types, but for owners; and inside of functions."""
    modules = _modules()
    eager: Graph = {name: set() for name in modules}
    late: Graph = {name: set() for name in modules}
    # Syntax trees are many objects without circles.
    with collecting_less():
        for name, path in modules.items():
            for node, for_types, inside in _imports(ast.parse(path.read_text()), for_types=False, inside=False):
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
