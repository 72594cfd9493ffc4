"""Programs whose devices meet in copies of collectives: in branches, and in loops of their own trip counts.

All devices do the same collectives in the same order, the program's *script*: blocks of a few collectives, each block a
few times. But each device may do a block in another place: in a branch of its own, in a loop of its own trip count and
the rest in another loop, in calls of one computation. The collectives of a block have few operations, shapes and
channels, so that many of them are one site, at which devices meet in order of arrival. What is computed around them
differs from copy to copy: a pass may change one of them and leave the others. What a collective is given depends mostly
on what was there before the last one, so that nothing but their order keeps two of them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuzz.programs.devices.collective_bodies import iterate, results, shapes
from fuzz.programs.devices.rendezvous import Author, Scope, Spread, listed, values_for
from fuzz.programs.draft import Named, join

_COUNTS = ((2, 1), (2, 1), (3, 1), (4, 1), (1, 2), (1, 2), (1, 4), (2, 2))


@dataclass(frozen=True, slots=True)
class _Site:
    """A collective of arrays of the program's shape, as a function that emits it on one of them."""

    emit: Callable[[Scope, list[Named]], Named]


@dataclass(slots=True)
class _Block:
    """Collectives that all devices do so many times. bodies: computations that do them once, by name."""

    sites: list[_Site]
    times: int
    bodies: list[str] = field(default_factory=list[str])


