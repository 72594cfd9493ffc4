"""The client of the tests of jaxlib's names."""

import pytest

from xlakit.compat import xla_client as xc


@pytest.fixture(scope="module")
def client(request):
    """A client for the tests of a file, with as many devices as its ``DEVICES`` says, or by default one."""
    return xc.make_cpu_client(num_devices=getattr(request.module, "DEVICES", None))
