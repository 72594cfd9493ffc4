"""``import xlakit.compat.install`` in processes of their own, with jaxlib and without."""

import subprocess
import sys

import pytest

USE = """
from jaxlib import xla_client
import jaxlib.xla_extension
builder = xla_client.XlaBuilder("sum")
one = xla_client.ops.Constant(builder, 1.5)
xla_client.ops.Add(one, one)
client = xla_client.make_cpu_client()
(result,) = xla_client.execute_with_python_values(client.compile(builder.build()), [], client)
assert result == 3.0
assert jaxlib.xla_extension is xla_client._xla
from jaxlib.xla_extension.ops import Add
from jaxlib.xla_extension.profiler import TraceMe
import jaxlib.xla_extension.pytree as pytree
assert (Add, TraceMe, pytree) == (xla_client.ops.Add, xla_client.profiler.TraceMe, xla_client._xla.pytree)
from jaxlib.weakref_lru_cache import weakref_lru_cache
assert weakref_lru_cache(lambda: None, lambda key: 7)(client) == 7
import importlib.util, pickle
import jaxlib.version
assert jaxlib.__version__ == jaxlib.version.__version__
assert jaxlib.version.__version_info__[0] == int(jaxlib.__version__[0])
for name in ("jaxlib.xla_client", "jaxlib.xla_extension"):
    assert importlib.util.find_spec(name) is not None and importlib.import_module(name).Shape is xla_client.Shape
assert pickle.loads(pickle.dumps(xla_client.Shape)) is xla_client.Shape
for statement in ("import jaxlib.nothing", "from jaxlib import nothing", "from jaxlib.xla_extension import nothing"):
    try:
        exec(statement)
    except ImportError:
        continue
    raise AssertionError(statement)
from xla.python import xla_client as of_xla
import xla.python.xla_extension
assert of_xla is xla_client and xla.python.xla_extension is xla_client._xla
"""
WITHOUT = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.startswith("jax") else find(name, *rest)
"""
IN_JAX = """
from jax.lib import xla_client as of_jax
import jax.lib.xla_extension
assert of_jax is xla_client and jax.lib.xla_extension is xla_client._xla
import jax._src.lib
assert jax._src.lib.xla_client is not xla_client
"""
AFTER = """
import jax, xlakit.compat.install as hook
import jax.numpy as jnp
assert float(jnp.float32(2) + 1) == 3.0
hook.uninstall()
import jaxlib, sys
assert not [name for name in sys.modules if name.split(".")[0] == "xla"]
assert getattr(jax.lib, "xla_client", None) is not xla_client
assert sys.modules.get("jax.lib.xla_client") is not xla_client
assert not hasattr(getattr(jaxlib, "xla_client", None), "XlaBuilder") or "xlakit" not in jaxlib.xla_client.__file__
"""


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


VERSION = 'import jaxlib; assert (jaxlib.__version__, jaxlib.__package__) == ("0.6.0", "jaxlib")'


@pytest.mark.parametrize("before", [WITHOUT, ""], ids=["without jaxlib", "with jaxlib"])
def test_old_imports_work(before):
    restored = "importlib.util.find_spec = find\n" if before else ""
    found = run(f"{before}import xlakit.compat.install\n{restored}{USE}{VERSION if before else IN_JAX + AFTER}")
    assert found.returncode == 0, found.stderr


def test_import_of_xlakit_loads_nothing_of_it():
    uses = "import sys, xlakit; xlakit.XlaBuilder"
    found = run(f"{uses}; assert not any(name.startswith('xlakit.compat') for name in sys.modules)")
    assert found.returncode == 0, found.stderr
