"""JAX's programs whose arrays are split over devices: the compiler splits them, and they give what they give whole."""

import re

import numpy as np
import pytest


def mesh_of(*sizes, explicit=False):
    import jax
    from jax.sharding import AxisType

    kind = AxisType.Explicit if explicit else AxisType.Auto
    return jax.make_mesh(sizes, ("x", "y")[: len(sizes)], axis_types=(kind,) * len(sizes))


def put(value, mesh, *spec):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*spec)))


def agree(found, expected):
    import jax

    for actual, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=2e-6)


def collectives(function, *arguments):
    text = function.lower(*arguments).compile().as_text()
    return sorted(re.findall(r"\b(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(", text))


def numbers(*dims, seed=0):
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


def model():
    weights = {
        "table": numbers(16, 8),
        "up": numbers(8, 32, seed=1),
        "bias": numbers(32),
        "down": numbers(32, 16, seed=2),
    }
    words = np.random.default_rng(3).integers(0, 16, (8, 5)).astype(np.int32)
    return weights, words


def step(weights, words):
    import jax
    from jax import numpy as jnp

    def loss(weights):
        found = jnp.tanh(weights["table"][words] @ weights["up"] + weights["bias"]) @ weights["down"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(found), words[..., None], -1)
        return -chosen.mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def check_a_training_step_on_a_split_batch():
    import jax

    weights, words = model()
    mesh = mesh_of(2)
    run = jax.jit(step)
    arguments = {name: put(w, mesh) for name, w in weights.items()}, put(words, mesh, "x")
    value, updated = run(*arguments)
    agree((value, updated), run(weights, words))
    assert all(array.is_fully_replicated and len(array.devices()) == 2 for array in updated.values())
    # The loss and the gradient of each weight, at once.
    assert collectives(run, *arguments) == ["all-reduce"]


def check_a_training_step_on_split_weights():
    import jax
    from jax.sharding import PartitionSpec as P

    weights, words = model()
    mesh = mesh_of(1, 2)
    specs = {"table": P(), "up": P(None, "y"), "bias": P("y"), "down": P("y", None)}
    run = jax.jit(step)
    arguments = {name: put(w, mesh, *specs[name]) for name, w in weights.items()}, put(words, mesh, "x")
    value, updated = run(*arguments)
    agree((value, updated), run(weights, words))
    assert updated["up"].addressable_shards[1].data.shape == (8, 16)
    assert updated["down"].addressable_shards[1].data.shape == (16, 16)
    assert set(collectives(run, *arguments)) == {"all-reduce"}


def check_moments_are_split_as_what_they_update():
    """Adam over a split table and its tied transpose: as jaxlib has it, moments that begin whole are split at once."""
    import jax
    from jax import numpy as jnp

    weights, words = model()
    mesh = mesh_of(1, 2)
    weights = {"table": put(weights["table"], mesh, "y"), "up": put(weights["up"][:, :8], mesh, None, "y")}
    moments = jax.jit(lambda w: jax.tree.map(jnp.zeros_like, (w, w)))(weights)

    def loss(weights, words):
        found = jnp.tanh(weights["table"][words] @ weights["up"]) @ weights["table"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(found), words[..., None], -1).mean()

    def step(weights, moments, words):
        gradients = jax.grad(loss)(weights, words)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
        second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, moments[1], gradients)
        weights = jax.tree.map(lambda w, m, v: w - 0.1 * m / (jnp.sqrt(v) + 1e-3), weights, first, second)
        return weights, (first, second)

    state, expected = (weights, moments), jax.tree.map(np.asarray, (weights, moments))
    for _ in range(2):
        state, expected = jax.jit(step)(*state, put(words, mesh)), jax.jit(step)(*expected, words)
        agree(state, expected)
        for leaf in jax.tree.leaves(state[1]):
            assert not leaf.is_fully_replicated
        for name, weight in state[0].items():
            assert all(moment[name].sharding.is_equivalent_to(weight.sharding, 2) for moment in state[1])


