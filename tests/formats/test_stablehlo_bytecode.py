"""StableHLO's bytecode, read without jaxlib: the module computes what the one that jaxlib makes computes."""

import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

import xlakit
from xlakit.errors import FormatError, Location, UnsupportedError
from xlakit.formats import stablehlo
from xlakit.formats.detect import load
from xlakit.formats.hlo_proto import read_module
from xlakit.formats.stablehlo.bytecode import ForeignProgram
from xlakit.formats.stablehlo.modules import read_artifact
from xlakit.tools.inputs import flatten

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
lax = pytest.importorskip("jax.lax")
mlir = pytest.importorskip("jaxlib._jax").mlir
dialect = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

VERSION = dialect.get_current_version()
RANDOM = np.random.default_rng(3)
SQUARE = RANDOM.integers(-3, 4, (4, 4)).astype(np.float32)
ROW = np.float32([0.25, -0.0, np.nan, np.inf])
WORDS = np.uint32([[1, 2, 3], [1 << 31, 77, 0]])
IMAGE = RANDOM.integers(-3, 4, (2, 6, 6, 3)).astype(np.float32)
KERNEL = RANDOM.integers(-3, 4, (3, 2, 3, 4)).astype(np.float32)
SYMMETRIC = (SQUARE @ SQUARE.T + 9 * np.eye(4)).astype(np.float32)


def loop(x):
    # What the loop never changes lies between what it does.
    def body(carry):
        n, matrix, y, other = carry
        return n + 1, matrix, jnp.tanh(matrix @ y) + other.sum(), other

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x, x[0], x[1:3]))


def nested(x):
    def row(total, y):
        return lax.fori_loop(0, 2, lambda n, t: t * 2 + y[n] + x[n, 0], total), total.sum()

    return lax.scan(row, x[0], x)


def unchanged_in_both(x):
    def body(carry):
        n, matrix, y = carry
        _, matrix, y = lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1], c[2] @ c[1]), (0, matrix, y))
        return n + 1, matrix, y + n

    return lax.while_loop(lambda carry: carry[0] < 3, body, (0, x, x[1]))


def branches(x, n):
    two = lax.cond(x.sum() > 0, lambda: x @ x, lambda: jnp.full((4, 4), 2.5))
    return lax.switch(n, [x.sum, lambda: (x * two)[0, 1], lambda: 1.5]), two


def constants():
    many = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    truths = np.arange(20) % 3 == 0
    return (
        many,
        truths,
        np.int8([[-1, 2]]),
        np.complex64([1 + 2j]),
        jnp.bfloat16(1.5),
        np.zeros((0, 3)),
        np.ones(9, bool),
        jnp.array([1, -8, 7], jnp.int4),
        jnp.array([3, 0, 2], jnp.uint2),
        jnp.array([0.5, -6], jnp.float4_e2m1fn),
    )


def accumulated(x):
    return lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 2), ((1, 0), (0, 1))), jnp.cumsum(x, 1), jnp.argmin(x, 0)


def pooled(x):
    return jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum())(x)


def indexed(x):
    n = jnp.int32([2, 0, 9])
    return x[n], x.at[n, 1].add(2.0), x.at[1].set(7), x[1:, ::2], lax.dynamic_slice(x, (n[0], n[1]), (2, 3))


def shaped(x):
    widened = jnp.broadcast_to(x[:, :1, None], (4, 3, 2)), jnp.broadcast_to(x[None, 1:2], (3, 1, 4))
    padded = lax.pad(x, 1.0, ((1, -1, 2), (0, 2, 0)))
    return widened, padded, x.T.reshape(2, 8), x[::-1], jnp.concatenate([x, x[:1]]), jnp.where(x[0, 0] > 9, x, -x)


def convolved(x, w):
    def strided(w):
        return lax.conv_general_dilated(x, w, (2, 1), ((1, 2), (0, 0)), (1, 2), (2, 1), ("NHWC", "HWIO", "NHWC"))

    return strided(w), jax.grad(lambda w: strided(w).sum())(w)


