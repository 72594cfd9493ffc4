"""The programs in ``examples/jax``: they give the same on xlakit as on jaxlib's CPU."""

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "jax"


def on_both(name, function):
    """What a function of an example's module gives, on xlakit and on jaxlib's CPU."""
    import jax

    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    module = importlib.import_module(name)
    ours = function(module)
    assert {device.platform for leaf in jax.tree.leaves(ours) for device in leaf.devices()} == {"xlakit"}
    with jax.default_device(jax.devices("cpu")[0]):
        theirs = function(module)
    return ours, theirs


def learn_digits():
    (losses, right), (expected, expected_right) = on_both("digits", lambda module: module.train(5))
    np.testing.assert_allclose(losses, expected, rtol=0.05)
    np.testing.assert_allclose(losses[0], expected[0], rtol=1e-4)
    assert losses[-1] < losses[0] / 5
    assert min(right, expected_right) > 0.9


def swing():
    def run(module):
        before = module.beginning()
        after, apart = module.simulate(before, 50)
        return after, apart, module.energy(after) - module.energy(before)

    ours, theirs = on_both("pendulums", run)
    for actual, expected in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-2)
    assert np.abs(ours[2]).max() < 1e-3


@pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn has the digits")
def test_a_perceptron_learns_digits(on_xlakit):
    on_xlakit(learn_digits)


def test_pendulums_swing(on_xlakit):
    on_xlakit(swing)
