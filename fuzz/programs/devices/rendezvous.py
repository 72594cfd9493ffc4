"""Programs of several collectives, of all groups and modes, for replicas and partitions: in loops, branches, pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fuzz.programs.chance import Chance
from fuzz.programs.draft import Named, join
from fuzz.programs.values import EDGES, SMALL, Array, is_complex, is_float, make_values

_KINDS = ("f32", "f32", "s32", "f64", "bf16", "f16", "pred", "u8", "s64", "c64", "s4", "u16", "f8e4m3fn", "c128")
_COUNTS = ((2, 1), (3, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (2, 3), (4, 2), (2, 4), (3, 2), (1, 7), (5, 1))
_MOST_ELEMENTS = 1 << 15


@dataclass(frozen=True, slots=True)
class Spread:
    """A module, how many replicas and partitions run it, and the arguments of each device."""

    text: str
    replicas: int
    partitions: int
    arguments: tuple[tuple[Array, ...], ...]


@dataclass(slots=True)
class Groups:
    """Groups as text, with the attributes that say what the ids are, and how many devices each has; None if various."""

    text: str
    size: int | None


@dataclass(slots=True)
class Scope:
    """The instructions of one computation. ids: which ids collectives may list: all kinds, or of one kind only."""

    prefix: str
    ids: str = "any"
    lines: list[str] = field(default_factory=list[str])
    values: list[Named] = field(default_factory=list[Named])

    def emit(self, shape: str, call: str) -> str:
        """An instruction; gives its name."""
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {call}")
        return name

    def add(self, kind: str, dims: Sequence[int], call: str) -> Named:
        """An instruction; its value may be used from here on."""
        made = Named(self.emit(f"{kind}[{join(dims)}]", call), kind, tuple(dims))
        self.values.append(made)
        return made


class Author(Chance):
    """Writes one module. All is drawn from the seed and the number."""

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(np.random.default_rng([seed, number, 77]))
        self.replicas, self.partitions = self.pick(_COUNTS)
        self.computations: list[str] = []
        self.channels = 0
        self.scopes = 0
        self.reducers: dict[tuple[str, str], str] = {}

    # -- chance ------------------------------------------------------------------------------------

    def dims(self) -> list[int]:
        """Sizes of an array: odd ones, now and then empty or large."""
        if self.chance(0.06):
            return [self.pick((5000, 8192, 30000))]
        sizes = [self.integer(1, 6) for _ in range(self.integer(0, 3))]
        if sizes and self.chance(0.05):
            sizes[self.integer(0, len(sizes) - 1)] = 0
        if sizes and self.chance(0.15):
            sizes[self.integer(0, len(sizes) - 1)] = self.pick((17, 33, 64))
        return sizes

    # -- groups ------------------------------------------------------------------------------------

    def groups(self, scope: Scope, *, spans: bool, various: bool = False) -> Groups:
        """Groups of a collective.

        spans: whether it has use_global_device_ids. various: groups may have different sizes.
        """
        modes = {"any": ["replicas", "partitions"], "replicas": ["replicas"], "partitions": ["partitions"]}[scope.ids]
        if spans:
            modes = {"any": ["replicas", "all", "devices"], "replicas": ["replicas"], "partitions": []}[scope.ids]
        mode = self.pick(modes) if modes else "own"
        counts = {"replicas": self.replicas, "partitions": self.partitions, "all": self.replicas}
        count = counts.get(mode, self.replicas * self.partitions)
        attributes = ""
        if mode != "replicas":
            self.channels += 1
            attributes = f", channel_id={self.channels}"
        if mode in ("devices", "own"):
            attributes += ", use_global_device_ids=true"
        if mode == "own":
            # The partitions of one replica, as devices.
            rows = [[r * self.partitions + p for p in range(self.partitions)] for r in range(self.replicas)]
            return Groups(f"replica_groups={listed(rows)}{attributes}", self.partitions)
        factor = self.partitions if mode == "all" else 1
        if mode != "devices" and self.chance(0.25):
            return Groups(f"replica_groups={{}}{attributes}", count * factor)
        if self.chance(0.3):
            text, size = self._iota(count)
            return Groups(f"replica_groups={text}{attributes}", size * factor)
        order = self.permutation(count)
        if various and count > 2 and self.chance(0.3):
            cut = self.integer(1, count - 1)
            size = cut if 2 * cut == count else None
            rows = [order[:cut], order[cut:]]
            return Groups(f"replica_groups={listed(rows)}{attributes}", None if size is None else size * factor)
        size = self.pick([n for n in range(1, count + 1) if count % n == 0])
        rows = [order[i : i + size] for i in range(0, count, size)]
        return Groups(f"replica_groups={listed(rows)}{attributes}", size * factor)

    def _iota(self, count: int) -> tuple[str, int]:
        size = self.pick([n for n in range(1, count + 1) if count % n == 0])
        low = self.pick([n for n in range(1, count + 1) if count % n == 0])
        if self.chance() and 1 < low < count:
            return f"[{count // size},{size}]<=[{low},{count // low}]T(1,0)", size
        return f"[{count // size},{size}]<=[{count}]", size

    # -- values ------------------------------------------------------------------------------------

    def operand(self, scope: Scope, kind: str | None = None, dims: Sequence[int] | None = None) -> Named:
        """A value of a type and sizes, made if there is none."""
        fitting = [
            v for v in scope.values if (kind is None or v.kind == kind) and (dims is None or list(v.dims) == list(dims))
        ]
        if fitting:
            return self.pick(fitting)
        return self.shaped(scope, kind or self.pick(_KINDS), self.dims() if dims is None else dims)

    def shaped(self, scope: Scope, kind: str, dims: Sequence[int]) -> Named:
        """A value of another type and of other sizes, made of one that is there."""
        one = self.pick(scope.values)
        if is_complex(one.kind) and not is_complex(kind):
            part = "f64" if one.kind == "c128" else "f32"
            one = scope.add(part, one.dims, f"real({one.name})")
        if one.kind != kind:
            one = scope.add(kind, one.dims, f"convert({one.name})")
        if 0 in one.dims:
            one_of = "true" if kind == "pred" else "(1, 0)" if is_complex(kind) else "1"
            constant = scope.add(kind, (), f"constant({one_of})")
        else:
            flat = scope.add(kind, (math.prod(one.dims),), f"reshape({one.name})")
            first = scope.add(kind, (1,), f"slice({flat.name}), slice={{[0:1]}}")
            constant = scope.add(kind, (), f"reshape({first.name})")
        wide = scope.add(kind, dims, f"broadcast({constant.name}), dimensions={{}}")
        if kind in ("f32", "s32", "f64", "s64", "u16", "u8") and dims and 0 not in dims:
            steps = scope.add(kind, dims, f"iota(), iota_dimension={len(dims) - 1}")
            wide = scope.add(kind, dims, f"add({wide.name}, {steps.name})")
        return wide

    def compute(self, scope: Scope) -> Named:
        """Something between collectives."""
        one = self.pick(scope.values)
        if one.kind == "pred":
            return scope.add(one.kind, one.dims, f"not({one.name})")
        other = self.operand(scope, one.kind, one.dims)
        return scope.add(one.kind, one.dims, f"{self.pick(('add', 'subtract'))}({one.name}, {other.name})")

    def reducer(self, kind: str) -> str:
        """A computation that combines two scalars, now and then in another precision."""
        working = kind
        if kind in ("bf16", "f16") and self.chance(0.4):
            working = "f32"
        if kind == "pred":
            opcode = self.pick(("and", "or"))
        elif is_complex(kind):
            opcode = "add"
        else:
            opcode = self.pick(("add", "add", "maximum", "minimum", "multiply"))
        key = opcode, working
        if key not in self.reducers:
            name = f"r{len(self.reducers)}"
            s = f"{working}[]"
            body = f"  x = {s} parameter(0)\n  y = {s} parameter(1)\n  ROOT z = {s} {opcode}(x, y)"
            self.computations.append(f"{name} {{\n{body}\n}}")
            self.reducers[key] = name
        return self.reducers[key]

    def scope(self, parameters: Sequence[Named], ids: str) -> Scope:
        """The scope of a new computation with one tuple parameter."""
        self.scopes += 1
        made = Scope(f"s{self.scopes}_", ids)
        shape = f"({', '.join(p.shape for p in parameters)})"
        state = made.emit(shape, "parameter(0)")
        for number, parameter in enumerate(parameters):
            made.add(parameter.kind, parameter.dims, f"get-tuple-element({state}), index={number}")
        return made

    def close(self, scope: Scope, root: str) -> str:
        """Finish a computation whose last instruction is the root; gives its name."""
        name = f"c{self.scopes}_{len(self.computations)}"
        lines = [*scope.lines[:-1], "  ROOT " + scope.lines[-1].lstrip()]
        assert root in lines[-1]
        self.computations.append("\n".join([f"{name} {{", *lines, "}"]))
        return name


def listed(rows: Sequence[Sequence[int]]) -> str:
    """Groups as text."""
    return "{" + ",".join(f"{{{join(row)}}}" for row in rows) + "}"


def values_for(rng: np.random.Generator, kind: str, dims: Sequence[int]) -> Array:
    """An argument."""
    style = SMALL if is_float(kind) or is_complex(kind) else EDGES
    return make_values(rng, kind, dims, style)