def converted(x):
    return (
        x.astype(jnp.int8),
        x.astype(bool),
        x.astype(jnp.bfloat16),
        lax.bitcast_convert_type(x, jnp.int32),
        x + 0j,
        [lax.convert_element_type(x + 2j, kind) for kind in (jnp.float32, jnp.bfloat16, jnp.int8, bool)],
        lax.clamp(0.5, x, 2.0),
    )


def elementwise(x):
    functions = (jnp.exp, jnp.log1p, jnp.sin, jnp.cbrt, jnp.sign, jnp.floor, jnp.round, lax.logistic, jnp.isfinite)
    return [function(x) for function in functions], jnp.arctan2(x, 2), x**1.5, jnp.clip(x, -1, 1), lax.rem(x, 0.3)


def composites(x):
    functions = (lax.asin, lax.acos, lax.acosh, lax.asinh, lax.atanh, lax.cosh, lax.sinh)
    real = [function(kind(x)) for function in functions for kind in (jnp.float32, jnp.float16)]
    return real, lax.erf(jnp.float16(x)), lax.top_k(x, 2)


def one_device(x):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), "x")
    split = jax.sharding.PartitionSpec("x")

    def part(x):
        sums = lax.psum(x, "x"), lax.psum_scatter(x, "x", tiled=True)
        return *sums, lax.all_gather(x, "x", tiled=True), lax.all_to_all(x, "x", 0, 0, tiled=True), lax.axis_index("x")

    x = lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, split))
    whole = jax.sharding.PartitionSpec()
    return jax.shard_map(part, mesh=mesh, in_specs=split, out_specs=(split,) * 4 + (whole,), check_vma=False)(x)


def compared(x):
    nan = x != x
    return (
        x < 1,
        nan & (x >= 0),
        lax.sort(x),
        jnp.argsort(x, stable=True),
        lax.eq(x, x),
        jnp.sort(jnp.uint8([3, 200, 1])),
    )


def bits(x):
    shifts = x << 3, x >> 1, lax.shift_right_arithmetic(x.astype(jnp.int32), 2)
    return (
        shifts,
        x ^ 5,
        ~x,
        lax.population_count(x),
        lax.clz(x),
        lax.iota(jnp.int16, 5),
        lax.broadcasted_iota(jnp.int32, (2, 3), 1),
    )


def products(x):
    batch = lax.dot_general(x.reshape(2, 2, 4), x.reshape(2, 4, 2), (((2,), (1,)), ((0,), (0,))), precision="highest")
    return batch, jnp.einsum("ij,kj->ik", x, x, preferred_element_type=jnp.float32), jnp.int8([1, 2]) @ jnp.int8([3, 4])


def several_results(x):
    return lax.reduce((x, x * 2), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,))


# Operations that JAX has for other platforms than processors.
SOLVES = """
func.func public @main(%a: tensor<4x4xf32>, %b: tensor<4x2xf32>) -> (tensor<4x4xf32>, tensor<4x2xf32>) {
  %0 = stablehlo.cholesky %a, lower = true : tensor<4x4xf32>
  %1 = "stablehlo.triangular_solve"(%0, %b) <{left_side = true, lower = true, unit_diagonal = false,
       transpose_a = #stablehlo<transpose TRANSPOSE>}> : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<4x2xf32>
}
"""

PROGRAMS = {
    loop: (SQUARE,),
    nested: (SQUARE,),
    unchanged_in_both: (SQUARE,),
    branches: (SQUARE, np.int32(2)),
    constants: (),
    accumulated: (SQUARE,),
    pooled: (IMAGE,),
    indexed: (SQUARE,),
    shaped: (SQUARE,),
    convolved: (IMAGE, KERNEL),
    converted: (SQUARE,),
    elementwise: (ROW,),
    composites: (ROW,),
    one_device: (SQUARE,),
    compared: (ROW,),
    bits: (WORDS,),
    products: (SQUARE,),
    several_results: (SQUARE,),
    jnp.fft.rfft: (ROW[:2],),
    lax.optimization_barrier: ((ROW, WORDS),),
}


