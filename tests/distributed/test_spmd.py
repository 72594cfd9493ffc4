"""Programs over all collectives give on several processes what they give on one, to the bit."""

import pickle

import numpy as np
import pytest
import spmd_programs
from launching import HERE, launch, needs_mpi

pytestmark = needs_mpi


def gathered(folder, ranks, reduction, backends):
    """What all processes have found."""
    done = launch(ranks, HERE / "spmd_worker.py", folder, reduction, *backends, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    found = {}
    for rank in range(ranks):
        found.update(pickle.loads((folder / f"{rank}.pickle").read_bytes()))
    return found


def expected(backend, name):
    return [
        [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves] for leaves in spmd_programs.run(name, backend)
    ]


@pytest.mark.parametrize(("ranks", "backends"), [(4, ["interpreter", "addresses"]), (2, ["interpreter", "cpu"])])
def test_the_bits_are_those_of_one_process(tmp_path, ranks, backends):
    found = gathered(tmp_path, ranks, "ordered", backends)
    for backend in backends:
        for name in spmd_programs.names(backend):
            for device, leaves in enumerate(expected(backend, name)):
                assert found[backend, name, device] == leaves, f"{name} on device {device}, {backend}"


def test_any_order_changes_floating_point_sums_a_little_and_nothing_else(tmp_path):
    # Two devices in each process: these are combined first, which changes the order.
    found = gathered(tmp_path, 2, "any", ["interpreter"])
    for name in spmd_programs.PROGRAMS:
        for device, leaves in enumerate(expected("interpreter", name)):
            for (kind, _, one), (other_kind, _, other) in zip(found["interpreter", name, device], leaves, strict=True):
                assert kind == other_kind
                if kind == "<f4":
                    np.testing.assert_allclose(*(np.frombuffer(b, kind) for b in (one, other)), rtol=1e-4)
                else:
                    assert one == other


def test_generated_programs_agree():
    done = launch(2, "-m", "fuzz.ranks", "--count", 6, "--seed", 2, "--backend", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "6 programs on 2 processes: 0 failures" in done.stdout
