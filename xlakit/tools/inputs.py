"""Arguments for a program, made up, or read from a file, what the host feeds it, and the program compiled with that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xlakit.api import compile
from xlakit.data.literal import Array
from xlakit.data.shape import ProgramShape, Shape
from xlakit.errors import ArgumentError
from xlakit.execution.context import ExecutionContext
from xlakit.execution.inputs import make_inputs, make_value
from xlakit.execution.options import ExecutionOptions
from xlakit.execution.run import Participant
from xlakit.formats.npz import read_arrays
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ir.operation import TOKEN, Value
from xlakit.ops.communication.transfer import Transfer
from xlakit.ops.data import Copy, Parameter
from xlakit.ops.dynamic import SetDimensionSize
from xlakit.ops.elementwise.convert import Convert
from xlakit.ops.movement import Reshape
from xlakit.options import compiling


def made_up(entry: Computation, program: ProgramShape, seed: int) -> list[Any]:
    """Arguments from a seed, as :func:`make_inputs` draws them, for an entry whose whole arguments have these shapes.

    Sizes that ``set-dimension-size`` takes lie within the bounds. Raises what make_inputs raises.
    """
    values = make_inputs(program, seed)
    for number, largest in _size_limits(entry).items():
        # An element type may not hold the bound, and then none of its values exceeds it.
        if largest < np.iinfo(values[number].dtype).max:
            values[number] = np.mod(values[number], values[number].dtype.type(largest + 1))
    return values


def _size_limits(entry: Computation) -> dict[int, int]:
    """The largest value of each parameter that is the size of a dimension, by its number."""
    limits: dict[int, int] = {}
    for instruction in entry.instructions:
        if isinstance(instruction.op, SetDimensionSize):
            array, size = instruction.operands
            while isinstance(size.op, (Convert, Copy, Reshape)):
                size = size.operands[0]
            if isinstance(size.op, Parameter) and size.shape.element_type.is_integral:
                bound = array.shape.dimensions[instruction.op.dimension]
                limits[size.op.number] = min(bound, limits.get(size.op.number, bound))
    return limits


class _MadeUpFeeds(ExecutionContext):
    """A host that sends made up values whenever a device waits for one, and drops what devices send.

    The values depend on the seed, the device, the channel, and how many came before: they are the same on all backends.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._counts: Counter[tuple[int, ...]] = Counter()

    def next_infeed(self, device: Participant, instruction: Instruction, shape: Shape) -> Value:
        return self._next(shape, device.feed_index)

    def next_from_host(self, device: Participant, instruction: Instruction, channel_id: int, shape: Shape) -> Value:
        return self._next(shape, device.feed_index, channel_id)

    def append_outfeed(self, device: Participant, instruction: Instruction, value: Value, shape: Shape) -> None:
        pass

    def append_to_host(self, device: Participant, instruction: Instruction, channel_id: int, value: Value) -> None:
        pass

    def _next(self, shape: Shape, *queue: int) -> Value:
        # A queue belongs to one device, whose thread is the only one here that counts it.
        self._counts[queue] += 1
        return make_value(shape, np.random.default_rng([self._seed, *queue, self._counts[queue]]))


def options_of(module: HloModule, seed: int, custom_calls: Mapping[str, object] | None = None) -> ExecutionOptions:
    """How a tool runs a program, beside which no host runs: what that sends to it is made up."""
    feeds = _MadeUpFeeds(seed) if any(isinstance(i.op, Transfer) for i in module.instructions) else None
    return ExecutionOptions(seed=seed, custom_calls=custom_calls, execution_context=feeds)


def compiled(module: HloModule, backend: str | None, seed: int, *, cache: bool = True) -> Any:
    """A program for a tool on a backend, or ``plain``: machine code without what xlakit.options.PLAIN lists."""
    feeds, is_plain = options_of(module, seed).execution_context, backend == "plain"
    with compiling(plain="all" if is_plain else None):
        name = "cpu" if is_plain else backend
        return compile(module, backend=name, seed=seed, cache=cache, execution_context=feeds)


def read_inputs(path: str, program: ProgramShape) -> list[Any]:
    """The parameters' values from an ``.npz`` file (or one ``.npy`` for a single parameter).

    Arrays are found by the parameter's name, its number, or ``arg<number>``; elements of tuples by ``0.1``.
    Raises ArgumentError where one is missing, FormatError where the file is not NumPy's.
    """
    arrays = read_arrays(Path(path))
    names = program.parameter_names or ("",) * len(program.parameters)
    return [
        _read(arrays, [name, str(i), f"arg{i}"] if name else [str(i), f"arg{i}"], shape, Path(path).name)
        for i, (name, shape) in enumerate(zip(names, program.parameters, strict=True))
    ]


def _read(arrays: dict[str, Array], keys: list[str], shape: Shape, file: str) -> Any:
    if shape.is_tuple:
        return tuple(_read(arrays, [f"{key}.{i}" for key in keys], s, file) for i, s in enumerate(shape.tuple_shapes))
    if shape.is_token:
        return TOKEN
    for key in keys:
        if key in arrays:
            array = arrays[key]
            dtype = shape.element_type.dtype
            # Raw bytes are those of a type that NumPy does not know.
            return array.view(dtype) if array.dtype.kind == "V" and array.itemsize == dtype.itemsize else array
    raise ArgumentError(
        f"{file} has no array for parameter {' or '.join(keys)}",
        hint=f"it has: {', '.join(sorted(arrays)) or 'nothing'}",
    )


def flatten(value: Any, prefix: str = "") -> dict[str, Array]:
    """The arrays in a nested tuple by their index (``0.1``; ``result`` for a value that is no tuple)."""
    if isinstance(value, tuple):
        leaves: dict[str, Array] = {}
        for i, element in enumerate(value):  # pyright: ignore[reportUnknownVariableType]
            leaves.update(flatten(element, f"{prefix}.{i}" if prefix else str(i)))
        return leaves
    return {} if value is None or value is TOKEN else {prefix or "result": np.asarray(value)}
