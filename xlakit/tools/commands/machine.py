"""The verb ``xlakit machine`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import json

from xlakit.formats.files import write_whole
from xlakit.tools.commands.batch import add_json, write, write_record
from xlakit.tools.commands.shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "machine", "what is known of this machine, and decides how programs are compiled")
    parser.add_argument("--measure", action="store_true", help="measure it now, again where it was measured before")
    parser.add_argument("--describe", metavar="FILE", help="write it to a file, for XLAKIT_MACHINE=FILE")
    add_json(parser, "print it as a line of JSON")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.cpu import measuring

    machine = measuring.measure() if options.measure else measuring.described()
    text = machine.as_text()
    if options.describe:
        write_whole(options.describe, text + "\n")
    elif options.json:
        write_record(json.loads(text))
    else:
        write(text + "\n")
    return 0
