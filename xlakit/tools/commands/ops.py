"""``xlakit ops``."""

from __future__ import annotations

import argparse

from xlakit.tools.commands.shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "ops", "list the operations and what is supported, from the op pages")
    parser.add_argument("pattern", nargs="?", default="", help="only operations whose name contains this")
    parser.add_argument("--markdown", choices=("operations", "support"), help="print that page of the documentation")
    parser.set_defaults(command=_run, only_arguments=True)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools import listing

    if options.markdown:
        print(listing.operations_page() if options.markdown == "operations" else listing.support_page(), end="")
    else:
        print(listing.table(options.pattern))
    return 0
