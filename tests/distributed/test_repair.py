"""Communicators after failures: they are used again, as long as what has begun there can be brought to its end."""

from launching import HERE, launch, needs_mpi

pytestmark = needs_mpi


def test_failures_use_up_no_communicators():
    done = launch(3, HERE / "repair_worker.py", 8)
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))
    expected = [
        f"rank {rank}: {said}" for rank in range(3) for said in ("24 failures, 1 communicators", "then 2 communicators")
    ]
    assert lines == expected
