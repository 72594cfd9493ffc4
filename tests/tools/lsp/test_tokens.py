"""Semantic tokens: those of an instruction are kept while the text around it changes."""

import pytest

from xlakit.tools.lsp import tokens
from xlakit.tools.lsp.document import Document
from xlakit.tools.lsp.lines import Span
from xlakit.tools.lsp.tokens import Tokens

TEXT = """HloModule learning

add { /* two
numbers */
  x = f32[] parameter(0)
  y = f32[] parameter(1), metadata={op_name="größer 😀"}
  ROOT total = f32[] add(x,
    y), metadata={op_name="😀" source_line=3} // over two lines
}

ENTRY main { a = f32[4] parameter(0) b = f32[4] negate(a)
  zero = f32[] constant(0), metadata={op_name="0"}
  sums = f32[] reduce(b, zero), dimensions={0}, /* a
  comment */ to_apply=add, control-predecessors={a}
  ROOT result = f32[] exponential(sums)
}
"""


def words(text, numbers, encoding="utf-16"):
    """The lines, columns, texts and types of tokens, read as an editor does."""
    lines, line, column, found = text.split("\n"), 0, 0, []
    for down, right, length, kind, _ in zip(*[iter(numbers)] * 5, strict=True):
        line, column = line + down, right if down else column + right
        units = lines[line].encode("utf-16-le" if encoding == "utf-16" else "utf-8")
        width = 2 if encoding == "utf-16" else 1
        word = units[width * column : width * (column + length)]
        found.append((line, word.decode("utf-16-le" if encoding == "utf-16" else "utf-8"), tokens.TYPES[kind]))
    return found


def patched(numbers, edits):
    """The numbers after edits, which are made from the last to the first."""
    numbers = list(numbers)
    for start, count, data in sorted(edits, reverse=True):
        numbers[start : start + count] = data
    return numbers


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_places_and_types_are_those_of_words(encoding):
    found = words(TEXT, Tokens().whole(Document(TEXT, encoding=encoding))[1], encoding)
    assert (5, '"größer 😀"', "string") in found
    assert (7, "y", "variable") in found
    assert (7, '"😀"', "string") in found
    assert (7, "3", "number") in found
    assert (10, "negate", "function") in found
    assert (13, "to_apply", "property") in found
    assert (13, "add", "namespace") in found
    # A comment over two lines is no token.
    assert not any("comment" in word for _, word, _ in found)
    assert [word for line, word, _ in found if line == 14] == ["result", "exponential", "sums"]


CHANGES = [
    ("exponential", "tanh"),
    ("HloModule learning", "HloModule learning\n\n"),
    ("  y = f32[] parameter(1)", "  // none\n  y = f32[] parameter(1)"),
    ("ROOT result", "ROOT 😀 result"),
    ("  sums", "  more = f32[] add(zero, zero)\n  sums"),
    ("  zero = f32[] constant(0)", ""),
    ("{ a = ", "{  a = "),
    (TEXT, ""),
    ("", ""),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_changes_make_the_tokens_of_the_new_text(old, new):
    kept = Tokens()
    text = TEXT.replace(old, new, 1)
    name, before = kept.whole(Document(TEXT))
    changed, edits = kept.changes(Document(text), name)
    assert changed != name
    assert (edits == []) == (text == TEXT)
    assert patched(before, edits) == Tokens().whole(Document(text))[1]
    # And back again.
    _, edits = kept.changes(Document(TEXT), changed)
    assert patched(Tokens().whole(Document(text))[1], edits) == before


def test_changes_are_from_the_last_answer_alone():
    kept = Tokens()
    first, _ = kept.whole(Document(TEXT))
    kept.whole(Document(TEXT))
    assert kept.changes(Document(TEXT), first) is None
    assert kept.changes(Document(TEXT), "unknown") is None


def test_tokens_of_a_span_are_those_of_its_instructions():
    kept, document = Tokens(), Document(TEXT)
    start = TEXT.index("  zero")
    assert words(TEXT, kept.within(document, Span(start, start + 9))) == [
        (11, "zero", "variable"),
        (11, "constant", "function"),
        (11, "0", "number"),
        (11, "metadata", "property"),
        (11, '"0"', "string"),
    ]


def test_only_what_changed_is_read_again(monkeypatch):
    lines = "\n".join(f"  v{n} = f32[8] add(v{n - 1}, v{n - 1})" for n in range(1, 2000))
    text = f"ENTRY main {{\n  v0 = f32[8] parameter(0)\n{lines}\n}}\n"
    kept = Tokens()
    name, _ = kept.whole(Document(text))
    encoded = []
    encode = tokens._encode
    monkeypatch.setattr(tokens, "_encode", lambda d, i: encoded.append(i.name) or encode(d, i))
    _, (edit,) = kept.changes(Document(text.replace("v999 =", "\n  renamed =")), name)
    assert encoded == ["renamed"]
    assert len(edit.data) < 10 * 5
