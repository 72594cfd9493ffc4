"""Programs that jaxlib has partitioned: their gathered operands and scattered sums go in steps, with the same bits."""

import json
import os

import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling
from xlakit.passes.core.framework import PassContext
from xlakit.passes.pipeline import run_pipeline

PARTITIONS = 4
# Prints for each program what jaxlib's CPU compiles it to.
COMPILING = """
import json
import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
rows, columns = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P(None, "x"))

def scattered(h, v):
    return lax.psum_scatter(h @ v, "x", scatter_dimension=0, tiled=True)

def gathered(x, w):
    return jax.nn.relu(x @ w)

def both(x, w, v):
    def split(x, w, v):
        return scattered(jax.nn.relu(lax.all_gather(x, "x", tiled=True) @ w), v)
    return jax.shard_map(split, mesh=mesh, in_specs=(P("x"), P(None, "x"), P("x")), out_specs=P("x"))(x, w, v)

x, w, h, v = (jax.ShapeDtypeStruct(s, "float32") for s in ((64, 48), (48, 512), (64, 512), (512, 48)))
spread = jax.shard_map(scattered, mesh=mesh, in_specs=(P(None, "x"), P("x")), out_specs=P("x"))
programs = {
    "gathered": (jax.jit(gathered, in_shardings=(rows, columns), out_shardings=columns), (x, w)),
    "scattered": (jax.jit(spread), (h, v)),
    "both": (jax.jit(both), (x, w, v)),
}
print(json.dumps({name: f.lower(*shapes).compile().as_text() for name, (f, shapes) in programs.items()}))
"""


@pytest.fixture(scope="module")
def texts(forks):
    environment = {
        **os.environ,
        "XLAKIT_AS": "",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={PARTITIONS}",
    }
    done = forks.run(COMPILING, environment=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize(
    ("name", "gone", "dots"),
    [
        ("gathered", {"all-gather"}, 4),
        ("scattered", {"reduce-scatter"}, 4),
        ("both", {"all-gather", "reduce-scatter"}, 8),
    ],
)
def test_products_of_partitioned_programs(texts, name, gone, dots, backend):
    # A fusion for a kernel of XLA's own computes what a plain one does, and is not inlined.
    whole = xla.HloModule.from_text(texts[name].replace("kind=kCustom", "kind=kLoop"))
    assert whole.num_partitions == PARTITIONS
    assert gone <= {i.opcode for i in whole.entry.instructions}
    with compiling(knobs={"collective_matmul.when": 2}):
        made = run_pipeline(whole, ["inline-calls", "collective-matmul"], context=PassContext(check=True))
    opcodes = [i.opcode for i in made.entry.instructions]
    assert not gone & set(opcodes)
    assert opcodes.count("dot") == dots
    rng = np.random.default_rng(dots)
    shapes = [p.shape.dimensions for p in whole.entry.parameters]
    # Small whole numbers: every order of a sum gives the same bits.
    values = [[rng.integers(-4, 5, s).astype(np.float32) for s in shapes] for _ in range(PARTITIONS)]
    expected = xla.compile(whole, backend="interpreter").execute_replicated(values)
    actual = xla.compile(made, backend=backend).execute_replicated(values)
    for a, b in zip(expected, actual, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert len({np.asarray(a).tobytes() for a in expected}) == PARTITIONS