class _Copies:
    """Writes one program. carried: the arrays that are handed from block to block; all arrays have one shape."""

    def __init__(self, seed: int, number: int) -> None:
        self.author = author = Author(seed, number)
        author.replicas, author.partitions = author.pick(_COUNTS)
        # Sums of products of floats are rounded otherwise on the interpreter.
        self.has_products = author.chance(0.4)
        self.kind = author.pick(("s32", "s64", "u8") if self.has_products else ("s32", "f32", "f32", "f64", "u8"))
        self.dims = [author.integer(1, 3) * 12, *([author.integer(1, 3)] if author.chance(0.3) else [])]
        self.carried = author.integer(2, 3)
        self.by_partition = author.partitions > 1 and (author.replicas == 1 or author.chance())
        self.ids = "partitions" if author.replicas == 1 else "any"
        sites = [self._site() for _ in range(author.pick((1, 1, 2, 3)))]
        self.blocks = [
            _Block([author.pick(sites) for _ in range(author.integer(1, 4))], author.pick((1, 1, 2, 3)))
            for _ in range(author.integer(1, 2))
        ]

    # -- sites -------------------------------------------------------------------------------------

    def _site(self) -> _Site:
        author = self.author
        spans = Scope("", self.ids)
        others = ("both", "permute", "permute", "gather", "scatter", "blocks", "exchange", "dynamic")
        kind = author.pick((*["product"] * 8 * self.has_products, *["all-reduce"] * 4, *others))
        if kind == "permute":
            pairs = ",".join(f"{{{a},{b}}}" for a, b in enumerate(author.permutation(self._count())))
            attributes = f"source_target_pairs={{{pairs}}}"
            if self.by_partition:
                author.channels += 1
                attributes += f", channel_id={author.channels}"
            return _Site(lambda scope, given: self._add(scope, f"collective-permute({given[0].name}), {attributes}"))
        if kind == "blocks":
            return self._blocks()
        groups = author.groups(spans, spans=kind != "exchange")
        size = groups.size or 1
        if kind == "gather":
            return self._gather(groups.text, size)
        if kind == "exchange":
            text = f"dimensions={{0}}, {groups.text}"
            return _Site(lambda scope, given: self._add(scope, f"all-to-all({given[0].name}), {text}"))
        if kind == "product":
            return author.pick((self._gathered_rows, self._gathered_sums, self._scattered))(groups.text, size)
        text = f"{groups.text}, to_apply={author.reducer(self.kind)}"
        if kind == "scatter":
            return self._scatter(text, size)
        if kind == "both":
            return self._both(text)
        if kind == "dynamic":
            return self._dynamic(text)
        return _Site(lambda scope, given: self._reduce(scope, given[0], text))

    def _add(self, scope: Scope, call: str) -> Named:
        return scope.add(self.kind, self.dims, call)

    def _reduce(self, scope: Scope, given: Named, text: str) -> Named:
        if self.author.chance(0.85):
            return self._add(scope, f"all-reduce({given.name}), {text}")
        started = scope.emit(given.shape, f"all-reduce-start({given.name}), {text}")
        if self.author.chance():
            self.compute(scope)
        return self._add(scope, f"all-reduce-done({started})")

    def _both(self, text: str) -> _Site:
        def emit(scope: Scope, given: list[Named]) -> Named:
            first, second = given[0], self.author.pick(scope.values)
            name = scope.emit(shapes([first, second]), f"all-reduce({first.name}, {second.name}), {text}")
            results(scope, name, [first, second])
            return scope.values[-2]

        return _Site(emit)

    def _gather(self, text: str, size: int) -> _Site:
        whole = [self.dims[0] * size, *self.dims[1:]]
        begin = self.author.integer(0, whole[0] - self.dims[0])
        bounds = ", ".join(f"[{b}:{b + n}]" for b, n in zip((begin, 0), self.dims, strict=False))

        def emit(scope: Scope, given: list[Named]) -> Named:
            made = scope.emit(f"{self.kind}[{join(whole)}]", f"all-gather({given[0].name}), dimensions={{0}}, {text}")
            return self._add(scope, f"slice({made}), slice={{{bounds}}}")

        return _Site(emit)

    def _scatter(self, text: str, size: int) -> _Site:
        def emit(scope: Scope, given: list[Named]) -> Named:
            return self._add(scope, f"reduce-scatter({self._wide(scope, given, size)}), dimensions={{0}}, {text}")

        return _Site(emit)

    def _wide(self, scope: Scope, given: list[Named], size: int) -> str:
        """So many arrays, one after the other."""
        parts = [given[0], *(self.author.pick(scope.values) for _ in range(size - 1))]
        shape, names = f"{self.kind}[{join([self.dims[0] * size, *self.dims[1:]])}]", ", ".join(p.name for p in parts)
        return scope.emit(shape, f"concatenate({names}), dimensions={{0}}")

    def _blocks(self) -> _Site:
        """A sum over all replicas or partitions, of which each device takes a block: its own, or in some copies not."""
        author, size = self.author, self._count()
        rows, channel = [list(range(size))], ""
        if self.by_partition:
            author.channels += 1
            rows = [[r * size + p for p in range(size)] for r in range(author.replicas)]
            channel = f", channel_id={author.channels}, use_global_device_ids=true"
        text = f"replica_groups={listed(rows)}{channel}, to_apply={author.reducer(self.kind)}"

        def emit(scope: Scope, given: list[Named]) -> Named:
            wide = self._wide(scope, given, size)
            shape = f"{self.kind}[{join([self.dims[0] * size, *self.dims[1:]])}]"
            total = scope.emit(shape, f"all-reduce({wide}), {text}")
            order = list(range(size)) if author.chance(0.6) else author.permutation(size)
            start = self._number(scope, [n * self.dims[0] for n in order])
            starts = ", ".join([start, *[scope.emit("s32[]", "constant(0)")] * (len(self.dims) - 1)])
            return self._add(scope, f"dynamic-slice({total}, {starts}), dynamic_slice_sizes={{{join(self.dims)}}}")

        return _Site(emit)

    # -- products that passes may compute in steps -------------------------------------------------

    def _gathered_rows(self, text: str, size: int) -> _Site:
        """A product of rows of three elements, those of all devices, of which some are kept."""
        rows = math.prod(self.dims) // 3
        begin = self.author.integer(0, rows * (size - 1))

        def emit(scope: Scope, given: list[Named]) -> Named:
            own = self._matrix(scope, f"reshape({given[0].name})", rows, 3)
            whole = self._matrix(scope, f"all-gather({own}), dimensions={{0}}, {text}", rows * size, 3)
            made = self._times_square(scope, whole, rows * size)
            kept = self._matrix(scope, f"slice({made}), slice={{[{begin}:{begin + rows}], [0:3]}}", rows, 3)
            return self._add(scope, f"reshape({kept})")

        return _Site(emit)

    def _gathered_sums(self, text: str, size: int) -> _Site:
        """A product that adds up what is gathered."""
        columns = math.prod(self.dims) // 3

        def emit(scope: Scope, given: list[Named]) -> Named:
            own = self._matrix(scope, f"reshape({given[0].name})", 3, columns)
            whole = self._matrix(scope, f"all-gather({own}), dimensions={{1}}, {text}", 3, columns * size)
            other = self._matrix(scope, f"reshape({self.author.pick(scope.values).name})", columns, 3)
            row = self._matrix(scope, f"slice({other}), slice={{[0:{columns}], [1:2]}}", columns, 1)
            row = scope.emit(f"{self.kind}[{columns}]", f"reshape({row})")
            right = self._matrix(scope, f"broadcast({row}), dimensions={{1}}", columns * size, columns)
            dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            return self._add(scope, f"reshape({self._matrix(scope, f'dot({whole}, {right}), {dims}', 3, columns)})")

        return _Site(emit)

    def _scattered(self, text: str, size: int) -> _Site:
        """A product of which each device has the sum of a part."""
        rows, scalar = math.prod(self.dims) // 3, f"{self.kind}[]"
        add = f"add{len(self.author.computations)}"
        self.author.computations.append(
            f"{add} {{\n  x = {scalar} parameter(0)\n  y = {scalar} parameter(1)\n  ROOT z = {scalar} add(x, y)\n}}"
        )

        def emit(scope: Scope, given: list[Named]) -> Named:
            wide = self._matrix(scope, f"reshape({self._wide(scope, given, size)})", rows * size, 3)
            made = self._times_square(scope, wide, rows * size)
            part = self._matrix(scope, f"reduce-scatter({made}), dimensions={{0}}, {text}, to_apply={add}", rows, 3)
            return self._add(scope, f"reshape({part})")

        return _Site(emit)

    def _times_square(self, scope: Scope, rows: str, count: int) -> str:
        """So many rows of three elements times three rows of an array."""
        own = math.prod(self.dims) // 3
        other = self._matrix(scope, f"reshape({self.author.pick(scope.values).name})", own, 3)
        square = self._matrix(scope, f"slice({other}), slice={{[0:3], [0:3]}}", 3, 3)
        return self._matrix(
            scope, f"dot({rows}, {square}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}", count, 3
        )

    def _matrix(self, scope: Scope, call: str, rows: int, columns: int) -> str:
        return scope.emit(f"{self.kind}[{rows},{columns}]", call)

    # -- arrays of dynamic size --------------------------------------------------------------------

    def _dynamic(self, text: str) -> _Site:
        """Of an array of dynamic size, whose greatest element is added: sizes are compared by other collectives."""
        scalar, most = f"{self.kind}[]", f"most{len(self.author.computations)}"
        x, y = (f"  {name} = {scalar} parameter({number})\n" for number, name in enumerate("xy"))
        self.author.computations.append(f"{most} {{\n{x}{y}  ROOT z = {scalar} maximum(x, y)\n}}")
        shape = f"{self.kind}[{join([f'<={self.dims[0]}', *self.dims[1:]])}]"
        size = self.author.integer(1, self.dims[0])

        def emit(scope: Scope, given: list[Named]) -> Named:
            count = scope.emit("s32[]", f"constant({size})")
            cut = scope.emit(shape, f"set-dimension-size({given[0].name}, {count}), dimensions={{0}}")
            met = scope.emit(shape, f"all-reduce({cut}), {text}")
            dims = join(range(len(self.dims)))
            zero = scope.emit(scalar, "constant(0)")
            greatest = scope.emit(scalar, f"reduce({met}, {zero}), dimensions={{{dims}}}, to_apply={most}")
            whole = self._add(scope, f"broadcast({greatest}), dimensions={{}}")
            return self._add(scope, f"add({given[0].name}, {whole.name})")

        return _Site(emit)

    # -- once in a scope ---------------------------------------------------------------------------

    def compute(self, scope: Scope) -> Named:
        """A new array of one or two that are there."""
        one, other = self.author.pick(scope.values), self.author.pick(scope.values)
        call = self.author.pick((f"negate({one.name})", f"add({one.name}, {other.name})"))
        return self._add(scope, f"subtract({one.name}, {other.name})" if self.author.chance(0.4) else call)

    def once(self, scope: Scope, block: _Block) -> list[Named]:
        """The collectives of a block in a scope, whose values are arrays; gives the arrays that are carried on.

        Each array is read by what is computed or by what is carried on, and none twice by the latter in the same way:
        what comes of two collectives that were exchanged differs.
        """
        author, before = self.author, len(scope.lines)
        kept = scope.values[-self.carried :]
        for site in block.sites:
            given = self.compute(scope) if author.chance(0.6) else author.pick(scope.values)
            made = site.emit(scope, [given])
            if author.chance(0.6):
                # What was there before is read again, behind the collective.
                old = author.pick(scope.values)
                self._add(scope, f"subtract({old.name}, {made.name})")
        read = "\n".join(scope.lines[before:])
        unread = [v for v in scope.values if f"({v.name})" not in read and f"{v.name}, " not in read]
        place = author.integer(0, self.carried - 1)
        for value in unread:
            if value not in kept:
                place = (place + author.integer(0, 1)) % self.carried
                # A collective's result may be carried on as it is.
                is_new = author.chance(0.2)
                kept[place] = value if is_new else self._add(scope, f"subtract({value.name}, {kept[place].name})")
        return kept

    def body(self, block: _Block) -> str:
        """A computation that does a block once, on a counter and the arrays: a new one, or one that is there."""
        author = self.author
        if block.bodies and author.chance():
            return author.pick(block.bodies)
        scope = author.scope(self.state(), self.ids)
        counter = scope.values.pop(0)
        kept = self.once(scope, block)
        one = scope.emit("s32[]", "constant(1)")
        following = scope.emit("s32[]", f"add({counter.name}, {one})")
        root = scope.emit(shapes(self.state()), f"tuple({following}, {', '.join(v.name for v in kept)})")
        block.bodies.append(author.close(scope, root))
        return block.bodies[-1]

    def state(self) -> list[Named]:
        """What loops and calls take: shapes alone."""
        return [Named("", "s32", ()), *[Named("", self.kind, tuple(self.dims))] * self.carried]

    # -- so many times -----------------------------------------------------------------------------

    def several(self, scope: Scope, block: _Block, times: int) -> None:
        """A block so many times in a scope, whose last values are the arrays: one after the other, or in loops."""
        author = self.author
        while times > 0:
            kind = author.pick(("once", "call", "loop", "loop"))
            count = 1 if kind in ("once", "call") else author.integer(1, times)
            arrays = scope.values[-self.carried :]
            if kind == "once":
                scope.values += self.once(scope, block)
            else:
                zero = Named(scope.emit("s32[]", "constant(0)"), "s32", ())
                state = [zero, *arrays]
                if kind == "loop":
                    iterate(author, scope, state, self.body(block), count)
                else:
                    given = scope.emit(shapes(state), f"tuple({', '.join(v.name for v in state)})")
                    results(scope, scope.emit(shapes(state), f"call({given}), to_apply={self.body(block)}"), state)
                scope.values = [v for v in scope.values if v.kind == self.kind and list(v.dims) == self.dims]
            times -= count

    def apart(self, scope: Scope, block: _Block) -> None:
        """A block whose iterations each device divides otherwise between two loops, whose bodies are copies."""
        author, times = self.author, block.times
        first = [author.integer(0, times) for _ in range(self._count())]
        arrays = scope.values[-self.carried :]
        for counts in (first, [times - n for n in first]):
            zero = Named(scope.emit("s32[]", "constant(0)"), "s32", ())
            # The loop ends with 0 iterations left, so that what it counts differs.
            begin = self._number(scope, [times - n for n in counts])
            state = [Named(begin, "s32", ()) if counts != [0] * len(counts) else zero, *arrays]
            if state[0] is zero:
                continue
            iterate(author, scope, state, self.body(block), times)
            scope.values = [v for v in scope.values if v.kind == self.kind and list(v.dims) == self.dims]
            arrays = scope.values[-self.carried :]

    def _count(self) -> int:
        return self.author.partitions if self.by_partition else self.author.replicas

    def _number(self, scope: Scope, numbers: Sequence[int]) -> str:
        """A scalar that each device has its own value of."""
        own = scope.emit("u32[]", "partition-id()" if self.by_partition else "replica-id()")
        table = scope.emit(f"s32[{len(numbers)}]", f"constant({{{join(numbers)}}})")
        one = scope.emit("s32[1]", f"dynamic-slice({table}, {own}), dynamic_slice_sizes={{1}}")
        return scope.emit("s32[]", f"reshape({one})")

    def branches(self, scope: Scope, blocks: Sequence[_Block], *, in_turn: bool) -> None:
        """Blocks in branches, of which each device takes one.

        in_turn: in two conditionals, of which each device does nothing in one.
        """
        author = self.author
        taken = [0, 1, *(author.integer(0, 1) for _ in range(self._count() - 2))]
        for turn in range(2 if in_turn else 1):
            arrays, called = scope.values[-self.carried :], list[str]()
            for side in range(2):
                branch = author.scope(arrays, self.ids)
                if not in_turn or side == turn:
                    for block in blocks:
                        self.several(branch, block, block.times)
                made = branch.values[-self.carried :]
                called.append(
                    author.close(branch, branch.emit(shapes(arrays), f"tuple({', '.join(v.name for v in made)})"))
                )
            given = scope.emit(shapes(arrays), f"tuple({', '.join(v.name for v in arrays)})")
            chosen = self._number(scope, taken)
            text = f"conditional({chosen}, {given}, {given}), branch_computations={{{', '.join(called)}}}"
            results(scope, scope.emit(shapes(arrays), text), arrays)

    def module(self) -> Spread:
        """The program with the arguments of each device."""
        author, scope = self.author, Scope("v", self.ids)
        devices = author.replicas * author.partitions
        for place in range(self.carried):
            self._add(scope, f"parameter({place})")
        arguments = tuple(
            tuple(values_for(author.rng, self.kind, self.dims) for _ in range(self.carried)) for _ in range(devices)
        )
        if author.chance(0.6):
            self.branches(scope, self.blocks, in_turn=author.chance(0.25))
        else:
            for block in self.blocks:
                kind = author.pick(("apart", "branches", "in turn", "all"))
                if kind == "apart":
                    self.apart(scope, block)
                elif kind == "all":
                    self.several(scope, block, block.times)
                else:
                    self.branches(scope, [block], in_turn=kind == "in turn")
        last = scope.values[-self.carried :]
        scope.emit(shapes(last), f"tuple({', '.join(v.name for v in last)})")
        entry = "\n".join(["ENTRY e {", *scope.lines[:-1], "  ROOT " + scope.lines[-1].lstrip(), "}"])
        head = f"HloModule copies, replica_count={author.replicas}, num_partitions={author.partitions}"
        text = "\n\n".join([head, *author.computations, entry]) + "\n"
        return Spread(text, author.replicas, author.partitions, arguments)


def copies_module(seed: int, number: int) -> Spread:
    """The module of a seed and a number, with the arguments of each device."""
    return _Copies(seed, number).module()
