"""What a process does first in which JAX runs on xlakit, in a module of its own name, so that the process finds it."""

import os
import sys


def start():
    os.environ["JAX_PLATFORMS"] = "xlakit"
    os.environ["XLAKIT_DEVICES"] = "2"
    _initialize()


def start_as_cpu():
    # Another test of the process that starts this one may have chosen a platform.
    os.environ.pop("JAX_PLATFORMS", None)
    os.environ["XLAKIT_AS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    _initialize()


def _initialize():
    # Also where the package's entry points are not installed.
    from xlakit.jax import initialize

    initialize()


def start_asynchronous():
    os.environ["XLAKIT_ASYNC"] = "1"
    start_as_cpu()


def registered():
    """The state of the plugin."""
    from xlakit.jax.plugin import _registered

    ((state, _),) = _registered.values()
    return state


def loaded_program(name):
    """The last program of a name."""
    return [p for p in registered().programs.values() if p.name == name][-1]


def asynchronous_process(forks, program):
    """Run a program's text in a process where every call that may run later does, on two devices."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "XLAKIT_AS": "cpu", "XLAKIT_ASYNC": "1", "PYTHONPATH": path}
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    environment.pop("JAX_PLATFORMS", None)
    return forks.run(program, environment=environment)


_FORK_AND_EXIT = """
import os
pending = slow(8 * tests.COUNT, x)
child = os.fork()
if not child:
    try:
        np.asarray(pending)
    except Exception as error:
        print(str(error), flush=True)
    print(np.asarray(slow(1, x))[5], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(np.asarray(pending)[5])
# What a handler at the exit saves is there.
kept.append(slow(tests.COUNT, x))
"""


def assert_fork_and_exit(forks, setup, result):
    """The process forks, and then ends, while a program runs whose elements are ``result``.

    setup: a program that makes ``slow``, its argument ``x``, and a handler at the exit that prints what is kept.
    """
    done = asynchronous_process(forks, setup + _FORK_AND_EXIT)
    lines = done.stdout.splitlines()
    assert "the process was forked while the program ran" in lines[0], done.stderr
    assert lines[1:] == [result, result, f"saved {result}"], done.stderr
