"""Programs over several devices that the compile cache finds by what JAX hands over."""

import numpy as np
import pytest
from test_jax_program_cache import empty_cache


def _mesh(order=(0, 1)):
    import jax

    return jax.sharding.Mesh([jax.devices()[n] for n in order], "d")


def _split(values, order=(0, 1)):
    import jax

    return jax.device_put(values, jax.sharding.NamedSharding(_mesh(order), jax.sharding.PartitionSpec("d")))


def check_found_again():
    import jax

    def step(state, x):
        return state + x.sum() * x, (x @ x, jax.random.normal(jax.random.key(0), (3,)))

    with empty_cache() as (folder, compiled):
        results = []
        for order, is_found in (((0, 1), False), ((0, 1), True), ((1, 0), False), ((1, 0), True)):
            jax.clear_caches()
            x = _split(np.arange(8, dtype=np.float32), order)
            # Memory of NumPy is not written to.
            state = jax.numpy.copy(x)
            addresses = [shard.data.unsafe_buffer_pointer() for shard in state.addressable_shards]
            compiled.clear()
            results.append(jax.jit(step, donate_argnums=0)(state, x))
            assert len(compiled) == (0 if is_found else 1)
            assert state.is_deleted()
            first = results[-1][0]
            assert [shard.data.unsafe_buffer_pointer() for shard in first.addressable_shards] == addresses
            assert [shard.device.id for shard in first.addressable_shards] == list(order)
        for others in results[1:]:
            for value, expected in zip(jax.tree.leaves(others), jax.tree.leaves(results[0]), strict=True):
                np.testing.assert_array_equal(np.asarray(value), np.asarray(expected))
        assert len(list(folder.glob("source-*"))) >= 2


def check_errors_of_what_is_found():
    import jax
    from jax.sharding import PartitionSpec as P

    def meeting_in_vain(count, x):
        return jax.lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, jax.lax.psum(s[1], "d")), (count[0], x))[1]

    messages = []
    with empty_cache() as (_, compiled):
        evenly, unevenly = (_split(np.array(counts, np.int32)) for counts in ((2, 2), (3, 1)))
        x = _split(np.ones(4, np.float32))
        for _ in range(2):
            jax.clear_caches()
            specs = P("d"), P("d")
            meet = jax.jit(
                jax.shard_map(meeting_in_vain, mesh=_mesh(), in_specs=specs, out_specs=P("d"), check_vma=False)
            )
            with pytest.raises(Exception, match="all devices wait and none can go on") as error:
                jax.block_until_ready(meet(unevenly, x))
            messages.append(str(error.value).partition("-----")[0])
            np.testing.assert_array_equal(meet(evenly, x), np.full(4, 4.0))
        # What the second run's error tells is compiled then.
        assert "all-reduce" in messages[0] and messages[1] == messages[0]
        assert len(compiled) == 1


def check_what_asks_python_is_not_found():
    import jax

    told = []

    def inspected(x):
        jax.debug.inspect_array_sharding(x * 2, callback=told.append)
        return x * 2

    with empty_cache():
        for _ in range(2):
            jax.clear_caches()
            np.testing.assert_array_equal(jax.jit(inspected)(_split(np.ones(4, np.float32))), np.full(4, 2.0))
    assert len(told) == 2


def test_programs_over_devices_in_the_cache(on_xlakit, check):
    on_xlakit(check)
