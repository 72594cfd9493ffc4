"""Five hundred double pendulums, let go from almost the same place, in plain JAX: how fast do they part?

``JAX_PLATFORMS=xlakit python examples/jax/pendulums.py`` runs it on xlakit; without the variable it runs where JAX
likes.
"""

from functools import partial

import jax
import jax.numpy as jnp

GRAVITY, STEP, STEPS, COUNT = 9.81, 2e-3, 5000, 500


def rates(state):
    """How the angles and speeds change: bars of one meter, with one kilogram at the end of each."""
    a, b, u, v = state
    difference = a - b
    common = 3 - jnp.cos(2 * difference)
    first = -3 * GRAVITY * jnp.sin(a) - GRAVITY * jnp.sin(a - 2 * b)
    first -= 2 * jnp.sin(difference) * (v * v + u * u * jnp.cos(difference))
    second = 2 * (u * u + GRAVITY * jnp.cos(a)) + v * v * jnp.cos(difference)
    return u, v, first / common, 2 * jnp.sin(difference) * second / common


def energy(state):
    a, b, u, v = state
    moving = u * u + v * v / 2 + u * v * jnp.cos(a - b)
    return moving - GRAVITY * (2 * jnp.cos(a) + jnp.cos(b))


def runge_kutta(state):
    def moved(rates, seconds):
        return tuple(s + seconds * r for s, r in zip(state, rates, strict=True))

    k1 = rates(state)
    k2 = rates(moved(k1, STEP / 2))
    k3 = rates(moved(k2, STEP / 2))
    k4 = rates(moved(k3, STEP))
    return moved([r + 2 * s + 2 * t + u for r, s, t, u in zip(k1, k2, k3, k4, strict=True)], STEP / 6)


@partial(jax.jit, static_argnames="steps")
def simulate(state, steps):
    """The state after all steps, and how far the pendulums are apart after each."""

    def step(state, _):
        state = runge_kutta(state)
        return state, state[1].std()

    return jax.lax.scan(step, state, length=steps)


def beginning():
    """All at rest, the lower ones a thousandth of a radian apart."""
    spread = jax.random.normal(jax.random.key(0), (COUNT,)) * 1e-3
    rest = jnp.zeros(COUNT)
    return jnp.full(COUNT, 2.0), 2.5 + spread, rest, rest


def main():
    before = beginning()
    after, apart = simulate(before, STEPS)
    for second in range(0, 11, 2):
        print(f"after {second:>2} s: the lower angles differ by {apart[max(0, second * 500 - 1)]:.4f}")
    lost = jnp.abs(energy(after) - energy(before)).max()
    print(f"the energy of each is kept within {lost:.1e} J, on {jax.default_backend()}")


if __name__ == "__main__":
    main()
