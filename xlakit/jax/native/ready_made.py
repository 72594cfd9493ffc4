"""``python -m xlakit.jax.native.ready_made FOLDER``: makes the machine code that comes with the package in a folder.

setup.py calls it, in an environment that has what compiles, and not JAX.
"""

from __future__ import annotations

import sys
from pathlib import Path

from xlakit import options, target
from xlakit.cpu.runtime.library import compiled_runtime, runtime_variant
from xlakit.jax.native.library import compiled_functions, variant_of
from xlakit.machine_code import identification, ready_made


def main(folder: Path) -> None:
    """Make the runtime, JAX's functions, and what identifies a processor, if this is a system that has it."""
    # Imported here: they use the native functions, as all of the plugin does.
    from xlakit.jax.slots import SLOTS

    slots = tuple(SLOTS)
    with options.compiling(options.DEFAULT, cpu=target.lowest_level()):
        made = {runtime_variant(): compiled_runtime(), variant_of(slots): compiled_functions(slots)}
        found = target.new_identification() if identification.can_be_kept() else None
    if found is not None:
        made[identification.key()] = found.entry
    for kind, entry in made.items():
        ready_made.save(folder, kind, entry)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
