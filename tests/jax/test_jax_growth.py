"""JAX programs that are dropped leave nothing in memory."""

from growth import left_behind, needs_proc


@needs_proc
def test_programs_that_jax_has_forgotten_leave_next_to_nothing(on_xlakit):
    del on_xlakit  # which says whether there is a JAX to try
    assert any(left_behind("jax", 24, JAX_PLATFORMS="xlakit") < 6000 for _ in range(4))
