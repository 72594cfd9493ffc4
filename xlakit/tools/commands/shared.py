"""Parts shared by the verbs: common options, types of options, and reading of files."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TextIO

from xlakit.errors import ArgumentError, meant, naming_file
from xlakit.settings import names_in

if TYPE_CHECKING:
    # Loaded only when a verb needs it.
    from xlakit.ir.instruction import HloModule


# The files of a folder that XLAKIT_DUMP_TO wrote; repeated from xlakit.cpu.debugging.dumping, which is not loaded to
# read a file.
MANIFEST: Final = "manifest.json"
MODULE: Final = "module.hlo"


_shown: set[str] = set()

# The names of api.BACKENDS, which is not loaded to print help.
BACKENDS: Final = ("cpu", "interpreter")


class Commands(Protocol):
    """The type of the result of add_subparsers, which is private in argparse."""

    def add_parser(self, name: str, *, help: str, description: str, allow_abbrev: bool) -> argparse.ArgumentParser:
        """The parser of a new verb."""
        ...


class Parser(argparse.ArgumentParser):
    """An argparse parser that suggests verbs, options and values of options."""

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Exit with status 2 for arguments that nothing has asked for."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        hint = meant(unknown[0].partition("=")[0], options) if unknown[0].startswith("-") else ""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{_line(hint)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = meant(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, error.message + _line(hint)) from None


def _line(hint: str) -> str:
    return f"\n  hint: {hint}" if hint else ""


def add_command(commands: Commands, name: str, summary: str) -> argparse.ArgumentParser:
    """The parser of a new verb, with the options that all verbs have; ``summary`` is its line in the list of verbs."""
    description = summary[0].upper() + summary[1:] + "."
    # No abbreviations: a new option could make an abbreviation ambiguous.
    parser = commands.add_parser(name, help=summary, description=description, allow_abbrev=False)
    parser.set_defaults(only_arguments=False, error_status=1, verb=parser)
    parser.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    return parser


def add_filling(parser: argparse.ArgumentParser) -> None:
    """What elided constants are filled with; see :func:`load_filled`."""
    parser.add_argument(
        "--fill-elided",
        choices=("zeros", "random", "error"),
        default="error",
        help="elements for constants that the file leaves out, constant({...}) (default: error)",
    )


def add_load(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    """Python that is run before the program; see :func:`run_loaded`."""
    parser.add_argument(
        "--load",
        "--custom-calls",
        action="append",
        default=[],
        metavar="FILE.py",
        help="Python to run first: register_custom_call, register_backend and such",
    )


def run_loaded(options: argparse.Namespace) -> None:
    """Run the files of :func:`add_load` in this process. Raises ArgumentError."""
    if options.load:
        from xlakit.tools.oracles.server import load_file

        # The files may change the compiler, which the cache keys of programs do not cover.
        os.environ["XLAKIT_CACHE"] = "off"
        for file in options.load:
            load_file(file)


class BackendName(argparse.Action):
    """An option that names a backend, of which shells complete xlakit's own; see :func:`check_backend`."""

    suggested: Final = BACKENDS

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        """Keep the name."""
        setattr(namespace, self.dest, values)


def check_backend(name: str | None) -> None:
    """Raise ArgumentError if there is no such backend; called after :func:`run_loaded`, which may register some."""
    if name is None or name in BACKENDS:
        return
    from xlakit.api import known_backends

    known = known_backends()
    if name not in known:
        raise ArgumentError(f"there is no backend '{name}'", hint=f"known: {', '.join(known)}; --load registers others")


def add_lints(parser: argparse.ArgumentParser) -> None:
    """Which lints run; see :func:`lint_names`."""
    for option, summary in (("--disable", "leave out these lints"), ("--enable", "run these lints, too")):
        parser.add_argument(option, metavar="A,B", action="append", default=[], help=f"{summary}, or all of them: all")


