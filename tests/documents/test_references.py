"""What the map and docstrings of the package refer to is there: files and folders, functions, classes."""

import re
from pathlib import Path

import xlakit

PACKAGE = Path(xlakit.__file__).parent
ROOT = PACKAGE.parent
FOLDERS = ("xlakit", "fuzz", "benchmarks", "tests", "examples", "docs", ".ci")
NAMES = {path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
NAMES |= set(FOLDERS)
# They and their ends: a path may be told from any folder on.
ENDS = {name[place:] for name in NAMES for place in (0, *(m.end() for m in re.finditer("/", name)))}
SOURCES = [path for folder in ("xlakit", "fuzz") for path in (ROOT / folder).rglob("*.py")]
# Files of other packages, and names that stand for others.
OTHERS = {"train.py", "version.py", "fuzz/NAME.py", "CONTRIBUTING.md", "setup.py"}
ROLE = re.compile(r":(?:mod|func|class|meth|attr):`~?\.?([\w.]+)`")
DEFINED = re.compile(r"\b(?:def|class)\s+(\w+)|^\s*(?:self\.)?(\w+)\s*(?::[^=\n]+)?=[^=]|^\s+(\w+):", re.MULTILINE)
FILE = re.compile(r"(?<![\w./-])((?:[a-z]\w*/)*[a-z]\w*\.py)\b")


def names_a_file(text):
    """Whether a path, or its end, is that of a file or folder."""
    return text.rstrip("/") in ENDS


def defined(path):
    """The names that a file defines, and some that it only binds: functions, classes, variables, attributes."""
    return (name for found in DEFINED.findall(path.read_text(encoding="utf-8")) for name in found if name)


def test_files_of_the_map_are_there():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    given = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md))(?::\w+)?`", text)
    assert len(given) > 150
    assert not [name for name in given if name not in OTHERS and not names_a_file(name)]


def test_what_docstrings_refer_to_is_there():
    known = {name for path in SOURCES for name in defined(path)} | {"dataclasses"}
    known |= {name for path in SOURCES for name in (path.stem, path.parent.name)}
    stale = []
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            place = f"{file}:{number}"
            # Expressions that begin with anything are slow, and few lines refer to something.
            roles, files = (ROLE.findall(line) if ":`" in line else ()), (FILE.findall(line) if ".py" in line else ())
            stale += [f"{place}: {name}" for name in roles if name.split(".")[-1] not in known]
            stale += [f"{place}: {f}" for f in files if f not in OTHERS and not names_a_file(f)]
    assert not stale


def test_commands_that_dump_or_profile_a_jax_program_run_it_on_xlakit():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    commands = [
        found[0]
        for page in pages
        for found in re.finditer(r"(?:\w+=\S+ )+python (?:train|model)\.py", page.read_text(encoding="utf-8"))
        if re.search(r"XLAKIT_(?:DUMP_TO|PROFILE)=", found[0])
    ]
    assert len(commands) > 3
    assert not [command for command in commands if "XLAKIT_AS=cpu" not in command]
