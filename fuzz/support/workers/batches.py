"""A batch of programs in a new process: the first fault that it prints, or how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

# Options that are in force for this process are not what is tested.
_OPTIONS = ("XLAKIT_TUNE", "XLAKIT_PLAIN", "XLAKIT_VERIFY", "XLAKIT_SANITIZE", "XLAKIT_AS", "XLAKIT_CACHE")


def fault_of_worker(name: str, arguments: Sequence[str], environment: Mapping[str, str], seconds: float) -> str:
    """The first fault that a worker of this folder prints, or how its process ended; "" if nothing is wrong.

    environment: what the process has beside this one's environment, and beside JAX's platform xlakit.
    """
    command = [sys.executable, "-m", f"fuzz.support.workers.{name}", *arguments]
    others = {name: value for name, value in os.environ.items() if name not in _OPTIONS}
    everything = {**others, "JAX_PLATFORMS": "xlakit", **environment}
    try:
        done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not done in {seconds:.0f} s"
    if done.stdout:
        return done.stdout.splitlines()[0]
    return f"ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}" if done.returncode else ""
