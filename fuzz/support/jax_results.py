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
from pathlib import Path
from typing import Any

import pytest

_PATH = Path(os.environ.get("JAX_RESULTS", os.devnull))
_MOST_CHARACTERS = 2000
_began: dict[str, float] = {}


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

    The sample is the same for each platform. What is known is not run again.
    """
    count = int(os.environ.get("JAX_SAMPLE") or 0)
    if "JAX_NAMES" in os.environ:
        names = set(json.loads(Path(os.environ["JAX_NAMES"]).read_text()))
        items[:] = [item for item in items if _name(item.nodeid) in names]
    elif 0 < count < len(items):
        items[:] = random.Random(int(os.environ.get("JAX_SEED") or 0)).sample(items, count)
    write(_PATH, "", "found", str(len(items)))
    known = {test for test, (outcome, _) in read(_PATH).items() if outcome != "begun"}
    items[:] = [item for item in items if _name(item.nodeid) not in known]


def _name(nodeid: str) -> str:
    return nodeid.partition("::")[2]


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
