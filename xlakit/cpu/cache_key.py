"""Keys of the compile cache: digests of all that machine code is made from.

A key stands for the program, what was asked of the compiler, the compiler itself and the machine. Names and metadata of
instructions count only where they can be heard of while the program runs: in errors of what Python does for it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Collection
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np

from xlakit.cpu.llvm import engine
from xlakit.data.literal import Literal
from xlakit.ir.attributes import NO_ANNOTATIONS, Annotations
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import Kind, Op
from xlakit.ops.data import Constant

_LOADED = time.time()

# What changes the code that is made of a program.
_VARIABLES = ("XLAKIT_DISABLE_PASSES", "XLAKIT_FUEL")

# What can fail, or wait in vain, and then says its name: by how opcodes begin, beside what has side effects.
_SPEAKING = ("custom-call", "all-", "collective-", "reduce-scatter", "ragged-all", "send", "recv", "infeed", "outfeed")


def program_key(
    module: HloModule,
    num_replicas: int,
    num_partitions: int,
    c_functions: Collection[str] = (),
    *,
    meets: bool = True,
) -> str | None:
    """The key of a program's machine code; None for a module that is not well formed, or where nothing can be kept.

    c_functions: the names of custom calls that machine code calls itself; it does not know their addresses.
    meets: whether machine code does collectives.
    """
    compiler = _of_compiler()
    if compiler is None:
        return None
    digest = hashlib.sha256(compiler)
    options = (
        num_replicas,
        num_partitions,
        meets,
        *sorted(c_functions),
        *(os.environ.get(name, "") for name in _VARIABLES),
    )
    try:
        parts = _ModuleText(module).parts()
    except (KeyError, AttributeError, TypeError):
        # An operand from elsewhere, or an attribute of a wrong type: verification tells what is wrong.
        return None
    digest.update(repr(options).encode())
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return "program-" + digest.hexdigest()[:40]


def runtime_key(variant: str) -> str | None:
    """The key of a variant of the runtime's machine code; None where nothing can be kept."""
    compiler = _of_compiler()
    return None if compiler is None else "runtime-" + hashlib.sha256(compiler + variant.encode()).hexdigest()[:40]


def compiler_has_changed() -> bool:
    """Whether somebody has edited the compiler since this process has started: then it is not what its files say."""
    return any(changed > _start() * 1e9 for _, _, changed in _sources())


@cache
def _start() -> float:
    """When this process, or what it was forked from, may have read the first of our files."""
    try:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot = int(words[19]) / os.sysconf("SC_CLK_TCK")
        return min(_LOADED, time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot)
    except (OSError, AttributeError, ValueError, IndexError):
        # Not Linux: the files were read shortly before.
        return _LOADED


@cache
def _of_compiler() -> bytes | None:
    """The compiler and the machine: versions, the sources of this package, the processor's name and features."""
    if compiler_has_changed():
        return None
    parts = [
        _version("xlakit"),
        llvmlite.__version__,
        np.__version__,
        _version("scipy"),
        _version("ml_dtypes"),
        sys.implementation.cache_tag or "",
        sys.platform,
        platform.machine(),
        *engine.host_features(),
        *map(str, _sources()),
    ]
    return hashlib.sha256("\n".join(parts).encode()).digest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _sources() -> list[tuple[str, int, int]]:
    """Each source file, its size, and when it was changed in nanoseconds; none where the package is no directory."""
    found: list[tuple[str, int, int]] = []
    folder = Path(__file__).parents[1]
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                status = os.stat(os.path.join(path, name))
                found.append((os.path.relpath(os.path.join(path, name), folder), status.st_size, status.st_mtime_ns))
    return found


class _ModuleText:
    """All of a module that matters, as a list of texts and bytes. Instructions are numbers."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._computations = {computation: number for number, computation in enumerate(module.computations)}
        self._named = any(
            i.op.has_side_effect or i.opcode.startswith(_SPEAKING) for c in module.computations for i in c.instructions
        )
        self._shapes: dict[Any, str] = {}
        self._parts: list[str | bytes] = []

    def parts(self) -> list[str | bytes]:
        module = self._module
        self._parts.append(
            repr(
                (
                    module.name if self._named else "",
                    module.entry_computation_layout,
                    module.is_scheduled,
                    module.replica_count,
                    module.num_partitions,
                    module.input_output_alias,
                    module.buffer_donor,
                    module.frontend_attributes,
                    module.spmd_output_sharding,
                    module.spmd_parameters_shardings,
                    module.stack_frames if self._named else "",
                )
            )
        )
        for computation in module.computations:
            self._computation(computation)
        return self._parts

    def _computation(self, computation: Computation) -> None:
        numbers = {instruction: number for number, instruction in enumerate(computation.instructions)}
        names = {i.name for i in computation.instructions}
        # Two instructions of one name are a fault that is to be told, whatever the names are.
        unique = len(names) == len(computation.instructions)
        name = computation.name if self._named else ""
        self._parts.append(f"{name} {unique} {numbers[computation.root]} {computation.execution_thread}")
        for instruction in computation.instructions:
            self._instruction(instruction, numbers)

    def _instruction(self, instruction: Instruction, numbers: dict[Instruction, int]) -> None:
        op, shape = instruction.op, instruction.shape
        text = self._shapes.get(shape)
        if text is None:
            text = self._shapes[shape] = shape.to_string()
        operands = [numbers[o] for o in instruction.operands]
        self._parts.append(f"{op.opcode} {text} {operands}")
        if isinstance(op, Constant):
            self._literal(op.literal)
        elif op.attributes:
            self._parts.append(repr(self._attributes(op)))
        if instruction.control_predecessors:
            self._parts.append(repr([numbers[p] for p in instruction.control_predecessors]))
        if instruction.annotations is not NO_ANNOTATIONS:
            self._annotations(instruction.annotations)
        if self._named:
            self._parts.append(instruction.name)

    def _attributes(self, op: Op) -> list[Any]:
        values: list[Any] = []
        for spec in op.attributes:
            value = getattr(op, spec.name)
            if spec.kind is Kind.COMPUTATION:
                value = None if value is None else self._computations[value]
            elif spec.kind is Kind.COMPUTATION_LIST:
                value = [self._computations[c] for c in value or ()]
            elif spec.kind is Kind.LITERAL and value is not None:
                self._literal(value)
                value = "literal"
            values.append(value)
        return values

    def _literal(self, literal: Literal) -> None:
        self._parts.append(literal.shape.to_string())
        if literal.shape.is_tuple:
            for element in literal.elements:
                self._literal(element)
        elif literal.shape.is_array:
            self._parts.append(literal.array.tobytes())

    def _annotations(self, annotations: Annotations) -> None:
        said = (
            annotations.sharding,
            annotations.frontend_attributes,
            annotations.backend_config,
            annotations.parameter_replication,
            annotations.metadata if self._named else None,
        )
        if any(said):
            self._parts.append(repr(said))
