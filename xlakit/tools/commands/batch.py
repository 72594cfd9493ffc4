"""Verbs on several programs: one program's fault does not stop the others, and the exit status is the worst of all."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from xlakit.errors import ArgumentError, FormatError, XlakitError
from xlakit.tools.commands.shared import (
    content_of,
    counted,
    headline,
    hint_of,
    is_dump,
    one_line,
    open_stream,
    print_error_line,
    print_warning,
    selected,
)

# The files of a folder that are programs by their names. With .gz, too.
_SUFFIXES: Final = (".hlo", ".txt", ".pb", ".pbtxt", ".hlo.json", ".mlir", ".mlirbc", ".stablehlo")
# Those that nothing else has: of the others the content decides, but for XLA's dumps, whose damage is to be told.
_PLAIN_SUFFIXES: Final = (".hlo", ".hlo.json", ".mlir", ".mlirbc", ".stablehlo")
_HEAD_BYTES: Final = 1 << 16
# XLA writes these beside modules.
_BESIDE: Final = (
    *("-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt"),
    *("-memory-usage-report.txt", "-memory-usage-report.pb", "compile_options.pb", "topology.pb"),
    *(".config.pbtxt", "flags.txt"),
)
# Exit statuses, the worst last: 3 is that there is nothing to compare with.
_WORSE: Final = (0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a batch: the file or dumped folder that has it, ``FILE#2`` where the file has several, and the name
    of what is written for it.

    ``name`` is the path within the folder that was given, or the name of the file, without suffixes of programs; no
    two programs of a batch have the same. ``is_alone`` is whether the command line names this program and no other.
    """

    path: str
    name: str
    is_alone: bool

    def output(self, destination: str, suffix: str) -> Path:
        """Where the output goes: the path that is given, of one of several programs a file in that folder, which is
        made. Raises ArgumentError where that is the program itself.
        """
        path = Path(destination) if self.is_alone else Path(destination) / f"{self.name}{suffix}"
        source = selected(self.path)[0]
        if path.exists() and Path(source).exists() and path.samefile(source):
            raise ArgumentError(f"the output would replace the program {path}", hint="give another path")
        if not self.is_alone:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise ArgumentError(
                    f"{destination} is a file, and several programs are written into a folder",
                    hint="name a folder, or one program as FILE#2",
                ) from None
        return path


# What a verb does with one program: gives the exit status, and what --json prints of it.
Work: TypeAlias = Callable[[Program], tuple[int, dict[str, Any]]]


