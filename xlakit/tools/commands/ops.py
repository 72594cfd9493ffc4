"""The verb ``xlakit ops`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse

from xlakit.tools.commands.batch import add_json, write_record
from xlakit.tools.commands.shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "ops", "list the operations and what is supported of each")
    parser.add_argument("pattern", nargs="?", default="", help="only operations whose name contains this")
    parser.add_argument("--markdown", choices=("operations", "support"), help="print that page of the documentation")
    add_json(parser, "print an object for each operation, a line each")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools import listing

    if options.markdown:
        print(listing.operations_page() if options.markdown == "operations" else listing.support_page(), end="")
    elif options.json:
        for record in listing.records(options.pattern):
            write_record(record)
    else:
        print(listing.table(options.pattern))
    return 0
