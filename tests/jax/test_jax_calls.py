"""How JAX's programs are lowered, described and called on xlakit: what JAX's own tests have found."""

import numpy as np
import pytest


def check_branches_for_processors():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def chosen(**branches):
        return float(jax.jit(lambda x: lax.platform_dependent(x, **branches))(1.0))

    assert chosen(cpu=jnp.sin, tpu=jnp.cos) == pytest.approx(np.sin(1))
    assert chosen(tpu=jnp.cos, cpu=jnp.sin, default=jnp.exp) == pytest.approx(np.sin(1))
    assert chosen(cpu=jnp.sin, xlakit=jnp.cos, default=jnp.exp) == pytest.approx(np.cos(1))
    assert chosen(tpu=jnp.cos, default=jnp.exp) == pytest.approx(np.exp(1))
    assert float(lax.platform_dependent(1.0, cpu=jnp.sin, cuda=jnp.sin)) == pytest.approx(np.sin(1))
    slope = jax.grad(lambda x: lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos))
    np.testing.assert_allclose(jax.vmap(slope)(np.ones(2)), np.cos(1), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="platform xlakit"):
        chosen(tpu=jnp.sin, cuda=jnp.cos)


def check_a_buffer_is_donated_once():
    import jax
    import jax.numpy as jnp

    both = jax.jit(lambda x, y: (x + y, x - y), donate_argnums=(0, 1))
    first = jax.jit(lambda x, y: x + y, donate_argnums=0)
    x = jnp.zeros(10)
    for function in (both, first):
        with pytest.raises(RuntimeError, match="given to it a second time"):
            function(x, x)
        assert not x.is_deleted()
    # The memory is NumPy's as well, and the buffer is given once.
    seen = np.asarray(x)
    assert float(both(x, jnp.ones(10))[0][0]) == 1
    assert x.is_deleted()
    assert seen[0] == 0


def check_layouts_of_programs():
    import jax

    x = np.ones((2, 3), np.float32)
    compiled = jax.jit(lambda x, y: (x.T @ y, x)).lower(x, x).compile()
    (arguments, _), results = compiled.input_formats, compiled.output_formats
    assert [format.layout.major_to_minor for format in (*arguments, *results)] == [(0, 1)] * 4
    (module,) = compiled.runtime_executable().hlo_modules()
    assert "replica_count" not in module.to_string()
    assert "->(f32[3,3]{1,0}, f32[2,3]{1,0})}" in module.to_string()


def check_what_is_kept_from_being_removed():
    import inspect

    import jax
    from jax import lax

    has_choice = "prevent_mlir_dce" in inspect.signature(lax.dce_sink).parameters

    def kept(x, prevent):
        lax.dce_sink(lax.sin(x), **{"prevent_mlir_dce": prevent} if has_choice else {})
        return x

    for prevent in (True, False) if has_choice else (False,):
        compiled = jax.jit(kept, static_argnums=1).lower(1.0, prevent).compile()
        assert ("sine(" in compiled.as_text()) == prevent
        assert float(compiled(2.0)) == 2


def test_on_xlakit(check, on_xlakit):
    on_xlakit(check)
