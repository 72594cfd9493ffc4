"""``python -m benchmarks.breadth``: small programs of all families, timed against XLA in turns, sorted by their ratio.

The workloads of ``python -m benchmarks`` are programs that people run. The rows here are generated instead
(:mod:`benchmarks.breadth.families`): every operation at many types, sizes, and positions of a dimension. They find
operations that are slow, or wrong, at a type or shape that no workload has.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import limit_threads

if TYPE_CHECKING:
    from benchmarks.harness import Row
    from benchmarks.program import Workload

# In programs faster than this, most of the time is the overhead of the call.
_CALL_SECONDS = 20e-6


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m benchmarks.breadth", description=__doc__)
    parser.add_argument("--family", help="families, separated by commas; all by default")
    parser.add_argument(
        "--only", metavar="PATTERN", help="rows that match a pattern with * and ?, such as 'exp * large'"
    )
    parser.add_argument("--sample", type=float, default=1.0, help="a share of the rows, drawn at random (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of that draw (default 0)")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each side (default 5)")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for a row's rounds (default 1)")
    parser.add_argument(
        "--processor-time", action="store_true", help="processor time of all threads: for a machine with other work"
    )
    parser.add_argument("--threads", type=int, help="of each side (default: the processors that may be used)")
    parser.add_argument("--above", type=float, default=0.9, help="list rows with at least this ratio (default 0.9)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there")
    parser.add_argument("--again", type=Path, metavar="FILE", help="rows that were slow in a file of --json")
    parser.add_argument("--list", action="store_true", help="list the rows and leave")
    options = parser.parse_args(arguments)
    if not 0 < options.sample <= 1 or options.rounds < 0:
        parser.error("--sample is above 0 and at most 1, --rounds at least 0")
    return options


def chosen(options: argparse.Namespace) -> list[Workload]:
    """The rows that the options ask for; raises SystemExit for a family that does not exist."""
    from benchmarks.breadth.families import FAMILIES

    families = options.family.split(",") if options.family else list(FAMILIES)
    unknown = [name for name in families if name not in FAMILIES]
    if unknown:
        raise SystemExit(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    rows = [r for name in families for r in FAMILIES[name]()]
    if options.only is not None:
        rows = [r for r in rows if fnmatch.fnmatch(r.name, options.only)]
    if options.again is not None:
        earlier = json.loads(options.again.read_text(encoding="utf-8"))
        slow = {(r["family"], r["name"]) for r in earlier if (r["ratio"] or 0) >= options.above or r["status"] != "ok"}
        rows = [r for r in rows if (r.group, r.name) in slow]
    draw = random.Random(options.seed)
    return [r for r in rows if options.sample == 1 or draw.random() < options.sample]


def measured(rows: Sequence[Workload], options: argparse.Namespace) -> Iterator[Row]:
    """Each row, as soon as it is measured."""
    import jax

    from benchmarks.harness import Plan, measure
    from benchmarks.peers import XlakitPeer, XlaPeer

    clock = time.process_time if options.processor_time else time.perf_counter
    plan = Plan(rounds=options.rounds, budget=options.budget, clock=clock)
    xla, xlakit = XlaPeer(), XlakitPeer("cpu", times_cache=False)
    for workload in rows:
        with jax.enable_x64(workload.x64):
            yield measure(workload, xla, xlakit, (), plan)
        gc.collect()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 if all rows ran and agreed, 1 if not, 2 if there are none."""
    options = parse(arguments)
    limit_threads(options.threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    rows = chosen(options)
    if options.list:
        print("\n".join(f"{r.group}: {r.name}" for r in rows))
        return 0
    if not rows:
        print("no row matches; --list shows them", file=sys.stderr)
        return 2
    found: list[Row] = []
    for made in measured(rows, options):
        found.append(made)
        print(f"[{len(found)}/{len(rows)}] {_line(made)}", file=sys.stderr, flush=True)
    print(summary(found, options.above))
    if options.json is not None:
        options.json.write_text(json.dumps([_plain(r) for r in found], indent=1) + "\n", encoding="utf-8")
    return 0 if all(r.status.value == "ok" for r in found) else 1


def summary(rows: Sequence[Row], above: float) -> str:
    """The rows that are slow or wrong, the operations by their means, and the means of the families."""
    from benchmarks.harness import geometric_mean

    timed = sorted((r for r in rows if r.ratio_to_xla is not None), key=lambda r: -(r.ratio_to_xla or 0))
    lines = [_line(r) for r in rows if r.status.value != "ok"]
    lines += [_line(r) for r in timed if (r.ratio_to_xla or 0) >= above]
    lines += ["", "operations by their mean"]
    by_name: dict[str, list[Row]] = {}
    for made in timed:
        by_name.setdefault(f"{made.group} {re.split(' ', made.name)[0]}", []).append(made)
    means = sorted(((geometric_mean(r.ratio_to_xla for r in rs) or 0, name, rs) for name, rs in by_name.items()))
    lines += [f"{mean:7.2f} {name} ({len(rs)})" for mean, name, rs in reversed(means) if mean >= above / 2]
    lines += ["", "means of families: of all rows, and of those in which XLA takes longer than a call"]
    for group in [*dict.fromkeys(r.group for r in timed), None]:
        own = [r for r in timed if group in (None, r.group)]
        long = [r for r in own if (r.seconds("xla") or 0) > _CALL_SECONDS]
        pair = [geometric_mean(r.ratio_to_xla for r in rs) for rs in (own, long)]
        texts = ["-" if mean is None else f"{mean:.3f}" for mean in pair]
        lines.append(f"{group or 'all':16} {len(own):5} rows {texts[0]}   {len(long):5} rows {texts[1]}")
    return "\n".join(lines)


def _line(row: Row) -> str:
    ratio, ours, theirs = row.ratio_to_xla, row.seconds("xlakit"), row.seconds("xla")
    if ratio is None or ours is None or theirs is None:
        return f"{row.status.value} {row.group}: {row.name}: {row.message}"
    return f"{ratio:7.2f}  {ours * 1e6:10.1f} us  xla {theirs * 1e6:10.1f} us  {row.group}: {row.name}"


def _plain(row: Row) -> dict[str, Any]:
    compiled = {peer: timing.compile_seconds for peer, timing in row.timings.items()}
    return {
        "family": row.group,
        "name": row.name,
        "status": row.status.value,
        "message": row.message,
        "ratio": row.ratio_to_xla,
        "xlakit": row.seconds("xlakit"),
        "xla": row.seconds("xla"),
        "compile": compiled,
    }


if __name__ == "__main__":
    sys.exit(main())
