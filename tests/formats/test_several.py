"""Texts of several modules, with and without headers."""

import re

import pytest

import xlakit as xla
from xlakit.formats.several import part_of, parts_of

ENTRY = "ENTRY e {\n  ROOT a = f32[2] parameter(0)\n}\n"
CALLED = "f { ROOT p = f32[2] parameter(0) }\n"
CALL = f"{CALLED}ENTRY e {{\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] call(a), to_apply=f\n}}\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{ENTRY}// -----\n{CALL}", ["", ""]),
        (f"// RUN: a tool\n\n// -----\n{ENTRY}\n// -----\n// Then.\nHloModule second\n{CALL}", ["", "second"]),
        (f"HloModule first\n{ENTRY}// -----\n{CALL}// -----\n/* ENTRY no */\n", ["first", ""]),
        # Each has a header, and there may be several between two lines.
        (f"HloModule first\n{ENTRY}// -----\nHloModule b\n{CALL}HloModule c\n{ENTRY}", ["first", "b", "c"]),
    ],
)
def test_parts_between_separators(text: str, names: list[str]):
    parts = parts_of(text.encode())
    assert [part.name for part in parts] == names
    for number, part in enumerate(parts, 1):
        module = xla.HloModule.from_text(part.text)
        assert module.entry.name == "e"
        assert part_of(text.encode(), str(number)) == part
        # At its place.
        assert text.splitlines()[part.text.splitlines().index("ENTRY e {")] == "ENTRY e {"


@pytest.mark.parametrize(
    "text",
    [
        ENTRY,
        f"// -----\n{ENTRY}",
        # A comment of that kind within a module.
        "HloModule m\n// -----\nf { ROOT p = f32[2] parameter(0) }\n// -----\n" + ENTRY,
        "f { ROOT p = f32[2] parameter(0) }\n// ----- ENTRY\n" + ENTRY,
    ],
)
def test_one_module_with_separators(text: str):
    assert parts_of(text.encode()) == []
    xla.HloModule.from_text(text)


def test_parts_without_names():
    text = f"{ENTRY}// -----\n{CALL}"
    with pytest.raises(xla.FormatError, match="has no module 'e'") as error:
        part_of(text.encode(), "e")
    assert "it has 1, 2" in str(error.value)
    with pytest.raises(xla.FormatError, match="has no module ''"):
        part_of(text.encode(), "")
    with pytest.raises(xla.ParseError, match="two computations called 'e'") as refused:
        xla.HloModule.from_text(text)
    assert "FILE#2" in str(refused.value) and "// -----" in str(refused.value)


def test_a_text_is_searched_once_for_all_of_its_modules():
    """Each was found among all, and all that is before it was blanked: 134 modules took more than a minute."""
    one = 'HloModule m{}\n\n// "é"\tHloModule x\r\nENTRY e {{\n  ROOT r = f32[] parameter(0)\n}}\n'
    text = "".join(one.format(number) for number in range(50))
    parts = parts_of(text.encode())
    assert parts_of(text.encode()) is parts
    assert [part.name for part in parts] == [f"m{number}" for number in range(50)]
    start = text.index("HloModule m49")
    assert part_of(text.encode(), "m49").text == re.sub(r"[^\n]", " ", text[:start]) + text[start:]
