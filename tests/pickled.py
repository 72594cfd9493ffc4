"""What a worker process of a pool does with pickled values."""

import os

import numpy as np

import xlakit as xla


def called(executable, *arguments):
    """The process, and the result of a program there."""
    if isinstance(executable, xla.LoadedExecutable):
        (result,) = executable.execute_replicated([arguments])
    else:
        result = executable(*arguments)
    return os.getpid(), np.asarray(result)


def text_of(module):
    """A module as text, from another process."""
    module.verify()
    return os.getpid(), module.to_text()


def client_of(first, second):
    """Whether two executables came to the same client."""
    return first.client is second.client, first.client.device_count(), [d.id for d in second.local_devices()]


def fail(shape):
    """Raise an error with all that it can say."""
    raise xla.ShapeError("it is a test", operation="add", shapes=[shape], hint="none")


def parse(text):
    """Read a text that is no HLO."""
    return xla.HloModule.from_text(text)