def factors(x):
    many = jnp.stack([x, x + 1])
    return jnp.linalg.svd(many), jnp.linalg.qr(x), jnp.linalg.cholesky(x @ x.T), lax.linalg.eigh(many)


def called_back(x):
    jax.debug.callback(print, x)
    own = jax.ffi.ffi_call("own", (x, x[0]), has_side_effect=True, input_output_aliases={0: 0})
    named = own(x, some=np.int32(-3), more=np.uint8(255), a=True, text="words")
    return jax.pure_callback(np.sin, x[0], x[0]), named


def donated(a, b, c):
    return b + 1, a @ a, (c, a.sum())


def artifact(function, *arguments, **options):
    lowered = jax.jit(function, **options).lower(*arguments)
    if "sdy.mesh" in lowered.as_text():
        # As JAX passes it: other dialects stay.
        return dialect.serialize_portable_artifact(lowered.compiler_ir(), VERSION, True)
    return mlir.serialize_portable_artifact(lowered.as_text("stablehlo", debug_info=True), VERSION)


def by_jaxlib(data):
    computation = mlir.mlir_module_to_xla_computation(data, use_tuple_args=False, return_tuple=False)
    return read_module(computation.as_serialized_hlo_module_proto())


def check_results(data, arguments):
    ours, theirs = read_artifact(data), by_jaxlib(data)
    ours.verify()
    left, right = (flatten(xlakit.compile(m, backend="interpreter")(*arguments)) for m in (ours, theirs))
    assert list(left) == list(right)
    for name, value in right.items():
        assert left[name].dtype == value.dtype
        np.testing.assert_array_equal(left[name], value, name)


# JAX warns where complex numbers become real ones.
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_a_program_computes_the_same(function):
    check_results(artifact(function, *PROGRAMS[function]), jax.tree.leaves(PROGRAMS[function]))


def test_solves_compute_the_same():
    check_results(mlir.serialize_portable_artifact(SOLVES, "1.10.0"), (SYMMETRIC, SQUARE[:, :2]))


def test_an_artifact_is_read_without_jaxlib(monkeypatch):
    def missing():
        raise UnsupportedError("jaxlib is not installed")

    data = artifact(loop, SQUARE)
    monkeypatch.setattr(stablehlo, "_mlir", missing)
    assert stablehlo.read_stablehlo(data).entry.root.shape.is_tuple
    with pytest.raises(UnsupportedError, match="not installed"):
        stablehlo.read_stablehlo("module {}")


def test_frames_and_names_are_those_of_the_program():
    data = artifact(loop, SQUARE)
    ours, theirs = (
        {i.annotations.metadata.op_name for c in m.computations for i in c.instructions if i.annotations.metadata}
        for m in (read_artifact(data), by_jaxlib(data))
    )
    assert ours == theirs
    frames = read_artifact(data).stack_frames
    assert any(name.endswith("loop.<locals>.body") for name in frames.function_names)
    assert all(0 <= caller <= number for number, (_, caller) in enumerate(frames.stack_frames))


def calls(module):
    return {
        (i.op, i.shape, i.annotations.backend_config, own(i.annotations.frontend_attributes))
        for i in module.entry.instructions
        if i.opcode == "custom-call"
    }


def own(attributes):
    return tuple(pair for pair in attributes if not pair[0].startswith("xla.sdy."))


@pytest.mark.parametrize("function", [factors, called_back])
def test_custom_calls_are_those_of_jaxlib(function):
    data = artifact(function, SQUARE)
    assert calls(read_artifact(data)) == calls(by_jaxlib(data))