def lint_names(options: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lints of ``--enable`` and of ``--disable``."""
    return names_in(",".join(options.enable)), names_in(",".join(options.disable))


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """How HLO is printed; see :func:`text_options`."""
    group = parser.add_argument_group("how HLO text is printed")
    group.add_argument("--short", action="store_true", help="no %%, no shapes of computations, no metadata")
    group.add_argument("--no-metadata", dest="metadata", action="store_false", help="not where instructions come from")
    group.add_argument("--no-layouts", dest="layouts", action="store_false", help="no layouts")
    group.add_argument(
        "--no-large-constants", dest="large_constants", action="store_false", help="{...} for more than ten elements"
    )


def text_options(options: argparse.Namespace) -> dict[str, bool]:
    """What :meth:`HloModule.to_text` takes, of the options of :func:`add_text_options`."""
    return {name: getattr(options, name) for name in ("short", "metadata", "layouts", "large_constants")}


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option: whole numbers from ``least`` to ``most``, if there is one."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}")
        return value

    return read


seed: Final = at_least(0, (1 << 63) - 1)
"""The type of an option: the seed of made up arguments."""


def seconds(text: str) -> float:
    """The type of an option: a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def size(text: str) -> int:
    """The type of an option: a number of bytes, which may end with K, M or G."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    number = text if unit is None else text[:-1]
    if not (number.isascii() and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes, such as 500M or 4G")
    return int(number) * (unit or 1)


def load(path: str) -> HloModule:
    """The program in a file, or in a folder that was dumped; ``-`` is standard input.

    Raises OSError, ParseError, FormatError.
    """
    if path != "-" and Path(path).is_dir():
        from xlakit.tools.dumps import read_dump

        return read_dump(path).module
    from xlakit.formats.detect import load as load_any

    return load_any(*read(path))


def load_filled(path: str, options: argparse.Namespace) -> HloModule:
    """The module of a verb that needs the elements of constants."""
    module = load(path)
    if options.fill_elided == "error":
        return module
    from xlakit.tools.elided import fill_elided

    return fill_elided(module, options.fill_elided)


def read(path: str) -> tuple[bytes, str]:
    """What a file holds, or the module of a folder that was dumped, and its name in errors.

    Of ``FILE#2`` and ``FILE#NAME`` it is one of several modules in a text, in its lines.
    """
    file, which = selected(path)
    data, name = content_of(file)
    if which is None:
        return data, name
    from xlakit.formats.several import part_of

    return part_of(data, which, name).text.encode(), name


def selected(path: str) -> tuple[str, str | None]:
    """The file of a program, and which of its modules is meant, by number or name; None where it is all of it."""
    file, mark, which = path.rpartition("#")
    is_part = bool(mark) and not Path(path).exists() and (file == "-" or Path(file).is_file())
    return (file, which) if is_part else (path, None)


def content_of(file: str) -> tuple[bytes, str]:
    """What a file holds, or the module of a folder that was dumped, and its name in errors."""
    if file == "-":
        return _drained(open_stream(sys.stdin, "standard input")), "<stdin>"
    file = str(Path(file) / MODULE) if is_dump(Path(file)) else file
    with naming_file(file):
        status = os.stat(file)
        if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
            return Path(file).read_bytes(), file
        return _piped(file, status.st_dev, status.st_ino), file


@lru_cache(maxsize=1)
def _drained(stream: TextIO) -> bytes:
    """All of a stream, which can be read once only."""
    return stream.buffer.read()


@lru_cache(maxsize=2)
def _piped(file: str, device: int, number: int) -> bytes:
    """All of a pipe, such as ``<(command)`` of a shell, which can be read once only; two programs are compared."""
    return Path(file).read_bytes()


def is_dump(folder: Path) -> bool:
    """Whether this is a folder that XLAKIT_DUMP_TO wrote for a program."""
    return (folder / MANIFEST).is_file() and (folder / MODULE).is_file()


def open_stream(stream: TextIO | None, name: str) -> TextIO:
    """A standard stream; raises OSError where it is closed."""
    # Python has None for a stream that was closed before it started.
    if stream is None:
        raise OSError(f"{name} is closed\n  hint: run xlakit with the stream open, or name files")
    return stream


def print_error_line(message: str) -> None:
    """Print a line to standard error; if that is closed, nothing is printed (print would write to standard output)."""
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        print(message, file=sys.stderr)


def print_warning(text: str) -> None:
    """Print a warning of the command as a line; the same one once only."""
    if text not in _shown:
        _shown.add(text)
        print_error_line(f"xlakit: warning: {text}")


def show_progress(line: str) -> None:
    """Show a line in place of the one shown before, where standard error is a terminal; an empty one at the end."""
    if sys.stderr is not None and sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def one_line(error: Exception) -> str:
    """An error without a traceback, as a line of the command's, and perhaps a hint below it."""
    return headline(error) + _line(hint_of(error))


def hint_of(error: Exception) -> str:
    """The hint of an error that is none of xlakit's."""
    return _file_meant(Path(str(error.filename))) if isinstance(error, FileNotFoundError) and error.filename else ""


def headline(error: Exception) -> str:
    """An error without a traceback, in one line."""
    if isinstance(error, OSError) and error.strerror is not None:
        if error.filename is None:
            return error.strerror
        path = Path(str(error.filename))
        if isinstance(error, FileNotFoundError) and not path.parent.exists():
            return f"{path}: there is no folder {path.parent}"
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return str(error)


def _file_meant(path: Path) -> str:
    """Files beside one that does not exist, of the same ending, with names like its name."""
    try:
        beside = {other.stem: other.name for other in path.parent.iterdir() if other.suffix == path.suffix}
    except OSError:
        return ""  # the folder cannot be listed
    return meant(path.stem, beside, shown=beside)


def counted(count: int, what: str) -> str:
    """The number with its noun, which takes an s."""
    return f"{count} {what}{'s' * (count != 1)}"
