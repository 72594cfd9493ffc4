"""Every optimizer of optax, on parameters of 2x2 to 256x256, for some steps of a small regression."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import optax
import optax.contrib

from fuzz.library_programs.registry import program

_SIZES = ((2, 2), (3, 5), (7,), (16, 16), (64, 32), (256, 256))
_STEPS = 4
_SIGNS = "the sign of a moment that rounds to zero, or a root of one that is nearly zero, is another step"

_PLAIN = {
    "adabelief": optax.adabelief,
    "adadelta": optax.adadelta,
    "adan": optax.adan,
    "adafactor": optax.adafactor,
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "adamax": optax.adamax,
    "adamaxw": optax.adamaxw,
    "amsgrad": optax.amsgrad,
    "fromage": optax.fromage,
    "lamb": optax.lamb,
    "lars": optax.lars,
    "lion": optax.lion,
    "nadam": optax.nadam,
    "nadamw": optax.nadamw,
    "noisy_sgd": partial(optax.noisy_sgd, key=0),
    "novograd": optax.novograd,
    "optimistic_gradient_descent": optax.optimistic_gradient_descent,
    "radam": optax.radam,
    "rmsprop": optax.rmsprop,
    "rprop": optax.rprop,
    "sgd": partial(optax.sgd, momentum=0.9, nesterov=True),
    "sign_sgd": optax.sign_sgd,
    "sm3": optax.sm3,
    "yogi": optax.yogi,
    "optimistic_adam": partial(optax.optimistic_adam, optimism=0.1),
    "optimistic_adam_v2": optax.optimistic_adam_v2,
    "signum": optax.signum,
}
_CONTRIB = {
    "acprop": optax.contrib.acprop,
    "ademamix": optax.contrib.ademamix,
    "simplified_ademamix": optax.contrib.simplified_ademamix,
    "adopt": optax.contrib.adopt,
    "galore": partial(optax.contrib.galore, rank=2),
    "madgrad": optax.contrib.madgrad,
    "cocob": optax.contrib.cocob,
    "dadapt_adamw": optax.contrib.dadapt_adamw,
    "dog": optax.contrib.dog,
    "dowg": optax.contrib.dowg,
    "momo": optax.contrib.momo,
    "momo_adam": optax.contrib.momo_adam,
    "muon": optax.contrib.muon,
    "prodigy": optax.contrib.prodigy,
    "schedule_free_adamw": optax.contrib.schedule_free_adamw,
    "schedule_free_sgd": optax.contrib.schedule_free_sgd,
    "sophia": optax.contrib.sophia,
    "mechanize": lambda rate: optax.contrib.mechanize(optax.sgd(rate)),
}
_LOOSE = {"lion", "sign_sgd", "signum", "galore", "rprop", "muon", "sophia", "acprop", "mechanize", "noisy_sgd"}


def _parameters(key):
    return {
        "x".join(map(str, size)): jax.random.normal(jax.random.fold_in(key, n), size) for n, size in enumerate(_SIZES)
    }


def _loss(parameters):
    return sum((jnp.sin(value) ** 2).mean() + 0.1 * (value * value).mean() for value in parameters.values())


def _run(make, key):
    parameters = _parameters(key)
    optimizer = make(0.01)
    state = optimizer.init(parameters)
    takes_value = isinstance(optimizer, optax.GradientTransformationExtraArgs)

    def step(carry, _):
        parameters, state = carry
        value, gradient = jax.value_and_grad(_loss)(parameters)
        extra = {"value": value, "obj_fn": _loss} if takes_value else {}
        updates, state = optimizer.update(gradient, state, parameters, **extra)
        return (optax.apply_updates(parameters, updates), state), value

    (parameters, _), values = jax.lax.scan(step, (parameters, state), None, length=_STEPS)
    return parameters, values


def _register(prefix, table):
    for name, make in table.items():
        loose = {"tolerance": 2e-3, "why": _SIGNS} if name in _LOOSE else {}
        program(f"{prefix}/{name}", **loose)(partial(_run, make))


_register("optax", _PLAIN)
_register("optax.contrib", _CONTRIB)


def _unrolled(make, size, key):
    """Steps that are not a loop's, each compiled by itself as a user's loop does."""
    # So that tanh is not saturated, where gradients are roundings.
    weights = jax.random.normal(key, (size, size)) / jnp.sqrt(size)
    optimizer = make(0.01)

    @jax.jit
    def step(weights, state, x):
        value, gradient = jax.value_and_grad(lambda w: ((jnp.tanh(x @ w) - x) ** 2).mean())(weights)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    state = optimizer.init(weights)
    values = []
    for n in range(5):
        weights, state, value = step(weights, state, jax.random.normal(jax.random.fold_in(key, n), (8, size)))
        values.append(value)
    return weights, values


for _size in (2, 4, 16, 96, 256):
    program(
        f"optax/muon_{_size}",
        jit=False,
        tolerance=2e-3,
        why="Newton-Schulz iterations in bfloat16 or float32 of a matrix of low rank",
    )(partial(_unrolled, optax.contrib.muon, _size))
    program(f"optax/adam_{_size}", jit=False, tolerance=2e-3, why=_SIGNS)(partial(_unrolled, optax.adam, _size))
    program(f"optax/adafactor_{_size}", jit=False, tolerance=2e-3, why=_SIGNS)(
        partial(_unrolled, optax.adafactor, _size)
    )


@program("optax/lbfgs", tolerance=1e-3, why="the line search compares values that round differently")
def lbfgs(key):
    def f(x):
        return ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x) ** 2).sum()

    optimizer = optax.lbfgs()
    x = 0.5 + 0.1 * jax.random.normal(key, (6,))
    value_and_grad = optax.value_and_grad_from_state(f)

    def step(carry, _):
        x, state = carry
        value, gradient = value_and_grad(x, state=state)
        updates, state = optimizer.update(gradient, state, x, value=value, grad=gradient, value_fn=f)
        return (optax.apply_updates(x, updates), state), value

    return jax.lax.scan(step, (x, optimizer.init(x)), None, length=12)[0][0]


@program("optax.contrib/sam")
def sam(key):
    optimizer = optax.contrib.sam(
        optax.sgd(0.05), optax.chain(optax.contrib.normalize(), optax.sgd(0.02)), sync_period=2
    )
    parameters = _parameters(key)

    def step(carry, _):
        parameters, state = carry
        updates, state = optimizer.update(jax.grad(_loss)(parameters), state, parameters)
        return (optax.apply_updates(parameters, updates), state), None

    return jax.lax.scan(step, (parameters, optimizer.init(parameters)), None, length=6)[0][0]


@program("optax/polyak_sgd")
def polyak_sgd(key):
    return _run(lambda _: optax.polyak_sgd(max_learning_rate=0.5), key)
