"""Types of LLVM: each is one object."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from xlakit.cpu.llvm import F64, I1, I8, PTR, VOID, Module, integer, types, vector
from xlakit.errors import InternalError


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


def test_vectors_of_bits_are_not_kept_in_memory():
    fn = Module("m").function("f", VOID, [PTR])
    (pointer,) = fn.parameters
    for kept in (lambda: fn.load(vector(I1, 4), pointer), lambda: fn.store(fn.constant(vector(I1, 4), 0), pointer)):
        with pytest.raises(InternalError, match="a vector <4 x i1> in memory"):
            kept()
    fn.store(fn.load(I1, pointer), pointer)
    fn.store(fn.load(vector(I8, 4), pointer), pointer)
