"""The allocator: blocks are reused, and no more is kept than allowed."""

import gc
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from native_programs import run_scratch

from xlakit.cpu.runtime import runtime
from xlakit.cpu.runtime.call import allocate_array
from xlakit.errors import ArgumentError
from xlakit.settings import kept_bytes

MEGABYTE = 1 << 20


def call(name, *arguments):
    return runtime().call(f"xlakit_memory_{name}", *arguments)


@pytest.fixture(autouse=True)
def _empty_cache():
    gc.collect()
    call("trim")
    yield
    call("trim")


@pytest.fixture
def limit():
    before = call("limit", 10 * MEGABYTE)
    yield 10 * MEGABYTE
    call("limit", before)


@pytest.mark.parametrize("bytes", [0, 1, 63, 64, 65, 80, 81, 1000, 4096, 10**6, 10**6 + 1, 2**20, 3 * 2**20, 10**7])
def test_blocks_are_aligned_apart_and_large_enough(bytes):
    allocate, release = (
        (lambda n: runtime().call("xlakit_allocate", n)),
        (lambda p: runtime().call("xlakit_release", p)),
    )
    blocks = [allocate(bytes) for _ in range(5)]
    assert all(block % 64 == 0 for block in blocks)
    assert all(abs(a - b) >= bytes for a in blocks for b in blocks if a != b)
    assert len(set(blocks)) == 5
    for block in blocks:
        release(block)
    again = [allocate(bytes) for _ in range(5)]
    assert len(set(again) & set(blocks)) >= 4
    for block in again:
        release(block)


def test_too_much_memory_is_null():
    assert runtime().call("xlakit_allocate", 1 << 46) == 0
    assert runtime().call("xlakit_allocate", 1 << 60) == 0
    assert runtime().call("xlakit_allocate", -1) == 0
    runtime().call("xlakit_release", 0)


def test_slack_is_at_most_a_quarter():
    for bytes in np.unique(np.geomspace(64, 1 << 30, 300).astype(int)):
        before = call("held")
        block = runtime().call("xlakit_allocate", int(bytes))
        assert bytes <= call("held") - before <= bytes * 1.25 + 64
        runtime().call("xlakit_release", block)
        call("trim")
        assert call("held") == before


def test_results_reuse_their_pages():
    first = allocate_array((1000, 1000), np.dtype(np.float32))
    place = first.ctypes.data
    view = first[10:, ::2]
    del first
    other = allocate_array((1000, 1000), np.dtype(np.float32))
    assert other.ctypes.data != place
    del view
    assert allocate_array((1000, 1000), np.dtype(np.float32)).ctypes.data == place


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.bool_, ml_dtypes.bfloat16, ml_dtypes.int4])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (2, 0, 5), (1, 1, 1, 7)])
def test_results_are_ordinary_arrays(shape, dtype):
    array = allocate_array(shape, np.dtype(dtype))
    assert type(array) is np.ndarray
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.base is None
    flags = array.flags
    assert flags.c_contiguous
    assert flags.aligned
    assert flags.writeable
    assert flags.owndata
    del flags
    array[...] = 1
    array.resize((100,))
    array[...] = 0
    assert array.ctypes.data % 64 == 0
    assert not array.any()


def test_no_more_than_the_limit_is_kept(limit):
    arrays = [allocate_array((3 * MEGABYTE,), np.dtype(np.int8)) for _ in range(8)]
    held = call("held")
    assert held >= 24 * MEGABYTE
    del arrays
    assert call("cached") <= limit
    assert call("held") <= held - 14 * MEGABYTE
    # A block that is too large by itself is not kept, and does not drive the others out.
    cached = call("cached")
    allocate_array((20 * MEGABYTE,), np.dtype(np.int8))
    assert call("cached") == cached
    # Another size finds its place.
    place = allocate_array((5 * MEGABYTE,), np.dtype(np.int8)).ctypes.data
    assert allocate_array((5 * MEGABYTE,), np.dtype(np.int8)).ctypes.data == place


def test_no_leak():
    for _ in range(3):
        [allocate_array((n,), np.dtype(np.int8)) for n in (1, 10**3, 10**5, 10**7)]
    held = call("held")
    for _ in range(1000):
        [allocate_array((n,), np.dtype(np.int8)) for n in (1, 10**3, 10**5, 10**7)]
    run_scratch(5000, 10_000)
    assert call("held") <= held + 10_000


def test_a_thread_gives_its_blocks_back_when_it_ends():
    def work():
        arrays = [allocate_array((100_000,), np.dtype(np.int8)) for _ in range(20)]
        del arrays

    held = call("held")
    for _ in range(10):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    # ``join`` does not wait for the very end of a thread.
    assert call("held") <= held + 5 * 20 * 120_000
    time.sleep(0.1)
    call("trim")
    assert call("held") <= held


def test_threads_that_free_what_others_made():
    made, failures = [], []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(300):
            array = allocate_array((int(random.integers(1, 3_000_000)),), np.dtype(np.int8))
            array[:: max(1, array.size // 10)] = seed
            made.append((array, seed))
            if len(made) > 20:
                other, mark = made.pop(0)
                if not (other[:: max(1, other.size // 10)] == mark).all():
                    failures.append(mark)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_limit_by_environment(monkeypatch):
    monkeypatch.setenv("XLAKIT_KEPT_BYTES", "12345")
    assert kept_bytes() == 12345
    monkeypatch.setenv("XLAKIT_KEPT_BYTES", "3m")
    assert kept_bytes() == 3 << 20
    monkeypatch.setenv("XLAKIT_KEPT_BYTES", "1 GiB")
    with pytest.raises(ArgumentError, match="not a number of bytes"):
        kept_bytes()
    monkeypatch.delenv("XLAKIT_KEPT_BYTES")
    assert 0 < kept_bytes() <= 1 << 30
