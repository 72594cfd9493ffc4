"""Gather and Scatter of the document "Operation semantics": its formal definitions as loops, and its examples."""

import numpy as np
import pytest
from helpers import evaluate, f32, floats, infer, ints, refused, s32, same

import xlakit as xla


def insert(g, i, position):
    """The document's Combine(A, b): b at ``position`` of A."""
    return (*g[:position], i, *g[position:])


def start_vector(indices, g, index_vector_dim):
    """S: the start index that the batch index G names."""
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    return [int(indices[insert(g, i, index_vector_dim)]) for i in range(indices.shape[index_vector_dim])]


# -- Gather ---------------------------------------------------------------------------------------


def naive_gather(operand, indices, index_vector_dim, offset_dims, slice_sizes, collapsed, start_index_map):
    """The document's formal definition, the starts clamped as DynamicSlice does."""
    full = indices.shape if index_vector_dim < indices.ndim else (*indices.shape, 1)
    batch_sizes = [n for d, n in enumerate(full) if d != index_vector_dim]
    adjusted = [n for d, n in enumerate(slice_sizes) if d not in collapsed]
    rank = len(batch_sizes) + len(offset_dims)
    batch_dims = [d for d in range(rank) if d not in offset_dims]
    sizes = [0] * rank
    for d, n in zip(batch_dims, batch_sizes, strict=True):
        sizes[d] = n
    for d, n in zip(offset_dims, adjusted, strict=True):
        sizes[d] = n
    remapped = [d for d in range(operand.ndim) if d not in collapsed]
    result = np.zeros(sizes, operand.dtype)
    for out in np.ndindex(*sizes):
        s = start_vector(indices, tuple(out[d] for d in batch_dims), index_vector_dim)
        s_in, o_in = [0] * operand.ndim, [0] * operand.ndim
        for k, d in enumerate(start_index_map):
            s_in[d] = min(max(s[k], 0), operand.shape[d] - slice_sizes[d])
        for k, d in enumerate(offset_dims):
            o_in[remapped[k]] = out[d]
        result[out] = operand[tuple(a + b for a, b in zip(s_in, o_in, strict=True))]
    return result


def sorted_subset(rng, items, count):
    return sorted(int(i) for i in rng.choice(items, count, replace=False)) if count else []


@pytest.mark.parametrize("seed", range(60))
def test_gather_is_the_formal_definition(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    sizes = rng.integers(1, 5, rank)
    collapsed = sorted_subset(rng, rank, rng.integers(0, rank + 1))
    slice_sizes = [1 if d in collapsed else int(rng.integers(0, sizes[d] + 1)) for d in range(rank)]
    start_index_map = [int(d) for d in rng.permutation(rank)[: rng.integers(1, rank + 1)]]
    batch = [int(n) for n in rng.integers(1, 4, rng.integers(0, 3))]
    index_vector_dim = int(rng.integers(0, len(batch) + 1))
    full = insert(tuple(batch), len(start_index_map), index_vector_dim)
    indices = rng.integers(-2, 6, full).astype(np.int32)
    if len(start_index_map) == 1 and rng.integers(2):
        indices, index_vector_dim = indices.reshape(batch), len(batch)
    offsets = rank - len(collapsed)
    offset_dims = sorted_subset(rng, len(batch) + offsets, offsets)
    operand = rng.integers(0, 100, sizes).astype(np.float32)
    numbers = {
        "offset_dims": offset_dims,
        "collapsed_slice_dims": collapsed,
        "start_index_map": start_index_map,
        "index_vector_dim": index_vector_dim,
    }
    same(
        evaluate(lambda o, i: xla.gather(o, i, slice_sizes=slice_sizes, **numbers), operand, indices),
        naive_gather(operand, indices, index_vector_dim, offset_dims, slice_sizes, collapsed, start_index_map),
    )


GRID = np.arange(16 * 11, dtype=np.float32).reshape(16, 11)


def test_gather_indices_may_have_several_batch_dimensions():
    rng = np.random.default_rng(0)
    starts = np.stack([rng.integers(0, 9, (4, 5)), rng.integers(0, 6, (4, 5))], axis=-1).astype(np.int64)
    output = evaluate(
        lambda o, i: xla.gather(o, i, slice_sizes=(8, 6), offset_dims=(2, 3), start_index_map=(0, 1)), GRID, starts
    )
    assert output.shape == (4, 5, 8, 6)
    for g in np.ndindex(4, 5):
        x, y = starts[g]
        same(output[g], GRID[x : x + 8, y : y + 6])


def test_gather_nd_selects_rows():
    rows = np.array([[3, 0, 15], [7, 7, 2]], dtype=np.int64)[..., None]
    output = evaluate(
        lambda o, i: xla.gather(
            o, i, slice_sizes=(1, 11), offset_dims=(2,), collapsed_slice_dims=(0,), start_index_map=(0,)
        ),
        GRID,
        rows,
    )
    same(output, GRID[rows[..., 0]])


def test_an_index_vector_dim_of_the_rank_means_a_trailing_dimension_of_1():
    def program(index_vector_dim):
        return lambda o, i: xla.gather(
            o,
            i,
            slice_sizes=(1, 11),
            offset_dims=(2,),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=index_vector_dim,
        )

    assert infer(program(2), f32(16, 11), s32(6, 7)).dimensions == (6, 7, 11)
    assert infer(program(2), f32(16, 11), s32(6, 7, 1)).dimensions == (6, 7, 11)


GATHER = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}


