"""Particles, grids and rays: simulations that scatter to cells, look around them and end at different iterations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program


@program("simulations/lattice_boltzmann")
def lattice_boltzmann(key):
    """A flow around a cylinder: nine directions that are rolled, and turned round where the cylinder is."""
    nx, ny = 48, 32
    moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    weights = jnp.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4])[:, None, None]
    directions, opposite = jnp.array(moves, jnp.float32), jnp.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
    x, y = jnp.meshgrid(jnp.arange(nx), jnp.arange(ny), indexing="ij")
    cylinder = (x - 12) ** 2 + (y - 16) ** 2 < 16

    def equilibrium(density, speed):
        along = jnp.einsum("qd,dxy->qxy", directions, speed)
        return weights * density * (1 + 3 * along + 4.5 * along**2 - 1.5 * jnp.sum(speed**2, 0))

    def step(flow, _):
        density = flow.sum(0)
        speed = (jnp.einsum("qd,qxy->dxy", directions, flow) / density).at[0, 0].set(0.1)
        balanced = equilibrium(density, speed)
        flow = jnp.where(cylinder, flow[opposite], flow - 1.7 * (flow - balanced))
        flow = jnp.stack([jnp.roll(flow[q], move, (0, 1)) for q, move in enumerate(moves)])
        return flow.at[:, 0].set(balanced[:, 0]), jnp.mean(speed[0])

    start = equilibrium(jnp.ones((nx, ny)), jnp.zeros((2, nx, ny)).at[0].set(0.1))
    return lax.scan(step, start, None, length=40)


@program("simulations/material_points", tolerance=1e-3, why="divisions by masses of cells that have next to none")
def material_points(key):
    """An elastic fluid: particles scatter to a grid of momenta, and gather from it."""
    n, count, dt = 24, 256, 2e-4
    dx, volume = 1 / n, (0.5 / n) ** 2
    cells = jnp.array([[i, j] for i in range(3) for j in range(3)])

    def step(state, _):
        x, v, affine, stretch = state
        base = (x / dx - 0.5).astype(jnp.int32)
        fraction = x / dx - base
        weight = jnp.stack([0.5 * (1.5 - fraction) ** 2, 0.75 - (fraction - 1) ** 2, 0.5 * (fraction - 0.5) ** 2])
        weight = weight[cells[:, 0], :, 0].T * weight[cells[:, 1], :, 1].T
        where, apart = base[:, None] + cells, (cells - fraction[:, None]) * dx
        stress = -dt * 1600 * volume * (stretch - 1) / dx**2
        spread = stress[:, None, None] * jnp.eye(2) + volume * affine
        momentum = weight[..., None] * (volume * v[:, None] + jnp.einsum("nij,nkj->nki", spread, apart))
        at = where[..., 0], where[..., 1]
        mass = jnp.zeros((n, n)).at[at].add(weight * volume)
        speed = jnp.zeros((n, n, 2)).at[at].add(momentum)
        speed = jnp.where(mass[..., None] > 1e-9, speed / mass[..., None], 0) - jnp.array([0, dt * 9.8])
        edge = jnp.arange(n)
        inside = ((edge[:, None] >= 3) | (speed[..., 0] > 0)) & ((edge >= 3) | (speed[..., 1] > 0))
        near = jnp.where(inside[..., None], speed, 0)[at]
        v = jnp.einsum("nk,nkd->nd", weight, near)
        affine = 4 / dx**2 * jnp.einsum("nk,nkd,nke->nde", weight, near, apart)
        return (x + dt * v, v, affine, stretch * (1 + dt * jnp.trace(affine, axis1=1, axis2=2))), None

    x = 0.3 + 0.4 * jax.random.uniform(key, (count, 2))
    start = (x, jnp.zeros((count, 2)), jnp.zeros((count, 2, 2)), jnp.ones(count))
    return lax.scan(step, start, None, length=40)[0]


@program("simulations/neighbors_in_cells")
def neighbors_in_cells(key):
    """Particles sorted into the cells of a grid, of which each looks at nine."""
    count, reach, n, room = 128, 0.1, 10, 8
    around = jnp.array([[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1)])

    def step(state, _):
        x, v = state
        cell = jnp.clip((x / reach).astype(jnp.int32), 0, n - 1)
        number = cell[:, 0] * n + cell[:, 1]
        order = jnp.argsort(number)
        rank = jnp.arange(count) - jnp.searchsorted(number[order], jnp.arange(n * n))[number[order]]
        table = jnp.full((n * n, room), count).at[number[order], rank].set(order, mode="drop")
        near = cell[:, None] + around
        exists = jnp.all((near >= 0) & (near < n), -1)
        others = table[jnp.clip(near[..., 0] * n + near[..., 1], 0, n * n - 1)]
        others = jnp.where(exists[..., None], others, count).reshape(count, -1)
        apart = x[:, None] - x.at[others].get(mode="fill", fill_value=9.0)
        distance = jnp.sqrt(jnp.sum(apart**2, -1) + 1e-12)
        push = jnp.where((distance < reach) & (distance > 1e-5), 1 - distance / reach, 0)
        v = 0.99 * v + 0.01 * jnp.sum(push[..., None] * apart / distance[..., None], 1) - jnp.array([0, 0.01])
        x = x + 0.05 * v
        return (jnp.clip(x, 0, 1), jnp.where((x < 0) | (x > 1), -0.5 * v, v)), jnp.sum(push)

    return lax.scan(step, (jax.random.uniform(key, (count, 2)), jnp.zeros((count, 2))), None, length=6)


@program("simulations/clusters_of_spins")
def clusters_of_spins(key):
    """Wolff's clusters, grown from a stack in an array until it is empty."""
    n = 16

    def flip(spins, key):
        first, key = jax.random.split(key)
        seed = jax.random.randint(first, (), 0, n * n)
        sign = spins[seed]

        def grow(state):
            spins, stack, top, size, key = state
            key, drawn = jax.random.split(key)
            chances = jax.random.uniform(drawn, (4,))
            row, column = stack[top - 1] // n, stack[top - 1] % n
            top = top - 1
            for chance, (i, j) in zip(chances, ((1, 0), (-1, 0), (0, 1), (0, -1)), strict=True):
                place = (row + i) % n * n + (column + j) % n
                joins = (spins[place] == sign) & (chance < 0.58)
                spins = jnp.where(joins, spins.at[place].set(-sign), spins)
                stack = jnp.where(joins, stack.at[top].set(place), stack)
                top, size = top + joins, size + joins
            return spins, stack, top, size, key

        start = spins.at[seed].set(-sign), jnp.zeros(2 * n * n, int).at[0].set(seed), 1, 1, key
        spins, _, _, size, _ = lax.while_loop(lambda s: s[2] > 0, grow, start)
        return spins, size

    return lax.scan(flip, jnp.ones(n * n, jnp.int8), jax.random.split(key, 8))