def check_shard_map_over_one_axis_of_two():
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    x, w = numbers(4, 6), numbers(6, 8, seed=1)
    for mesh in (mesh_of(2, 1), mesh_of(1, 2)):

        @jax.jit
        @jax.shard_map(mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), axis_names={"x"})
        def total(a, w):
            return lax.psum((a @ w).sum(0), "x")

        agree(total(put(x, mesh, "x"), put(w, mesh, None, "y")), (x @ w).sum(0))


def check_arguments_of_shard_map_are_split_first():
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    mesh, x = mesh_of(2), numbers(4, 6)

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P("x")))
    def rows(a):
        return a * 2, lax.axis_index("x")[None]

    doubled, places = rows(put(x, mesh, None, "x"))
    agree(doubled, x * 2)
    assert np.asarray(places).tolist() == [0, 1]


def check_constraints_and_results():
    import jax
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh, x = mesh_of(2), numbers(4, 6)
    rows, columns = (NamedSharding(mesh, spec) for spec in (P("x"), P(None, "x")))

    def function(x):
        x = jax.lax.with_sharding_constraint(x, columns)
        return x + 1, x.T, x.sum(), jax.random.normal(jax.random.key(3), (4, 6))

    run = jax.jit(function, in_shardings=rows, out_shardings=(rows, None, None, rows))
    found = run(x)
    agree(found, jax.jit(function)(x))
    assert found[0].sharding == rows == found[3].sharding
    assert found[1].sharding.spec == P("x")
    agree([shard.data for shard in found[0].addressable_shards], [x[:2] + 1, x[2:] + 1])


def check_arrays_are_used_as_ever():
    import jax
    from jax import numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh, x = mesh_of(2), numbers(8, 6)
    a = jax.make_array_from_callback(x.shape, NamedSharding(mesh, P("x")), lambda index: x[index])
    agree(
        [a + 1, a[3], a[2:5, ::-1], a.sum(), a.max(1), a.T @ a], [x + 1, x[3], x[2:5, ::-1], x.sum(), x.max(1), x.T @ x]
    )
    agree(
        [jnp.sort(a, 0), a.at[3].set(0).sum(0), jnp.concatenate([a, a])],
        [np.sort(x, 0), np.delete(x, 3, 0).sum(0), np.r_[x, x]],
    )
    scanned = jax.jit(lambda a: jax.lax.scan(lambda c, _: (jnp.sin(c), c.sum()), a, None, length=3))(a)
    agree(scanned, (np.sin(np.sin(np.sin(x))), np.array([x.sum(), np.sin(x).sum(), np.sin(np.sin(x)).sum()])))


def check_explicit_axes():
    import jax
    from jax.sharding import PartitionSpec as P

    mesh = mesh_of(2, explicit=True)
    x, w = numbers(4, 6), numbers(6, 8, seed=1)
    with jax.set_mesh(mesh):
        a, b = jax.device_put(x, P(None, "x")), jax.device_put(w, P("x", None))
        partial = jax.jit(lambda a, b: jax.numpy.einsum("ij,jk->ik", a, b, out_sharding=P(unreduced={"x"})))(a, b)
        agree([s.data for s in partial.addressable_shards], [x[:, :3] @ w[:3], x[:, 3:] @ w[3:]])
        agree(jax.reshard(partial, P("x")), x @ w)


def check_factorizations_of_a_batch_stay_on_their_devices():
    import jax

    x = numbers(4, 3, 3)
    function = jax.jit(jax.numpy.linalg.qr)
    given = put(x, mesh_of(2), "x")
    q, r = function(given)
    assert q.sharding.is_equivalent_to(given.sharding, 3)
    assert collectives(function, given) == []
    agree(np.asarray(q) @ np.asarray(r), x)


