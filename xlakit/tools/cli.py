"""The command ``xlakit``: reads its arguments, and calls the function of a verb."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from xlakit import __version__
from xlakit.errors import ArgumentError, XlakitError
from xlakit.tools.commands import (
    bisect,
    cache,
    check,
    completion,
    convert,
    diff,
    extract,
    inspect,
    lsp,
    machine,
    ops,
    opt,
    reduce,
    run,
    tune,
    view,
)
from xlakit.tools.commands.batch import error_record, write_record
from xlakit.tools.commands.shared import Parser, one_line, open_stream, print_error_line

_EPILOG = """\
xlakit COMMAND --help lists the options of a command.

where programs come from:
  XLA_FLAGS=--xla_dump_to=DIR python train.py     writes those that JAX, PyTorch/XLA or TensorFlow compile into DIR
  jax.jit(f).lower(x).as_text()                   is one, as StableHLO

first steps:
  xlakit check DIR                                what is wrong with programs, and what is probably not meant
  xlakit run FILE --compare jaxlib                a program on made up arguments, here and on XLA
  xlakit view FILE -o page.html                   a program and what each pass makes of it, in a browser

exit status:
  0    done
  1    the program or its file is at fault, a comparison differs, check --warnings-as-errors has a warning, or a
       program does not have what reduce and bisect look for
  2    the command line is at fault, and for diff anything that is no difference
  3    there is nothing to compare with: jaxlib refused the program, died of it, or passed a limit
  130  interrupted
Of several programs the worst status counts: 2, then 1, then 3.
"""

# In the order of the help.
_VERBS = (run, check, convert, diff, opt, view, inspect, bisect, reduce, extract, lsp, cache, machine, tune, ops)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; gives the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and source lines of programs may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    if not (sys.argv[1:] if arguments is None else arguments):
        print_error_line(parser().format_help().rstrip())
        return 2
    options, unknown = parser().parse_known_args(arguments)
    if unknown:
        # Reported by the verb's parser, whose usage lists the valid options.
        options.verb.refuse(unknown)
    try:
        status = options.command(options)
        stdout = sys.stdout
        # If standard output is closed, a verb that failed has reported that already.
        if status == 0 or stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            open_stream(stdout, "standard output").flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print_error_line("xlakit: interrupted")
        return 130
    except (XlakitError, OSError, MemoryError, Warning) as error:  # PYTHONWARNINGS may make errors of warnings
        if options.traceback:
            raise
        # Faults found in a program have a status of their own (batch.attempt).
        status = 2 if isinstance(error, ArgumentError) else options.error_status
        if isinstance(error, XlakitError) and getattr(options, "json", False):
            write_record({"file": None, "status": status, "error": error_record(error)})
        else:
            print_error_line(f"xlakit: {one_line(error)}")
        return status
    return status


def parser() -> Parser:
    """The parser of the command line, with all verbs."""
    parser = Parser(
        allow_abbrev=False,
        prog="xlakit",
        description="Run, check, compare, reduce and look at XLA programs (HLO, StableHLO) on the command line.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"xlakit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for verb in _VERBS:
        verb.add(commands)
    completion.add(commands, parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
