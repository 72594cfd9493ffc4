"""The command ``xlakit``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from xlakit import __version__
from xlakit.errors import ArgumentError, XlakitError

_EPILOG = """\
exit status: 0 done; 1 the program or its file is at fault, or a comparison differs; 2 the command line is;
3 there is nothing to compare with: jaxlib refused the program, died of it, or passed a limit; 130 interrupted.
"""

# The names of api.BACKENDS, which is not loaded to print help.
_BACKENDS = ("cpu", "interpreter")


class _Commands(Protocol):
    """What add_subparsers gives, of which argparse names the type only privately."""

    def add_parser(self, name: str, *, help: str, description: str, allow_abbrev: bool) -> argparse.ArgumentParser: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status = options.command(options)
        _open(sys.stdout, "standard output").flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _tell("xlakit: interrupted")
        return 130
    except (XlakitError, OSError, MemoryError) as error:
        if options.traceback:
            raise
        _tell(f"xlakit: {_plain(error)}")
        # These take arguments from nowhere but the command line.
        return 2 if isinstance(error, ArgumentError) and options.command in (_opt, _ops) else 1
    return status


def _tell(message: str) -> None:
    """A line for standard error; where that is closed, print would put it among the results."""
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        print(message, file=sys.stderr)


def _plain(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return str(error)


def _open(stream: TextIO | None, name: str) -> TextIO:
    # Python has None for a stream that was closed before it started.
    if stream is None:
        raise ArgumentError(f"{name} is closed", hint="run xlakit with the stream open, or name files")
    return stream


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="xlakit",
        description="XLA programs (HLO) on the command line: run, check, convert, improve.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"xlakit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_check(commands)
    _add_convert(commands)
    _add_opt(commands)
    _add_inspect(commands)
    _add_cache(commands)
    _add_machine(commands)
    _add_tune(commands)
    _add_ops(commands)
    return parser


def _common(commands: _Commands, name: str, summary: str) -> argparse.ArgumentParser:
    description = summary[0].upper() + summary[1:] + "."
    # An abbreviation would mean another option as soon as one is added.
    command = commands.add_parser(name, help=summary, description=description, allow_abbrev=False)
    command.add_argument("--traceback", action="store_true", help="show Python's traceback of an error")
    return command


def _add_file(command: argparse.ArgumentParser, *, optional: bool = False) -> None:
    command.add_argument(
        "file",
        nargs="?" if optional else None,
        metavar="FILE",
        help="HLO text or proto, or StableHLO text or bytecode, told apart by content; - reads standard input",
    )


def _add_filling(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fill-elided",
        choices=("zeros", "random", "error"),
        default="error",
        help="elements for constants that the file leaves out, constant({...}) (default: error)",
    )


def _add_text_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("how HLO text is printed")
    group.add_argument("--short", action="store_true", help="no %%, no shapes of computations, no metadata")
    group.add_argument("--no-metadata", dest="metadata", action="store_false", help="not where instructions come from")
    group.add_argument("--no-layouts", dest="layouts", action="store_false", help="no layouts")
    group.add_argument(
        "--no-large-constants", dest="large_constants", action="store_false", help="{...} for more than ten elements"
    )


def _text_options(options: argparse.Namespace) -> dict[str, bool]:
    return {name: getattr(options, name) for name in ("short", "metadata", "layouts", "large_constants")}


def _add_run(commands: _Commands) -> None:
    command = _common(commands, "run", "run a program and print its results")
    _add_file(command)
    command.add_argument(
        "--input", metavar="X.npz", help="arguments by parameter name or number; default: made up from --seed"
    )
    command.add_argument(
        "--seed", type=_at_least(0), default=0, help="of made up arguments and of rng instructions (default 0)"
    )
    command.add_argument("--output", metavar="Y.npz", help="save the results there instead of printing them")
    command.add_argument(
        "--iterations", type=_at_least(1), default=1, metavar="N", help="run N times and print the median time"
    )
    command.add_argument(
        "--replicas", type=_at_least(1), metavar="N", help="how many replicas run; default: what the program says"
    )
    command.add_argument(
        "--partitions",
        type=_at_least(1),
        metavar="N",
        help="how many partitions run; default: what the program says, or its shardings have",
    )
    command.add_argument("--backend", choices=_BACKENDS, help="what runs it (default: cpu, where it can)")
    command.add_argument(
        "--compare", choices=("interpreter", "jaxlib"), help="run there too and print the errors of each output"
    )
    command.add_argument(
        "--compare-timeout", type=_seconds, default=120.0, metavar="SECONDS", help="for jaxlib (default 120)"
    )
    command.add_argument(
        "--compare-memory", type=_size, default=4 << 30, metavar="SIZE", help="for jaxlib, such as 500M (default 4G)"
    )
    _add_filling(command)
    command.set_defaults(command=_run)


def _add_check(commands: _Commands) -> None:
    command = _common(commands, "check", "parse and verify a program")
    _add_file(command)
    command.set_defaults(command=_check)


def _add_convert(commands: _Commands) -> None:
    command = _common(commands, "convert", "write a program in another format")
    _add_file(command)
    command.add_argument(
        "--to", required=True, choices=("text", "proto", "json"), help="HLO text, HloModuleProto, or its JSON"
    )
    command.add_argument("--output", metavar="PATH", help="where to; default: standard output")
    _add_text_options(command)
    command.set_defaults(command=_convert)


def _add_opt(commands: _Commands) -> None:
    command = _common(commands, "opt", "improve a program with passes and print what has become of it")
    _add_file(command, optional=True)
    command.add_argument("--passes", metavar="A,B", help="run these passes in this order; default: all")
    command.add_argument("--disable", metavar="A,B", default="", help="leave out passes, tables of rules, or rules")
    command.add_argument("--until", metavar="PASS", help="stop after this pass, by name or number")
    command.add_argument("--fuel", type=_at_least(0), metavar="N", help="stop after N rewrites")
    command.add_argument("--dump", metavar="DIR", help="write the program after each pass into files there")
    command.add_argument("--diff", action="store_true", help="print what each pass has changed instead of the program")
    command.add_argument("--list-passes", action="store_true", help="list the passes and their rules, and do no more")
    _add_text_options(command)
    command.set_defaults(command=_opt)


def _add_inspect(commands: _Commands) -> None:
    command = _common(commands, "inspect", "compile a program and print what has become of it")
    _add_file(command)
    command.add_argument(
        "--as",
        dest="view",
        choices=("hlo", "llvm", "llvm-raw", "assembly", "cost", "memory", "memory-plan", "fallbacks"),
        default="hlo",
        help="the optimized HLO (default); LLVM IR after or before LLVM's passes; assembly; counted operations and "
        "bytes; memory and what holds it; the memory plan; what is not machine code",
    )
    _add_filling(command)
    _add_text_options(command)
    command.set_defaults(command=_inspect)


def _add_cache(commands: _Commands) -> None:
    command = _common(commands, "cache", "show or clear the compile cache on disk")
    either = command.add_mutually_exclusive_group()
    either.add_argument("--clear", action="store_true", help="remove all entries")
    either.add_argument("--dir", action="store_true", help="print only where it is")
    command.epilog = (
        "environment: XLAKIT_CACHE=off switches it off, XLAKIT_CACHE_DIR says where it is, "
        "XLAKIT_CACHE_LIMIT how large it may become (such as 500M; 1G by default)"
    )
    command.set_defaults(command=_cache)


def _add_machine(commands: _Commands) -> None:
    command = _common(commands, "machine", "what is known of this machine, and decides how programs are compiled")
    command.add_argument("--measure", action="store_true", help="measure it now, again where it was measured before")
    command.add_argument("--describe", metavar="FILE", help="write it to a file, for XLAKIT_MACHINE=FILE")
    command.set_defaults(command=_machine)


def _add_tune(commands: _Commands) -> None:
    command = _common(commands, "tune", "time alternatives for each kernel of a program, and keep the best")
    _add_file(command)
    command.add_argument(
        "--seconds", type=_seconds, default=30.0, help="about how long it may take (default 30)", metavar="SECONDS"
    )
    command.add_argument("--again", action="store_true", help="also where the program was tuned before")
    command.add_argument("--json", action="store_true", help="print the report as JSON; times are in nanoseconds")
    command.set_defaults(command=_tune)


def _add_ops(commands: _Commands) -> None:
    command = _common(commands, "ops", "list the operations and what is supported, from the op pages")
    command.add_argument("pattern", nargs="?", default="", help="only operations whose name contains this")
    command.add_argument("--markdown", choices=("operations", "support"), help="print that page of the documentation")
    command.set_defaults(command=_ops)


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return read


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def _size(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    number = text if unit is None else text[:-1]
    if not (number.isascii() and number.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of bytes, such as 500M or 4G")
    return int(number) * (unit or 1)


def _load(path: str):  # noqa: ANN202 - the module type is imported only when a command needs it
    from xlakit.formats.detect import load

    return load(*_read(path))


def _load_filled(options: argparse.Namespace):  # noqa: ANN202
    """The module of a command that needs the elements of constants."""
    module = _load(options.file)
    if options.fill_elided == "error":
        return module
    from xlakit.tools.elided import fill_elided

    return fill_elided(module, options.fill_elided)


def _read(path: str) -> tuple[bytes, str]:
    """What a file holds, and its name in errors."""
    if path == "-":
        return _open(sys.stdin, "standard input").buffer.read(), "<stdin>"
    return Path(path).read_bytes(), path


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.jaxlib_child import Limits, NothingToCompareError
    from xlakit.tools.run import run
    from xlakit.tools.shards import with_partitions

    module = _load_filled(options)
    module = module.replace(replica_count=options.replicas or module.replica_count)
    module = (
        with_partitions(module) if options.partitions is None else module.replace(num_partitions=options.partitions)
    )
    try:
        return run(
            module,
            input_path=options.input,
            seed=options.seed,
            output_path=options.output,
            iterations=options.iterations,
            backend=options.backend,
            compare_with=options.compare,
            limits=Limits(options.compare_timeout, options.compare_memory),
        )
    except NothingToCompareError as error:
        if options.traceback:
            raise
        _tell(f"xlakit: {error}")
        return 3


def _check(options: argparse.Namespace) -> int:
    from xlakit.tools.check import check

    data, name = _read(options.file)
    module, faults = check(data, name)
    for fault in faults:
        _tell(str(fault))
    if module is None:
        _tell(f"xlakit: {options.file}: {_counted(len(faults), 'fault')}")
        return 1
    computations = _counted(len(module.computations), "computation")
    instructions = _counted(module.instruction_count(), "instruction")
    print(f"{options.file}: {module.name} is well formed: {computations}, {instructions}")
    return 0


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _convert(options: argparse.Namespace) -> int:
    module = _load(options.file)
    if options.to == "json":
        from xlakit.formats.hlo_proto import module_to_json

        data = module_to_json(module).encode()
    else:
        data = module.to_text(**_text_options(options)).encode() if options.to == "text" else module.to_proto()
    if options.output is not None:
        Path(options.output).write_bytes(data)
    else:
        _open(sys.stdout, "standard output").buffer.write(data)
    return 0


def _opt(options: argparse.Namespace) -> int:
    from xlakit.tools import opt

    if options.list_passes:
        print(opt.listing())
        return 0
    if options.file is None:
        raise ArgumentError("no FILE is given", hint="name the program, or ask for --list-passes")
    lines = opt.optimize(
        _load(options.file),
        passes=None if options.passes is None else opt.names(options.passes),
        disabled=opt.names(options.disable),
        until=options.until,
        fuel=options.fuel,
        dump=options.dump,
        diff=options.diff,
        text=_text_options(options),
    )
    _open(sys.stdout, "standard output").writelines(lines)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from xlakit.tools.inspect import inspect

    _open(sys.stdout, "standard output").write(inspect(_load_filled(options), options.view, _text_options(options)))
    return 0


def _cache(options: argparse.Namespace) -> int:
    from xlakit.tools import inspect

    if options.clear:
        print(inspect.clear_cache())
    else:
        print(inspect.cache_directory() if options.dir else inspect.cache_summary())
    return 0


def _machine(options: argparse.Namespace) -> int:
    from xlakit.tools.machine import described

    text = described(measure=options.measure)
    if options.describe:
        Path(options.describe).write_text(text + "\n")
    else:
        print(text)
    return 0


def _tune(options: argparse.Namespace) -> int:
    from xlakit.tools.tune import tuned

    report = tuned(_load(options.file), seconds=options.seconds, again=options.again)
    print(report.as_json() if options.json else report)
    return 0


def _ops(options: argparse.Namespace) -> int:
    from xlakit.tools import listing

    if options.markdown:
        print(listing.operations_page() if options.markdown == "operations" else listing.support_page(), end="")
    else:
        print(listing.table(options.pattern))
    return 0


if __name__ == "__main__":
    sys.exit(main())
