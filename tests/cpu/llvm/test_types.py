"""Types of LLVM: each is one object."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from xlakit.cpu.llvm import F64, integer, types, vector


@pytest.mark.parametrize("make", [lambda: vector(F64, 37), lambda: integer(37)])
def test_threads_that_make_a_type_at_once_have_the_same(make, monkeypatch):
    both = threading.Barrier(2)

    class Made(types.Type):
        def __init__(self, *arguments, **options):
            both.wait(10)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(types, "Type", Made)
    with ThreadPoolExecutor(2) as pool:
        first, second = (made.result() for made in [pool.submit(make) for _ in range(2)])
    assert first is second is make()
