"""Messages through memory that processes of one machine share: transports in one process, and one that is killed."""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from launching import ROOT

pytest.importorskip("zmq")

from xlakit.distributed.shared import rings, transport

pytestmark = pytest.mark.skipif(not transport.is_supported(), reason="no memory without a name here")


class End:
    """A transport that keeps what arrives."""

    def __init__(self):
        self.came = []
        self.lost = []
        self.transport = transport.SharedMemoryTransport(
            "127.0.0.1", lambda head, body: self.came.append((head, body)), self.lost.append
        )

    def pump_until(self, ready, seconds=20):
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, self.came[-3:]
            self.transport.pump(0.01)
            self.transport.look()


@pytest.fixture
def ends():
    made = [End(), End()]
    for own, other, rank in ((made[0], made[1], 1), (made[1], made[0], 0)):
        own.transport.connect(rank, other.transport.endpoint)
    yield made
    for end in made:
        end.came.clear()
        end.transport.close(deserted=False)


def switch(ends):
    """Send until messages go through memory."""
    first, second = ends
    while not first.transport._neighbors[1].is_switched:
        before = len(second.came)
        first.transport.send(1, b"hello")
        second.pump_until(lambda before=before: len(second.came) > before)
    second.came.clear()


def test_messages_keep_their_order_and_bytes(ends):
    first, second = ends
    rng = np.random.default_rng(0)
    limit = rings.INLINE
    sizes = [0, 1, 7, limit - 1, limit, limit + 1, 100_000, 1_000_000, *rng.integers(0, 40_000, 60).tolist()]
    bodies = [rng.integers(0, 256, size, np.uint8) for size in sizes]
    # The first go by ZeroMQ; the others do not all fit into the ring.
    for number, body in enumerate(bodies):
        first.transport.send(1, b"%d" % number, body)
        if number % 10 == 3:
            second.pump_until(lambda number=number: len(second.came) > number)
    first.transport.send(1, b"last")
    for _ in range(1000):
        first.transport.look()
        second.transport.pump(0.001)
        if second.came[-1][0] == b"last":
            break
    assert [head for head, _ in second.came] == [b"%d" % number for number in range(len(bodies))] + [b"last"]
    for (_, body), expected in zip(second.came, [*bodies, np.empty(0, np.uint8)], strict=True):
        assert np.array_equal(body, expected)
    assert first.transport._neighbors[1].is_switched


def test_a_segment_is_used_again_when_it_has_been_read(ends):
    first, second = ends
    switch(ends)
    size = 4 * rings.INLINE

    def sent(value):
        body = first.transport.new_body(size)
        body[:] = value
        first.transport.send(1, b"x", body)
        second.pump_until(lambda: second.came)
        return body.__array_interface__["data"][0], second.came.pop()[1]

    place, kept = sent(1)
    other, read = sent(2)
    assert other != place
    assert (kept == 1).all()
    assert (read == 2).all()
    view = kept[5:]
    del kept, read
    gc.collect()
    # A view of the first still refers to its segment; the other one is free.
    assert sent(3)[0] == other
    assert (view == 1).all()
    del view
    assert sent(4)[0] == place


def test_a_forked_child_does_not_free_what_its_parent_reads(ends):
    first, second = ends
    switch(ends)
    first.transport.send(1, b"x", np.full(4 * rings.INLINE, 7, np.uint8))
    second.pump_until(lambda: second.came)
    child = os.fork()
    if not child:
        second.came.clear()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    other = first.transport.new_body(4 * rings.INLINE)
    other[:] = 1
    assert (second.came.pop()[1] == 7).all()


def test_one_segment_twice_to_one_process(ends):
    first, second = ends
    switch(ends)
    body = first.transport.new_body(4 * rings.INLINE)
    body[:] = 5
    for _ in range(2):
        first.transport.send(1, b"x", body)
    second.pump_until(lambda: len(second.came) == 2)
    one, other = (body for _, body in second.came)
    assert one.__array_interface__["data"][0] != other.__array_interface__["data"][0]
    assert np.array_equal(one, other)


