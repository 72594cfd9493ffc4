"""A pytest plugin for fuzz.jax_tests: writes down each test's outcome as it ends, so that a crash loses only one.

Each line of the file that JAX_RESULTS names is JSON: the test, its outcome (``begun``, ``passed``, ``failed``,
``skipped``), and what was said; of one that passed, the seconds of processor time that it took. A test whose outcome
stands there already is not run again. The line of no test, with the outcome ``found``, says how many tests there are.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

_PATH = Path(os.environ.get("JAX_RESULTS", os.devnull))
_MOST_CHARACTERS = 2000
_began: dict[str, float] = {}
_not_imported: list[str] = []


def read(path: Path) -> dict[str, tuple[str, str]]:
    """What stands in a file, by test: the last word on each."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {test: (outcome, text) for test, outcome, text in map(json.loads, lines)}


def write(path: Path, test: str, outcome: str, text: str = "") -> None:
    """Add a line to a file."""
    with path.open("a") as file:
        file.write(json.dumps([test, outcome, text[:_MOST_CHARACTERS]]) + "\n")


def pytest_configure(config: Any) -> None:
    """Have JAX know the platform, also where the package's entry points are not installed."""
    from xlakit.jax import initialize

    initialize()
    if os.environ.get("JAX_TESTED_AS_CPU"):
        from jax._src import test_util

        # What tests are skipped, and how exact the others are, goes by this name.
        test_util.device_under_test = lambda: "cpu"
        _have_devices(test_util)


def pytest_runtest_setup() -> None:
    """Undo what a conftest has said of the platform: JAX_PLATFORMS says it."""
    import jax

    jax.config.update("jax_platform_name", "")


def _have_devices(test_util: Any) -> None:
    """Have as many devices of xlakit as a file asks jaxlib's CPU for."""
    theirs = test_util.request_cpu_devices

    def request(count: int) -> None:
        os.environ["XLAKIT_DEVICES"] = str(count)
        theirs(count)

    test_util.request_cpu_devices = request


# After pytest has left out what -k does not name.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Take the tests that the file JAX_NAMES lists, or a sample, where JAX_SAMPLE says of how many.

    The sample is the same for each platform, and where JAX_TOGETHER says that several files run in one process, as many
    of each as there can be. What is known is not run again.
    """
    count = int(os.environ.get("JAX_SAMPLE") or 0)
    if "JAX_NAMES" in os.environ:
        names = set(json.loads(Path(os.environ["JAX_NAMES"]).read_text()))
        items[:] = [item for item in items if _name(item.nodeid) in names]
    elif 0 < count < len(items):
        items[:] = _sample(items, count, random.Random(int(os.environ.get("JAX_SEED") or 0)))
    write(_PATH, "", "found", str(len(items) + len(_not_imported)))
    known = {test for test, (outcome, _) in read(_PATH).items() if outcome != "begun"}
    items[:] = [item for item in items if _name(item.nodeid) not in known]


def _sample(items: list[Any], count: int, draw: random.Random) -> list[Any]:
    """So many of the items; of several files' in rounds, one of each."""
    if "JAX_TOGETHER" not in os.environ:
        return draw.sample(items, count)
    of_file: Counter[str] = Counter()
    rounds: list[tuple[int, int]] = []
    for place in draw.sample(range(len(items)), len(items)):
        file = items[place].nodeid.partition("::")[0]
        rounds.append((of_file[file], place))
        of_file[file] += 1
    # In one round they stay in the order of chance.
    rounds.sort(key=itemgetter(0))
    return [items[place] for place in sorted(place for _, place in rounds[:count])]


def pytest_collectreport(report: Any) -> None:
    """Note a file that cannot be imported, where that does not end the others."""
    if report.failed and "JAX_TOGETHER" in os.environ:
        _not_imported.append(report.nodeid)
        said = str(report.longrepr).splitlines()
        write(_PATH, report.nodeid, "failed", "\n".join(line for line in said if line.startswith("E ")) or said[-1])


def _name(nodeid: str) -> str:
    """What a test is called: its place in its file, after the file where several run in one process."""
    return nodeid if "JAX_TOGETHER" in os.environ else nodeid.partition("::")[2]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note which test runs, for the case that it never ends."""
    test = _name(nodeid)
    _began[test] = time.process_time()
    write(_PATH, test, "begun")


def pytest_runtest_logreport(report: Any) -> None:
    """Note how it ended; of its three parts only what is more than a pass.

    Pytest from version 9 reports each ``subTest`` of unittest apart, and a test as passed of which one has failed.
    """
    test = _name(report.nodeid)
    if report.failed:
        _began.pop(test, None)
        crash = getattr(report.longrepr, "reprcrash", None)
        write(_PATH, test, "failed", str(crash.message if crash is not None else report.longrepr))
    elif hasattr(report, "context"):  # of a subtest
        return
    elif report.skipped:
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        write(_PATH, test, "skipped", str(said))
    elif report.when == "call" and test in _began:
        write(_PATH, test, "passed", f"{time.process_time() - _began[test]:.1f}")
