"""The verb ``xlakit lsp`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys

from xlakit.errors import UnsupportedError
from xlakit.tools.commands.shared import Commands, add_command, add_lints, lint_names, open_stream, print_error_line


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "lsp", "answer an editor, as a language server on standard input and output")
    parser.add_argument("--stdio", action="store_true", help="what editors pass along; it is the only way there is")
    add_lints(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("pygls") is None:
        raise UnsupportedError("the language server needs pygls", hint="pip install 'xlakit[editor]'")
    stdin, stdout = open_stream(sys.stdin, "standard input"), open_stream(sys.stdout, "standard output")
    from xlakit.tools.lint.linter import chosen
    from xlakit.tools.lsp.answers import make_server
    from xlakit.tools.lsp.checking import Lints

    lints = Lints(*lint_names(options))
    # A name that is wrong is told before the editor's first request.
    chosen(lints.enable, lints.disable)
    if stdin.isatty():
        print_error_line("an editor starts this, and talks to it (docs/editor.md); Ctrl-C ends it")
    # The thread that reads standard input cannot be interrupted, so that an end by an exception would wait for it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # The protocol's stream is its own: what anything else prints goes to standard error, and pygls closes what it had.
    stdout.flush()
    with os.fdopen(os.dup(1), "wb") as stream:
        os.dup2(2, 1)
        make_server(lints).start_io(stdout=stream)
    return 0