def test_without_memory_zeromq_goes_on(ends, monkeypatch):
    first, second = ends
    switch(ends)
    for number in range(3):
        first.transport.send(1, b"%d" % number)
    monkeypatch.setattr(first.transport._segments, "take", lambda *_: None)
    first.transport.send(1, b"3", np.ones(100_000, np.uint8))
    first.transport.send(1, b"4")
    second.pump_until(lambda: len(second.came) == 5)
    assert [head for head, _ in second.came] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("is_large", [False, True])
def test_what_waits_for_a_full_ring_comes_before_zeromq(ends, monkeypatch, is_large):
    first, second = ends
    switch(ends)
    heads = [b"%d" % number + b" " * 50_000 for number in range(20)]
    for head in heads:
        first.transport.send(1, head)
    assert first.transport._neighbors[1].ring.has_waiting
    # A message that no ring takes, or for whose body there is no memory.
    heads += [b"large" * 100_000 if is_large else b"small", b"after it"]
    monkeypatch.setattr(first.transport._segments, "take", lambda *_: None)
    first.transport.send(1, heads[-2], None if is_large else np.ones(100_000, np.uint8))
    first.transport.send(1, heads[-1])
    for _ in range(1000):
        first.transport.look()
        second.transport.pump(0.001)
        if len(second.came) == len(heads):
            break
    assert [head for head, _ in second.came] == heads


def test_free_segments_above_the_limit_are_given_up(ends):
    first, second = ends
    switch(ends)
    first.transport._segments._limit = 1 << 20
    for number in range(12):
        first.transport.send(1, b"x", np.full(300_000 + 40_000 * number, number, np.uint8))
        second.pump_until(lambda: second.came)
        assert (second.came.pop()[1] == number).all()
    source = next(iter(second.transport._sources.values()))
    assert first.transport._segments._bytes < 2 << 20
    assert sum(memory.size for memory in source.segments.values()) < 2 << 20


def test_offers_of_strangers_are_dropped(ends):
    first, second = ends
    theirs = json.loads(second.transport.endpoint)
    offer = json.dumps({**json.loads(first.transport.endpoint), "ring": 0, "receiver": 0}).encode()
    first.transport._inner.send(1, transport._OFFER + bytes(16) + offer)
    switch(ends)
    assert theirs["secret"] != bytes(16).hex()
    assert len(second.transport._sources) == 1


_KILLED = """
import os, signal, sys, time
import numpy as np
from xlakit.distributed.shared.transport import SharedMemoryTransport
came = []
own = SharedMemoryTransport("127.0.0.1", lambda head, body: came.append(head), lambda rank: None)
print(own.endpoint, flush=True)
own.connect(0, sys.stdin.readline().strip())
while not own._neighbors[0].ring.is_accepted:
    own.pump(0.01)
own.send(0, b"data", np.full(3_000_000, 7, np.uint8))
while not came:
    own.pump(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _mapped():
    return Path("/proc/self/maps").read_text().count("memfd:xlakit")


def test_nothing_is_left_of_a_process_that_is_killed():
    gc.collect()
    before, names = _mapped(), set(os.listdir("/dev/shm"))
    own = End()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        endpoint = process.stdout.readline().strip()
        process.stdin.write(own.transport.endpoint + "\n")
        process.stdin.flush()
        own.transport.connect(1, endpoint)
        own.pump_until(lambda: own.came)
        own.transport.send(1, b"thanks")
        assert process.wait(20) == -9
    ((_, body),) = own.came
    own.pump_until(lambda: own.lost == [1])
    # What it has sent is still there.
    assert (body == 7).all()
    own.came.clear()
    own.transport.pump(0.01)
    del body
    own.transport.close(deserted=True)
    own.transport = None
    gc.collect()
    assert _mapped() == before
    assert not [name for name in set(os.listdir("/dev/shm")) - names if "xlakit" in name]
