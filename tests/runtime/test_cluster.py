"""Clusters: which process has which devices, and the contexts of their programs."""

import pytest

import xlakit as xla
from xlakit.errors import ArgumentError
from xlakit.link import Link
from xlakit.runtime.cluster import Cluster


class Connected:
    """Connections that only note whose devices a program has."""

    timeout = 7.0
    link = Link(alpha=1_000.0)

    def __init__(self):
        self.ranks = None

    def on(self, ranks):
        self.ranks = ranks
        return self


def test_devices_are_numbered_by_process():
    clusters = [Cluster(index, (2, 1, 3)) for index in range(3)]
    assert [list(c.local_devices) for c in clusters] == [[0, 1], [2], [3, 4, 5]]
    assert [clusters[0].process_of(device) for device in range(6)] == [0, 0, 1, 2, 2, 2]
    assert {(c.process_count, c.device_count) for c in clusters} == {(3, 6)}


def test_a_context_has_the_network_of_all_devices_and_its_timeout():
    network = Connected()
    context = Cluster(1, (2, 1), network).new_execution_context()
    assert (context.timeout, network.ranks) == (7, [0, 0, 1])
    assert context.network.link == network.link
    assert list(context.network.local_devices(3)) == [2]
    assert list(context.network.local_devices(1)) == [0]
    with pytest.raises(ArgumentError, match="for 2 devices, 2 processes"):
        context.network.local_devices(2)


def test_a_cluster_of_one_process_needs_no_network():
    cluster = Cluster(0, [2])
    assert cluster.new_execution_context().network is None
    with xla.Client(distributed=cluster) as client:
        assert client.device_count() == 2
