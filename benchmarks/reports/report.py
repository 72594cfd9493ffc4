"""What a run found: a table to read, JSON to compute with, a chart to see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, Status, geometric_mean
from benchmarks.machine import Machine
from benchmarks.program import Bound

# Where JAX on xlakit is held against xlakit: rows of more than this, in which the price of a call does not count; and
# what counts as the same.
_LONG_SECONDS = 100e-6
_CLOSE = 1.05


@dataclass(slots=True)
class Report:
    """All rows, where they were measured, and how."""

    machine: Machine
    backend: str
    peers: list[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether xlakit ran every workload, and every peer agreed."""
        return all(row.status is Status.OK for row in self.rows)

    @property
    def timed(self) -> bool:
        """Whether anything was timed."""
        return any(row.seconds("xla") is not None for row in self.rows)

    def count(self, status: Status) -> int:
        """How many rows ended so."""
        return sum(row.status is status for row in self.rows)

    def means(self) -> list[tuple[str, int, float | None, float | None]]:
        """(group, rows timed, geometric mean of xlakit / XLA, of xlakit / best peer); the last group is all."""
        groups = dict.fromkeys(row.group for row in self.rows)
        named = [(group, [r for r in self.rows if r.group == group]) for group in groups] + [("all", self.rows)]
        return [
            (
                name,
                sum(r.ratio_to_xla is not None for r in rows),
                geometric_mean(r.ratio_to_xla for r in rows),
                geometric_mean(r.ratio_to_best for r in rows),
            )
            for name, rows in named
        ]

    def through_jax(self) -> tuple[int, int, float] | None:
        """(rows of more than 100 us, those that take at most 5 % more through JAX, geometric mean of that ratio)."""
        return self._near(lambda row: row.ratio_through_jax)

    def to_itself(self) -> tuple[int, int, float] | None:
        """The same of xlakit, measured once more."""
        return self._near(lambda row: row.ratio_to_itself)

    def _near(self, ratio_of: Callable[[Row], float | None]) -> tuple[int, int, float] | None:
        found = [ratio_of(row) for row in self.rows if (row.seconds("xlakit") or 0) > _LONG_SECONDS]
        ratios = [ratio for ratio in found if ratio is not None]
        mean = geometric_mean(ratios)
        return None if mean is None else (len(ratios), sum(ratio <= _CLOSE for ratio in ratios), mean)

    def percent(self, row: Row) -> float | None:
        """How much of the machine's bandwidth, or of its rate of matrix products, xlakit uses in a row."""
        seconds = row.seconds("xlakit")
        work, rate = {
            Bound.MEMORY: (row.traffic, self.machine.bandwidth),
            Bound.ARITHMETIC: (row.flops, self.machine.flops),
            Bound.NOTHING: (0, 0.0),
        }[row.bound]
        return 100 * work / seconds / rate if seconds and work and rate else None

    def to_json(self) -> dict[str, Any]:
        """Everything, in seconds and bytes."""
        return {
            "machine": asdict(self.machine),
            "backend": self.backend,
            "peers": self.peers,
            "notes": self.notes,
            "means": [
                {"group": group, "rows": count, "ratio_to_xla": to_xla, "ratio_to_best": to_best}
                for group, count, to_xla, to_best in self.means()
            ],
            "through_jax": _near_json(self.through_jax()),
            "to_itself": _near_json(self.to_itself()),
            "rows": [self._row_json(row) for row in self.rows],
        }

    def _row_json(self, row: Row) -> dict[str, Any]:
        plain = asdict(row)
        return plain | {
            "bound": row.bound.value,
            "status": row.status.value,
            "ratio_to_xla": row.ratio_to_xla,
            "ratio_to_best": row.ratio_to_best,
            "ratio_through_jax": row.ratio_through_jax,
            "ratio_to_itself": row.ratio_to_itself,
            "percent": self.percent(row),
        }


