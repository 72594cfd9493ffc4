"""The command: each fault is put back in a copy of the tree, in which the nets run."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.bug_bank import __doc__ as about
from fuzz.bug_bank.bug import Bug
from fuzz.bug_bank.bugs import BUGS
from fuzz.nets import NETS, Found, Net, chosen, run, shares
from fuzz.support.numbered import command
from xlakit.target import has_feature

_ROOT = Path(__file__).parents[2]
# The packages that nets import, and the folder in which JAX looks for plugins that are not installed.
_FOLDERS = ("xlakit", "fuzz", "jax_plugins")
# The time that .ci/run gives to all nets together.
_SECONDS = 240.0


class Trial(NamedTuple):
    """The seconds that a net has; where ``programs`` is told, it makes so many programs, however long they take."""

    seconds: float
    programs: int | None = None


def copy_of_the_tree(folder: Path) -> None:
    """Copy the working tree to a folder: the files of ``_FOLDERS`` that git tracks or does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *_FOLDERS]
    listed = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (_ROOT / name).is_file():
            # Byte code stands for a source of the same time; without it each process compiles for seconds.
            for path in (name, cache_from_source(name)):
                if (_ROOT / path).is_file():
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(_ROOT / path, folder / path)


def look_for(
    bug: Bug, trials: Mapping[Net, Trial], seed: int, enough: int, found: dict[str, Found | None]
) -> Iterator[None]:
    """Add how each net finds a fault; None for nets that do not. After ``enough`` nets have, the others do not run.

    It goes on behind each net, those that the bank names for the fault before the others. Nets that ``found`` tells of
    already do not run again.
    """
    order = {name: place for place, name in enumerate(bug.nets)}
    left = sorted((n for n in trials if n.name not in found), key=lambda net: order.get(net.name, len(order)))
    if not left or _times(found) >= enough:
        return
    # A net that was stopped may leave a process that still writes to the cache.
    with tempfile.TemporaryDirectory(prefix="bug-bank-", ignore_cleanup_errors=True) as name:
        tree = Path(name)
        copy_of_the_tree(tree)
        bug.put_back(tree)
        # Machine code of right programs must not be found in the cache, nor wrong code be left in it.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["XLAKIT_CACHE_DIR"] = str(tree / "cache")
        for net in left:
            if _times(found) >= enough:
                break
            trial = trials[net]
            made = run(net, seed, trial.seconds, name, count=trial.programs, stop=True)
            found[net.name] = made if made.fault else None
            said = f"{made.seconds:6.1f} s  {made.fault[:400]}" if made.fault else "     -"
            print(f"  {net.name:14} {said}", flush=True)
            yield


def _times(found: Mapping[str, Found | None]) -> int:
    """By how many nets a fault was found."""
    return sum(made is not None for made in found.values())


def table(results: Mapping[str, Mapping[str, Found | None]]) -> str:
    """For each fault by how many nets it was found, after how many seconds by each, and which nets did not find it."""
    lines = ["| fault | nets | found, after seconds | not found |", "|---|---|---|---|"]
    for bug, found in results.items():
        by = [f"{net} {made.seconds:.0f}" for net, made in found.items() if made]
        lines.append(
            f"| {bug} | {len(by)} | {', '.join(by)} | {', '.join(n for n, made in found.items() if not made)} |"
        )
    return "\n".join(lines)


def trials(nets: Sequence[Net], seconds: float, counts: str) -> dict[Net, Trial]:
    """What each net has: its share of the time, or as many programs as an output of ``fuzz.nets`` tells of."""
    load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)) if counts else 1.0
    return {net: Trial(share * load, _told(net, counts)) for net, share in shares(nets, seconds).items()}


def _told(net: Net, counts: str) -> int | None:
    found = re.search(rf"^(?:.* )?{net.name} +([1-9]\d*) programs", counts, re.MULTILINE)
    # Those that it measures are but a part of the programs that it makes.
    return int(found.group(1)) if found and net.command[0] != "fuzz.compile_time" else None


def _kept(path: Path | None) -> dict[str, dict[str, Found | None]]:
    if path is None or not path.exists():
        return {}
    told: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return {bug: {net: made and Found(**made) for net, made in found.items()} for bug, found in told.items()}


def _keep(path: Path | None, results: Mapping[str, Mapping[str, Found | None]]) -> None:
    if path is not None:
        told = {bug: {n: made and asdict(made) for n, made in found.items()} for bug, found in results.items()}
        path.write_text(json.dumps(told, indent=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.bug_bank", about)
    parser.add_argument("--bug", action="append", default=[], choices=[b.name for b in BUGS], help="this one alone")
    parser.add_argument("--net", action="append", default=[], choices=[n.name for n in NETS], help="this one alone")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"for all nets together ({_SECONDS:.0f})")
    parser.add_argument("--seed", type=int, help="what programs are made from; a new one by default")
    parser.add_argument("--enough", type=int, default=2, help="by how many nets a fault is to be found (2)")
    parser.add_argument("--as-in", type=Path, help="so many programs as in an output of fuzz.nets, whatever the time")
    parser.add_argument("--own", action="store_true", help="those nets alone that the bank tells of for each fault")
    parser.add_argument("--keep", type=Path, help="a file of what was found: what it tells of is not run again")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    given = trials(chosen(options.net), options.seconds, options.as_in.read_text() if options.as_in else "")
    results = _kept(options.keep)
    asked = [bug for bug in BUGS if not options.bug or bug.name in options.bug]
    for bug in asked:
        print(f"{bug.name} ({bug.commit}): {bug.what}", flush=True)
        if bug.needs and not has_feature(bug.needs):
            print(f"  this processor has no {bug.needs}, without which the fault cannot be met")
            continue
        own = {net: trial for net, trial in given.items() if net.name in bug.nets or not options.own}
        for _ in look_for(bug, own, seed, options.enough, results.setdefault(bug.name, {})):
            _keep(options.keep, results)
    print(table(results))
    missed = [bug.name for bug in asked if bug.name in results and not any(results[bug.name].values())]
    print(f"{len(asked)} faults, {len(missed)} found by no net (seed {seed}): {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
