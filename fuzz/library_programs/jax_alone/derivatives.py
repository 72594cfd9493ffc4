"""Derivatives of all kinds: rules of a program's own, of loops and solvers, higher ones, batched rules, saved names."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import jet
from jax.experimental.ode import odeint
from jax.flatten_util import ravel_pytree

from fuzz.library_programs.registry import program


@partial(jax.custom_vjp, nondiff_argnums=(0, 2))
def _clipped(f, x, bound):
    del bound
    return f(x)


def _clipped_forward(f, x, bound):
    del bound
    return f(x), x


def _clipped_backward(f, bound, x, cotangent):
    return (jnp.clip(cotangent * jax.vmap(jax.grad(f))(x), -bound, bound),)


_clipped.defvjp(_clipped_forward, _clipped_backward)


@program("derivatives/rules_of_their_own")
def rules_of_their_own(key):
    @jax.custom_jvp
    def log1pexp(x):
        return jnp.where(x > 0, x + jnp.log1p(jnp.exp(-jnp.abs(x))), jnp.log1p(jnp.exp(-jnp.abs(x))))

    log1pexp.defjvps(lambda t, _, x: t * jax.nn.sigmoid(x))

    @jax.custom_vjp
    def through(x):
        return jnp.round(x * 4) / 4

    through.defvjp(lambda x: (through(x), x), lambda x, g: (g * (jnp.abs(x) < 1),))
    x = jax.random.normal(key, (33,)) * 3
    return (
        jax.vmap(jax.grad(log1pexp))(x),
        jax.vmap(jax.grad(jax.grad(log1pexp)))(x),
        jax.grad(lambda x: (through(x) ** 2).sum())(x),
        jax.grad(lambda x: _clipped(jnp.exp, x, 2.0).sum())(x),
        jax.jvp(log1pexp, (x,), (jnp.ones_like(x),)),
        lax.scan(lambda c, v: (c + through(v), jax.grad(through)(c * v)), 0.5, x),
    )


@program("derivatives/higher")
def higher(key):
    x = jax.random.normal(key, (5,))

    def f(x):
        return jnp.sin(x[0] * x[1]) + jnp.prod(jnp.tanh(x)) + lax.cond(x[2] > 0, jnp.sin, jnp.cos, x[3]) * x[4] ** 3

    series = jet.jet(lambda x: jnp.exp(jnp.sin(x)), (x,), ((jnp.ones_like(x), jnp.zeros_like(x), jnp.zeros_like(x)),))
    third = jax.jacfwd(jax.hessian(f))(x)
    value, product = jax.linearize(jax.grad(f), x)
    back = jax.linear_transpose(product, x)(jnp.arange(5.0))
    return series, jax.hessian(f)(x), third, value, product(jnp.ones(5)), back, jax.jacrev(jax.jacfwd(jax.grad(f)))(x)


@program("derivatives/of_loops")
def of_loops(key):
    w = jax.random.normal(key, (4, 4)) / 2

    def bounded(w, x):
        return lax.fori_loop(0, 6, lambda i, x: jnp.tanh(w @ x) + 0.1 * i, x)

    def unbounded(w, x):
        return lax.while_loop(lambda c: (c[1] ** 2).sum() > 0.1, lambda c: (c[0] + 1, 0.5 * jnp.sin(w @ c[1])), (0, x))

    def nested(w, x):
        def outer(x, scale):
            def inner(c, row):
                y, total = c
                y = lax.switch((total > 0).astype(int) + 1, (jnp.sin, jnp.cos, jnp.tanh), y * scale + row)
                return (total * row, y.sum()), y

            (x, _), ys = lax.scan(inner, (x, x.sum()), w, reverse=True)
            return x / (1 + jnp.abs(x).max()), ys.mean(0)

        return lax.scan(outer, x, jnp.linspace(0.1, 1, 5), unroll=2)

    x = jnp.ones(4)
    return (
        jax.jacrev(bounded, (0, 1))(w, x),
        jax.jvp(lambda w: unbounded(w, x)[1], (w,), (jnp.eye(4),)),
        jax.jacfwd(lambda x: nested(w, x))(x),
        jax.grad(lambda w: sum((leaf**2).sum() for leaf in jax.tree.leaves(nested(w, x))))(w),
        jax.vmap(jax.grad(lambda w, s: bounded(w * s, x).sum()), (None, 0))(w, jnp.arange(3.0)),
    )


@program("derivatives/implicit", tolerance=1e-4, why="roots that stop at a tolerance of 1e-6")
def implicit(key):
    def sqrt(a):
        def solve(f, x):
            return lax.while_loop(lambda x: jnp.abs(f(x)) > 1e-6 * a, lambda x: x - f(x) / (2 * x), x)

        return lax.custom_root(lambda x: x * x - a, 0.5 + a / 2, solve, lambda g, y: y / g(1.0))

    def system(a, b):
        matrix = a @ a.T + 4 * jnp.eye(6)
        return lax.custom_linear_solve(
            lambda x: matrix @ x, b, lambda _, b: jnp.linalg.solve(matrix, b), symmetric=True
        )

    def orbit(mass):
        def field(y, t, mass):
            return jnp.concatenate([y[2:], -mass * y[:2] / jnp.linalg.norm(y[:2]) ** 3 + 0.01 * t])

        return odeint(field, jnp.array([1.0, 0, 0, 1]), jnp.linspace(0.0, 1, 4), mass, rtol=1e-5, atol=1e-5)

    a, b = jax.random.normal(key, (6, 6)), jnp.arange(6.0)
    return (
        jax.vmap(jax.value_and_grad(sqrt))(jnp.array([0.5, 2.0, 9.0])),
        jax.value_and_grad(lambda a, b: (system(a, b) ** 2).sum(), (0, 1))(a, b),
        jax.value_and_grad(lambda mass: orbit(mass).sum())(1.1),
    )


@program("derivatives/saved_names")
def saved_names(key):
    names = jax.checkpoint_policies.save_only_these_names("hidden")
    w = jax.random.normal(key, (3, 12, 12)) / 3

    @partial(jax.checkpoint, policy=names)
    def layer(x, w):
        h = checkpoint_name(jnp.tanh(x @ w), "hidden")
        return jax.nn.gelu(h * jax.nn.softmax(h)) + x

    @partial(jax.checkpoint, policy=jax.checkpoint_policies.nothing_saveable, prevent_cse=False)
    def block(x, _):
        return lax.scan(lambda x, w: (layer(x, w), x.mean()), x, w)

    def loss(w, x):
        x, means = lax.scan(block, x, None, length=3)
        return (x @ w[0]).var() + means.sum()

    return jax.value_and_grad(loss, (0, 1))(w, jax.random.normal(key, (5, 12)))


@program("derivatives/batched_rules")
def batched_rules(key):
    @jax.custom_batching.custom_vmap
    def distance(x, y):
        return jnp.sqrt(((x - y) ** 2).sum())

    @distance.def_vmap
    def _(size, batched, x, y):
        x, y = (v if b else jnp.broadcast_to(v, (size, *v.shape)) for v, b in zip((x, y), batched, strict=True))
        return jnp.linalg.norm(x - y, axis=-1), True

    x, y = jax.random.normal(key, (2, 7, 3))
    flat, unravel = ravel_pytree({"a": x, "b": (y, jnp.arange(3))})
    sequential = jax.custom_batching.sequential_vmap(lambda v: lax.while_loop(lambda v: v < 9, lambda v: v * v + 1, v))
    return (
        jax.vmap(distance)(x, y),
        jax.vmap(distance, (0, None))(x, y[0]),
        unravel(flat * 2),
        jax.vmap(sequential)(x[:, 0]),
        jax.vmap(lambda v, i: lax.dynamic_slice(v, (i,), (2,)), in_axes=(1, 0), out_axes=1)(x, jnp.array([0, 5, 9])),
        jax.vmap(lambda i, v: v.at[i].add(v[0], mode="drop"), (0, None))(jnp.array([1, 3, 8]), x),
        jax.vmap(lambda p, a, b: lax.cond(p, jnp.sort, jnp.flip, jnp.outer(a, b).ravel()))(x[:, 0] > 0, x, y),
    )
