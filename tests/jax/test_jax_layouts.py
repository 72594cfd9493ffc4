"""Arrays of JAX in layouts other than major to minor: what programs make of them, and how they leave JAX."""

import itertools

import numpy as np

TYPES = ("float32", "bool", "int4", "int8", "bfloat16", "float64", "complex64", "complex128")
SIZES = ((2, 3), (3, 1, 2), (2, 3, 1, 4), (3,), (2, 3, 2), (0, 2), (4, 3, 2), ())


def laid_out(values, order):
    import jax
    from jax.experimental.layout import Format, Layout

    return jax.device_put(values, Format(Layout(order), jax.sharding.SingleDeviceSharding(jax.devices()[0])))


def random(rng, sizes, kind):
    import jax.numpy as jnp

    values = rng.integers(-7, 8, sizes)
    return np.asarray(values if kind != "bool" else values % 2, jnp.dtype(kind))


def check_every_order():
    import jax
    from jax.experimental.layout import Format, Layout

    rng = np.random.default_rng(0)
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with jax.enable_x64(True):
        for number, sizes in enumerate(SIZES):
            orders = list(itertools.permutations(range(len(sizes))))
            order, other = orders[(2 * number + 1) % len(orders)], orders[3 * number % len(orders)]
            given = random(rng, sizes, TYPES[number])
            x = laid_out(given, order)
            assert x.format.layout.major_to_minor == order
            np.testing.assert_array_equal(np.asarray(x), given)
            moved = jax.jit(lambda x: (x, x.T, x.ravel()), out_shardings=(Format(Layout(other), here),) * 2 + (None,))
            made = moved(x)
            assert all(y.format.layout.major_to_minor == other for y in made[:2])
            for y, wanted in zip(made, (given, given.T, given.ravel()), strict=True):
                np.testing.assert_array_equal(np.asarray(y), wanted)


def check_ways_out():
    """Views have the array's order; copies, other devices and files keep the values."""
    import pickle

    import jax

    given = np.float32([[1, 2, 3], [4, 5, 6]])
    x = laid_out(given, (1, 0))
    assert np.from_dlpack(x).strides == (4, 8)
    for array in (x.copy(), jax.device_put(x, jax.devices()[1]), pickle.loads(pickle.dumps(x)), np.from_dlpack(x)):
        np.testing.assert_array_equal(np.asarray(array), given)
    assert x[1, 2] == 6
    assert x.sum(0).tolist() == [5, 7, 9]


def check_automatic_layouts():
    import jax
    import jax.numpy as jnp
    from jax.experimental.layout import Format, Layout

    def program(x, y):
        return -x.T * 2, jnp.transpose(x + 1, (1, 2, 0)), y @ y.T, 3.0

    auto = Format(Layout.AUTO)
    x, y = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.ones((2, 3), np.float32)
    compiled = jax.jit(program, in_shardings=auto, out_shardings=auto).lower(x, y).compile()
    taken = [f.layout.major_to_minor for f in compiled.input_formats[0]]
    made = [f.layout.major_to_minor for f in compiled.output_formats]
    assert (taken, made) == ([(0, 1, 2), (0, 1)], [(2, 1, 0), (2, 0, 1), (0, 1), ()])
    for value, wanted in zip(compiled(x, y), program(x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(value), wanted)


def check_other_ways_of_running():
    """Python's callbacks, donated memory, files, and devices that share the work."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.layout import Format, Layout
    from jax.experimental.serialize_executable import deserialize_and_load, serialize
    from jax.sharding import NamedSharding, PartitionSpec

    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = laid_out(given, (1, 0))

    @jax.jit
    def called(x):
        return jax.pure_callback(lambda a: np.asarray(a) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * 2

    np.testing.assert_array_equal(np.asarray(called(x)), (given + 1) * 2)

    double = jax.jit(lambda x: x * 2, in_shardings=x.format, out_shardings=x.format, donate_argnums=0)
    compiled = double.lower(x).compile()
    loaded = deserialize_and_load(*serialize(compiled), execution_devices=jax.devices()[:1])
    for run in (compiled, loaded):
        x = laid_out(given, (1, 0))
        y = run(x)
        assert x.is_deleted()
        assert y.format.layout.major_to_minor == (1, 0)
        np.testing.assert_array_equal(np.asarray(y), given * 2)

    mesh = jax.make_mesh((2,), ("x",))
    split = Format(Layout((1, 0)), NamedSharding(mesh, PartitionSpec(None, "x")))
    parts = jax.device_put(given, split)
    assert parts.addressable_shards[0].data.format.layout.major_to_minor == (1, 0)
    both = jax.jit(lambda x: (x @ jnp.ones((4, 2)), x.T), out_shardings=(None, None))(parts)
    np.testing.assert_array_equal(np.asarray(both[0]), given @ np.ones((4, 2)))
    np.testing.assert_array_equal(np.asarray(both[1]), given.T)


def check_mutable_arrays():
    """JAX says the layouts of what they hold, numbers' too."""
    import jax
    import jax.numpy as jnp

    for given in (1.5, np.float32([1, 2]), np.ones((2, 3), np.float32)):

        def through(x):
            held = jax.new_ref(x)
            # It takes what it closes over as an argument, and gives it back.
            return jax.jit(lambda: jnp.sin(held[...]))()

        np.testing.assert_allclose(np.asarray(through(jnp.asarray(given))), np.sin(given), rtol=1e-6)


def check_errors():
    import jax
    from jax.experimental.layout import Format, Layout

    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    x = laid_out(np.ones((2, 3), np.float32), (1, 0))
    compiled = jax.jit(lambda x: x + 1).lower(np.ones((2, 3), np.float32)).compile()
    for ask, expected in (
        (lambda: compiled(x), "layout"),
        # The same without JAX's own check.
        (lambda: compiled.runtime_executable().execute_sharded([x]), "another layout"),
        (lambda: jax.device_put(x, Format(Layout((0, 1), ((2, 2),)), here)), "tiled"),
    ):
        try:
            ask()
        except Exception as error:
            assert expected in str(error), error
        else:
            raise AssertionError(expected)


def test_every_order(on_xlakit):
    on_xlakit(check_every_order)


def test_ways_out(on_xlakit):
    on_xlakit(check_ways_out)


def test_automatic_layouts(on_xlakit):
    on_xlakit(check_automatic_layouts)


def test_other_ways_of_running(on_xlakit):
    on_xlakit(check_other_ways_of_running)


def test_mutable_arrays(on_xlakit):
    on_xlakit(check_mutable_arrays)


def test_errors(on_xlakit):
    on_xlakit(check_errors)
