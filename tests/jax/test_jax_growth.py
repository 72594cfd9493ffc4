"""JAX programs that are dropped leave nothing in memory."""

import os

from growth import needs_proc


@needs_proc
def test_programs_that_jax_has_forgotten_leave_next_to_nothing(forks):
    def left_behind():
        environment = {**os.environ, "JAX_PLATFORMS": "xlakit"}
        done = forks.run("import growth; growth.main()", "jax", 24, environment=environment)
        assert not done.returncode, done.stderr
        return int(done.stdout)

    assert any(left_behind() < 6000 for _ in range(4))