def to_markdown(report: Report) -> str:
    """The report as a page."""
    parts = [
        "# xlakit and its peers",
        _machine_lines(report),
        _means_table(report) if report.timed else "",
        _near_lines(report),
        _rows_table(report) if report.timed else "",
        _faults(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _means_table(report: Report) -> str:
    rows = [[group, str(count), _ratio(x), _ratio(best)] for group, count, x, best in report.means()]
    return _table(["group", "rows", "xlakit / XLA", "xlakit / best peer"], rows)


def _near_json(found: tuple[int, int, float] | None) -> dict[str, Any] | None:
    return found and dict(zip(("rows", "close", "ratio"), found, strict=True))


def _near_lines(report: Report) -> str:
    long, more = _LONG_SECONDS * 1e6, 100 * (_CLOSE - 1)
    lines = [
        f"{name}: of {found[0]} rows in which xlakit takes more than {long:.0f} us, {found[1]} take at most "
        f"{more:.0f} % more than xlakit; the geometric mean of {name} / xlakit is {found[2]:.3f}."
        for name, found in (("JAX on xlakit", report.through_jax()), ("xlakit once more", report.to_itself()))
        if found is not None
    ]
    return "\n".join(lines)


def _machine_lines(report: Report) -> str:
    machine = report.machine
    lines = [
        f"- {machine.processor}, {machine.system}, {machine.threads} threads for each peer",
        "- " + ", ".join(f"{name} {number}" for name, number in machine.versions.items()),
        f"- backend {report.backend}; peers {', '.join(report.peers)}",
    ]
    if machine.bandwidth:
        rates = f"{machine.bandwidth / 1e9:.1f} GB/s (read and written), sgemm {machine.flops / 1e9:.0f} Gflop/s"
        lines.append(f"- copies {rates}; load before the run {machine.load:.1f}")
    counts = ", ".join(f"{report.count(status)} {status.value}" for status in Status)
    lines.append(f"- {len(report.rows)} workloads: {counts}")
    return "\n".join(lines + [f"- {note}" for note in report.notes])


def _rows_table(report: Report) -> str:
    peers = ["xlakit", *report.peers]
    head = ["workload", *(f"{peer} ms" for peer in peers), "/ XLA", "/ best", "% of machine", *_jax_head(report)]
    head += ["compile ms", "cached ms", "XLA compile ms", "MB", "XLA MB"]
    return _table(head, [_cells(report, row, peers) for row in report.rows])


def _jax_head(report: Report) -> list[str]:
    return ["jax / xlakit"] if "jax" in report.peers else []


def _cells(report: Report, row: Row, peers: Sequence[str]) -> list[str]:
    ours, xla = (row.timings.get(name) for name in ("xlakit", "xla"))
    name = row.name if row.status is Status.OK else f"{row.name} **{row.status.value}**"
    percent = report.percent(row)
    return [
        name,
        *(_milliseconds(row.seconds(peer)) for peer in peers),
        _ratio(row.ratio_to_xla),
        _ratio(row.ratio_to_best),
        "" if percent is None else f"{percent:.0f}",
        *([_ratio(row.ratio_through_jax)] if _jax_head(report) else []),
        _milliseconds(ours and ours.compile_seconds),
        _milliseconds(ours and ours.cached_seconds),
        _milliseconds(xla and xla.compile_seconds),
        _megabytes(ours and ours.memory),
        _megabytes(xla and xla.memory),
    ]


def _faults(report: Report) -> str:
    lines = [f"- {row.name}, {row.status.value}: {row.message}" for row in report.rows if row.message]
    lines += [f"- {row.name}: {note}" for row in report.rows for note in row.notes]
    return "\n".join(["## Faults and notes", "", *lines]) if lines else ""


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    value = seconds * 1e3
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.2f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rows = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *rows]) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
        return "| " + " | ".join(padded) + " |"

    return "\n".join([line(head), line(rule), *(line(row) for row in rows)])


def write(report: Report, folder: Path) -> list[Path]:
    """Write report.json, report.md and, if anything was timed, report.png; gives what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "report.json", folder / "report.md"]
    files[0].write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    files[1].write_text(to_markdown(report), encoding="utf-8")
    if any(row.ratio_to_xla is not None for row in report.rows):
        from benchmarks.reports.chart import draw

        files.append(folder / "report.png")
        draw(report.rows, files[-1])
    return files
