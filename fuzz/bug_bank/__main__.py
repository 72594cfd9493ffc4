"""The command: each fault is put back in a copy of the tree, in which the nets run."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def copy_of_the_tree(folder: Path) -> None:
    """Copy the working tree to a folder: the files of ``_FOLDERS`` that git tracks or does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *_FOLDERS]
    listed = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (_ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / name, target)


def look_for(bug: Bug, nets: Mapping[Net, float], seed: int, enough: int) -> dict[str, Found | None]:
    """How each net finds a fault; None for nets that do not. After ``enough`` nets have, the others do not run."""
    found: dict[str, Found | None] = {}
    # A net that was stopped may leave a process that still writes to the cache.
    with tempfile.TemporaryDirectory(prefix="bug-bank-", ignore_cleanup_errors=True) as name:
        tree = Path(name)
        copy_of_the_tree(tree)
        bug.put_back(tree)
        # Machine code of right programs must not be found in the cache, nor wrong code be left in it.
        os.environ["XLAKIT_CACHE_DIR"] = str(tree / "cache")
        for net, seconds in sorted(nets.items(), key=lambda each: each[0].name != bug.net):
            made = run(net, seed, seconds, name, stop=True)
            found[net.name] = made if made.fault else None
            said = f"{made.seconds:6.1f} s  {made.fault[:400]}" if made.fault else "     -"
            print(f"  {net.name:14} {said}", flush=True)
            if sum(f is not None for f in found.values()) >= enough:
                break
    return found


def table(results: Mapping[str, Mapping[str, Found | None]], nets: Sequence[Net]) -> str:
    """Seconds until each fault was found by each net; a dash where it was not, nothing where the net did not run."""
    names = [net.name for net in nets]
    lines = ["| fault | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for bug, found in results.items():
        cells = [_cell(found, name) for name in names]
        lines.append(f"| {bug} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(found: Mapping[str, Found | None], name: str) -> str:
    made = found.get(name)
    return f"{made.seconds:.0f}" if made is not None else "-" if name in found else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.bug_bank", about)
    parser.add_argument("--bug", action="append", default=[], choices=[b.name for b in BUGS], help="this one alone")
    parser.add_argument("--net", action="append", default=[], choices=[n.name for n in NETS], help="this one alone")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"for all nets together ({_SECONDS:.0f})")
    parser.add_argument("--seed", type=int, help="what programs are made from; a new one by default")
    parser.add_argument("--enough", type=int, default=2, help="by how many nets a fault is to be found (2)")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 30) if options.seed is None else options.seed
    nets = shares(chosen(options.net), options.seconds)
    results: dict[str, dict[str, Found | None]] = {}
    for bug in BUGS:
        if options.bug and bug.name not in options.bug:
            continue
        print(f"{bug.name} ({bug.commit}): {bug.what}", flush=True)
        if bug.needs and not has_feature(bug.needs):
            print(f"  this processor has no {bug.needs}, without which the fault cannot be met")
            continue
        results[bug.name] = look_for(bug, nets, seed, options.enough)
    print(table(results, list(nets)))
    missed = [name for name, found in results.items() if not any(found.values())]
    print(f"{len(results)} faults, {len(missed)} found by no net (seed {seed}): {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
