"""``xlakit convert``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_file,
    add_text_options,
    load,
    open_stream,
    text_options,
)


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "convert", "write a program in another format")
    add_file(parser)
    parser.add_argument(
        "--to", required=True, choices=("text", "proto", "json"), help="HLO text, HloModuleProto, or its JSON"
    )
    parser.add_argument("--output", metavar="PATH", help="where to; default: standard output")
    add_text_options(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    module = load(options.file)
    if options.to == "json":
        from xlakit.formats.hlo_proto import module_to_json

        data = module_to_json(module).encode()
    else:
        data = module.to_text(**text_options(options)).encode() if options.to == "text" else module.to_proto()
    if options.output is not None:
        Path(options.output).write_bytes(data)
    else:
        open_stream(sys.stdout, "standard output").buffer.write(data)
    return 0
