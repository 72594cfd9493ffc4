"""The example: its losses go down, and are the same however its devices are spread over processes."""

import re
import subprocess
import sys
from functools import cache

from launching import ROOT, launch, needs_mpi

SCRIPT = ROOT / "examples" / "data_parallel.py"
LINE = re.compile(r"(linear regression|perceptron): step +(\d+), loss (\d+\.\d+), \d+\.\d\d ms a step")


def losses(done):
    """By model and step; nothing else is printed, and that once."""
    assert done.returncode == 0, done.stderr[-3000:]
    found = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    assert all(found), done.stdout
    return [(m[1], int(m[2]), float(m[3])) for m in found]


@cache
def of_one_process():
    command = [sys.executable, SCRIPT, "--devices", "4", "--steps", "40"]
    return losses(subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT))


def test_the_losses_go_down():
    found = of_one_process()
    for model, least in (("linear regression", 1e-4), ("perceptron", 0.8)):
        falling = [loss for name, _, loss in found if name == model]
        assert len(falling) == 3
        assert falling == sorted(falling, reverse=True)
        assert falling[-1] < least * falling[0]


@needs_mpi
def test_several_processes_find_the_same_losses():
    # Two devices in each. What one device in each of four gives, test_spmd.py compares for all collectives.
    assert losses(launch(2, SCRIPT, "--devices", 4, "--steps", 40)) == of_one_process()
