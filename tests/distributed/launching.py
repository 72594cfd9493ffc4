"""Start tests' processes with mpiexec, or threads that stand for processes."""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

# Of the job of a test.
TOKEN = bytes(range(16))
ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# The launcher that was installed beside this Python, if there is one.
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpi4py or mpiexec is not installed: pip install 'xlakit[mpi]'",
)


def launch(ranks, *command, timeout=120, **environment):
    """Run a Python file on some processes; gives what came of it, outputs as text."""
    paths = os.pathsep.join([str(ROOT), str(HERE)])
    # Processes wait for each other with their eyes open: on few processors they must make room.
    variables = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(
        [MPIEXEC, "-n", str(ranks), sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=variables,
    )


def together(*works):
    """The results, or errors, of functions that run at once."""
    found = [None] * len(works)

    def run(number):
        try:
            found[number] = works[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found