@program("simulations/rays_and_shadows", tolerance=1e-3, why="rays that graze end an iteration earlier or later")
def rays_and_shadows(key):
    """Rays that go on until they are near a surface, each as far as it has to; normals are gradients."""

    def distance(p):
        ball = jnp.linalg.norm(p - jnp.array([0, 0.2, 0])) - 0.6
        box = jnp.linalg.norm(jnp.maximum(jnp.abs(p - jnp.array([0.7, 0, 0.1])) - 0.3, 0)) - 0.05
        mixed = jnp.clip(0.5 + 2.5 * (box - ball), 0, 1)
        return jnp.minimum(box * (1 - mixed) + ball * mixed - 0.2 * mixed * (1 - mixed), p[1] + 0.8)

    def march(origin, direction):
        def ahead(state):
            far, count, _ = state
            near = distance(origin + far * direction)
            return far + near, count + 1, near

        return lax.while_loop(lambda s: (s[1] < 50) & (s[2] > 1e-3) & (s[0] < 9), ahead, (0.0, 0, 1.0))[0]

    light = jnp.array([0.5, 0.8, -0.4]) / jnp.sqrt(1.05)

    def pixel(u, v):
        direction = jnp.array([u, v, 1.6])
        direction = direction / jnp.linalg.norm(direction)
        origin = jnp.array([0.0, 0.3, -3.0])
        far = march(origin, direction)
        place = origin + far * direction
        normal = jax.grad(distance)(place)
        lit = jnp.where(march(place + 0.02 * normal, light) < 9, 0.3, 1.0)
        return jnp.where(far < 9, jnp.maximum(normal @ light, 0) * lit, 0)

    grid = jnp.linspace(-1, 1, 20)
    image = jax.vmap(lambda v: jax.vmap(lambda u: pixel(u, v))(grid))(grid)
    return image.mean(0), image.mean()


@program("simulations/edges_and_lines")
def edges_and_lines(key):
    """Edges that grow from strong to weak ones, and votes for the lines that they are on."""
    n, lines = 32, 24
    image = jnp.zeros((n, n)).at[8:24, 10:22].set(1.0) + 0.02 * jax.random.normal(key, (n, n))
    filtered = lambda x, k: lax.conv_general_dilated(x[None, None], k[None, None], (1, 1), "SAME")[0, 0]  # noqa: E731
    sobel = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    across, down = filtered(image, sobel), filtered(image, sobel.T)
    slope = jnp.hypot(across, down)
    angle = jnp.round(jnp.arctan2(down, across) / (jnp.pi / 4)).astype(jnp.int32) % 4
    is_ridge = jnp.zeros((n, n), bool)
    for number, (i, j) in enumerate(((0, 1), (1, 1), (1, 0), (1, -1))):
        beside = jnp.maximum(jnp.roll(slope, (i, j), (0, 1)), jnp.roll(slope, (-i, -j), (0, 1)))
        is_ridge |= (angle == number) & (slope >= beside)
    slope = jnp.where(is_ridge, slope, 0)

    def grow(state):
        edges, _ = state
        wide = lax.reduce_window(edges, False, jnp.logical_or, (3, 3), (1, 1), "SAME")
        more = edges | (wide & (slope > 1))
        return more, jnp.any(more != edges)

    edges, _ = lax.while_loop(lambda s: s[1], grow, (slope > 3, jnp.bool_(True)))
    rows, columns = jnp.nonzero(edges, size=128, fill_value=-1)
    angles = jnp.linspace(0.01, jnp.pi, lines, endpoint=False)
    offsets = rows[:, None] * jnp.sin(angles) + columns[:, None] * jnp.cos(angles)
    where = jnp.floor(offsets).astype(jnp.int32) + n, jnp.arange(lines)
    votes = jnp.zeros((3 * n, lines), jnp.int32).at[where].add((rows >= 0)[:, None].astype(jnp.int32))
    return edges, lax.top_k(votes.reshape(-1), 5)[0], slope


@program("simulations/walkers", x64=True, tolerance=1e-9, why="walks of a hundred steps")
def walkers(key):
    """Random walks that end apart, each within a loop of its own, which vmap makes one loop with a mask of walkers."""

    def walk(key):
        def step(state):
            key, place, steps = state
            key, used = jax.random.split(key)
            return key, place + 0.3 * jax.random.normal(used, (2,)), steps + 1

        start = key, jnp.zeros(2), 0
        return lax.while_loop(lambda s: (jnp.sum(s[1] ** 2) < 9) & (s[2] < 100), step, start)[1:]

    return jax.vmap(walk)(jax.random.split(key, 200))
