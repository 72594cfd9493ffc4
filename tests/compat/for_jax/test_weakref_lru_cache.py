"""The cache of results by weak references, where threads, errors and recursion meet."""

import copy
import gc
import pickle
import threading

import pytest

from xlakit.compat import xla_client as xc

weakref_lru_cache = xc._xla.weakref_lru_cache


class Key:
    pass


def run_in_threads(count, function):
    threads = [threading.Thread(target=function, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_threads_wait_for_a_result_that_one_of_them_calculates():
    key, calls, ready = Key(), [], threading.Barrier(4)

    def calculate(_, x):
        calls.append(x)
        # The others come while this runs.
        threading.Event().wait(0.05)
        return x * 2

    cache = weakref_lru_cache(lambda: None, calculate, 100)
    results = []

    def ask(_):
        ready.wait()
        results.append([cache(key, x) for x in range(3)])

    run_in_threads(4, ask)
    assert (sorted(calls), results) == ([0, 1, 2], [[0, 2, 4]] * 4)
    assert repr(cache.cache_info()) == "WeakrefLRUCache(hits=9, misses=3, maxsize=100, currsize=3)"


def test_threads_that_need_results_of_each_other_do_not_hang():
    key, both, results = Key(), threading.Barrier(2), {}

    def ask(x):
        results[x] = cache(key, x)

    def calculate(_, x):
        # Each thread begins with one of two results, and then asks for the other's.
        me = threading.get_ident()
        if me in first:
            return x
        first.add(me)
        both.wait(10)
        return cache(key, 1 - x) + 10

    first = set()
    cache = weakref_lru_cache(lambda: None, calculate, 100)
    run_in_threads(2, ask)
    # One thread waits for the other, which would wait for it, and calculates by itself instead.
    assert sorted(results.values()) in ([10, 20], [11, 21])


def test_errors_are_not_kept():
    key, calls = Key(), []

    def fail(_, x):
        calls.append(x)
        raise ValueError("no result")

    cache = weakref_lru_cache(lambda: None, fail, 5)
    for _ in range(2):
        with pytest.raises(ValueError, match="no result"):
            cache(key, 1)
    assert calls == [1, 1]
    assert cache.cache_info().misses == 2


def test_caches_show_their_keys_and_are_not_changed():
    key = Key()
    cache = weakref_lru_cache(lambda: "context", lambda *_, **__: 1, "7")
    cache(key, 3, y=4)
    ((reference, *rest),) = cache.cache_keys()
    assert reference() is key
    assert rest == ["context", (3,), {"y": 4}]
    assert cache.cache_info().maxsize == 7
    for wrong in (lambda: setattr(cache, "name", 3), lambda: setattr(cache.cache_info(), "hits", 3)):
        with pytest.raises(AttributeError):
            wrong()
    for wrong in (lambda: pickle.dumps(cache), lambda: copy.copy(cache), type(cache), type(cache.cache_info())):
        with pytest.raises(TypeError):
            wrong()


def test_recursion():
    key = Key()
    counting = weakref_lru_cache(lambda: None, lambda k, n: 0 if not n else counting(k, n - 1) + 1, 100)
    assert counting(key, 10) == 10
    endless = weakref_lru_cache(lambda: None, lambda k, n: endless(k, n) + 1, 100)
    with pytest.raises(RecursionError, match=r"the call for .*Key.*\(1,\) asks for its own result"):
        endless(key, 1)


def test_results_of_keys_that_are_gone_are_gone():
    cache = weakref_lru_cache(lambda: None, lambda _, x: x, 2048)
    run_in_threads(4, lambda _: [cache(Key(), x) for x in range(50)])
    gc.collect()
    assert (cache.cache_info().misses, cache.cache_info().currsize, cache.cache_keys()) == (200, 0, [])


@pytest.mark.parametrize("arguments", [(None, len), (lambda: 0, None), (lambda: 0, len, None)])
def test_arguments_of_other_types(arguments):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        weakref_lru_cache(*arguments)
