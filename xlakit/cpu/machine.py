"""The machine that programs run on: what was measured of it, and choices that follow.

Which of two ways is faster differs from processor to processor, so it is measured: once for each machine, when a
program first needs to know, in less than a second, and kept in the compile cache. ``xlakit machine --measure`` measures
all else that a description has (:mod:`xlakit.cpu.measuring`); sizes of caches are not measured, the system tells them
(:mod:`xlakit.hardware`). ``XLAKIT_MACHINE=FILE`` names a
description to be used instead, as ``xlakit machine --describe FILE`` writes it. Where nothing was measured (the
compile cache is off, or the program is compiled with other options than the default), a rule by the width of vectors
serves.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from xlakit import hardware, options
from xlakit.cpu import cache
from xlakit.cpu.llvm import target
from xlakit.data.primitive import PrimitiveType
from xlakit.errors import ArgumentError, FormatError
from xlakit.ir.instruction import HloModule, Instruction
from xlakit.ops.dot import Dot

# To be counted up when kernels have become so much faster or slower that all machines should be measured again.
_FORMAT = "2"
# The sizes of the products that are timed: so large that packing and the ends of loops count for little.
_SIZE = 1024
_RUNS = 5
# Multiplications of a product for which the choice of the kernel may matter.
_LARGE = 1 << 25
# For more products than this BLAS is called where it is faster on this machine: its blocks are made for the largest
# caches. For fewer where the layout of the left operand suits it better.
OWN_PRODUCTS = options.knob("machine.own_products", 1 << 29, 0)
OWN_TURNED_PRODUCTS = options.knob("machine.own_turned_products", 1 << 28, 0)
_UNBOUNDED = 1 << 62
# BLAS must be faster by this factor to be called: own products compute their epilogues in their loops.
_ADVANTAGE = 1.05
_KINDS = {PrimitiveType.F32: "f32", PrimitiveType.F64: "f64"}

# Makes a function of the text of a module.
Compile = Callable[[str], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Rates:
    """Multiplications a nanosecond in a large product of matrices, on all threads: by own kernels and by BLAS."""

    own: float
    blas: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's description.

    processor: by LLVM's name. vector_bytes: the width of its vectors. threads: how many programs use.
    products: rates by element type, those that were measured; of other sizes than the usual under names such as
    ``f32[256]``. caches: the bytes of ``l1``, ``l2`` and ``l3``. wake_nanoseconds: from when a thread that sleeps is
    woken until it runs; 0 where that was not measured. measured: other numbers, by names that say what they count.
    """

    processor: str
    vector_bytes: int
    threads: int
    products: Mapping[str, Rates] = field(default_factory=dict[str, Rates])
    caches: Mapping[str, int] = field(default_factory=dict[str, int])
    wake_nanoseconds: float = 0.0
    measured: Mapping[str, float] = field(default_factory=dict[str, float])

    def has_faster_blas(self, kind: PrimitiveType) -> bool:
        """Whether BLAS is called for large products of an element type."""
        rates = self.products.get(_KINDS.get(kind, ""))
        if rates is None:
            # Not measured: BLAS libraries fill vectors of 32 bytes well, wider ones less often.
            return self.vector_bytes < 64
        return rates.blas > _ADVANTAGE * rates.own

    def as_text(self) -> str:
        """The description as JSON."""
        return json.dumps(asdict(self), indent=2)

    @staticmethod
    def from_text(text: str, source: str) -> Machine:
        """A description from JSON; raises FormatError where it is none."""
        given = hardware.parse(text, source)
        hardware.from_fields(given, source)
        try:
            products = {str(k): Rates(float(r["own"]), float(r["blas"])) for k, r in given["products"].items()}
            return Machine(
                str(given["processor"]),
                int(given["vector_bytes"]),
                int(given["threads"]),
                products,
                {str(name): int(size) for name, size in given.get("caches", {}).items()},
                float(given.get("wake_nanoseconds", 0.0)),
                {str(name): float(number) for name, number in given.get("measured", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                f"{source} is no description of a machine: {error!r}", hint="xlakit machine --describe FILE writes one"
            ) from None


def large_products(module: HloModule) -> set[PrimitiveType]:
    """The element types of a module's products that are so large that BLAS might be called for them."""
    return {
        i.shape.element_type
        for computation in module.computations
        for i in computation.instructions
        if isinstance(i.op, Dot) and i.shape.element_type in _KINDS and _products(i, i.op) >= _LARGE
    }


def _products(instruction: Instruction, op: Dot) -> int:
    lhs = instruction.operands[0].shape.dimensions
    return instruction.shape.num_elements * math.prod(lhs[d] for d in op.lhs_contracting_dims)


def most_own_products(kind: PrimitiveType, *, turned: bool) -> int:
    """The largest product of real numbers that own kernels compute although BLAS could; ``turned`` where the left
    operand's rows do not lie side by side.
    """
    limit = OWN_TURNED_PRODUCTS if turned else OWN_PRODUCTS
    return limit.value if limit.is_set or current().has_faster_blas(kind) else _UNBOUNDED


def current() -> Machine:
    """The machine that code is made for, as far as it is known. Raises ArgumentError or FormatError for a bad file."""
    chosen = os.environ.get(hardware.VARIABLE)
    return _of_file(chosen) if chosen else _known()


@lru_cache(maxsize=8)
def _of_file(path: str) -> Machine:
    try:
        return Machine.from_text(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"{hardware.VARIABLE} names {path!r}, which cannot be read: {error}",
            hint="xlakit machine --describe FILE writes one",
        ) from None


# What this process has measured or read, by the key of the machine.
_measured: dict[str, Machine] = {}


def _known() -> Machine:
    made_for = target.processor()
    width = made_for.vector_bytes
    found = _measured.get(_key())
    if found is None:
        found = _measured[_key()] = _kept() or _unmeasured(made_for.name, width)
    return found if found.vector_bytes == width else _unmeasured(found.processor, width)


def _unmeasured(name: str, width: int) -> Machine:
    own = hardware.own()
    return Machine(name, width, own.threads, caches={"l1": own.l1, "l2": own.l2, "l3": own.l3})


def _kept() -> Machine | None:
    entry = cache.load(_key())
    return None if entry is None else Machine.from_text(str(entry.fields.get("machine")), "the compile cache")


def _key() -> str:
    own = target.host()
    parts = (own.name, own.text, options.current().cpu, str(hardware.own()), _FORMAT)
    return "machine-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def measure(kinds: Iterable[PrimitiveType], compile: Compile, *, again: bool = False) -> Machine:
    """The machine with the rates of products of these element types measured, if they are not known already.

    compile: compiles a module's text, and is called with other options in force. With options other than the default
    nothing is measured, nor where the environment names a description.
    """
    if os.environ.get(hardware.VARIABLE) or options.current().text != options.DEFAULT.text:
        return current()
    found = current()
    products = {} if again else dict(found.products)
    wanted = [name for kind, name in _KINDS.items() if kind in kinds and name not in products]
    if not wanted:
        return found
    for name in wanted:
        products[name] = rates(name, _SIZE, compile)
    return keep(replace(found, products=products))


def keep(found: Machine) -> Machine:
    """Have a description used from now on, and by other processes."""
    _measured[_key()] = found
    if cache.is_enabled():
        cache.save(_key(), cache.Entry({"machine": found.as_text()}, {}))
    return found


def rates(kind: str, size: int, compile: Compile) -> Rates:
    """Measure products of square matrices of an element type."""
    text = f"""HloModule product
ENTRY e {{
  a = {kind}[{size},{size}] parameter(0)
  b = {kind}[{size},{size}] parameter(1)
  ROOT r = {kind}[{size},{size}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
    import numpy as np

    matrix = np.ones((size, size), np.dtype(kind.replace("f", "float")))
    programs: list[Callable[..., Any]] = []
    for limit in (size**3 + 1, 0):
        with options.compiling(knobs={OWN_PRODUCTS.name: limit}):
            programs.append(compile(text))
    best = [float("inf"), float("inf")]
    for _ in range(_RUNS + 1):
        # In turns, so that what slows the machine down for a while slows both.
        for number, program in enumerate(programs):
            start = time.perf_counter()
            program(matrix, matrix)
            best[number] = min(best[number], time.perf_counter() - start)
    own, blas = (size**3 / (seconds * 1e9) for seconds in best)
    return Rates(own, blas)
