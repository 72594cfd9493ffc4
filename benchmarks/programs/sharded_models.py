"""JAX programs over several devices: models, losses and optimizers as people write them, on meshes of two and three
axes whose devices are in another order too; maps by hand among what the partitioner does, and explicit axes.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax, numpy as jnp
from jax.sharding import PartitionSpec as P

from benchmarks.programs.sharded import GRID, Program, floats, split, words

_ROWS, _COLUMNS = P("x"), P(None, "x")
_CUBE, _TWO_BY_FOUR = (2, 2, 2), (2, 4)
_TURNED = (5, 2, 7, 0, 3, 6, 1, 4)


# -- losses and optimizers -------------------------------------------------------------------------------


def _smoothed_loss(x: Any, table: Any, labels: Any) -> Any:
    def loss(table: Any) -> Any:
        logits = x @ table
        total = jax.nn.logsumexp(logits, -1)
        own = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
        return (total - 0.9 * own - 0.1 * logits.mean(-1) + 1e-3 * total**2).mean()

    return jax.value_and_grad(loss)(table)


def _one_hot_loss(logits: Any, labels: Any) -> Any:
    target = jax.nn.one_hot(labels, logits.shape[-1])
    loss = -(target * jax.nn.log_softmax(logits)).sum(-1)
    hits = jnp.argmax(logits, -1) == labels
    return loss.mean(), hits.mean(), jax.grad(lambda x: (target * jax.nn.log_softmax(x)).sum())(logits)


def _adam(weights: Any, first: Any, second: Any, x: Any) -> Any:
    gradient = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(weights)
    gradient = gradient * jnp.minimum(1.0, 1.0 / jnp.linalg.norm(gradient))
    first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
    return weights - 0.01 * first / (jnp.sqrt(second) + 1e-8), first, second


def _zero_one(weights: Any, first: Any, second: Any, x: Any) -> Any:
    """Weights whole, states in parts: each device updates its part."""
    new, first, second = _adam(weights, split(first, "x"), split(second, "x"), x)
    return split(new), split(first, "x"), split(second, "x")


def _lamb(up: Any, down: Any, x: Any) -> Any:
    gradients = jax.grad(lambda w: (jax.nn.gelu(x @ w[0]) @ w[1]).var())((up, down))

    def update(w: Any, g: Any) -> Any:
        step = g / (jnp.abs(g) + 1e-3) + 0.01 * w
        return w - 0.01 * jnp.linalg.norm(w) / (jnp.linalg.norm(step) + 1e-6) * step

    return jax.tree.map(update, (up, down), gradients)


def _accumulated(weights: Any, batches: Any) -> Any:
    """Gradients of small batches, each put where it belongs in the loop."""

    def add(total: Any, x: Any) -> Any:
        x = split(x, "x")
        return total + jax.grad(lambda w: (jnp.sin(x @ w) ** 2).mean())(weights), None

    total, _ = lax.scan(add, jnp.zeros_like(weights), batches)
    return weights - 0.1 * total / batches.shape[0]


# -- models ----------------------------------------------------------------------------------------------


def _rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / 100 ** (jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def _grouped_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = _rotated(q), _rotated(k)
    b, s, h, d = q.shape
    q = q.reshape(b, s, k.shape[2], h // k.shape[2], d)
    scores = jnp.einsum("bqkgd,bskd->bkgqs", q, k) / d**0.5
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -1e9)
    return jnp.einsum("bkgqs,bskd->bqkgd", jax.nn.softmax(scores), v).reshape(b, s, h, d)


def _block(x: Any, weights: Any) -> Any:
    """A layer of a transformer, whose activations and weights are split along three axes."""
    wq, wo, gate, up, down = weights
    h = x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    q = split(jnp.einsum("bsd,dhe->bshe", h, wq), "x", None, "z")
    x = x + jnp.einsum("bshe,hed->bsd", _grouped_attention(q, q[:, :, ::2], q[:, :, ::2]), wo)
    h = x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    h = split(jax.nn.silu(h @ gate) * (h @ up), "x", None, "z")
    return split(x + h @ down, "x")


def _block_step(x: Any, *weights: Any) -> Any:
    gradients = jax.grad(lambda w: (jax.checkpoint(_block)(x, w) ** 2).mean())(weights)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


_BLOCK = (
    floats(8, 16, 32),
    floats(32, 4, 8) / 6,
    floats(4, 8, 32) / 6,
    floats(32, 64) / 6,
    floats(32, 64, seed=1) / 6,
    floats(64, 32) / 8,
)
_BLOCK_SPECS = (P("x"), P("y", "z"), P("z", None, "y"), P("y", "z"), P("y", "z"), P("z", "y"))


def _blockwise(q: Any, k: Any, v: Any) -> Any:
    """Attention over blocks of keys, with a running maximum and sum."""

    def step(carry: Any, kv: Any) -> Any:
        top, total, out = carry
        scores = jnp.einsum("bqd,bkd->bqk", q, kv[0])
        new = jnp.maximum(top, scores.max(-1))
        kept, p = jnp.exp(top - new), jnp.exp(scores - new[..., None])
        return (new, total * kept + p.sum(-1), out * kept[..., None] + jnp.einsum("bqk,bkd->bqd", p, kv[1])), None

    blocks = tuple(jnp.moveaxis(a.reshape(a.shape[0], 4, -1, a.shape[-1]), 1, 0) for a in (k, v))
    start = jnp.full(q.shape[:2], -1e30), jnp.zeros(q.shape[:2]), jnp.zeros_like(q)
    (_, total, out), _ = lax.scan(step, start, blocks)
    return out / total[..., None]


def _linear_attention(q: Any, k: Any, v: Any) -> Any:
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    state = jnp.cumsum(jnp.einsum("bsd,bse->bsde", k, v), 1)
    return jnp.einsum("bsd,bsde->bse", q, state) / jnp.einsum("bsd,bsd->bs", q, jnp.cumsum(k, 1))[..., None]


def _selective_scan(x: Any, decay: Any, into: Any) -> Any:
    a = jnp.exp(-jax.nn.softplus(x[..., None] * decay))
    b = x[..., None] * into
    _, h = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (a, b), axis=1)
    return h.sum(-1)


def _causal_convolution(x: Any, kernel: Any) -> Any:
    padded = jnp.pad(x, ((0, 0), (kernel.shape[0] - 1, 0), (0, 0)))
    return lax.conv_general_dilated(
        padded, kernel, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=x.shape[-1]
    )


def _patches(x: Any, weights: Any) -> Any:
    b, h, w, c = x.shape
    cut = x.reshape(b, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, 16 * c)
    return cut @ weights


def _shuffled_pixels(x: Any) -> Any:
    b, h, w, c = x.shape
    return x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 2 * h, 2 * w, c // 4)


def _ragged_experts(x: Any, gate: Any, ups: Any) -> Any:
    """Tokens sorted by expert, in groups of any length."""
    expert = jnp.argmax(x @ gate, -1)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=gate.shape[-1])
    return lax.ragged_dot(x[order], ups, sizes.astype(jnp.int32))[jnp.argsort(order)]


def _capacity(x: Any, gate: Any, ups: Any) -> Any:
    """Experts that take at most so many tokens, in the order of these."""
    scores = jax.nn.softmax(x @ gate)
    expert = jnp.argmax(scores, -1)
    hot = jax.nn.one_hot(expert, gate.shape[-1], dtype=jnp.int32)
    place = (jnp.cumsum(hot, 0) * hot).sum(-1) - 1
    given = jnp.zeros((gate.shape[-1], 24, x.shape[-1])).at[expert, place].set(x, mode="drop")
    made = jnp.einsum("ecd,edh->ech", split(given, "x"), ups)
    return made.at[expert, place].get(mode="fill", fill_value=0) * scores.max(-1, keepdims=True)


def _bags(table: Any, ids: Any, weights: Any) -> Any:
    def loss(table: Any) -> Any:
        return (jnp.einsum("bn,bnd->bd", weights, table[ids]) ** 2).mean()

    return jax.value_and_grad(loss)(table)


# -- by hand ---------------------------------------------------------------------------------------------


def _by_hand(function: Any, ins: Any, outs: Any, **said: Any) -> Any:
    return jax.shard_map(function, in_specs=ins, out_specs=outs, **said)


def _scattered(x: Any, up: Any, down: Any) -> Any:
    """Tensor and sequence parallel: gathered before, scattered behind."""

    def part(x: Any, up: Any, down: Any) -> Any:
        x = lax.all_gather(x, "x", axis=0, tiled=True)
        return lax.psum_scatter(jax.nn.relu(x @ up) @ down, "x", scatter_dimension=0, tiled=True)

    mapped = _by_hand(part, (_ROWS, _COLUMNS, _ROWS), _ROWS)
    return mapped(x, up, down), jax.grad(lambda w: (mapped(x, w, down) ** 2).sum())(up)


def _cast(x: Any, w: Any) -> Any:
    def part(x: Any, w: Any) -> Any:
        w = lax.pcast(w, "x", to="varying")
        return lax.psum(jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w), "x")

    return _by_hand(part, (_ROWS, P()), P())(x, w)


def _halo_heat(u: Any) -> Any:
    def part(u: Any) -> Any:
        n = lax.axis_size("x")

        def step(u: Any, _: Any) -> Any:
            above = lax.ppermute(u[-1:], "x", [(i, (i + 1) % n) for i in range(n)])
            below = lax.ppermute(u[:1], "x", [(i, (i - 1) % n) for i in range(n)])
            p = jnp.concatenate([above, u, below])
            return u + 0.1 * (p[2:] + p[:-2] - 2 * u), None

        return lax.scan(step, u, None, length=5)[0]

    return _by_hand(part, _ROWS, _ROWS)(u)


def _ulysses(q: Any, k: Any, v: Any) -> Any:
    def part(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (lax.all_to_all(a, "x", 2, 1, tiled=True) for a in (q, k, v))
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)
        return lax.all_to_all(out, "x", 1, 2, tiled=True)

    return _by_hand(part, (_COLUMNS,) * 3, _COLUMNS)(q, k, v)


def _attended(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k)), v)


def _mixed(x: Any, w: Any) -> Any:
    """A jitted product, a map by hand over one of two axes, and a sum by the partitioner."""
    h = jax.nn.relu(x @ w)
    h = _by_hand(lambda h: h - lax.pmean(h, "x"), P("x"), P("x"), axis_names={"x"})(h)
    return jnp.abs(split(h, "x", "y")).sum(0), (h * h).mean()


def _mixed_alone(x: Any, w: Any) -> Any:
    h = jax.nn.relu(x @ w).reshape(2, x.shape[0] // 2, -1)
    h = h - h.mean(0)
    return jnp.abs(h).sum((0, 1)), (h * h).mean()


def _stages(x: Any, weights: Any) -> Any:
    """A pipeline whose state goes on to the next device, four stages beside two halves of the batch."""

    def part(x: Any, w: Any) -> Any:
        n, number = lax.axis_size("y"), lax.axis_index("y")

        def tick(carry: Any, t: Any) -> Any:
            given = jnp.where(number == 0, x[jnp.minimum(t, x.shape[0] - 1)], carry)
            made = jnp.tanh(given @ w[0])
            return lax.ppermute(made, "y", [(i, (i + 1) % n) for i in range(n)]), made

        start = lax.pcast(jnp.zeros_like(x[0]), "y", to="varying")
        _, made = lax.scan(tick, start, jnp.arange(x.shape[0] + n - 1))
        return lax.psum(jnp.where(number == n - 1, made[n - 1 :], 0), "y")

    return _by_hand(part, (P(None, "x"), P("y")), P(None, "x"))(x, weights)


def _stages_alone(x: Any, weights: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def _heat_alone(u: Any) -> Any:
    for _ in range(5):
        u = u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u)
    return u


def _scattered_alone(x: Any, up: Any, down: Any) -> Any:

    def f(up: Any) -> Any:
        return jax.nn.relu(x @ up) @ down

    return f(up), jax.grad(lambda w: (f(w) ** 2).sum())(up)


# -- explicit axes ---------------------------------------------------------------------------------------
def _explicit_attention(q: Any, k: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, k, out_sharding=P("x", None, None))
    return jax.nn.softmax(scores).sum(1)


def _explicit_gathers(x: Any, ids: Any) -> Any:
    rows = jax.sharding.reshard(x, P(None, "y")).at[ids].get(out_sharding=P("x", "y"))
    return jax.sharding.reshard(rows, P("y", "x")) * 2, rows.sum(0)


_HEADS = floats(2, 64, 8, 8)
MODELS: dict[str, Program] = {
    "smoothed loss, split vocabulary, training": Program(
        _smoothed_loss, (floats(32, 16), floats(16, 1024), words(32)), (P(), _COLUMNS, P())
    ),
    "one-hot loss, split classes": Program(_one_hot_loss, (floats(64, 512), words(64, below=512)), (_COLUMNS, P())),
    "one-hot loss, split both ways": Program(
        _one_hot_loss, (floats(64, 512), words(64, below=512)), (P("x", "y"), P("x")), GRID
    ),
    "Adam, split states": Program(
        _adam, (floats(64, 32), floats(64, 32), floats(64, 32) ** 2, floats(16, 64)), (_ROWS, _ROWS, _ROWS, P())
    ),
    "Adam, whole weights and split states": Program(
        _zero_one, (floats(64, 32), floats(64, 32), floats(64, 32) ** 2, floats(16, 64)), (P(), _ROWS, _ROWS, _ROWS)
    ),
    "LAMB, split weights": Program(
        _lamb, (floats(32, 64), floats(64, 32), floats(16, 32)), (P("y", "x"), P("x", "y"), P("y")), GRID
    ),
    "gradients added up in a loop, put in the loop": Program(
        _accumulated, (floats(32, 16), floats(4, 16, 32)), (P(), _COLUMNS)
    ),
    "grouped attention, split heads": Program(
        _grouped_attention,
        (floats(2, 32, 8, 8), floats(2, 32, 4, 8), floats(2, 32, 4, 8)),
        (P("x", None, "y"),) * 3,
        (2, 4),
    ),
    "a layer along three axes": Program(lambda x, *w: _block(x, w), _BLOCK, _BLOCK_SPECS, _CUBE),
    "a layer along three axes, training": Program(_block_step, _BLOCK, _BLOCK_SPECS, _CUBE),
    "a layer along three turned axes, training": Program(_block_step, _BLOCK, _BLOCK_SPECS, _CUBE, devices=_TURNED),
    "attention over blocks, split queries": Program(
        _blockwise, (floats(4, 32, 8), floats(4, 64, 8), floats(4, 64, 8)), (_COLUMNS, P(), P())
    ),
    "attention over blocks, split batch": Program(
        _blockwise, (floats(8, 32, 8), floats(8, 64, 8), floats(8, 64, 8)), (_ROWS,) * 3, devices=_TURNED
    ),
    "linear attention, split sequence": Program(_linear_attention, (floats(2, 64, 8),) * 3, (_COLUMNS,) * 3),
    "selective scan, split sequence": Program(
        _selective_scan, (floats(2, 64, 8), floats(8, 4), floats(8, 4)), (_COLUMNS, P(), P())
    ),
    "selective scan, split channels": Program(
        _selective_scan, (floats(2, 64, 8), floats(8, 4), floats(8, 4)), (P(None, None, "x"), _ROWS, _ROWS)
    ),
    "causal convolution, split sequence": Program(
        _causal_convolution, (floats(2, 64, 8), floats(4, 1, 8)), (_COLUMNS, P())
    ),
    "patches of split rows": Program(_patches, (floats(2, 64, 32, 3), floats(48, 16)), (_COLUMNS, P())),
    "shuffled pixels, split rows": Program(_shuffled_pixels, (floats(2, 16, 16, 8),), (_COLUMNS,)),
    "ragged experts, split tokens": Program(
        _ragged_experts, (floats(64, 16), floats(16, 8), floats(8, 16, 32)), (_ROWS, P(), P())
    ),
    "ragged experts, split features": Program(
        _ragged_experts, (floats(64, 16), floats(16, 8), floats(8, 16, 32)), (P(), P(), P(None, None, "x"))
    ),
    "experts of limited capacity": Program(
        _capacity, (floats(128, 16), floats(16, 8), floats(8, 16, 32)), (_ROWS, P(), _ROWS)
    ),
    "bags of words, split vocabulary, training": Program(
        _bags, (floats(1024, 32), words(16, 4), floats(16, 4)), (_ROWS, P(), P())
    ),
    "bags of words, split both ways, training": Program(
        _bags, (floats(1024, 32), words(16, 4), floats(16, 4)), (P("x", "y"), P("y"), P("y")), GRID
    ),
    "by hand: gathered and scattered": Program(
        _scattered, (floats(64, 16), floats(16, 64), floats(64, 16)), (_ROWS, _COLUMNS, _ROWS), alone=_scattered_alone
    ),
    "by hand: gradients of varying weights": Program(
        _cast,
        (floats(64, 16), floats(16, 8)),
        (_ROWS, P()),
        alone=lambda x, w: jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w),
    ),
    "by hand: heat with halos": Program(_halo_heat, (floats(64, 16),), (_ROWS,), alone=_heat_alone),
    "by hand: heads for sequences": Program(
        _ulysses,
        (_HEADS,) * 3,
        (_COLUMNS,) * 3,
        alone=_attended,
    ),
    "by hand along one axis, turned devices": Program(
        _mixed,
        (floats(32, 16), floats(16, 64)),
        (P("x"), P(None, "y")),
        _TWO_BY_FOUR,
        devices=_TURNED,
        alone=_mixed_alone,
    ),
    "by hand: pipeline beside split batches": Program(
        _stages, (floats(6, 8, 16), floats(4, 16, 16) / 4), (P(None, "x"), P("y")), _TWO_BY_FOUR, alone=_stages_alone
    ),
    "explicit axes: attention": Program(
        _explicit_attention, (floats(8, 16, 8), floats(8, 16, 8)), (_ROWS, _ROWS), explicit=True
    ),
    "explicit axes: gathers": Program(
        _explicit_gathers, (floats(64, 16), words(32, below=64)), (P("x", "y"), P("x")), GRID, explicit=True
    ),
    "uneven heads": Program(
        _grouped_attention,
        (floats(2, 12, 6, 8), floats(2, 12, 6, 8), floats(2, 12, 6, 8)),
        (P(None, None, "x"),) * 3,
        (6,),
    ),
}
