"""Algorithms of textbooks in loops over integers: stacks, heaps, trees and words in arrays, exact in every bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from fuzz.library_programs.registry import program


@program("algorithms/hungarian")
def hungarian(key):
    """The cheapest assignment of rows to columns, whose augmenting paths are loops in a loop."""
    n, high = 8, 10**6
    cost = jnp.pad(jax.random.randint(key, (n, n), 1, 50), ((1, 0), (1, 0)), constant_values=high)

    def step(s):
        column, least, used, way, rows, u, v = s
        used = used.at[column].set(True)
        row = rows[column]
        reduced = cost[row] - u[row] - v
        better = ~used & (reduced < least)
        least, way = jnp.where(better, reduced, least), jnp.where(better, column, way)
        left = jnp.where(used, high, least)
        delta = jnp.min(left)
        u = u.at[jnp.where(used, rows, n + 1)].add(delta, mode="drop")
        return jnp.argmin(left), jnp.where(used, least, least - delta), used, way, rows, u, v - used * delta

    def assign(row, s):
        rows, u, v = s
        start = (0, jnp.full(n + 1, high), jnp.zeros(n + 1, bool), jnp.zeros(n + 1, int), rows.at[0].set(row), u, v)
        column, _, _, way, rows, u, v = lax.while_loop(lambda s: s[4][s[0]] != 0, step, start)
        flip = lambda s: (way[s[0]], s[1].at[s[0]].set(s[1][way[s[0]]]))  # noqa: E731
        return lax.while_loop(lambda s: s[0] != 0, flip, (column, rows))[1], u, v

    zeros = jnp.zeros(n + 1, int)
    return lax.fori_loop(1, n + 1, assign, (zeros, zeros, zeros))


@program("algorithms/queens")
def queens(key):
    """Placements of queens counted by bit masks on a stack of one's own."""
    n = 6
    full = (1 << n) - 1

    def body(s):
        columns, left, right, free, top, count = s
        bits = free[top]
        bit = bits & -bits

        def push():
            c, a, b = columns[top] | bit, (left[top] | bit) << 1, (right[top] | bit) >> 1
            rest = free.at[top].set(bits ^ bit)

            def deeper():
                return (
                    columns.at[top + 1].set(c), left.at[top + 1].set(a), right.at[top + 1].set(b),
                    rest.at[top + 1].set(full & ~(c | a | b)), top + 1, count,
                )  # fmt: skip

            return lax.cond(c == full, lambda: (columns, left, right, rest, top, count + 1), deeper)

        return lax.cond(bits == 0, lambda: (columns, left, right, free, top - 1, count), push)

    zeros = jnp.zeros(n + 1, jnp.int32)
    first = zeros.at[0].set(full & ~jax.random.randint(key, (), 0, 4))
    return lax.while_loop(lambda s: s[4] >= 0, body, (zeros, zeros, zeros, first, 0, 0))


