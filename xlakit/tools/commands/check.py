"""``xlakit check``."""

from __future__ import annotations

import argparse

from xlakit.tools.commands.shared import Commands, add_command, add_file, counted, read, tell


def add(commands: Commands) -> None:
    """Add the verb."""
    parser = add_command(commands, "check", "parse and verify a program")
    add_file(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from xlakit.tools.check import check

    data, name = read(options.file)
    module, faults = check(data, name)
    for fault in faults:
        tell(str(fault))
    if module is None:
        tell(f"xlakit: {options.file}: {counted(len(faults), 'fault')}")
        return 1
    computations = counted(len(module.computations), "computation")
    instructions = counted(module.instruction_count(), "instruction")
    print(f"{options.file}: {module.name} is well formed: {computations}, {instructions}")
    return 0
