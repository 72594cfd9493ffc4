"""JAX on xlakit runs in a process of its own: which platform it has is fixed when it starts."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

import pytest
from jax_forks import Forks
from jax_process import start, start_as_cpu, start_asynchronous

SECONDS = 120


def pytest_generate_tests(metafunc):
    """Run a test that takes ``check`` for each function of its module whose name begins with check_."""
    if "check" in metafunc.fixturenames:
        prefix = "check_"
        checks = {n.removeprefix(prefix): f for n, f in vars(metafunc.module).items() if n.startswith(prefix)}
        metafunc.parametrize("check", checks.values(), ids=checks)


@pytest.fixture(scope="package")
def on_xlakit():
    """Call a function of a module in a process where JAX runs on two devices of xlakit; gives what it gives."""
    yield from _process(start)


@pytest.fixture(scope="package")
def as_cpu():
    """The same in a process where xlakit is JAX's platform cpu."""
    yield from _process(start_as_cpu)


@pytest.fixture(scope="package")
def asynchronously():
    """The same where every call that may run later does."""
    yield from _process(start_asynchronous)


@pytest.fixture(scope="package")
def forks():
    """Run programs that begin with ``import jax`` in processes that have imported it."""
    _ask_for_jax()
    forks = Forks()
    yield forks
    forks.close()


def _ask_for_jax():
    if find_spec("jax") is None or find_spec("jaxlib") is None:
        pytest.skip("JAX is not installed")
    from xlakit.jax.versions import VERSIONS

    jax = pytest.importorskip("jax")
    if jax.__version__ not in VERSIONS:
        pytest.skip(f"JAX is {jax.__version__}; xlakit runs programs of {', '.join(VERSIONS)}")


def _process(initializer):
    _ask_for_jax()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=initializer) as executor:
        yield lambda function, *arguments: executor.submit(function, *arguments).result(SECONDS)


@pytest.fixture(scope="session")
def native():
    """The functions in memory, which a process loads once."""
    from xlakit.jax.native.library import Native

    return Native({}, lambda status: 0)