def test_promises_do_not_change_the_result():
    rows = ints([[1], [4], [9]])
    plain = evaluate(lambda o, i: xla.gather(o, i, slice_sizes=(1, 11), **GATHER), GRID, rows)
    promised = evaluate(
        lambda o, i: xla.gather(o, i, slice_sizes=(1, 11), indices_are_sorted=True, unique_indices=True, **GATHER),
        GRID,
        rows,
    )
    same(promised, plain)


# -- Scatter --------------------------------------------------------------------------------------


def naive_scatter(operands, indices, updates, update, index_vector_dim, window_dims, inserted, to_operand):
    """The document's formal definition; a window that reaches outside is left out whole, as XLA does."""
    output = [o.copy() for o in operands]
    sizes, bounds = updates[0].shape, operands[0].shape
    scatter_dims = [d for d in range(len(sizes)) if d not in window_dims]
    window_to_operand = [d for d in range(len(bounds)) if d not in inserted]
    extents = [1] * len(bounds)
    for k, d in enumerate(window_dims):
        extents[window_to_operand[k]] = sizes[d]
    for u in np.ndindex(*sizes):
        s = start_vector(indices, tuple(u[d] for d in scatter_dims), index_vector_dim)
        s_in, w_in = [0] * len(bounds), [0] * len(bounds)
        for k, d in enumerate(to_operand):
            s_in[d] = s[k]
        for k, d in enumerate(window_dims):
            w_in[window_to_operand[k]] = u[d]
        if all(0 <= a <= n - e for a, n, e in zip(s_in, bounds, extents, strict=True)):
            i = tuple(a + b for a, b in zip(s_in, w_in, strict=True))
            for o, value in zip(output, update(*(o[i] for o in output), *(p[u] for p in updates)), strict=True):
                o[i] = value
    return tuple(output)


def scatter_case(seed, arrays=1):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    sizes = rng.integers(1, 5, rank)
    inserted = sorted_subset(rng, rank, rng.integers(0, rank + 1))
    window = [int(rng.integers(0 if rng.random() < 0.1 else 1, sizes[d] + 1)) for d in range(rank) if d not in inserted]
    to_operand = [int(d) for d in rng.permutation(rank)[: rng.integers(1, rank + 1)]]
    batch = [int(n) for n in rng.integers(1, 5, rng.integers(0, 3))]
    index_vector_dim = int(rng.integers(0, len(batch) + 1))
    indices = rng.integers(-1, 5, insert(tuple(batch), len(to_operand), index_vector_dim)).astype(np.int32)
    if len(to_operand) == 1 and rng.integers(2):
        indices, index_vector_dim = indices.reshape(batch), len(batch)
    window_dims = sorted_subset(rng, len(batch) + len(window), len(window))
    rest_batch, rest_window = iter(batch), iter(window)
    update_sizes = [next(rest_window if d in window_dims else rest_batch) for d in range(len(batch) + len(window))]
    operands = [rng.integers(0, 100, sizes).astype(np.float32) for _ in range(arrays)]
    updates = [rng.integers(0, 100, update_sizes).astype(np.float32) for _ in range(arrays)]
    numbers = {
        "update_window_dims": window_dims,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": to_operand,
        "index_vector_dim": index_vector_dim,
    }
    return operands, indices, updates, numbers


