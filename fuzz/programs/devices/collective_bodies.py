"""The collectives of programs for several devices, the loops and branches around them, and whole modules of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fuzz.programs.devices.rendezvous import Author, Scope, Spread, listed, values_for
from fuzz.programs.draft import Named, join


def all_reduce(author: Author, scope: Scope) -> None:
    """One array or several."""
    groups = author.groups(scope, spans=True, various=True)
    first = author.operand(scope)
    operands = [first, *(author.operand(scope, first.kind) for _ in range(author.integer(0, 1)))]
    begins = author.chance(0.35)
    if begins:
        operands = handed(author, scope, operands)
    call = f"({', '.join(o.name for o in operands)}), {groups.text}, to_apply={author.reducer(first.kind)}"
    shape = operands[0].shape if len(operands) == 1 else f"({', '.join(o.shape for o in operands)})"
    if begins:
        started = scope.emit(shape, f"all-reduce-start{call}")
        between(author, scope, operands)
        name = scope.emit(shape, f"all-reduce-done({started})")
    else:
        name = scope.emit(shape, f"all-reduce{call}")
    results(scope, name, operands)


def all_gather(author: Author, scope: Scope) -> None:
    """Along any dimension."""
    groups = author.groups(scope, spans=True)
    one = author.operand(scope)
    if not one.dims or groups.size is None:
        return all_reduce(author, scope)
    along = author.integer(0, len(one.dims) - 1)
    dims = [n * groups.size if d == along else n for d, n in enumerate(one.dims)]
    whole, attributes = f"{one.kind}[{join(dims)}]", f"dimensions={{{along}}}, {groups.text}"
    if author.chance(0.35):
        [one] = handed(author, scope, [one])
        started = scope.emit(f"({one.shape}, {whole})", f"all-gather-start({one.name}), {attributes}")
        between(author, scope, [one])
        scope.add(one.kind, dims, f"all-gather-done({started})")
    else:
        scope.add(one.kind, dims, f"all-gather({one.name}), {attributes}")
    return None


def reduce_scatter(author: Author, scope: Scope) -> None:
    """Along any dimension, of an array that divides."""
    groups = author.groups(scope, spans=True)
    dims = author.dims()
    if not dims or groups.size is None:
        return all_reduce(author, scope)
    along = author.integer(0, len(dims) - 1)
    whole = [n * groups.size if d == along else n for d, n in enumerate(dims)]
    one = author.operand(scope, None if author.chance(0.1) else author.pick(("f32", "s32", "bf16", "c64")), whole)
    called = author.reducer(one.kind)
    attributes = f"dimensions={{{along}}}, {groups.text}, to_apply={called}"
    made = [n // groups.size if d == along else n for d, n in enumerate(one.dims)]
    if author.chance(0.3):
        return asynchronous(author, scope, [one], [Named("", one.kind, tuple(made))], "reduce-scatter", attributes)
    scope.add(one.kind, made, f"reduce-scatter({one.name}), {attributes}")
    return None


def own_blocks(author: Author, scope: Scope) -> None:
    """An all-reduce of which each device takes the block at its position in the group, or now and then another one."""
    replicas, partitions = author.replicas, author.partitions
    mode = author.pick(("replicas", "devices")) if scope.ids == "any" else scope.ids
    if mode == "partitions":
        rows = [[r * partitions + p for p in range(partitions)] for r in range(replicas)]
        number, places = scope.emit("u32[]", "partition-id()"), list(range(partitions))
    else:
        count = replicas if mode == "replicas" else replicas * partitions
        order, size = author.permutation(count), author.pick([n for n in range(1, count + 1) if count % n == 0])
        rows = [order[i : i + size] for i in range(0, count, size)]
        number, places = scope.emit("u32[]", "replica-id()"), [i % size for i in sorted(order, key=order.__getitem__)]
    if mode == "devices":
        factor, own = scope.emit("u32[]", f"constant({partitions})"), scope.emit("u32[]", "partition-id()")
        number = scope.emit("u32[]", f"add({scope.emit('u32[]', f'multiply({number}, {factor})')}, {own})")
    attributes = f"replica_groups={listed(rows)}"
    if mode != "replicas":
        author.channels += 1
        attributes += f", channel_id={author.channels}, use_global_device_ids=true"
    if author.chance(0.2):
        places = [places[i] for i in author.permutation(len(places))]
    part = [*author.dims(), author.integer(1, 3)][-3:]
    whole = [*part[:-1], part[-1] * len(rows[0])]
    one = author.operand(scope, author.pick(("f32", "s32", "bf16", "c64")), whole)
    total = scope.add(one.kind, whole, f"all-reduce({one.name}), {attributes}, to_apply={author.reducer(one.kind)}")
    starts = scope.emit(f"s32[{len(places)}]", f"constant({{{join([p * part[-1] for p in places])}}})")
    start = scope.emit("s32[1]", f"dynamic-slice({starts}, {number}), dynamic_slice_sizes={{1}}")
    indices = [*[scope.emit("s32[]", "constant(0)")] * (len(part) - 1), scope.emit("s32[]", f"reshape({start})")]
    if author.chance(0.8):
        scope.values.remove(total)
    sizes = f"dynamic_slice_sizes={{{join(part)}}}"
    scope.add(one.kind, part, f"dynamic-slice({total.name}, {', '.join(indices)}), {sizes}")


def all_to_all(author: Author, scope: Scope) -> None:
    """Blocks of an array, or elements of a tuple."""
    groups = author.groups(scope, spans=False)
    size = groups.size or 1
    dims = author.dims()
    kind = author.pick(("f32", "s32", "u8", "pred", "c64"))
    if dims and author.chance(0.6):
        along = author.integer(0, len(dims) - 1)
        whole = [n * size if d == along else n for d, n in enumerate(dims)]
        one = author.operand(scope, kind, whole)
        attributes = f"dimensions={{{along}}}, {groups.text}"
        if author.chance(0.3):
            return asynchronous(author, scope, [one], [one], "all-to-all", attributes)
        scope.add(one.kind, one.dims, f"all-to-all({one.name}), {attributes}")
        return None
    operands = [author.operand(scope, kind, dims) for _ in range(size)]
    shape = f"({', '.join(o.shape for o in operands)})"
    name = scope.emit(shape, f"all-to-all({', '.join(o.name for o in operands)}), {groups.text}")
    results(scope, name, operands, always=True)
    return None


def permute(author: Author, scope: Scope) -> None:
    """From some ids to others."""
    by_partition = scope.ids == "partitions" or (scope.ids == "any" and author.chance())
    count = author.partitions if by_partition else author.replicas
    pairs = list(zip(author.permutation(count), author.permutation(count), strict=True))[: author.integer(0, count)]
    attributes = "source_target_pairs={" + ",".join(f"{{{a},{b}}}" for a, b in pairs) + "}"
    if by_partition:
        author.channels += 1
        attributes += f", channel_id={author.channels}"
    operands = [author.operand(scope) for _ in range(2 if author.chance(0.2) else 1)]
    begins = author.chance(0.35)
    if begins:
        operands = handed(author, scope, operands)
    names, shapes = ", ".join(o.name for o in operands), ", ".join(o.shape for o in operands)
    shape = shapes if len(operands) == 1 else f"({shapes})"
    if begins:
        started = scope.emit(f"({shape}, {shape})", f"collective-permute-start({names}), {attributes}")
        between(author, scope, operands)
        name = scope.emit(shape, f"collective-permute-done({started})")
    else:
        name = scope.emit(shape, f"collective-permute({names}), {attributes}")
    results(scope, name, operands)


def broadcast(author: Author, scope: Scope) -> None:
    """From the first of each group."""
    groups = author.groups(scope, spans=False, various=True)
    one = author.operand(scope)
    if author.chance(0.3):
        return asynchronous(author, scope, [one], [one], "collective-broadcast", groups.text)
    scope.add(one.kind, one.dims, f"collective-broadcast({one.name}), {groups.text}")
    return None


def collective_reduce(author: Author, scope: Scope) -> None:
    """To the first of each group."""
    groups = author.groups(scope, spans=True, various=True)
    one = author.operand(scope)
    scope.add(one.kind, one.dims, f"collective-reduce({one.name}), {groups.text}, to_apply={author.reducer(one.kind)}")


def number(author: Author, scope: Scope) -> None:
    """The number of the replica or partition, added to an array."""
    name = scope.add("u32", (), f"{author.pick(('replica-id', 'partition-id'))}()")
    made = scope.add("s32", (), f"convert({name.name})")
    one = author.operand(scope, "s32")
    wide = scope.add("s32", one.dims, f"broadcast({made.name}), dimensions={{}}")
    scope.add("s32", one.dims, f"add({one.name}, {wide.name})")


def read_around(author: Author, scope: Scope) -> None:
    """Two readers of an array, the one before a sum that waits for it, the other of that sum as well.

    The array is a sum itself, so that it is read: what is computed from other arrays may be computed again instead.
    What the second one gives is added up, too, which keeps it alive.
    """
    kind, dims = author.pick(("f32", "s32", "f64")), author.dims()
    if math.prod(dims) < 2:
        dims = [author.integer(2, 6), author.integer(1, 6)]

    def total(name: str, more: str = "") -> str:
        attributes = f"{author.groups(scope, spans=True).text}, to_apply={author.reducer(kind)}{more}"
        return scope.add(kind, dims, f"all-reduce({name}), {attributes}").name

    one, other = total(author.operand(scope, kind, dims).name), author.operand(scope, kind, dims)
    before = scope.add(kind, dims, f"negate({one})")
    late = total(other.name, f", control-predecessors={{{before.name}}}")
    total(scope.add(kind, dims, f"subtract({one}, {late})").name)


def asynchronous(
    author: Author, scope: Scope, given: Sequence[Named], made: Sequence[Named], opcode: str, attributes: str
) -> None:
    """A collective as the computation of an async-start."""
    author.scopes += 1
    given = handed(author, scope, given)
    inner = Scope(f"s{author.scopes}_")
    names = [inner.emit(o.shape, f"parameter({n})") for n, o in enumerate(given)]
    result = made[0]
    root = inner.emit(result.shape, f"{opcode}({', '.join(names)}), {attributes}")
    called = author.close(inner, root)
    shapes, arguments = ", ".join(o.shape for o in given), ", ".join(o.name for o in given)
    started = scope.emit(f"(({shapes}), {result.shape}, u32[])", f"async-start({arguments}), calls={called}")
    between(author, scope, given)
    if author.chance(0.2):
        started = scope.emit(f"(({shapes}), {result.shape}, u32[])", f"async-update({started})")
    scope.add(result.kind, result.dims, f"async-done({started})")


def handed(author: Author, scope: Scope, operands: Sequence[Named]) -> list[Named]:
    """What is given to a collective that begins: mostly nothing else reads it, so that its memory is free then."""
    if author.chance(0.4):
        return list(operands)
    made = [scope.add(o.kind, o.dims, f"{'not' if o.kind == 'pred' else 'negate'}({o.name})") for o in operands]
    del scope.values[-len(made) :]
    return made


def between(author: Author, scope: Scope, given: Sequence[Named]) -> None:
    """What runs while a collective of given values is under way: now and then another one, such as of this shape."""
    if author.chance():
        one = author.operand(scope, given[0].kind, given[0].dims)
        attributes = f"{author.groups(scope, spans=True).text}, to_apply={author.reducer(one.kind)}"
        scope.add(one.kind, one.dims, f"all-reduce({one.name}), {attributes}")
    for _ in range(author.integer(0, 3)):
        author.compute(scope)
    if author.chance(0.3):
        all_reduce(author, scope)
    if author.chance(0.3):
        # Something that could be done in place, in what is still being read.
        one = author.pick(scope.values)
        if one.dims and 0 not in one.dims:
            update = author.operand(scope, one.kind, [1] * len(one.dims))
            zeros = ", ".join(scope.add("s32", (), "constant(0)").name for _ in one.dims)
            scope.add(one.kind, one.dims, f"dynamic-update-slice({one.name}, {update.name}, {zeros})")


def results(scope: Scope, name: str, like: Sequence[Named], *, always: bool = False) -> None:
    """The values of a collective on one array or several."""
    if len(like) == 1 and not always:
        scope.values.append(Named(name, like[0].kind, like[0].dims))
        return
    for index, one in enumerate(like):
        scope.add(one.kind, one.dims, f"get-tuple-element({name}), index={index}")


def loop(author: Author, scope: Scope, depth: int) -> None:
    """Collectives a few times over; now and then several loops of different trip counts have one body."""
    carried = [author.operand(scope) for _ in range(author.integer(1, 3))]
    state = [scope.add("s32", (), "constant(0)"), *carried]
    several = {"replicas": author.replicas > 1, "partitions": author.partitions > 1}
    choices = [ids for ids, is_several in several.items() if is_several and scope.ids in ("any", ids)]
    apart = bool(choices) and author.chance(0.6)
    ids = author.pick(choices) if apart else scope.ids
    body = author.scope(state, ids)
    counter, *given = body.values
    if apart and author.chance(0.7):
        # Of what is carried alone: it moves out of the loop with what stays as it was.
        one = author.pick(given)
        attributes = f"{author.groups(body, spans=True).text}, to_apply={author.reducer(one.kind)}"
        first = body.add(one.kind, one.dims, f"all-reduce({one.name}), {attributes}")
        if author.chance():
            # Copies of both read what is carried, between sums that keep their order.
            both = body.add(one.kind, one.dims, f"{'or' if one.kind == 'pred' else 'add'}({one.name}, {first.name})")
            body.add(one.kind, one.dims, f"all-reduce({both.name}), {attributes}")
    else:
        fill(author, body, author.integer(1, 3), depth - 1)
    one = body.add("s32", (), "constant(1)")
    following = [body.add("s32", (), f"add({counter.name}, {one.name})")]
    # What a loop carries as it was may move out of it, with the collectives of it.
    following += [v if author.chance(0.8 if apart else 0.3) else author.operand(body, v.kind, v.dims) for v in given]
    root = body.emit(shapes(state), f"tuple({', '.join(v.name for v in following)})")
    called = author.close(body, root)
    if apart:
        in_branches(author, scope, state, called, ids)
        return
    for _ in range(1 if author.chance() else author.integer(2, 3)):
        iterate(author, scope, state, called, author.integer(0, 4))
        state = [state[0], *(author.operand(scope, v.kind, v.dims) for v in carried)]


def shapes(values: Sequence[Named]) -> str:
    """The shape of a tuple of values."""
    return f"({', '.join(v.shape for v in values)})"


def iterate(author: Author, scope: Scope, state: Sequence[Named], body: str, count: int) -> None:
    """A loop of so many iterations of a body over a state, whose first element counts them from 0."""
    condition = author.scope(state, scope.ids)
    most = condition.emit("s32[]", f"constant({count})")
    root = condition.emit("pred[]", f"compare({condition.values[0].name}, {most}), direction=LT")
    asked = author.close(condition, root)
    first = scope.emit(shapes(state), f"tuple({', '.join(v.name for v in state)})")
    name = scope.emit(shapes(state), f"while({first}), condition={asked}, body={body}")
    results(scope, name, state)


def in_branches(author: Author, scope: Scope, state: Sequence[Named], body: str, ids: str) -> None:
    """Devices take one of two branches, with as many iterations of one body, in other loops: they meet in it.

    ids: which ids the collectives of the body list. Mostly they are those by which devices take a branch.
    """
    whole, called = author.pick((2, 2, 4, 5, 6)), list[str]()
    middle, end = whole // 2 if author.chance(0.8) else author.integer(0, whole), author.pick((0, whole))
    for first in author.pick(((middle, end), (end, middle))):
        branch = author.scope(state, scope.ids)
        values = branch.values[1:]
        # Trip counts are known where loops begin with a constant.
        zero = branch.add("s32", (), "constant(0)")
        for count in (first, whole - first):
            if count == 1 and author.chance(0.6):
                given = branch.emit(shapes(state), f"tuple({', '.join(v.name for v in (zero, *values))})")
                results(branch, branch.emit(shapes(state), f"call({given}), to_apply={body}"), state)
            else:
                iterate(author, branch, [zero, *values], body, count)
            values = branch.values[-len(values) :]
        last = branch.emit(shapes(state), f"tuple({', '.join(v.name for v in (zero, *values))})")
        called.append(author.close(branch, last))
    given = scope.emit(shapes(state), f"tuple({', '.join(v.name for v in state)})")
    own = scope.emit("u32[]", "partition-id()" if (ids == "partitions") == author.chance(0.8) else "replica-id()")
    one = scope.emit("u32[]", "constant(1)")
    predicate = scope.emit("pred[]", f"compare({own}, {one}), direction=LT")
    chosen = f"conditional({predicate}, {given}, {given}), true_computation={called[0]}, false_computation={called[1]}"
    results(scope, scope.emit(shapes(state), chosen), state)


def branches(author: Author, scope: Scope, depth: int) -> None:
    """Collectives in branches: all devices take one, or those that meet do."""
    ids = scope.ids
    if scope.ids == "any":
        ids = author.pick(("any", "replicas", "partitions"))
    carried = [author.operand(scope) for _ in range(author.integer(1, 2))]
    shape = f"({', '.join(v.shape for v in carried)})"
    called: list[str] = []
    for _ in range(2):
        branch = author.scope(carried, ids)
        fill(author, branch, author.integer(0, 2), depth - 1)
        made = [author.operand(branch, v.kind, v.dims) for v in carried]
        called.append(author.close(branch, branch.emit(shape, f"tuple({', '.join(v.name for v in made)})")))
    given = scope.emit(shape, f"tuple({', '.join(v.name for v in carried)})")
    if ids == "any":
        predicate = scope.emit("pred[]", f"constant({author.pick(('true', 'false'))})")
    else:
        # Members of a rendezvous have the same id of the other kind.
        own = scope.emit("u32[]", "partition-id()" if ids == "replicas" else "replica-id()")
        one = scope.emit("u32[]", "constant(1)")
        predicate = scope.emit("pred[]", f"compare({own}, {one}), direction=LT")
    name = scope.emit(
        shape,
        f"conditional({predicate}, {given}, {given}), true_computation={called[0]}, false_computation={called[1]}",
    )
    results(scope, name, carried, always=True)


_COLLECTIVES: tuple[Callable[[Author, Scope], None], ...] = (
    all_reduce,
    all_reduce,
    all_gather,
    reduce_scatter,
    own_blocks,
    all_to_all,
    permute,
    broadcast,
    collective_reduce,
    read_around,
    number,
)


def fill(author: Author, scope: Scope, count: int, depth: int) -> None:
    """So many collectives, with other operations between them."""
    for _ in range(count):
        choice = author.integer(0, 9)
        if choice < 2 and depth:
            loop(author, scope, depth)
        elif choice == 2 and depth:
            branches(author, scope, depth)
        else:
            written = len(scope.lines)
            author.pick(_COLLECTIVES)(author, scope)
            if author.chance(0.4):
                ordered(author, scope, written)
        for _ in range(author.integer(0, 2)):
            author.compute(scope)


def ordered(author: Author, scope: Scope, written: int) -> None:
    """Has the instructions behind the first ``written`` ones wait for a late value that they may not read."""
    earlier = [line.split()[0] for line in scope.lines[:written]][-4:]
    if earlier and written < len(scope.lines):
        scope.lines[written] += f", control-predecessors={{{author.pick(earlier)}}}"


def spread_module(seed: int, number: int, *, few: bool = False) -> Spread:
    """The module of a seed and a number, with the arguments of each device.

    few: whether it is one or two collectives, mostly of its arguments, which are alike, and gives their results.
    """
    author = Author(seed, number)
    devices = author.replicas * author.partitions
    scope = Scope("v")
    arguments: list[list[object]] = [[] for _ in range(devices)]
    kind, dims = "", list[int]()
    for place in range(author.integer(1, 3)):
        if place == 0 or not few:
            kind, dims = author.pick(("f32", "s32", "bf16", "f16", "pred", "c64", "u8", "f64")), author.dims()
        scope.add(kind, dims, f"parameter({place})")
        for given in arguments:
            given.append(values_for(author.rng, kind, dims))
    count = len(scope.values)
    if few:
        for _ in range(author.integer(1, 2)):
            author.pick((all_reduce, all_reduce, all_reduce, all_to_all, permute, broadcast))(author, scope)
    else:
        fill(author, scope, author.integer(1, 5), 2)
    last = scope.values[count if few else 0 :][-6:]
    scope.emit(f"({', '.join(v.shape for v in last)})", f"tuple({', '.join(v.name for v in last)})")
    body = "\n".join(["ENTRY e {", *scope.lines[:-1], "  ROOT " + scope.lines[-1].lstrip(), "}"])
    head = f"HloModule rendezvous, replica_count={author.replicas}, num_partitions={author.partitions}"
    text = "\n\n".join([head, *author.computations, body]) + "\n"
    return Spread(text, author.replicas, author.partitions, tuple(tuple(a) for a in arguments))  # pyright: ignore