def test_donated_arguments_are_those_of_jaxlib():
    data = artifact(donated, SQUARE, ROW, WORDS, donate_argnums=(0, 1, 2))
    assert b"tf.aliasing_output" in data
    check_results(data, (SQUARE, ROW, WORDS))
    # A donor without a result of its shape.
    both = data, mlir.serialize_portable_artifact(DONOR, "1.10.0")
    for ours, theirs in ((read_artifact(data), by_jaxlib(data)) for data in both):
        assert ours.input_output_alias == theirs.input_output_alias
        assert ours.buffer_donor == theirs.buffer_donor


DONOR = """
func.func public @main(%a: tensor<4xf32> {jax.buffer_donor = true}, %b: tensor<f32> {tf.aliasing_output = 0 : i32})
    -> tensor<f32> {
  return %b : tensor<f32>
}
"""


@pytest.mark.parametrize("channel", [-1, 0, 3])
def test_channels_of_zero_and_less_are_none(channel):
    data = mlir.serialize_portable_artifact(GATHERED.replace("CHANNEL", str(channel)), "1.10.0")
    ours, theirs = read_artifact(data), by_jaxlib(data)
    ours.verify()
    found = [module.entry.root.op.channel_id for module in (ours, theirs)]
    assert found == [channel if channel > 0 else None] * 2


GATHERED = """
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%a: tensor<2xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_gather"(%a) <{
      all_gather_dim = 0 : i64,
      channel_handle = #stablehlo.channel_handle<handle = CHANNEL, type = 1>,
      replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>
    }> : (tensor<2xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


def test_what_is_not_read_is_left_to_jaxlib():
    for data, what, opcode in (
        (artifact(lax.cosh, ROW + 0j), "composite", "log-plus-one"),
        (mlir.serialize_portable_artifact(TOLERANT, "1.10.0"), "accuracy", "exponential"),
    ):
        with pytest.raises(ForeignProgram, match=what):
            read_artifact(data)
        module = stablehlo.read_stablehlo(data)
        assert opcode in {i.opcode for computation in module.computations for i in computation.instructions}


TOLERANT = """
func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.exponential %a {
      result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>
    } : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def test_damaged_bytecode_is_foreign():
    data = artifact(products, SQUARE)
    for at in range(20, len(data), len(data) // 40):
        damaged = data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :]
        with suppress(ForeignProgram):
            read_artifact(damaged)
        with pytest.raises(ForeignProgram):
            read_artifact(data[:at])


_DAMAGED = """
import sys
from xlakit.errors import FormatError
from xlakit.formats.stablehlo import read_stablehlo

data = bytes.fromhex(sys.stdin.read())
end = data.index(0)  # of the name of what has written it
try:
    read_stablehlo(data[:end] + bytes([0xFF, 0x5C]) + data[end + 1 :])
except FormatError as error:
    print(error)
"""


def test_a_damaged_producer_ends_no_process():
    data = artifact(jnp.sin, ROW)
    child = subprocess.run(
        [sys.executable, "-c", _DAMAGED], input=data.hex(), capture_output=True, text=True, timeout=300, check=False
    )
    assert child.returncode == 0, child.stderr
    assert "not StableHLO bytecode" in child.stdout


@pytest.fixture
def plain_bytecode():
    """Bytecode that is no portable artifact."""
    return stablehlo.stablehlo_bytecode(xlakit.HloModule.from_text(_PLAIN))


_PLAIN = "HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }\n"


def test_damaged_names_of_plain_bytecode_end_no_process(plain_bytecode):
    """MLIR's report of an unknown operation has its name, and jaxlib ends the process where that is not UTF-8."""
    assert load(plain_bytecode).entry.root.opcode == "negate"
    at = plain_bytecode.index(b"negate")
    with pytest.raises(FormatError, match="MLIR died of SIGABRT") as error:
        load(plain_bytecode[:at] + b"\xff" + plain_bytecode[at + 1 :], "file")
    assert error.value.location == Location("file", 1)


def test_the_fault_of_plain_bytecode_is_told(plain_bytecode):
    with pytest.raises(FormatError, match="not StableHLO bytecode"):
        load(plain_bytecode[:-40], "file")
