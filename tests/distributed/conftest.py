"""Processes that are threads of this one."""

import threading
from functools import partial

import pytest
from launching import TOKEN


@pytest.fixture
def networks(monkeypatch, request):
    """Two networks, or as many as the parameter says."""
    pytest.importorskip("zmq")
    from xlakit.distributed.network import Network
    from xlakit.distributed.shared.transport import SharedMemoryTransport

    made = [Network(partial(SharedMemoryTransport, "127.0.0.1")) for _ in range(getattr(request, "param", 2))]
    ends = [network.endpoint for network in made]
    names = [f"process {rank} (device {rank})" for rank in range(len(made))]
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    for rank, network in enumerate(made):
        network.join(rank, ends, names, TOKEN)
    yield made
    threads = [threading.Thread(target=network.leave) for network in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
