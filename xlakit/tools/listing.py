"""What is supported, read from the op pages and the code: ``xlakit ops`` and the generated documents."""

from __future__ import annotations

import ast
import enum
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from xlakit.data.text_table import aligned
from xlakit.errors import ArgumentError
from xlakit.ir.operation import OPERATIONS, Attribute, Op
from xlakit.ir.traits import TRAITS, traits_of
from xlakit.ops.data import Parameter
from xlakit.ops.registry import PAGES

# A signature that is longer has a line for each parameter.
_LONGEST_SIGNATURE = 100
# The file that refuses operations which are not run.
_NOT_RUN = "xlakit/ir/operation.py"
_PACKAGE = Path(__file__).resolve().parent.parent


def page_of(op: type[Op]) -> ModuleType:
    """The page that declares an operation (or imports it from a second half of its page)."""
    for page in PAGES:
        if op.__module__ == page.__name__:
            return page
    return next(page for page in PAGES if op in vars(page).values())


def operations_of(page: ModuleType) -> list[type[Op]]:
    """The operations of a page, by name."""
    return sorted((op for op in OPERATIONS.values() if page_of(op) is page), key=lambda op: op.opcode)


def functions_of(page: ModuleType) -> list[tuple[str, Callable[..., Any]]]:
    """The functions of a page that a person calls."""
    return sorted(
        (name, value)
        for name, value in vars(page).items()
        if inspect.isfunction(value)
        and hasattr(value, "__wrapped__")
        and value.__module__.startswith("xlakit.ops.")
        and ".shared." not in value.__module__
        and not name.startswith("_")
    )


def is_evaluated(op: type[Op]) -> bool:
    """Whether the interpreter runs an operation (parameters are bound, not evaluated)."""
    return op.evaluate is not Op.evaluate or op is Parameter


def records(pattern: str = "") -> list[dict[str, Any]]:
    """The operations whose name, here or in the documents, contains ``pattern``, for JSON; ArgumentError if none.

    ``operands`` is None for any number of them.
    """
    operations = [
        {
            "opcode": opcode,
            "documents": list(op.documents),
            "operands": op.arity,
            "traits": [trait.__name__ for trait in traits_of(op)],
            "attributes": [a.text or a.name for a in op.attributes],
            "interpreter": is_evaluated(op),
        }
        for opcode, op in sorted(OPERATIONS.items())
        if pattern.lower() in f"{opcode} {' '.join(op.documents)}".lower()
    ]
    if not operations:
        raise ArgumentError(f"no operation's name contains '{pattern}'", hint="'xlakit ops' lists all")
    return operations


def table(pattern: str = "") -> str:
    """:func:`records` as a table."""
    rows = [("opcode", "in the documents", "operands", "traits", "interpreter", "attributes")]
    rows += [
        (
            op["opcode"],
            ", ".join(op["documents"]) or "-",
            "any" if op["operands"] is None else str(op["operands"]),
            ", ".join(op["traits"]) or "-",
            "yes" if op["interpreter"] else "no",
            ", ".join(op["attributes"]) or "-",
        )
        for op in records(pattern)
    ]
    return aligned(rows)


def operations_page() -> str:
    """``docs/operations.md``."""
    parts = [
        "# Operations\n",
        "Generated from the op pages by `xlakit ops --markdown operations`. In each family: the operations of HLO,",
        "with the name that the semantics document gives them, then the functions of `xlakit` that build them.\n",
        "Passes and backends ask an operation for its traits:\n",
        *(f"- {trait.__name__}: {inspect.getdoc(trait)}" for trait in TRAITS),
        "",
    ]
    for page in PAGES:
        summary = inspect.getdoc(page) or ""
        title = summary.split("\n", 1)[0].rstrip(".")
        name = page.__name__.removeprefix("xlakit.").replace(".", "/")
        parts += [f"## {title}\n", f"Page: `xlakit/{name}.py`\n"]
        parts += [operation_entry(op) for op in operations_of(page)]
        parts += [_function_entry(name, function) for name, function in functions_of(page)]
    return "\n".join(parts) + "\n"


def operation_entry(op: type[Op]) -> str:
    """What an operation is, as an item of a Markdown list: its name in the documents, operands, attributes, traits."""
    known = f" (document: {', '.join(op.documents)})" if op.documents else ""
    operands = "any number of operands" if op.arity is None else f"{op.arity} operand{'s' * (op.arity != 1)}"
    summary = (inspect.getdoc(op) or "").split("\n\n", 1)[0].replace("\n", " ")
    attributes = "; ".join(_attribute_entry(a) for a in op.attributes)
    traits = ", ".join(trait.__name__ for trait in traits_of(op))
    rest = (f" Attributes: {attributes}." if attributes else "") + (f" Traits: {traits}." if traits else "")
    return f"- **`{op.opcode}`**{known}, {operands}. {summary}{rest}"


def _attribute_entry(attribute: Attribute) -> str:
    name = attribute.text or attribute.name
    return f"`{name}`" if attribute.required else f"`{name}` (optional)"


def _function_entry(name: str, function: Callable[..., Any]) -> str:
    doc = inspect.getdoc(function) or ""
    return f"\n### `{name}`\n\n```python\n{_signature(name, function)}\n```\n\n{_as_markdown(doc)}\n"


def _written(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


def _signature(name: str, function: Callable[..., Any]) -> str:
    """A function as it is called, with the types and defaults of its parameters."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f" = {_written(parameter.default)}"
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        parts.append(f"{star}{parameter.name}: {parameter.annotation}{default}")
    line = f"{name}({', '.join(parts)}) -> {signature.return_annotation}"
    if len(line) <= _LONGEST_SIGNATURE:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f") -> {signature.return_annotation}"])


def _as_markdown(doc: str) -> str:
    return "\n".join(line.replace("    ", "  ", 1) if line.startswith("    ") else line for line in doc.splitlines())


def support_page() -> str:
    """``docs/support.md``: what is run, and every limit that the code reports by UnsupportedError."""
    run = [op for op in OPERATIONS.values() if is_evaluated(op)]
    other = sorted(op.opcode for op in OPERATIONS.values() if not is_evaluated(op))
    parts = [
        "# What is supported\n",
        "Generated from the code by `xlakit ops --markdown support`.\n",
        f"{len(OPERATIONS)} operations can be represented, parsed, printed, converted and verified;",
        f"the interpreter runs {len(run)} of them.\n",
        "## Operations that are represented but not run\n",
        *([f"- `{opcode}`" for opcode in other] or ["None."]),
        "\n## Every other limit\n",
        "Each of these raises `UnsupportedError` with the text shown (`..` stands for what is filled in).\n",
        "| where | what it says |",
        "|---|---|",
        *(f"| `{where}` | {what} |" for where, what in sorted(set(_limits())) if other or where != _NOT_RUN),
    ]
    return "\n".join(parts) + "\n"


@cache
def _limits() -> tuple[tuple[str, str], ...]:
    return tuple(limit for path in sorted(_PACKAGE.rglob("*.py")) for limit in _limits_of(path))


def _limits_of(path: Path) -> Iterator[tuple[str, str]]:
    source = path.read_text(encoding="utf-8")
    # Few files raise it, and to parse all of them takes seconds.
    for node in ast.walk(ast.parse(source)) if "UnsupportedError(" in source else ():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id == "UnsupportedError" and node.args:
            yield str(path.relative_to(_PACKAGE.parent)), _text_of(node.args[0]).replace("|", "\\|")


def _text_of(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ".."