@program("algorithms/heap_sort")
def heap_sort(key):
    n = 33
    numbers = jax.random.randint(key, (n,), -100, 100).astype(jnp.int16)

    def child(a, i, end):
        c = 2 * i + 1
        return jnp.where((c + 1 < end) & (a[jnp.minimum(c + 1, n - 1)] > a[jnp.minimum(c, n - 1)]), c + 1, c)

    def sift(a, i, end):
        def goes_on(s):
            a, i = s
            return (2 * i + 1 < end) & (a[jnp.minimum(child(a, i, end), n - 1)] > a[i])

        def swap(s):
            a, i = s
            c = child(a, i, end)
            return a.at[i].set(a[c]).at[c].set(a[i]), c

        return lax.while_loop(goes_on, swap, (a, i))[0]

    def pop(k, a):
        end = n - 1 - k
        return sift(a.at[0].set(a[end]).at[end].set(a[0]), 0, end)

    heap = lax.fori_loop(0, n // 2, lambda k, a: sift(a, n // 2 - 1 - k, n), numbers)
    return heap, lax.fori_loop(0, n - 1, pop, heap)


@program("algorithms/spanning_tree")
def spanning_tree(key):
    """Kruskal's: edges in order of their weight, and a forest of pointers that loops follow."""
    nodes, edges = 15, 40
    keys = jax.random.split(key, 3)
    one, other = (jax.random.randint(k, (edges,), 0, nodes) for k in keys[:2])
    ordered = lax.sort((jax.random.randint(keys[2], (edges,), 0, 99), one, other), num_keys=3)

    def step(s, edge):
        parent, rank, total = s
        weight, a, b = edge
        a, b = (lax.while_loop(lambda x: parent[x] != x, lambda x: parent[x], x) for x in (a, b))
        low, high = jnp.where(rank[a] < rank[b], a, b), jnp.where(rank[a] < rank[b], b, a)
        joins = a != b
        parent = parent.at[low].set(jnp.where(joins, high, parent[low]))
        rank = rank.at[high].add(joins & (rank[low] == rank[high]))
        return (parent, rank, total + joins * weight), joins

    return lax.scan(step, (jnp.arange(nodes), jnp.zeros(nodes, int), 0), ordered)


@program("algorithms/large_numbers")
def large_numbers(key):
    """Digits of 8 and of 16 bits with carries: factorials and Fibonacci numbers."""

    def times(digits, factor):
        def carry(c, digit):
            wide = digit.astype(jnp.uint16) * factor.astype(jnp.uint16) + c
            return wide >> 8, (wide & 255).astype(jnp.uint8)

        over, digits = lax.scan(carry, jnp.uint16(0), digits)
        return digits, over

    def plus(a, b):
        def carry(c, digit):
            return (digit + c) >> 16, ((digit + c) & 0xFFFF).astype(jnp.uint16)

        return lax.scan(carry, jnp.uint32(0), a.astype(jnp.uint32) + b)[1]

    first = jax.random.randint(key, (), 1, 9).astype(jnp.uint8)
    product = lax.scan(times, jnp.zeros(40, jnp.uint8).at[0].set(first), jnp.arange(1, 30, dtype=jnp.uint8))
    zeros = jnp.zeros(16, jnp.uint16)
    return product, lax.fori_loop(0, 300, lambda _, s: (s[1], plus(*s)), (zeros, zeros.at[0].set(1)))


@program("algorithms/text_search")
def text_search(key):
    """Knuth, Morris and Pratt's search: the table of borders, then the text one letter at a time."""
    size = 5
    text = jax.random.randint(key, (200,), 0, 2).astype(jnp.uint8)
    word = text[10 : 10 + size]

    def shorter(table, k, letter):
        def differs(k):
            return (k > 0) & ((k == size) | (word[jnp.minimum(k, size - 1)] != letter))

        k = lax.while_loop(differs, lambda k: table[k - 1], k)
        return k + (word[jnp.minimum(k, size - 1)] == letter)

    def fill(i, s):
        table, k = s
        k = shorter(table, k, word[i])
        return table.at[i].set(k), k

    table, _ = lax.fori_loop(1, size, fill, (jnp.zeros(size, jnp.int32), jnp.int32(0)))

    def step(k, letter):
        k = shorter(table, k, letter)
        return k, k == size

    found = lax.scan(step, jnp.int32(0), text)[1]
    return table, found, jnp.nonzero(found, size=20, fill_value=-1)[0]


@program("algorithms/unpacking")
def unpacking(key):
    """What Lempel and Ziv's code stands for, copied from what stands before it; and its checksum."""
    count = 24
    keys = jax.random.split(key, 3)
    lengths, back = jax.random.randint(keys[0], (count,), 0, 6), jax.random.randint(keys[1], (count,), 1, 9)
    letters = jax.random.randint(keys[2], (count,), 0, 256).astype(jnp.uint8)

    def token(i, s):
        text, end = s
        distance, stop = jnp.minimum(back[i], jnp.maximum(end, 1)), end + jnp.where(end > 0, lengths[i], 0)
        copy = lambda s: (s[0].at[s[1]].set(s[0][s[1] - distance]), s[1] + 1)  # noqa: E731
        text, end = lax.while_loop(lambda s: s[1] < stop, copy, (text, end))
        return text.at[end].set(letters[i]), end + 1

    def checked(c, letter):
        c = c ^ letter
        return lax.fori_loop(0, 8, lambda _, c: (c >> 1) ^ jnp.where(c & 1, jnp.uint32(0xEDB88320), 0), c), None

    text, end = lax.fori_loop(0, count, token, (jnp.zeros(count * 6, jnp.uint8), jnp.int32(0)))
    return text, end, ~lax.scan(checked, jnp.uint32(0xFFFFFFFF), text.astype(jnp.uint32))[0]


@program("algorithms/digest")
def digest(key):
    """Rounds of a hash function: rotations, sums that wrap, and eight words that change places."""
    turn = lambda x, n: (x >> n) | (x << (32 - n))  # noqa: E731

    def extend(i, w):
        a, b = w[i - 15], w[i - 2]
        first, second = turn(a, 7) ^ turn(a, 18) ^ (a >> 3), turn(b, 17) ^ turn(b, 19) ^ (b >> 10)
        return w.at[i].set(w[i - 16] + first + w[i - 7] + second)

    def rounds(s, word):
        a, b, c, d, e, f, g, h = s
        first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + word
        second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        return (first + second, a, b, c, d + first, e, f, g), None

    words = jnp.zeros(64, jnp.uint32).at[:16].set(jax.random.bits(key, (16,)))
    words = lax.fori_loop(16, 64, extend, words)
    return lax.scan(rounds, tuple(jax.random.bits(jax.random.fold_in(key, 1), (8,))), words)[0]


@program("algorithms/prime_factors")
def prime_factors(key):
    """Loops whose lanes end at different times: factors, powers in a remainder class, greatest divisors."""
    numbers = jax.random.randint(key, (13,), 1, 200)

    def factors(n):
        def divide(i, s):
            n, found = s
            p = lax.while_loop(lambda p: (p < n) & (n % p != 0), lambda p: p + 1, 2)
            p = jnp.where(n > 1, p, 1)
            return n // p, found.at[i].set(p)

        return lax.fori_loop(0, 8, divide, (n, jnp.ones(8, numbers.dtype)))[1]

    def power(base, exponent, modulus):
        def body(s):
            made, left, square = s
            made = jnp.where(left & 1, made * square % modulus, made)
            return made, left >> 1, square * square % modulus

        return lax.while_loop(lambda s: s[1] > 0, body, (jnp.ones_like(base), exponent, base % modulus))[0]

    powers = jax.vmap(lambda b, e: power(b, e, 9973))(numbers, numbers[::-1])
    return jax.vmap(factors)(numbers), powers, jnp.gcd(numbers, numbers[::-1]), jnp.lcm(numbers % 50, 7)


@program("algorithms/sudoku")
def sudoku(key):
    """Candidates struck out until nothing changes."""
    base = (jnp.arange(9) // 3 + 3 * jnp.arange(9))[:, None] + jnp.arange(9)
    solved = jax.random.permutation(key, 9)[base % 9]
    given = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.55, (9, 9))
    start = jnp.where(given[..., None], jnp.arange(9) == solved[..., None], True)

    def alone(candidates, axis):
        return candidates & (candidates.sum(axis, keepdims=True) == 1)

    def strike(c):
        single = alone(c, 2)
        boxes = single.reshape(3, 3, 3, 3, 9).any((1, 3))
        seen = single.any(0) | single.any(1, keepdims=True) | jnp.repeat(jnp.repeat(boxes, 3, 0), 3, 1)
        c = c & (single | ~seen)
        only = alone(c, 0) | alone(c, 1) | alone(c.reshape(3, 3, 3, 3, 9), (1, 3)).reshape(9, 9, 9)
        return jnp.where(only.any(2, keepdims=True), only, c)

    body = lambda s: (strike(s[0]), s[0], s[2] + 1)  # noqa: E731
    last, _, rounds = lax.while_loop(lambda s: (s[0] != s[1]).any(), body, (start, ~start, 0))
    return jnp.where(last.sum(2) == 1, last.argmax(2) + 1, 0).astype(jnp.uint8), rounds


@program("algorithms/schedule")
def schedule(key):
    """Jobs of which the one with the least work left runs; a log that grows until all are done."""
    n = 10
    keys = jax.random.split(key)
    arrival, work = jnp.sort(jax.random.randint(keys[0], (n,), 0, 30)), jax.random.randint(keys[1], (n,), 1, 8)

    def body(s):
        now, left, ends, log = s
        ready = (arrival <= now) & (left > 0)
        job, runs = jnp.argmin(jnp.where(ready, left, 999)), ready.any()
        left = left.at[job].add(-runs.astype(left.dtype))
        ends = jnp.where(runs & (left[job] == 0), ends.at[job].set(now + 1), ends)
        return now + 1, left, ends, log.at[now].set(jnp.where(runs, job, -1))

    return lax.while_loop(lambda s: (s[1] > 0).any(), body, (0, work, jnp.zeros(n, int), jnp.full(120, -2)))


@program("algorithms/connected_paths")
def connected_paths(key):
    """Shortest paths in three ways, and the parts of a graph by labels that spread."""
    n, far = 12, 1000
    keys = jax.random.split(key)
    weights = jnp.where(jax.random.bernoulli(keys[0], 0.3, (n, n)), jax.random.randint(keys[1], (n, n), 1, 30), far)
    weights = jnp.where(jnp.eye(n, dtype=bool), 0, weights)

    def nearest(_, s):
        distance, done, before = s
        u = jnp.argmin(jnp.where(done, 2 * far, distance))
        through = distance[u] + weights[u]
        better = through < distance
        return jnp.where(better, through, distance), done.at[u].set(True), jnp.where(better, u, before)

    def until_same(step, x):
        def body(s):
            new = step(s[0])
            return new, (new != s[0]).any()

        return lax.while_loop(lambda s: s[1], body, (x, True))[0]

    start = jnp.full(n, far).at[0].set(0)
    every = lax.fori_loop(0, n, lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k]), weights)
    one = lax.fori_loop(0, n, nearest, (start, jnp.zeros(n, bool), jnp.full(n, -1)))
    relaxed = until_same(lambda d: jnp.minimum(d, (d[:, None] + weights).min(0)), start)
    labels = until_same(lambda x: jnp.where(weights < far, x[:, None], n).min(0), jnp.arange(n))
    return every, one, relaxed, labels
