"""The verb ``xlakit cache`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse

from xlakit.tools.commands.batch import add_json, write_record
from xlakit.tools.commands.shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "cache", "show or clear the compile cache on disk")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--clear", action="store_true", help="remove all entries")
    either.add_argument("--dir", action="store_true", help="print only where it is")
    add_json(parser, "print it as a line of JSON")
    parser.epilog = (
        "environment: XLAKIT_CACHE=off switches it off, XLAKIT_CACHE_DIR says where it is, "
        "XLAKIT_CACHE_LIMIT how large it may become (such as 500M; 1G by default)"
    )
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools import inspect

    if options.json:
        removed = {"removed": inspect.clear_cache()} if options.clear else {}
        write_record(removed | inspect.cache_state())
    elif options.clear:
        print(f"removed {inspect.clear_cache()} entries")
    else:
        print(inspect.cache_directory() if options.dir else inspect.cache_summary())
    return 0
