"""``python -m benchmarks.sharded_bytes``: counts the bytes that devices send in programs partitioned by xlakit and XLA.

The programs of :mod:`benchmarks.programs.sharded` and the modules beside it are compiled for eight devices, or fewer,
by each compiler in a process of its own, and run. Results are compared with those of one device, and their shardings
with the other compiler's. The bytes that one device sends are counted in ``compile().as_text()``, by
:mod:`xlakit.passes.analysis.traffic`. A geometric mean needs numbers above 0: it is of
(1 + bytes).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.choice import with_parts

DEVICES = 8
# A program that sends more than this times the bytes of XLA's is marked.
_TOLERANCE = 1.05


def child_environment(platform: str) -> dict[str, str]:
    """The environment of a process with eight devices of a platform."""
    return os.environ | {
        "JAX_PLATFORMS": platform,
        "XLAKIT_DEVICES": str(DEVICES),
        "JAX_NUM_CPU_DEVICES": str(DEVICES),
    }


def _child(platform: str, names: Sequence[str], folder: Path) -> dict[str, Any]:
    """The measurements of a new process on a platform: by program the bytes and number of collectives, or a fault."""
    said = folder / f"{platform}.json"
    command = [sys.executable, "-m", "benchmarks.sharded_bytes", "--child", str(said), *names]
    subprocess.run(command, env=child_environment(platform), check=True)
    return json.loads(said.read_text())


def programs() -> dict[str, Any]:
    """All programs, by name."""
    from benchmarks.programs.sharded import PROGRAMS
    from benchmarks.programs.sharded_functions import FUNCTIONS
    from benchmarks.programs.sharded_kinds import KINDS
    from benchmarks.programs.sharded_loads import LOADS
    from benchmarks.programs.sharded_methods import METHODS
    from benchmarks.programs.sharded_mixed import MIXED
    from benchmarks.programs.sharded_models import MODELS
    from benchmarks.programs.sharded_numerics import NUMERICS
    from benchmarks.programs.sharded_results import RESULTS
    from benchmarks.programs.sharded_solvers import SOLVERS
    from benchmarks.programs.sharded_steps import STEPS
    from benchmarks.programs.sharded_unequal import UNEQUAL
    from benchmarks.programs.sharded_users import USERS
    from benchmarks.programs.sharded_wider import WIDER

    known = PROGRAMS | RESULTS | KINDS | STEPS | NUMERICS | UNEQUAL | MODELS | FUNCTIONS | WIDER
    return known | USERS | METHODS | LOADS | SOLVERS | MIXED


def _mesh(program: Any, sizes: tuple[int, ...]) -> Any:
    """A mesh of these sizes with the axes of a program."""
    import jax
    from jax.sharding import AxisType

    axes = ("x", "y", "z")[: len(sizes)]
    kind = AxisType.Explicit if program.explicit else AxisType.Auto
    order = None
    if program.devices is not None and sizes == program.mesh:
        order = [jax.devices()[n] for n in program.devices]
    return jax.make_mesh(sizes, axes, axis_types=(kind,) * len(axes), devices=order)


def _alone(program: Any) -> Any:
    """The results on one device, in a mesh of size 1 with the axes that the program names."""
    import jax

    with jax.set_mesh(_mesh(program, (1,) * len(program.mesh))):
        return jax.jit(program.alone or program.function)(*program.arguments)


def compiled(name: str) -> tuple[Any, Sequence[Any]]:
    """A program, compiled for the devices of this process, and its arguments."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    program = programs()[name]
    mesh = _mesh(program, program.mesh)

    def placed(spec: Any) -> Any:
        return NamedSharding(mesh, spec)

    def is_spec(value: Any) -> bool:
        return isinstance(value, PartitionSpec)

    split = jax.tree.map(placed, program.specs, is_leaf=is_spec)
    given = [jax.device_put(a, s) for a, s in zip(program.arguments, split, strict=True)]
    said_of_results = {}
    if program.results is not None:
        said_of_results["out_shardings"] = jax.tree.map(placed, program.results, is_leaf=is_spec)
    with jax.set_mesh(mesh):
        return jax.jit(program.function, **said_of_results).lower(*given).compile(), given


