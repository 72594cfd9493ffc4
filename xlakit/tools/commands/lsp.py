"""``xlakit lsp``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from xlakit.errors import UnsupportedError
from xlakit.tools.commands.shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "lsp", "answer an editor, as a language server on standard input and output")
    parser.add_argument("--stdio", action="store_true", help="what editors pass along; it is the only way there is")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("pygls") is None:
        raise UnsupportedError("the language server needs pygls", hint="pip install 'xlakit[editor]'")
    from xlakit.tools.lsp.answers import make_server

    # The protocol's stream is its own: what anything else prints goes to standard error, and pygls closes what it had.
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "wb") as stream:
        os.dup2(2, 1)
        make_server().start_io(stdout=stream)
    return 0
