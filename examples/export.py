"""Write the programs of ``networks.py`` and ``kernels.py`` as HLO text, one file each, beside this script.

    python examples/export.py [--check] [NAME ...]

Needs JAX. The text is what JAX hands to XLA, before any optimization: with every constant in full, and with the
source lines of these files in the metadata. The same files give the same text.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import kernels  # noqa: F401  (enters its programs)
import networks  # noqa: F401
from jaxlib import _hlo
from registry import PROGRAMS, Program


def hlo_text(name: str, program: Program) -> str:
    """The unoptimized HLO of a program, ending in a newline."""
    # What other programs traced before would keep their source lines.
    jax.clear_caches()
    # Without the folder, so that the text does not depend on where the repository lies.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    with jax.enable_x64(program.x64):
        # The module is named after the function, and a function cannot be called `while`.
        program.function.__name__ = name
        lowered = jax.jit(program.function).trace(*program.arguments).lower(lowering_platforms=(program.platform,))
        module = lowered.compiler_ir("hlo").get_hlo_module()
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    options.print_percent = False
    options.include_layout_in_shapes = True
    text = module.to_string(options).rstrip() + "\n"
    if "{...}" in text:
        raise SystemExit(f"{name}: a constant was left out of the text")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Export the example programs as HLO text.")
    known = ", ".join(sorted(PROGRAMS))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all by default; known: {known}")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is not up to date")
    arguments = parser.parse_args()
    names = arguments.names or sorted(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    stale = 0
    for name in names:
        path = Path(__file__).parent / "hlo" / f"{name}.hlo"
        text = hlo_text(name, PROGRAMS[name])
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
            print(f"{path.name}: {text.count(chr(10))} lines, {len(text) / 1024:.0f} KiB")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale += 1
            print(f"{path.name} is not what the program exports now")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