def _measure(said: Path, names: Sequence[str]) -> None:
    """Compile and run the programs in this process; results and numbers go to files beside ``said``."""
    import jax
    import numpy as np

    from xlakit import HloModule
    from xlakit.passes.analysis.traffic import traffic

    found: dict[str, Any] = {}
    for name in names:
        program = programs()[name]
        try:
            executable, given = compiled(name)
            moved = traffic(HloModule.from_text(executable.as_text() or ""))
            split = jax.tree.leaves(executable(*given))
            results = [np.asarray(r) for r in split]
            alone = [np.asarray(r) for r in jax.tree.leaves(_alone(program))]
            fault = _difference(results, alone)
        except Exception as error:  # a program that a compiler refuses is a row of the table
            found[name] = {"fault": f"{type(error).__name__}: {error}"[:400]}
            continue
        found[name] = {"bytes": sum(t.total for t in moved), "count": sum(t.times for t in moved), "fault": fault}
        found[name]["parts"] = list(map(_parts, split))
    said.write_text(json.dumps(found))


def _parts(array: Any) -> str:
    """Which part of an array each device has."""
    ranges = array.sharding.devices_indices_map(array.shape)
    by_device = sorted(
        (d.id, [s.indices(n)[:2] for s, n in zip(r, array.shape, strict=True)]) for d, r in ranges.items()
    )
    return str([part for _, part in by_device])


def _difference(results: Sequence[Any], expected: Sequence[Any]) -> str:
    """How the results of eight devices differ from those of one device beyond rounding; empty if they agree."""
    import numpy as np

    for number, (a, b) in enumerate(zip(results, expected, strict=True)):
        scale = max(1e-6, float(np.abs(b).max()))
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-4, atol=2e-5 * scale):
            return f"result {number} differs by {float(np.abs(a - b).max()) / scale:.2g}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a result of ours was wrong."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.sharded_bytes", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("programs", nargs="*", help="parts of the names of programs (all)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the numbers go as JSON")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        _measure(options.child, options.programs)
        return 0
    names = with_parts(parser, options.programs, programs())
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (_child(platform, names, Path(folder)) for platform in ("xlakit", "cpu"))
    faults = _print(names, ours, theirs)
    if options.output is not None:
        options.output.write_text(json.dumps({"xlakit": ours, "xla": theirs}, indent=1) + "\n")
    return 1 if faults else 0


def _print(names: Sequence[str], ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    """Print the table; gives the number of our faults."""
    print(f"| program | xlakit: bytes | collectives | XLA: bytes | collectives | ratio |\n|{'---|' * 6}")
    ratios: list[float] = []
    more: list[str] = []
    otherwise = [n for n in names if ours[n].get("parts") != theirs[n].get("parts")]
    for name in names:
        row, other = ours[name], theirs[name]
        if "bytes" not in row or "bytes" not in other:
            print(f"| {name} | {row.get('fault', '')} | | {other.get('fault', '')} | | |")
            continue
        ratio = (1 + row["bytes"]) / (1 + other["bytes"])
        ratios.append(ratio)
        if ratio > _TOLERANCE:
            more.append(name)
        cells = (f"{row['bytes']:,.0f}", str(row["count"]), f"{other['bytes']:,.0f}", str(other["count"]))
        note = f" {row['fault']}" if row["fault"] else ""
        note += f" (XLA: {other['fault']})" if other["fault"] else ""
        print(f"| {name}{note} | {' | '.join(cells)} | {ratio:.3g} |")
    if ratios:
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        print(f"\n{len(ratios)} programs on {DEVICES} devices; geometric mean of the ratios: {mean:.3f}")
        print(f"more than {_TOLERANCE:.2f} of XLA's bytes in {len(more)}: {', '.join(more) or 'none'}")
        print(f"results split otherwise than by XLA in {len(otherwise)}: {', '.join(otherwise) or 'none'}")
    return sum(bool(row["fault"]) for row in ours.values())


if __name__ == "__main__":
    sys.exit(main())