def check_shard_alike():
    import jax
    from jax.experimental.shard_alike import shard_alike

    x, y = numbers(4, 6), numbers(4, 6, seed=1)
    given = put(x, mesh_of(2), "x")
    for function in (shard_alike, jax.jit(lambda a, b: shard_alike(a * 2, b * 2))):
        one, other = function(given, y)
        assert one.sharding.is_equivalent_to(given.sharding, 2)
        assert other.sharding.is_equivalent_to(given.sharding, 2)
    agree((one, other), (x * 2, y * 2))
    # On one device it says nothing.
    agree(jax.jit(shard_alike)(x, y), (x, y))


def check_callbacks_come_once():
    import jax

    mesh, x = mesh_of(2), numbers(4, 6)
    seen = []

    @jax.jit
    def function(x):
        jax.debug.callback(lambda value: seen.append(np.asarray(value)), x)
        return jax.pure_callback(lambda value: np.asarray(value) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    agree(function(put(x, mesh, "x")), x * 2 + 1)
    jax.effects_barrier()
    agree(seen, [x])


def check_functions_are_told_how_arrays_are_split():
    import jax
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh, told = mesh_of(2), {}

    def inspect(name, x):
        jax.debug.inspect_array_sharding(x, callback=lambda sharding: told.setdefault(name, []).append(sharding))

    @jax.jit
    def function(x):
        inspect("argument", x)
        moved = jax.lax.with_sharding_constraint(x + 1, NamedSharding(mesh, P(None, "x")))
        inspect("moved", moved)

        def body(carried, _):
            inspect("carried", carried)
            return carried * 2, None

        def part(x):
            inspect("part", x)
            return x

        carried = jax.lax.scan(body, moved, None, length=2)[0]
        return jax.shard_map(part, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(carried)

    x = numbers(4, 8)
    agree(function(put(x, mesh, "x")), (x + 1) * 4)
    wanted = {"argument": P("x"), "moved": P(None, "x"), "carried": P(None, "x"), "part": P()}
    assert set(told) == set(wanted)
    for name, spec in wanted.items():
        (found,) = told[name]
        assert found.is_equivalent_to(NamedSharding(mesh, spec), 2), name


def check_functions_split_calls():
    import jax
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh, seen = mesh_of(2), []

    @custom_partitioning
    def product(x, y):
        return x @ y, (x @ y).sum(1)

    def partition(mesh, arguments, results):
        of_x, of_y = (a.sharding for a in arguments)
        seen.append((of_x.spec, of_y.spec))
        is_summed = of_x.spec[1] is not None

        def lower(x, y):
            found = jax.lax.psum(x @ y, of_x.spec[1]) if is_summed else x @ y
            return found, found.sum(1)

        return mesh, lower, tuple(r.sharding for r in results), (of_x, of_y)

    product.def_partition(partition, sharding_rule="i j, j k -> i k, i", need_replication_factors=("k",))
    x, y = numbers(4, 6), numbers(6, 8, seed=1)
    wanted = (x @ y, (x @ y).sum(1))
    for of_x, of_y in ((("x", None), ()), ((None, "x"), ("x", None)), ((), (None, "x"))):
        found = jax.jit(product)(put(x, mesh, *of_x), put(y, mesh, *of_y))
        agree(found, wanted)
        # What its rule leaves alone is split alike in what is computed from it, too.
        assert found[0].sharding.is_equivalent_to(NamedSharding(mesh, P(of_x[:1] and of_x[0], of_y[1:] and of_y[1])), 2)
    assert seen[0] == (P("x", None), P(None, None))
    assert seen[1] == (P(None, "x"), P("x", None))

    @custom_partitioning
    def rows(x):
        return x * 2

    # It wants rows, however the operand is split, and gives rows; then it says what its program does not do.
    given = NamedSharding(mesh, P("x", None))
    rows.def_partition(lambda *_: (mesh, lambda x: x * 2, given, (given,)), sharding_rule="i j -> i j")
    agree(jax.jit(rows)(put(x, mesh, None, "x")), x * 2)
    whole = NamedSharding(mesh, P())
    rows.def_partition(lambda *_: (mesh, lambda x: x * 2, whole, (given,)), sharding_rule="i j -> i j")
    with pytest.raises(Exception, match="Mismatch in result shapes"):
        jax.jit(lambda x: rows(x) + 1)(put(x, mesh, None, "x"))


def check_users_split_calls():
    """As GSPMD's propagation does, whose calls have functions in place of a rule."""
    import jax
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh, asked = mesh_of(2), []
    by_columns = NamedSharding(mesh, P(None, "x"))

    @custom_partitioning
    def twice(x):
        return x * 2

    def partition(mesh, arguments, result):
        asked.append(result.sharding.spec)
        return mesh, lambda x: x * 2, result.sharding, (result.sharding,)

    def by_rows(mesh, result):
        return NamedSharding(mesh, P(*reversed(result.sharding.spec)))

    x = numbers(4, 6)
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        for taken in (None, by_rows):
            twice.def_partition(partition, lambda mesh, arguments, _: arguments[0].sharding, taken)
            agree(jax.jit(lambda x: twice(x) * 2, out_shardings=by_columns)(put(x, mesh)), x * 4)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert asked == [P(None, "x"), P("x", None)]


def check_donated_arrays_are_gone():
    import jax

    a = put(numbers(4, 6), mesh_of(2), "x")
    agree(jax.jit(lambda a: a + 1, donate_argnums=0)(a), numbers(4, 6) + 1)
    assert a.is_deleted()


def check_parts_are_donated_that_fit_where_whole_arrays_do_not():
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = mesh_of(2)
    a = put(numbers(8, 6), mesh, "x")
    whole = NamedSharding(mesh, PartitionSpec())
    agree(jax.jit(lambda a: a[:4] + 1, donate_argnums=0, out_shardings=whole)(a), numbers(8, 6)[:4] + 1)
    assert a.is_deleted()


def check_arrays_that_no_result_can_use_are_not_taken():
    import jax

    a, b = put(numbers(8, 2), mesh_of(2), "x"), put(numbers(8, 2), mesh_of(2), "x")
    agree(jax.jit(lambda a: a @ a.T, donate_argnums=0)(a), numbers(8, 2) @ numbers(8, 2).T)
    assert not a.is_deleted()
    # One result, for one of two arguments.
    agree(jax.jit(lambda a, b: a + b, donate_argnums=(0, 1))(a, b), 2 * numbers(8, 2))
    assert (a.is_deleted(), b.is_deleted()) == (True, False)
    # On one device a result may be written into an argument's memory: that argument, and no other one, is taken.
    for number in range(2):
        given = [put(numbers(8, 2), mesh_of(1), "x") for _ in range(2)]
        program = jax.jit(lambda a, b, number=number: (b + 1, a * 3)[number], donate_argnums=(0, 1))
        agree(program(*given), (numbers(8, 2) + 1, numbers(8, 2) * 3)[number])
        for array in given:
            assert array.is_deleted() or np.array_equal(array, numbers(8, 2))


def check_scattered_sums_that_are_still_to_be_added():
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, PartitionSpec as P, reshard

    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x, ids = (jax.device_put(jnp.array(v), P("x")) for v in ([1, 2, 3, 4], [0, 2, 2, 1]))
        sums = jax.jit(lambda x: jax.ops.segment_sum(x, ids, num_segments=3, out_sharding=P(unreduced={"x"})))
        found = sums(x)
        assert [shard.data.tolist() for shard in found.addressable_shards] == [[1, 0, 2], [0, 4, 3]]
        assert "all-reduce" not in sums.lower(x).compile().as_text()
        assert reshard(found, P()).tolist() == [1, 4, 5]
        # What the sum begins with comes once.
        added = jax.jit(lambda x: jnp.array([10, 20, 30]).at[ids].add(x, out_sharding=P()))
        assert added(x).tolist() == [11, 24, 35]


def test_sharded_on_xlakit(check, on_xlakit):
    on_xlakit(check)
