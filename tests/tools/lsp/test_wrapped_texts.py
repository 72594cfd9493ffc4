"""Names in texts whose instructions go over several lines: a rename gives the same program."""

import itertools
import random
import re
from pathlib import Path

import pytest

from xlakit.formats.hlo_text import parse_module
from xlakit.tools.lsp import features
from xlakit.tools.lsp.document import Document

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "hlo").glob("*.hlo"))
# Between attributes, and behind the braces of an attribute; not within braces.
_BREAK = re.compile(r"(?<=[)}\w\"]), (?=[a-z_]+=)|(?<=metadata=\{)")


def wrapped(text: str) -> str:
    """The text with every attribute on a line of its own."""
    return "\n".join(_BREAK.sub(lambda match: match[0].rstrip() + "\n    ", line) for line in text.split("\n"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_rename_in_a_wrapped_text_gives_the_same_program(path):
    text = wrapped(path.read_text(encoding="utf-8"))
    module = parse_module(text)
    document = Document(text)
    defined = {scope.name: [d.name for d in scope.definitions] for scope in document.index.scopes}
    assert {name: set(names) for name, names in defined.items()} == {
        c.name: {i.name for i in c.instructions} for c in module.computations
    }
    spans = [span for s in document.index.scopes for span in (s.span, *(d.span for d in s.definitions))]
    edits = []
    for number, span in enumerate(random.Random(1).sample(spans, min(12, len(spans)))):
        edits += features.rename(document, span.start + 1, f"other_name{number}")
    # All of them in one text, as parsing it takes longest: no two are at the same place.
    edits.sort(reverse=True)
    assert all(before.end <= after.start for (after, _), (before, _) in itertools.pairwise(edits))
    for edited, name in edits:
        text = text[: edited.start] + name + text[edited.end :]
    assert parse_module(text) == module


def test_instructions_may_share_lines():
    """Line breaks are spaces to the parser, wherever they are."""
    text = """HloModule m
ENTRY main {
  a = f32[2] parameter(0) b = f32[2]
  negate(a) c = (f32[2], f32[2])
  tuple(b,
  a), metadata={op_name="x) y = z"} ROOT d = f32[2] get-tuple-element(c),
  index=1 }
"""
    module = parse_module(text)
    document = Document(text)
    (scope,) = document.index.scopes
    assert [d.name for d in scope.definitions] == ["a", "b", "c", "d"]
    for definition in scope.definitions:
        edits = sorted(features.rename(document, definition.span.start, "other"), reverse=True)
        assert len(edits) == {"a": 3, "b": 2, "c": 2, "d": 1}[definition.name]
        renamed = text
        for edited, name in edits:
            renamed = renamed[: edited.start] + name + renamed[edited.end :]
        assert parse_module(renamed) == module


def test_operands_of_what_gives_a_buffer_are_renamed():
    text = """HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  b = b(f32[2]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}
  ROOT y = f32[2] custom-call(b), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
}
"""
    module = parse_module(text)
    document = Document(text)
    for definition in document.index.scopes[0].definitions:
        renamed = text
        for edited, name in sorted(features.rename(document, definition.span.start, "other"), reverse=True):
            renamed = renamed[: edited.start] + name + renamed[edited.end :]
        assert parse_module(renamed) == module
