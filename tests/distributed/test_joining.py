"""Joining and leaving: what initialize takes, what a client of several processes offers, and thread levels of MPI."""

import importlib.util
import subprocess
import sys

import pytest
from launching import HERE, ROOT, launch, needs_mpi

import xlakit as xla
from xlakit import distributed
from xlakit.distributed import mpi


@pytest.fixture(autouse=True)
def not_launched(not_joined, monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_one_process_has_all_devices():
    cluster = distributed.initialize(devices=3)
    assert (cluster.process_index, cluster.process_count, cluster.device_count) == (0, 1, 3)
    assert cluster.local_devices == range(3)
    with xla.Client(distributed=cluster) as client:
        assert client.devices() == client.local_devices()
        assert client.device_count() == 3
    assert distributed.initialize() is cluster
    with pytest.raises(xla.ArgumentError, match="initialized with 3 devices, now 4"):
        distributed.initialize(devices=4)
    with pytest.raises(xla.ArgumentError, match="the processes have 3 devices, devices is 2"):
        xla.Client(2, distributed=cluster)


def test_arguments_are_checked():
    with pytest.raises(xla.ArgumentError, match="devices is 0"):
        distributed.initialize(devices=0)
    with pytest.raises(xla.ArgumentError, match="reduction is 'best'"):
        distributed.initialize(reduction="best")


def test_without_mpi4py_a_launched_process_is_told_what_to_install(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    find = importlib.util.find_spec
    monkeypatch.setattr(mpi.importlib.util, "find_spec", lambda name: None if name == "mpi4py" else find(name))
    with pytest.raises(xla.UnsupportedError) as caught:
        distributed.initialize()
    assert "xlakit[mpi]" in caught.value.hint


def test_mpi_is_loaded_only_by_a_launched_process():
    code = (
        "import sys, xlakit as xla; from xlakit import distributed; c = distributed.initialize(devices=2); "
        "xla.Client(distributed=c).close(); assert 'mpi4py' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@needs_mpi
def test_a_client_of_several_processes():
    done = launch(2, HERE / "client_worker.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["fine:0", "fine:1"]


@needs_mpi
@pytest.mark.parametrize("level", ["funneled", "serialized"])
def test_lower_thread_levels_do_the_same(level):
    done = launch(2, HERE / "client_worker.py", XLAKIT_MPI_THREADS=level)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["fine:0", "fine:1"]
