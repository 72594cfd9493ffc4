"""The verb ``xlakit convert`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
import base64
import json
from typing import Any, Final

from xlakit.errors import ArgumentError
from xlakit.formats.files import write_whole
from xlakit.tools.commands.batch import Program, add_batch, check_binary_output, programs_of, run_batch, write_bytes
from xlakit.tools.commands.shared import (
    Commands,
    add_command,
    add_text_options,
    load,
    text_options,
)


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "convert", "write a program in another format")
    add_batch(parser)
    parser.add_argument(
        "--to", required=True, choices=("text", "proto", "json"), help="HLO text, HloModuleProto, or its JSON"
    )
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="where to, of several programs a folder; default: standard output"
    )
    add_text_options(parser)
    parser.set_defaults(command=_run)


_SUFFIXES: Final = {"text": ".hlo", "proto": ".pb", "json": ".hlo.json"}


def _run(options: argparse.Namespace) -> int:
    options.output = None if options.output == "-" else options.output
    if options.to != "text" and not (options.output or options.json or programs_of(options.files)[0].is_alone):
        raise ArgumentError(f"--to {options.to} of several programs needs a folder", hint="name it with --output")

    if options.to == "proto" and not (options.output or options.json):
        check_binary_output()

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        data = _converted(program.path, options)
        if options.output is not None:
            path = program.output(options.output, _SUFFIXES[options.to])
            write_whole(path, data)
            return 0, {"output": str(path), "bytes": len(data)}
        if not options.json:
            write_bytes(data)
            return 0, {}
        return 0, {options.to: _as_json(data, options.to)}

    return run_batch(options, work, titled=options.output is None)


def _converted(path: str, options: argparse.Namespace) -> bytes:
    module = load(path)
    if options.to == "json":
        from xlakit.formats.hlo_proto import module_to_json

        return module_to_json(module).encode()
    return module.to_text(**text_options(options)).encode() if options.to == "text" else module.to_proto()


def _as_json(data: bytes, form: str) -> Any:
    """What was converted as a value in JSON: a proto in base64, as protobuf writes bytes in JSON."""
    if form == "proto":
        return base64.b64encode(data).decode()
    return json.loads(data) if form == "json" else data.decode()
