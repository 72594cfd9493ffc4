"""The benchmark of training beside an input pipeline: its data, its turns, its table."""

import numpy as np
import pytest

from benchmarks import jax_input_pipeline as benchmark


def test_batches_are_pieces_of_images():
    images, labels = benchmark.Pipeline().batch()
    assert images.shape == (256, 2352) and images.dtype == np.float32 and labels.shape == (256,)
    assert 0 <= images.min() < 0.1 and 0.9 < images.max() <= 1
    assert set(labels) == set(range(10))


def test_ways_take_turns(capsys, monkeypatch):
    turns = []

    class Server:
        def __init__(self, environment, width, steps):
            self.name = environment.get("XLAKIT_ASYNC", environment.get("JAX_CPU_ENABLE_ASYNC_DISPATCH", "theirs"))
            assert (width, steps) == (8, 3)

        def time(self, kind):
            turns.append((kind, self.name))
            return {"theirs": 0.004, "0": 0.005}.get(self.name, 0.002)

        def close(self):
            turns.append("closed")

    monkeypatch.setattr(benchmark, "_Server", Server)
    assert benchmark.main(["--widths", "8", "--kinds", "steps,data", "--rounds", "2", "--steps", "3"]) == 0
    assert turns[:8] == [("steps", name) for name in ("theirs", "0", "", "0")] * 2
    assert len(turns) == 2 * 3 * 4 + 4 and turns[-4:] == ["closed"] * 4
    assert "| 8 | data | 4.00 (1.00) | 5.00 (1.25) | 2.00 (0.50) | 5.00 (1.25) |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        benchmark.main(["--kinds", "none"])
