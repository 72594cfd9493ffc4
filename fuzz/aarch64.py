"""``python -m fuzz.aarch64``: runs tests and nets with machine code for AArch64 under qemu's user emulation.

An environment is made once, in ``--root``: Debian's Python for arm64 and what it needs, unpacked from its packages, and
the wheels of what xlakit and its tests need. In it run the tests of kernels, loops, elementary functions and scalars,
and then the nets ``compiled`` and ``specials`` for ``--seconds`` each. It takes Debian or Ubuntu with ``apt-get``,
``dpkg-deb`` and ``qemu-aarch64-static`` (package ``qemu-user-static``)::

    python -m fuzz.aarch64
    python -m fuzz.aarch64 --tests math --tests kernels/lapack --each 2 --seconds 0
    python -m fuzz.aarch64 --tests scalars --net forms --net convolutions --seconds 120

With ``--each`` a test runs with so many of its parameters, spread over them, instead of all.
An emulated processor is some twenty times slower than this one, so a whole run takes hours; its memory order is that of
the machine below, so that nothing is shown of weak memory order. Processes that a test starts are not emulated, unless
the system has qemu registered for binaries of AArch64 (``binfmt_misc``). The exit status is 1 where something failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from fuzz.support.numbered import command

_EMULATOR = "qemu-aarch64-static"
_TESTS = ("kernels", "loops", "math", "scalars")
_NETS = ("compiled", "specials")
# Debian's packages, whose dependencies bring the libraries that Python is linked with; wheels bring their own.
_PACKAGES = ("python3.11", "libgomp1", "libstdc++6")
_WHEELS = ("numpy>=2.1", "ml_dtypes>=0.5.3", "protobuf>=5.26", "scipy>=1.14", "llvmlite>=0.50")
_FOR_TESTS = ("pytest>=8.3", "mpmath>=1.3")
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
_TREE = Path(__file__).parents[1]


def pytest_addoption(parser: Any) -> None:
    """The option of pytest with this module as a plugin, in the emulated process."""
    parser.addoption("--each", type=int, default=0)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave a function's tests with so many of its parameters, spread over them."""
    most = config.getoption("--each")
    functions: defaultdict[str, list[Any]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    items[:] = [item for tests in functions.values() for item in (spread(tests, most) if most else tests)]


def spread(tests: Sequence[Any], most: int) -> list[Any]:
    """One test of each of ``most`` parts of equal length: in each one place further, so that all parameters vary."""
    count = min(most, len(tests))
    starts = [part * len(tests) // count for part in range(count + 1)]
    return [tests[a + part % (b - a)] for part, (a, b) in enumerate(pairwise(starts))]


def make(root: Path) -> None:
    """Make the environment, if it is not there."""
    system, packages = root / "system", root / "packages"
    if not (system / "usr" / "bin" / "python3.11").exists():
        _unpack(root, system)
    if not (packages / "pytest").exists():
        platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
        command = [*_pip(), "install", "--quiet", "--target", str(packages), "--only-binary=:all:", *platforms]
        subprocess.run([*command, "--python-version", "3.11", *_WHEELS, *_FOR_TESTS], check=True)


def _unpack(root: Path, system: Path) -> None:
    """Unpack Debian's packages, without touching what is installed here."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State": str(root / "state"),
        "Dir::State::status": str(root / "status"),
        "Dir::Cache": str(root / "cache"),
        "Debug::NoLocking": "1",
    }
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "--download-only", "--no-install-recommends", "-y", *_PACKAGES], check=True)
    for package in sorted((root / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(system)], check=True)


def _pip() -> list[str]:
    """A pip that runs here: this environment's, or the system's."""
    own = [sys.executable, "-m", "pip"]
    known = subprocess.run([*own, "--version"], check=False, capture_output=True).returncode == 0
    return own if known else [shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3", "-m", "pip"]


def emulated(root: Path, arguments: Sequence[str]) -> int:
    """Run Python on AArch64 with these arguments; gives its exit status."""
    system = root / "system"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{_TREE}:{_TREE / 'tests'}:{root / 'packages'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XLAKIT_CACHE_DIR": str(root / "compiled"),
    }
    command = [_EMULATOR, "-L", str(system), str(system / "usr" / "bin" / "python3.11"), *arguments]
    return subprocess.run(command, check=False, env=environment, cwd=_TREE).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz.aarch64", __doc__)
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "xlakit-aarch64"
    parser.add_argument("--root", type=Path, default=folder, help=f"where the environment is ({folder})")
    parser.add_argument("--tests", action="append", default=[], help="of tests/cpu; kernels, loops, math and scalars")
    parser.add_argument("--each", type=int, default=0, help="the most tests of a function with parameters (all)")
    parser.add_argument(
        "--net", action="append", default=[], help="of fuzz, one with programs by numbers; compiled and specials"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="for each of the nets (300)")
    parser.add_argument("--seed", type=int, default=0, help="what the nets' programs are made from (0)")
    options = parser.parse_args(arguments)
    if sysconfig.get_platform().endswith("aarch64"):
        parser.error("this machine is one: run the tests and nets as they are")
    if shutil.which(_EMULATOR) is None:
        parser.error(f"there is no {_EMULATOR} here; Debian has it in the package qemu-user-static")
    make(options.root)
    tests = [str(_TREE / "tests" / "cpu" / name) for name in options.tests or _TESTS]
    plugins = ["-p", "no:cacheprovider", "-p", "fuzz.aarch64"]
    failed = emulated(options.root, ["-m", "pytest", "-q", *plugins, "--each", str(options.each), *tests]) != 0
    for net in options.net or _NETS if options.seconds else ():
        budget = ["--seed", str(options.seed), "--seconds", f"{options.seconds:.0f}"]
        failed = emulated(options.root, ["-m", f"fuzz.{net}", *budget]) != 0 or failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
