"""The verb ``xlakit check`` of the command line: its options, and the call of its tool."""

from __future__ import annotations

import argparse
from typing import Any

from xlakit.errors import ArgumentError
from xlakit.tools.commands.batch import Program, add_batch, run_batch
from xlakit.tools.commands.shared import Commands, add_command, add_lints, counted, lint_names, print_error_line, read


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "check", "parse, verify and lint programs")
    add_batch(parser)
    add_lints(parser)
    parser.add_argument("--warnings-as-errors", action="store_true", help="a warning makes the exit status 1")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.check import check
    from xlakit.tools.lint.linter import chosen

    enable, disable = lint_names(options)
    try:
        # A wrong name is reported once, before any file is read.
        chosen(enable, disable)
    except ArgumentError as error:
        print_error_line(f"xlakit: {error}")
        return 2

    def work(program: Program) -> tuple[int, dict[str, Any]]:
        path = program.path
        data, name = read(path)
        report = check(data, name, enable=enable, disable=disable)
        if not options.json:
            for message in report.messages():
                print_error_line(message)
        module = report.module
        if module is None:
            if not options.json:
                print_error_line(f"xlakit: {path}: {counted(len(report.faults), 'fault')}")
            return 1, report.to_json()
        if not options.json:
            computations = counted(len(module.computations), "computation")
            instructions = counted(module.instruction_count(), "instruction")
            warnings = f", {counted(len(report.warnings), 'warning')}" if report.warnings else ""
            print(f"{path}: {module.name} is well formed: {computations}, {instructions}{warnings}")
        return int(bool(report.warnings) and options.warnings_as_errors), report.to_json()

    return run_batch(options, work)
