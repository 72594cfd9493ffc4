"""A pytest plugin for proofs.jax_tests: writes down each test's outcome as it ends, so that a crash loses only one.

Each line of the file that JAX_RESULTS names is JSON: the test, its outcome (``begun``, ``passed``, ``failed``,
``skipped``), and what was said.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

_PATH = Path(os.environ.get("JAX_RESULTS", os.devnull))
_MOST_CHARACTERS = 2000


def _write(test: str, outcome: str, text: str = "") -> None:
    with _PATH.open("a") as file:
        file.write(json.dumps([test, outcome, text[:_MOST_CHARACTERS]]) + "\n")


def pytest_configure(config: Any) -> None:
    """Have JAX know the platform, also where the package's entry points are not installed."""
    from xlakit.jax import initialize

    initialize()
    if os.environ.get("JAX_AS_CPU"):
        from jax._src import test_util

        # What tests are skipped, and how exact the others are, goes by this name.
        test_util.device_under_test = lambda: "cpu"


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Take a sample, where JAX_SAMPLE says of how many: the same for each platform."""
    count = int(os.environ.get("JAX_SAMPLE") or 0)
    if 0 < count < len(items):
        items[:] = random.Random(0).sample(items, count)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note which test runs, for the case that it never ends."""
    _write(nodeid.partition("::")[2], "begun")


def pytest_runtest_logreport(report: Any) -> None:
    """Note how it ended; of its three parts only what is more than a pass."""
    test = report.nodeid.partition("::")[2]
    if report.when == "call" and report.passed:
        _write(test, "passed")
    elif report.skipped:
        _write(test, "skipped", str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr))
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _write(test, "failed", str(crash.message if crash is not None else report.longrepr))
