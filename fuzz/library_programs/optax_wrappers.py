"""What optax puts around optimizers, its schedules, losses and projections."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from fuzz.library_programs.registry import program


def _network(key):
    k1, k2 = jax.random.split(key)
    return {
        "first": {"kernel": jax.random.normal(k1, (6, 12)) / 3, "bias": jnp.zeros(12)},
        "last": {"kernel": jax.random.normal(k2, (12, 2)) / 3, "bias": jnp.zeros(2)},
    }


def _loss(network, x, y):
    h = jax.nn.relu(x @ network["first"]["kernel"] + network["first"]["bias"])
    return optax.l2_loss(h @ network["last"]["kernel"] + network["last"]["bias"], y).mean()


def _train(optimizer, key):
    network = _network(key)
    x = jax.random.normal(jax.random.fold_in(key, 7), (16, 6))
    y = x[:, :2] * 2

    @jax.jit
    def step(network, state):
        value, gradient = jax.value_and_grad(_loss)(network, x, y)
        updates, state = optimizer.update(gradient, state, network)
        return optax.apply_updates(network, updates), state, value

    state = optimizer.init(network)
    values = []
    for _ in range(10):
        network, state, value = step(network, state)
        values.append(value)
    return network, values


@program("optax/multi_steps", jit=False)
def multi_steps(key):
    return _train(optax.MultiSteps(optax.adam(1e-2), 3), key)


@program("optax/multi_steps_scheduled", jit=False)
def multi_steps_scheduled(key):
    return _train(optax.MultiSteps(optax.sgd(1e-2), lambda n: jnp.where(n < 2, 1, 3), use_grad_mean=False), key)


@program("optax/masked", jit=False)
def masked(key):
    def kernels(p):
        return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key == "kernel", p)

    return _train(optax.chain(optax.masked(optax.add_decayed_weights(1e-2), kernels), optax.adam(1e-2)), key)


@program("optax/partition", jit=False)
def partition(key):
    labels = {"first": "frozen", "last": {"kernel": "adam", "bias": "sgd"}}
    parts = {"frozen": optax.set_to_zero(), "adam": optax.adam(1e-2), "sgd": optax.sgd(1e-1)}
    return _train(optax.partition(parts, labels), key)


@program("optax/inject_hyperparams", jit=False)
def inject_hyperparams(key):
    schedule = optax.cosine_onecycle_schedule(10, 0.1)
    return _train(optax.inject_hyperparams(optax.adamw)(learning_rate=schedule, weight_decay=1e-3), key)


@program("optax/apply_if_finite", jit=False)
def apply_if_finite(key):
    poison = optax.stateless(lambda u, _: jax.tree.map(lambda v: jnp.where(v.sum() > 0.05, jnp.nan, v), u))
    return _train(optax.chain(optax.apply_if_finite(optax.chain(poison, optax.sgd(0.1)), 5)), key)


@program("optax/clipping_and_noise", jit=False)
def clipping_and_noise(key):
    chain = (
        optax.clip_by_global_norm(0.5),
        optax.clip(0.1),
        optax.clip_by_block_rms(0.05),
        optax.adaptive_grad_clip(0.1),
        optax.add_noise(0.01, 0.55, key=jax.random.key(3)),
        optax.centralize(),
        optax.scale_by_trust_ratio(),
        optax.trace(0.9),
        optax.ema(0.5),
        optax.zero_nans(),
        optax.keep_params_nonnegative(),
        optax.sgd(0.1),
    )
    return _train(optax.chain(*chain), key)


@program("optax/lookahead", jit=False)
def lookahead(key):
    optimizer = optax.lookahead(optax.sgd(0.1), sync_period=3, slow_step_size=0.5)
    network = optax.LookaheadParams.init_synced(_network(key))
    x = jax.random.normal(key, (16, 6))

    @jax.jit
    def step(network, state):
        gradient = jax.grad(_loss)(network.fast, x, x[:, :2])
        updates, state = optimizer.update(gradient, state, network)
        return optax.apply_updates(network, updates), state

    state = optimizer.init(network)
    for _ in range(8):
        network, state = step(network, state)
    return network


@program("optax/conditionally_transform", jit=False)
def conditionally_transform(key):
    sometimes = optax.conditionally_transform(optax.add_decayed_weights(0.1), lambda step: step % 2 == 0)
    mostly = optax.conditionally_mask(optax.scale(0.5), lambda step: step < 5)
    return _train(optax.chain(sometimes, mostly, optax.sgd(0.1)), key)


@program("optax/reduce_on_plateau", jit=False)
def reduce_on_plateau(key):
    plateau = optax.contrib.reduce_on_plateau(factor=0.5, patience=2, rtol=0.5, accumulation_size=2)
    optimizer = optax.chain(optax.adam(0.1), plateau)
    network = _network(key)
    x = jax.random.normal(key, (16, 6))

    @jax.jit
    def step(network, state):
        value, gradient = jax.value_and_grad(_loss)(network, x, x[:, :2])
        updates, state = optimizer.update(gradient, state, network, value=value)
        return optax.apply_updates(network, updates), state, state[-1].scale

    state, scales = optimizer.init(network), []
    for _ in range(15):
        network, state, scale = step(network, state)
        scales.append(scale)
    return scales


@program(
    "optax/low_precision_moments",
    jit=False,
    tolerance=2e-2,
    why="moments in bfloat16, whose roundings add up over the steps",
)
def low_precision_moments(key):
    return _train(optax.adam(1e-2, mu_dtype=jnp.bfloat16), key)


@program("optax/schedules")
def schedules(key):
    steps = jnp.arange(0, 120, 7)
    made = (
        optax.constant_schedule(0.1),
        optax.cosine_decay_schedule(0.1, 100, 0.1),
        optax.cosine_onecycle_schedule(100, 0.1),
        optax.exponential_decay(0.1, 10, 0.9, 5, True),
        optax.linear_onecycle_schedule(100, 0.1),
        optax.linear_schedule(0.1, 0.01, 50, 10),
        optax.piecewise_constant_schedule(0.1, {20: 0.5, 60: 0.1}),
        optax.piecewise_interpolate_schedule("cosine", 0.1, {20: 0.5, 60: 0.1}),
        optax.polynomial_schedule(0.1, 0.01, 2.0, 80),
        optax.sgdr_schedule([{"init_value": 0, "peak_value": 0.1, "decay_steps": 30, "warmup_steps": 5}] * 3),
        optax.warmup_cosine_decay_schedule(0.0, 0.1, 10, 100),
        optax.warmup_exponential_decay_schedule(0.0, 0.1, 10, 20, 0.5),
        optax.warmup_constant_schedule(0.0, 0.1, 20),
        optax.join_schedules([optax.linear_schedule(0, 0.1, 10), optax.cosine_decay_schedule(0.1, 50)], [10]),
    )
    return [jax.vmap(schedule)(steps) * jnp.ones(steps.shape) for schedule in made]


@program("optax/losses")
def losses(key):
    x, y = jax.random.normal(key, (2, 12, 5))
    p = jax.nn.softmax(y)
    labels = jnp.arange(12) % 5
    logs = jax.random.normal(key, (2, 9, 5))
    return (
        optax.softmax_cross_entropy(x, p),
        optax.softmax_cross_entropy_with_integer_labels(x, labels),
        optax.sigmoid_binary_cross_entropy(x, p),
        optax.huber_loss(x, y, delta=0.5),
        optax.log_cosh(x, y),
        optax.cosine_similarity(x, y),
        optax.cosine_distance(x, y),
        optax.smooth_labels(p, 0.1),
        optax.hinge_loss(x, jnp.sign(y)),
        optax.kl_divergence(jax.nn.log_softmax(x), p),
        optax.convex_kl_divergence(jax.nn.log_softmax(x), p),
        optax.losses.poly_loss_cross_entropy(x, p),
        optax.sigmoid_focal_loss(x, p),
        optax.losses.triplet_margin_loss(x, y, x[::-1]),
        optax.ctc_loss(logs, jnp.zeros((2, 9)), jnp.array([[1, 2, 3], [2, 2, 4]]), jnp.array([[0, 0, 0], [0, 0, 1.0]])),
        optax.losses.ranking_softmax_loss(x, y),
        optax.losses.multiclass_hinge_loss(x, labels),
        optax.losses.sparsemax_loss(x, jnp.sign(y) > 0),
        jax.grad(
            lambda x: optax.ctc_loss(x, jnp.zeros((2, 9)), jnp.array([[1, 2, 3], [2, 2, 4]]), jnp.zeros((2, 3))).sum()
        )(logs),
        jax.grad(lambda x: optax.ntxent(x, labels).sum())(x),
        optax.squared_error(x, y),
    )


@program("optax/projections")
def projections(key):
    x = 3 * jax.random.normal(key, (20,))
    return (
        optax.projections.projection_simplex(x),
        optax.projections.projection_l1_ball(x, 2.0),
        optax.projections.projection_l2_ball(x, 1.0),
        optax.projections.projection_box(x, -1.0, 1.0),
        optax.projections.projection_l1_sphere(x, 1.0),
        optax.projections.projection_linf_ball(x, 0.5),
        optax.projections.projection_hypercube(x),
        optax.projections.projection_non_negative(x),
        optax.projections.projection_hyperplane(x, jnp.ones(20), 1.0),
        optax.projections.projection_halfspace(x, jnp.ones(20), 1.0),
        jax.jacobian(optax.projections.projection_simplex)(x),
    )


@program("optax/perturbations_and_trees")
def perturbations_and_trees(key):
    top = optax.perturbations.make_perturbed_fun(lambda x: jax.nn.one_hot(x.argmax(), 5), num_samples=50, sigma=0.5)
    tree = _network(key)
    return (
        jax.value_and_grad(lambda x: (top(key, x) * jnp.arange(5)).sum())(jnp.array([0.1, 0.5, 0.3, 0.2, 0.4])),
        optax.tree.norm(tree),
        optax.tree.vdot(tree, tree),
        optax.tree.add_scale(tree, 0.5, tree),
        optax.tree.random_like(key, tree),
        optax.global_norm(tree),
        optax.incremental_update(tree, jax.tree.map(jnp.zeros_like, tree), 0.1),
    )


@program("optax/assignment")
def assignment(key):
    cost = jax.random.uniform(key, (12, 17))
    rows, columns = optax.assignment.hungarian_algorithm(cost)
    return rows, columns, cost[rows, columns].sum()


@program("optax/losses_of_sequences_and_sets", tolerance=1e-4, why="sums of probabilities over paths")
def losses_of_sequences_and_sets(key):
    logits = jax.random.normal(key, (2, 9, 5))
    labels = jnp.array([[1, 2, 2, 3], [4, 1, 0, 0]])
    pads = jnp.zeros((2, 9)).at[1, 7:].set(1)

    def ctc(logits):
        return optax.ctc_loss(logits, pads, labels, (labels == 0).astype(jnp.float32)).sum()

    scores, target = logits[0], jnp.arange(9) % 5
    hot = jax.nn.one_hot(target, 5)
    log_p = jax.nn.log_softmax(scores)
    loss = optax.losses
    return (
        jax.value_and_grad(ctc)(logits),
        jax.value_and_grad(lambda s: loss.multiclass_sparsemax_loss(s, target).sum())(scores),
        loss.multiclass_perceptron_loss(scores, target),
        loss.perceptron_loss(scores[:, 0], jnp.where(target > 2, 1, -1)),
        jax.grad(lambda s: loss.safe_softmax_cross_entropy(s, hot).mean())(scores),
        loss.kl_divergence_with_log_targets(log_p, log_p[::-1]),
        loss.generalized_kl_divergence(log_p, hot),
        jax.grad(lambda s: loss.make_fenchel_young_loss(jax.nn.logsumexp)(s, hot).sum())(scores),
    )


@program("optax/linear_algebra_of_optimizers", tolerance=1e-3, why="iterations that stop at a tolerance")
def linear_algebra_of_optimizers(key):
    a = jax.random.normal(key, (9, 9))
    s = a @ a.T + jnp.eye(9)
    vector, value = optax.power_iteration(s, num_iters=200, error_tolerance=1e-7)
    return (
        optax.matrix_inverse_pth_root(s, 4)[0],
        jnp.abs(vector),
        value,
        optax.nnls(a[:, :5], jnp.arange(9.0), iters=300),
        optax.safe_norm(a * 0, 1e-3),
        jax.grad(lambda a: optax.safe_root_mean_squares(a, 1e-3))(a * 0),
    )


@program("optax/chains_by_name", jit=False, tolerance=1e-3, why="steps divide by the root of gradients' squares")
def chains_by_name(key):
    chain = optax.named_chain(
        ("clip", optax.adaptive_grad_clip(0.1)),
        ("scale", optax.scale_by_adam()),
        ("norm", optax.normalize_by_update_norm()),
        ("every", optax.apply_every(2)),
        ("rate", optax.scale_by_learning_rate(lambda n: 0.1 / (1 + n))),
    )
    steps = optax.MultiSteps(chain, every_k_schedule=2, should_skip_update_fn=optax.skip_not_finite)
    p = {"a": jax.random.normal(key, (4, 3)), "b": jnp.ones(3)}

    @jax.jit
    def step(p, state, scale):
        gradient = jax.grad(lambda p: scale * jnp.sin(p["a"] @ p["b"]).sum())(p)
        updates, state = steps.update(gradient, state, p)
        return optax.apply_updates(p, updates), state

    state = steps.init(p)
    for n in range(9):
        p, state = step(p, state, jnp.where(n == 4, jnp.nan, 1.0))
    trees = optax.tree_utils
    return (
        p,
        state.gradient_step,
        trees.tree_norm(p),
        trees.tree_vdot(p, p),
        trees.tree_clip(p, -0.1, 0.2),
        trees.tree_random_like(key, p),
        trees.tree_where(p["b"].sum() > 0, p, trees.tree_zeros_like(p)),
        optax.per_example_global_norm_clip([jnp.stack([p["a"], p["a"] * 9])], 1.0),
    )
