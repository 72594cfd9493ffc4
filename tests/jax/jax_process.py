"""What a process does first in which JAX runs on xlakit, in a module of its own name, so that the process finds it."""

import os


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
