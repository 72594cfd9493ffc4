"""``python -m benchmarks``: parses the arguments, runs the workloads, and prints the table."""

from __future__ import annotations

import argparse
import faulthandler
import fnmatch
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe, limit_threads

if TYPE_CHECKING:
    from benchmarks.harness import Row
    from benchmarks.program import Workload

_PEERS = "xla,jax,torch,torch-compile,numpy"
# PyTorch's compiler takes seconds for each workload, too long for a check.
_QUICK_PEERS = "xla,jax,torch,numpy"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks", description="Time xlakit against its peers."
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; compare results and time nothing")
    parser.add_argument("--only", metavar="PATTERN", help="workloads whose name matches, such as 'conv_*' or 'sum'")
    parser.add_argument("--group", help="workloads of one group")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each peer (default 15)")
    parser.add_argument("--budget", type=float, default=30, help="seconds for a row's rounds (default 30)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where report.json, .md and .png go")
    parser.add_argument(
        "--chart", type=Path, metavar="FILE.svg", help="draw xlakit's time in XLA's by group, for people in a hurry"
    )
    parser.add_argument(
        "--from",
        dest="report",
        type=Path,
        metavar="report.json",
        help="with --chart: of an earlier run, without another",
    )
    parser.add_argument("--backend", default="cpu", help="of xlakit: cpu (default), interpreter, or none")
    parser.add_argument("--peers", help=f"comma-separated (default {_PEERS}; with --quick {_QUICK_PEERS})")
    parser.add_argument("--threads", type=int, help="of each peer (default: the processors that may be used)")
    parser.add_argument("--list", action="store_true", help="list the workloads and leave")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or (options.threads is not None and options.threads < 1):
        parser.error("--rounds and --threads are at least 1")
    if options.report is not None and options.chart is None:
        parser.error("--from is for --chart")
    if options.chart is not None and options.quick:
        parser.error("--chart needs times, which --quick does not take")
    options.peers = [name.strip() for name in (options.peers or (_QUICK_PEERS if options.quick else _PEERS)).split(",")]
    unknown = [name for name in options.peers if name not in (*_PEERS.split(","), "again")]
    if unknown or "xla" not in options.peers:
        parser.error(
            f"--peers: {', '.join(unknown)} is unknown" if unknown else "--peers: xla is needed, to check with"
        )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 if every workload ran and all peers agreed, 1 if not, 2 if no workload was chosen."""
    options = parse(arguments)
    if options.report is not None:
        return _draw(json.loads(options.report.read_text(encoding="utf-8")), options.chart)
    # Before the libraries are loaded, which is why they are imported below.
    limit_threads(options.threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if "jax" in options.peers:
        # The first platform is JAX's default, on which arrays without a device are placed.
        os.environ["JAX_PLATFORMS"] = "cpu,xlakit"
    from benchmarks.workloads import GROUPS, WORKLOADS

    chosen = [w for w in WORKLOADS if _is_chosen(w, options.only, options.group)]
    if options.list:
        for group in GROUPS:
            print(f"{group}: " + ", ".join(w.name for w in chosen if w.group == group))
        return 0
    if not chosen:
        print("no workload matches; --list shows them", file=sys.stderr)
        return 2
    return _run(chosen, options)


def _is_chosen(workload: Workload, pattern: str | None, group: str | None) -> bool:
    named = pattern is None or pattern in workload.name or fnmatch.fnmatch(workload.name, pattern)
    return named and (group is None or workload.group == group)


def _run(chosen: Sequence[Workload], options: argparse.Namespace) -> int:
    from benchmarks.harness import Plan, measure_all
    from benchmarks.peers import make_peers
    from benchmarks.reports.report import Report, to_markdown, write

    machine = describe(measure=not options.quick)
    xla, xlakit, others, notes = make_peers(options.peers, options.backend, quick=options.quick)
    plan = Plan(quick=options.quick, rounds=0 if options.quick else options.rounds, budget=options.budget)
    rows: list[Row] = []
    report = Report(machine, options.backend, ["xla", *(peer.name for peer in others)], rows, notes)
    for row in measure_all(chosen, xla, xlakit, others, plan):
        rows.append(row)
        print(_progress(row, len(rows), len(chosen)), file=sys.stderr, flush=True)
    print(to_markdown(report))
    if options.output is not None:
        print("written: " + ", ".join(str(path) for path in write(report, options.output)), file=sys.stderr)
    drawn = 0 if options.chart is None else _draw(report.to_json(), options.chart)
    return max(drawn, 0 if report.ok else 1)


def _draw(report: Mapping[str, Any], path: Path) -> int:
    from benchmarks.reports.picture import picture

    try:
        path.write_text(picture(report), encoding="utf-8")
    except ValueError as error:
        print(f"no chart: {error}", file=sys.stderr)
        return 1
    print(f"written: {path}", file=sys.stderr)
    return 0


def _progress(row: Row, number: int, total: int) -> str:
    times = ", ".join(f"{name} {t.seconds * 1e3:.3g}" for name, t in row.timings.items() if t.seconds is not None)
    return f"[{number}/{total}] {row.name}: {row.status.value} {row.message or times}"


if __name__ == "__main__":
    # A crash in compiled code shows where Python was.
    faulthandler.enable()
    sys.exit(main())