def add_batch(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Several files or folders, and ``--json``."""
    parser.add_argument(
        "files",
        nargs="*" if optional else "+",
        metavar="FILE",
        help="programs in any format that is known, recognized by content; folders stand for the programs in them and "
        "below, texts of several modules for all of them, FILE#2 for the second one; - reads standard input",
    )
    add_json(parser)


def add_json(parser: argparse.ArgumentParser, summary: str = "print an object for each program, a line each") -> None:
    """``--json``, for :func:`write_record`."""
    parser.add_argument("--json", action="store_true", help=summary)


def run_batch(options: argparse.Namespace, work: Work, *, titled: bool = False) -> int:
    """Do the work for each program of :func:`add_batch`; gives the worst status.

    titled: whether the output of each program gets a title if there are several, since it does not name the program.

    Raises ArgumentError for a fault of the command line, which concerns all programs; with --traceback any error.
    """
    alone = [(program, None) for program in programs_of(options.files)]
    return run_each(options, alone, lambda program, _: work(program), titled=titled)


def run_each(
    options: argparse.Namespace,
    programs: Iterable[tuple[Program, str | None]],
    work: Callable[[Program, str | None], tuple[int, dict[str, Any]]],
    *,
    titled: bool = False,
) -> int:
    """As :func:`run_batch`, for pairs of a program and a second file that the work on it needs."""
    worst = 0
    for program, second in programs:
        files = {} if second is None else {"first": program.path, "second": second}
        if titled and not program.is_alone and not options.json:
            write(f"==> {' '.join(files.values()) or program.path} <==\n")
        status, record = _attempt(options, program, partial(work, program, second), second)
        if options.json:
            write_record({"file": program.path, "status": status, **files, **record})
        worst = worse(worst, status)
    return worst


def _attempt(
    options: argparse.Namespace, program: Program, work: Callable[[], tuple[int, dict[str, Any]]], second: str | None
) -> tuple[int, dict[str, Any]]:
    """Do the work for a program; an error is printed, and makes a status and a record. Raises as run_batch does."""
    files = [program.path] if second is None else [program.path, second]
    try:
        if is_folder(program.path):
            raise FormatError(
                f"{program.path} is a folder without programs",
                hint=f"name the files, end them {', '.join(_SUFFIXES)}, or give a folder that XLAKIT_DUMP_TO wrote",
            )
        return work()
    except ArgumentError as error:
        if options.only_arguments or options.traceback:
            raise
        return failed(options, files, error)
    except BrokenPipeError:
        raise  # The reader has seen enough, which is no fault of the program's.
    except (XlakitError, OSError, MemoryError, Warning) as error:  # PYTHONWARNINGS may make errors of warnings
        if options.traceback:
            raise
        return failed(options, files, error)
    except Exception as error:
        # A fault of xlakit: it is reported, and the other programs of the batch are still processed.
        if program.is_alone or options.traceback:
            raise
        print_error_line(traceback.format_exc().rstrip())
        return options.error_status, {"error": error_record(error)}


def failed(
    options: argparse.Namespace, files: Sequence[str], error: Exception, status: int | None = None
) -> tuple[int, dict[str, Any]]:
    """Report an error about the programs in files, unless --json prints its record; gives the status and the record.

    status: by default the verb's status of errors.
    """
    if not options.json:
        text, names = one_line(error), ["<stdin>" if file == "-" else file for file in files]
        # Errors about a program that was read name instructions only, so the file is added; OSErrors name the file.
        place = error.location if isinstance(error, XlakitError) else None
        # An error in the file of an option is not attributed to the program.
        is_of_option = place is not None and place.file in vars(options).values()
        is_named = isinstance(error, OSError) or is_of_option or any(name in text for name in names)
        print_error_line(f"xlakit: {text}" if is_named else f"xlakit: {' '.join(names)}: {text}")
    return options.error_status if status is None else status, {"error": error_record(error)}


def error_record(error: Exception) -> dict[str, Any]:
    """An error for --json: its type, message, hint, and place in a file."""
    if not isinstance(error, XlakitError):
        return {"type": type(error).__name__, "message": headline(error), "hint": hint_of(error) or None, "place": None}
    place = None if error.location is None else str(error.location)
    return {"type": type(error).__name__, "message": error.headline, "hint": error.hint or None, "place": place}


def worse(first: int, second: int) -> int:
    """The worse of two exit statuses."""
    return max(first, second, key=_WORSE.index)


def write(text: str) -> None:
    """Write to standard output. Raises OSError where it is closed."""
    open_stream(sys.stdout, "standard output").write(text)


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output, behind the text that is written already. Raises OSError where it is closed."""
    stream = open_stream(sys.stdout, "standard output")
    stream.flush()
    stream.buffer.write(data)


def check_binary_output() -> None:
    """Raise ArgumentError where standard output is a terminal, which would take bytes for commands."""
    if open_stream(sys.stdout, "standard output").isatty():
        raise ArgumentError(
            "the output is binary, and standard output is a terminal",
            hint="name a file with --output, or send it to a file or a pipe",
        )


def is_streamed(options: argparse.Namespace, programs: Sequence[Program], *, is_binary: bool = False) -> bool:
    """Whether ``-o -`` asks for the output on standard output.

    Raises ArgumentError where nothing else may be written there, or it takes no bytes.
    """
    if options.output != "-":
        return False
    if options.json:
        raise ArgumentError("--output - and --json both write to standard output", hint="name a file, or leave out one")
    if not programs[0].is_alone:
        raise ArgumentError("--output - is for one program, and there are several", hint="name a folder for them")
    if is_binary:
        check_binary_output()
    return True


def write_record(record: object) -> None:
    """Write an object as a line of JSON, which has no NaN and no infinities: texts stand for them."""
    write(json.dumps(_finite(record), allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def programs_of(files: Sequence[str]) -> list[Program]:
    """The programs of files and folders. A folder is replaced by the programs in it, ordered by path, if it has any,
    and a text of several modules by ``FILE#1``, ``FILE#2`` and so on.
    """
    named: dict[str, str] = {}
    programs = [item for file in files for path, name in _within(file) for item in _parts(path, name)]
    for path, name in programs:
        count = 1
        unique = name
        while unique in named:
            count += 1
            unique = f"{name}-{count}"
        named[unique] = path
    is_alone = len(named) == 1 and not is_folder(files[0])
    return [Program(path, name, is_alone) for name, path in named.items()]


def pairs_of(first: str, second: str) -> list[tuple[Program, Program]]:
    """The pair of two programs; for two texts of equally many modules, their modules in pairs; for two folders, the
    pairs of programs with equal names. A program without a partner is paired with the path of the missing file.

    Raises ArgumentError for a folder and a file, for standard input twice, and for texts of unlike numbers of modules.
    """
    if first == second == "-":
        raise ArgumentError("both programs are standard input", hint="name a file for one of them")
    if is_folder(first) != is_folder(second):
        raise ArgumentError(f"of {first} and {second} one is a folder", hint="give two programs, or two folders")
    if not is_folder(first):
        mine, others = programs_of([first]), programs_of([second])
        if len(mine) != len(others):
            most, most_of = max((len(mine), first), (len(others), second))
            raise ArgumentError(
                f"{first} has {counted(len(mine), 'program')}, and {second} has {len(others)}",
                hint=f"name one of them: {most_of}#1 to {most_of}#{most}",
            )
        return list(zip(mine, others, strict=True))
    left, right = ({program.name: program for program in programs_of([folder])} for folder in (first, second))
    pairs: list[tuple[Program, Program]] = []
    for name in sorted({*left, *right}):
        known = left.get(name) or right[name]
        mine, others = (
            found.get(name) or Program(str(Path(folder) / Path(known.path).relative_to(root)), name, False)
            for found, folder, root in ((left, first, second), (right, second, first))
        )
        pairs.append((mine, others))
    return pairs


def is_folder(file: str) -> bool:
    """Whether this is a folder that stands for the programs in it. Raises ArgumentError for an empty name."""
    if not file:
        # Path("") is the current folder: all in it and below would be read.
        raise ArgumentError("the name of a program is empty", hint="name a file or a folder; the current one is .")
    path = Path(file)
    return file != "-" and path.is_dir() and not is_dump(path)


def _within(file: str) -> Iterator[tuple[str, str]]:
    """The paths of the programs that a file or folder stands for, with the names for what is written for them."""
    if file == "-":
        yield file, "stdin"
    elif not is_folder(file):
        yield file, own_name(file)
    else:
        found = _listed(file)
        yield from ((str(path), bare_name(str(path.relative_to(file)))) for path in found)
        if not found:
            yield file, own_name(file)


def _listed(folder: str) -> list[Path]:
    """The programs in a folder and below, by path; a warning says what was left out.

    Links to folders are not followed, so that none is read twice.
    """
    found: list[Path] = []
    others: list[Path] = []
    closed: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        path = Path(place)
        if is_dump(path):
            found.append(path)
            folders.clear()
            continue
        # No pipes and devices, which is_file leaves out: reading one may wait for ever.
        for file in (path / name for name in files if _is_named_as_program(name) and (path / name).is_file()):
            (found if _is_program(file) else others).append(file)
    if others:
        print_warning(
            f"{counted(len(others), 'file')} in {folder} left out, as they do not begin like a program: "
            f"{_some(sorted(others))}"
        )
    if closed:
        print_warning(f"{counted(len(closed), 'folder')} in {folder} cannot be read, left out: {_some(sorted(closed))}")
    return sorted(found)


def _some(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + ", .." * (len(paths) > 3)


def _parts(path: str, name: str) -> Iterator[tuple[str, str]]:
    """The modules in a file, if it is a text of several; the file otherwise, and where it cannot be read."""
    from xlakit.formats.several import parts_of

    count = 0
    if selected(path)[1] is None:
        # The verb that reads the program reports the fault.
        with suppress(OSError, XlakitError):
            count = len(parts_of(*content_of(path)))
    yield from ((f"{path}#{i}", f"{name}-{i}") for i in range(1, count + 1)) if count else [(path, name)]


def own_name(file: str) -> str:
    """The name of a file behind all links, without the suffix that programs have, with a number if it is a part."""
    file, which = selected(file)
    # realpath, since Path.resolve raises for a link to itself; the error is raised when the file is read.
    name = bare_name(Path(os.path.realpath(file)).name)
    return name if which is None else f"{name}-{which}"


def _is_named_as_program(name: str) -> bool:
    name = name.removesuffix(".gz")
    return name.endswith(_SUFFIXES) and not name.endswith(_BESIDE)


def _is_program(path: Path) -> bool:
    """Whether a file of a folder is meant as a program: by its name, or by how it begins."""
    name = path.name.removesuffix(".gz")
    if name.endswith(_PLAIN_SUFFIXES) or name.startswith("module_"):
        return True
    from xlakit.formats.detect import may_be_program

    try:
        with path.open("rb") as file:
            return may_be_program(file.read(_HEAD_BYTES))
    except OSError:
        return True  # the verb that reads it reports the fault


def bare_name(name: str) -> str:
    """The name of a program's file without the suffix that programs have."""
    name = name.removesuffix(".gz")
    return next((name.removesuffix(suffix) for suffix in reversed(_SUFFIXES) if name.endswith(suffix)), name)