UPDATES = {
    "add": (xla.add, lambda a, b: [a + b]),
    "max": (xla.max, lambda a, b: [max(a, b)]),
    "replace": (lambda a, b: b, lambda a, b: [b]),
    # Not commutative: the value so far comes first.
    "mixed": (lambda a, b: a * 0.5 + b, lambda a, b: [a * np.float32(0.5) + b]),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("seed", range(20))
def test_scatter_is_the_formal_definition(name, seed):
    computation, update = UPDATES[name]
    (operand,), indices, (updates,), numbers = scatter_case(seed * 7 + len(name))
    expected = naive_scatter(
        [operand],
        indices,
        [updates],
        update,
        numbers["index_vector_dim"],
        numbers["update_window_dims"],
        numbers["inserted_window_dims"],
        numbers["scatter_dims_to_operand_dims"],
    )
    same(evaluate(lambda o, i, u: xla.scatter(o, i, u, computation, **numbers), operand, indices, updates), expected[0])


@pytest.mark.parametrize("seed", range(10))
def test_scatter_of_two_arrays_at_once(seed):
    operands, indices, updates, numbers = scatter_case(100 + seed, arrays=2)

    def program(a, b, i, u, v):
        # Keep the pair of the larger first element.
        def larger(a, b, u, v):
            keep = a >= u
            return xla.select(keep, a, u), xla.select(keep, b, v)

        return xla.scatter([a, b], i, [u, v], larger, **numbers)

    expected = naive_scatter(
        operands,
        indices,
        updates,
        lambda a, b, u, v: (a, b) if a >= u else (u, v),
        numbers["index_vector_dim"],
        numbers["update_window_dims"],
        numbers["inserted_window_dims"],
        numbers["scatter_dims_to_operand_dims"],
    )
    same(evaluate(program, *operands, indices, *updates), expected)


def test_scatter_is_the_reverse_of_gather():
    rows = ints([[3], [0], [15]])
    scattering = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}

    def program(o, i):
        slices = xla.gather(o, i, slice_sizes=(1, 11), **GATHER)
        return xla.scatter(o, i, slices * 10, lambda a, b: b, index_vector_dim=1, **scattering)

    expected = GRID.copy()
    expected[[3, 0, 15]] *= 10
    same(evaluate(program, GRID, rows), expected)


def test_updates_out_of_bounds_are_left_out():
    numbers = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    same(
        evaluate(
            lambda o, i, u: xla.scatter(o, i, u, xla.add, **numbers),
            floats([1, 2, 3]),
            ints([[-1], [0], [2], [3]]),
            floats([10, 20, 30, 40]),
        ),
        floats([21, 2, 33]),
    )


def test_a_window_that_reaches_outside_is_left_out_whole():
    numbers = {"update_window_dims": (1,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    same(
        evaluate(
            lambda o, i, u: xla.scatter(o, i, u, xla.add, **numbers),
            floats([0, 0, 0, 0, 0]),
            ints([[4], [-1], [1]]),
            floats([[1, 2], [3, 4], [5, 6]]),
        ),
        floats([0, 5, 6, 0, 0]),
    )


SCATTER = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
}


@pytest.mark.parametrize(
    "change",
    [
        {"update_window_dims": ()},  # window and inserted dimensions do not make up the rank
        {"update_window_dims": (2,)},  # outside the updates
        {"update_window_dims": (0, 1)},
        {"inserted_window_dims": (2,)},
        {"inserted_window_dims": (-1,)},
        {"inserted_window_dims": (0, 0)},
        {"scatter_dims_to_operand_dims": (0, 1)},  # not as many as an index vector has
        {"scatter_dims_to_operand_dims": (2,)},
        {"index_vector_dim": 3},
    ],
)
def test_scatter_has_rules(change):
    arguments = {**SCATTER, **change}
    refused(lambda o, i, u: xla.scatter(o, i, u, xla.add, **arguments), f32(16, 11), s32(5, 1), f32(5, 11))


@pytest.mark.parametrize("updates", [(5, 12), (4, 11), (5,), (5, 11, 1)])
def test_scatter_updates_fit_operand_and_indices(updates):
    refused(lambda o, i, u: xla.scatter(o, i, u, xla.add, **SCATTER), f32(16, 11), s32(5, 1), f32(*updates))


def test_scatter_window_dims_are_in_order():
    numbers = {**SCATTER, "update_window_dims": (2, 1), "inserted_window_dims": ()}
    refused(lambda o, i, u: xla.scatter(o, i, u, xla.add, **numbers), f32(16, 11), s32(5, 1), f32(5, 2, 2))


def test_scatter_arrays_are_alike():
    def program(a, b, i, u, v):
        return xla.scatter([a, b], i, [u, v], lambda a, b, u, v: (u, v), **SCATTER)

    refused(program, f32(16, 11), f32(16, 12), s32(5, 1), f32(5, 11), f32(5, 11))
    refused(program, f32(16, 11), f32(16, 11), s32(5, 1), f32(5, 11), f32(5, 10))


def test_scatter_computation_has_the_right_type():
    refused(lambda o, i, u: xla.scatter(o, i, u, xla.lt, **SCATTER), f32(16, 11), s32(5, 1), f32(5, 11))
    refused(lambda o, i, u: xla.scatter(o, i, u, xla.add, **SCATTER), f32(16, 11), f32(5, 1), f32(5, 11))
