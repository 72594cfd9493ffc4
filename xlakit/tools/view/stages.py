"""``view_module``: the passes of a program recorded as a document, and the document as a page."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xlakit.arguments import converting
from xlakit.errors import ArgumentError, XlakitError
from xlakit.formats.files import write_whole
from xlakit.ir.instruction import HloModule
from xlakit.passes.core.framework import Pass
from xlakit.passes.core.rules import RulePass
from xlakit.passes.pipeline import PASSES, new_context, run_pipeline
from xlakit.passes.spmd import is_to_be_split, split_over
from xlakit.tools.shards import with_partitions
from xlakit.tools.view.document import Document
from xlakit.tools.view.mesh import mesh_of
from xlakit.tools.view.page import page_of


class View:
    """A program as a page: ``save`` it, or let a notebook show it.

    html: the page, which needs no other file.
    """

    def __init__(self, html: str, title: str) -> None:
        self.html = html
        self.title = title

    def save(self, path: str | Path) -> None:
        """Write the page into a file. Raises OSError."""
        # Names of files that are no UTF-8 are in the page, too.
        write_whole(path, self.html.encode(errors="backslashreplace"))

    def _repr_html_(self) -> str:
        # The page has no access to the notebook.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="{html.escape(self.title)}" sandbox="allow-scripts" '
            'style="width: 100%; height: 600px; border: 1px solid #888"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<view of {self.title}: {len(self.html):,} characters of HTML; save(path) writes it>"


@converting
def view_module(
    module: HloModule,
    *,
    passes: bool = True,
    disabled: Iterable[str] = (),
    until: str | None = None,
    fuel: int | None = None,
    memory: bool = False,
    seconds: Mapping[str, float] | None = None,
    roofline: Mapping[str, Any] | None = None,
    errors: Mapping[str, float] | None = None,
    title: str | None = None,
) -> View:
    """A page of a program and of what each pass makes of it.

    passes: whether the passes run; otherwise the page has the program as it is. disabled, until, fuel: what of them is
    left out, as :func:`xlakit.passes.pipeline.run_pipeline` takes it. memory: whether the program is compiled, too, for
    a picture of its memory. seconds: the times of instructions of the optimized program, by name, which color them.
    roofline: the steps of a profile, as :func:`xlakit.tools.view.profiles.roofline_of` gives them; they need
    ``seconds``, too. errors: the relative errors of instructions, by name, which color them. title: the page's;
    default: the module's name.

    A program that the verifier refuses is shown as it is, with the reason. So is what there is before a pass that does
    not know an operation. Raises ArgumentError for unknown names of passes, and with ``memory`` UnsupportedError where
    there is no machine code.
    """
    document = document_of(module, passes=passes, disabled=disabled, until=until, fuel=fuel, title=title)
    if seconds is not None:
        document.add("profile", {"seconds": dict(seconds)} | ({} if roofline is None else {"roofline": roofline}))
    if errors is not None:
        document.add("errors", dict(errors))
    if memory:
        document.add("memory", _memory(module))
    return View(page_of(document.as_dict()), title or module.name)


def _memory(module: HloModule) -> dict[str, Any]:
    """The memory plan of what the compiler makes of a program."""
    # The compiler is loaded only where it is wanted.
    from xlakit.tools.inspect import generated
    from xlakit.tools.view.memory import memory_of

    return memory_of(generated(module).memory_plan())


def document_of(
    module: HloModule,
    *,
    passes: bool = True,
    disabled: Iterable[str] = (),
    until: str | None = None,
    fuel: int | None = None,
    title: str | None = None,
) -> Document:
    """The document of a program and its passes; see :func:`view_module`."""
    context = new_context(disabled, fuel)
    rules: dict[str, dict[str, dict[str, None]]] = {}

    def observe(rule: str, computation: str, names: Iterable[str]) -> None:
        lines = rules.setdefault(computation, {})
        for name in names:
            lines.setdefault(name, {})[rule] = None

    context.observer = observe
    fault = fault_of(module)
    document = Document(title or module.name, has_costs=not fault)
    document.add_step(module, "input", summary="the program as it was given", note=fault)
    if fault:
        return document
    if not passes:
        _add_mesh(document, [module])
        return document
    document.add_laws(_laws(PASSES.values()))
    last, start = module, time.perf_counter()

    def look(number: int, name: str, before: HloModule, after: HloModule) -> None:
        nonlocal last, start
        seconds = time.perf_counter() - start
        document.add_step(
            after,
            name,
            number=number,
            summary=PASSES[name].summary,
            rewrites=context.statistics[-1][1],
            rules=rules,
            milliseconds=round(seconds * 1e3, 2),
        )
        rules.clear()
        # What it takes to write the document is no time of passes.
        last, start = after, time.perf_counter()

    # Those that are drawn on the mesh: before partitioning shardings, after it collectives.
    steps = [module]
    try:
        for step in _for_a_device(module, document):
            steps.append(last := step)
        start = time.perf_counter()
        run_pipeline(last, until=until, dump=look, context=context)
    except ArgumentError:
        raise
    except XlakitError as error:
        document.add_step(last, "stopped", summary="no pass could go on", note=str(error))
    _add_mesh(document, [*steps, last])
    return document


def _for_a_device(module: HloModule, document: Document) -> Iterator[HloModule]:
    """The steps that come before the passes: the number of partitions, and the program of one of them."""
    split = with_partitions(module)
    if split is not module:
        document.add_step(split, "partitions", summary="the number of partitions, as the shardings say")
        yield split
    if is_to_be_split(split, split.num_partitions):
        device_module = split_over(split, split.num_partitions)
        document.add_step(device_module, "partition", summary=PASSES["partition"].summary)
        yield device_module


def _add_mesh(document: Document, modules: Sequence[HloModule]) -> None:
    mesh = mesh_of(modules)
    if mesh is not None:
        document.add("mesh", mesh)


def fault_of(module: HloModule) -> str:
    """What the verifier says against a program; nothing for one that is well formed."""
    try:
        module.verify()
    except XlakitError as error:
        return str(error)
    return ""


def _laws(passes: Iterable[Pass]) -> Sequence[tuple[str, str]]:
    laws: dict[str, str] = {}
    for step in passes:
        parts: Mapping[str, str] = {r.name: r.law for r in step.rules} if isinstance(step, RulePass) else step.parts
        laws.update(parts)
    return list(laws.items())
