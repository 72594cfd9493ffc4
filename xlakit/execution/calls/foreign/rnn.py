"""Recurrent layers of cuDNN and MIOpen, as ``jax.experimental.rnn`` calls them: LSTMs, and their gradients.

The weights are one array: for each layer, and in it for each direction, the matrix of the input and that of the hidden
state, and after all matrices the two biases of each. Matrices and biases have the rows of the four gates after one
another, and the input of a later layer is the output of all directions. So two layers with one direction have

    input_0, hidden_0, input_1, hidden_1, input_bias_0, hidden_bias_0, input_bias_1, hidden_bias_1

Each sequence has a length: outputs behind its end are zero, the last states are those at its end, and the backward
direction begins there. The reserved space of the forward call, which cuDNN's backward call reads, is zero here: the
backward call computes all states again.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.execution.calls.foreign.meaning import Foreign
from xlakit.lib.constants import zeros_like
from xlakit.ops.control import scan
from xlakit.ops.data import constant, get_tuple_element, iota, tuple_
from xlakit.ops.dot import DotDimensionNumbers, dot_general
from xlakit.ops.elementwise.binary import add
from xlakit.ops.elementwise.compare import lt
from xlakit.ops.elementwise.elementary import logistic, tanh
from xlakit.ops.elementwise.select import select
from xlakit.ops.handle import XlaOp
from xlakit.ops.movement import broadcast_in_dim, concat_in_dim, reshape, slice_in_dim, transpose
from xlakit.ops.reduction import reduce

# The positions in a matrix of the input gate, the forget gate, the cell's new values and the output gate.
_CUDNN: Final = (0, 1, 2, 3)
_MIOPEN: Final = (0, 1, 3, 2)
# The descriptor: sizes as integers, the rate of dropout, two flags, the sizes of two work spaces.
_DESCRIPTOR: Final = "<5if2i2Q"
_FORWARD: tuple[str, ...] = ("x", "h_0", "c_0", "weights", "lengths")
_BACKWARD: tuple[str, ...] = (
    *("dy", "dh_n", "dc_n", "x", "h_0", "c_0", "weights", "y", "reserved", "dweights"),
    "lengths",
)


def forward(foreign: Foreign) -> XlaOp:
    """The outputs, the last hidden states and the last cells, a work space and what is reserved."""
    operands = dict(zip(_FORWARD, foreign.need_operands(_FORWARD), strict=True))
    network = _Network.of(foreign, operands)
    runs = network.run(operands["x"])
    last = [_stacked([run.last_hidden for run in runs]), _stacked([run.last_cell for run in runs])]
    outputs = network.joined([run.outputs for run in runs[-network.directions :]])
    return foreign.all_finished([transpose(outputs, [1, 0, 2]), *last])


def backward(foreign: Foreign) -> XlaOp:
    """The gradients of the input, the first hidden states and cells, and the weights; and a work space.

    The gradient of the weights is added to the operand of its name.
    """
    operands = dict(zip(_BACKWARD, foreign.need_operands(_BACKWARD), strict=True))
    network = _Network.of(foreign, operands)
    runs = network.run(operands["x"])
    gradient = transpose(operands["dy"], [1, 0, 2])
    gradients: list[_Gradients] = []
    for layer in reversed(range(network.layers)):
        numbers = range(layer * network.directions, (layer + 1) * network.directions)
        of_layer: list[_Gradients] = []
        for place, number in enumerate(numbers):
            direction_gradient = slice_in_dim(gradient, place * network.hidden, (place + 1) * network.hidden, 1, 2)
            last = [_at(operands[name], number) for name in ("dh_n", "dc_n")]
            of_layer.append(network.gradients(runs[number], number, direction_gradient, *last))
        gradient = of_layer[0].inputs if len(of_layer) == 1 else of_layer[0].inputs + of_layer[1].inputs
        gradients = [*of_layer, *gradients]
    first = [_stacked([g.first_hidden for g in gradients]), _stacked([g.first_cell for g in gradients])]
    parts = [m for g in gradients for m in g.matrices] + [g.bias for g in gradients for _ in range(2)]
    weights = concat_in_dim([_flat(network.in_order(part)) for part in parts], 0)
    return foreign.all_finished([transpose(gradient, [1, 0, 2]), *first, operands["dweights"] + weights])


@dataclass(frozen=True, slots=True)
class _Cell:
    """The weights of one direction of a layer, gates in cuDNN's order: matrices, and the sum of the two biases."""

    inputs: XlaOp
    hidden: XlaOp
    bias: XlaOp


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a direction of a layer computes, steps first: gates, cells after and before, hidden states before."""

    inputs: XlaOp
    outputs: XlaOp
    gates: XlaOp
    cells: XlaOp
    cells_before: XlaOp
    hidden_before: XlaOp
    last_hidden: XlaOp
    last_cell: XlaOp


@dataclass(frozen=True, slots=True)
class _Gradients:
    """The gradients of one direction of a layer."""

    inputs: XlaOp
    first_hidden: XlaOp
    first_cell: XlaOp
    matrices: tuple[XlaOp, XlaOp]
    bias: XlaOp


@dataclass(frozen=True, slots=True)
class _Network:
    """The layers of a call."""

    layers: int
    directions: int
    hidden: int
    first: tuple[XlaOp, XlaOp]
    cells: tuple[_Cell, ...]
    lengths: XlaOp
    order: tuple[int, ...]

    @staticmethod
    def of(foreign: Foreign, operands: Mapping[str, XlaOp]) -> _Network:
        """The layers that shapes and descriptor say. Raises ShapeError where they do not fit, UnsupportedError."""
        x, h_0, c_0, weights, lengths = (operands[name] for name in _FORWARD)
        kinds = {o.shape.element_type for name, o in operands.items() if name != "lengths"}
        if kinds not in ({PrimitiveType.F32}, {PrimitiveType.F64}):
            names = ", ".join(sorted(kind.hlo_name for kind in kinds))
            raise UnsupportedError(f"a recurrent layer of {names} has no meaning here", hint="arrays may be f32 or f64")
        dropout, is_bidirectional = _described(foreign)
        directions = 1 + is_bidirectional
        if x.shape.rank != 3 or h_0.shape.rank != 3 or h_0.shape.dimensions[0] % directions:
            raise ShapeError(
                f"x {x.shape} and h_0 {h_0.shape} are no operands of a recurrent layer with {directions} directions",
                hint="x is [batch, steps, features], h_0 [layers * directions, batch, hidden]",
            )
        count, batch, hidden = h_0.shape.dimensions
        layers = count // directions
        wanted = {
            "c_0": (c_0, (count, batch, hidden)),
            "weights": (weights, (_size(x.shape.dimensions[2], hidden, layers, directions),)),
            "lengths": (lengths, (batch,)),
            "x": (x, (batch, *x.shape.dimensions[1:])),
        }
        for name, (array, sizes) in wanted.items():
            if array.shape.dimensions != sizes:
                raise ShapeError(f"{name} is {array.shape}, its dimensions must be {list(sizes)}", hint=_WEIGHTS)
        if dropout and layers > 1:
            raise UnsupportedError(
                f"dropout of {dropout:g} between recurrent layers has no meaning here: its mask is cuDNN's own",
                hint="compile the program with dropout=0",
            )
        order = _MIOPEN if foreign.op.custom_call_target.startswith("hip") else _CUDNN
        cells = _cells(weights, x.shape.dimensions[2], hidden, (layers, directions), order)
        return _Network(layers, directions, hidden, (h_0, c_0), cells, lengths, order)

    def run(self, x: XlaOp) -> list[_Ran]:
        """All directions of all layers, in the order of the weights."""
        inputs, runs = transpose(x, [1, 0, 2]), list[_Ran]()
        for layer in range(self.layers):
            numbers = range(layer * self.directions, (layer + 1) * self.directions)
            runs += [self._run(number, inputs) for number in numbers]
            inputs = self.joined([run.outputs for run in runs[-self.directions :]])
        return runs

    def _run(self, number: int, inputs: XlaOp) -> _Ran:
        cell, hidden = self.cells[number], self.hidden
        sums = _product(inputs, cell.inputs, 2, 1)
        gate_inputs = sums + broadcast_in_dim(cell.bias, sums.shape.dimensions, [2])

        def step(gate_inputs: XlaOp, time: XlaOp, h: XlaOp, c: XlaOp, weights: XlaOp, lengths: XlaOp) -> XlaOp:
            i, f, g, o = _gates(gate_inputs + _product(h, weights, 1, 1), hidden, 1)
            i, f, g, o = logistic(i), logistic(f), tanh(g), logistic(o)
            cells = f * c + i * g
            new = o * tanh(cells)
            runs = _is_running(time, lengths, hidden)
            output = select(runs, new, zeros_like(new))
            carried = [select(runs, new, h), select(runs, cells, c)]
            return tuple_([output, concat_in_dim([i, f, g, o], 1), cells, c, h, *carried, weights, lengths])

        starts = [_at(first, number) for first in self.first]
        steps = self._steps(inputs)
        is_reverse = bool(number % self.directions)
        outputs = scan([gate_inputs, steps], [*starts, cell.hidden, self.lengths], step, 0, is_reverse=is_reverse)
        return _Ran(inputs, *(get_tuple_element(outputs, n) for n in range(7)))

    def gradients(self, run: _Ran, number: int, gradient: XlaOp, last_hidden: XlaOp, last_cell: XlaOp) -> _Gradients:
        """From those of a direction's outputs and last states."""
        cell, hidden = self.cells[number], self.hidden

        def step(dy: XlaOp, gates: XlaOp, cells: XlaOp, before: XlaOp, time: XlaOp, *carried: XlaOp) -> XlaOp:
            dh_behind, dc_behind, weights, lengths = carried
            i, f, g, o = _gates(gates, hidden, 1)
            runs = _is_running(time, lengths, hidden)
            dh, tanh_cells = dh_behind + dy, tanh(cells)
            dc = dc_behind + dh * o * (1 - tanh_cells * tanh_cells)
            of_gates = [
                dc * g * i * (1 - i),
                dc * before * f * (1 - f),
                dc * i * (1 - g * g),
                dh * tanh_cells * o * (1 - o),
            ]
            sums = concat_in_dim([select(runs, part, zeros_like(part)) for part in of_gates], 1)
            new = [select(runs, _product(sums, weights, 1, 0), dh_behind), select(runs, dc * f, dc_behind)]
            return tuple_([sums, *new, weights, lengths])

        slices = [gradient, run.gates, run.cells, run.cells_before, self._steps(run.inputs)]
        carries = [last_hidden, last_cell, cell.hidden, self.lengths]
        outputs = scan(slices, carries, step, 0, is_reverse=not number % self.directions)
        sums, first_hidden, first_cell = (get_tuple_element(outputs, n) for n in range(3))
        rows, inputs, before = (_merged(array) for array in (sums, run.inputs, run.hidden_before))
        bias = reduce(rows, constant(sums.builder, 0, sums.shape.element_type), add, [0])
        matrices = _product(rows, inputs, 0, 0), _product(rows, before, 0, 0)
        return _Gradients(_product(sums, cell.inputs, 2, 0), first_hidden, first_cell, matrices, bias)

    def joined(self, outputs: Sequence[XlaOp]) -> XlaOp:
        """The outputs of all directions as features."""
        return concat_in_dim(outputs, 2) if len(outputs) > 1 else outputs[0]

    def in_order(self, array: XlaOp) -> XlaOp:
        """Rows of gates, rearranged to the order in which the library has them."""
        parts = _gates(array, self.hidden, 0)
        return concat_in_dim([parts[n] for n in self.order], 0)

    def _steps(self, inputs: XlaOp) -> XlaOp:
        return iota(inputs.builder, make_shape(PrimitiveType.S32, inputs.shape.dimensions[:1]), 0)


_WEIGHTS: Final = "weights are the matrices of all directions of all layers, then their biases: see docs/workbench.md"


def _described(foreign: Foreign) -> tuple[float, bool]:
    """The rate of dropout, and whether layers have two directions. Raises ShapeError for another descriptor."""
    data = foreign.config.text("opaque").encode("utf-8", "surrogateescape")
    if len(data) != struct.calcsize(_DESCRIPTOR):
        raise ShapeError(
            f"backend_config has {len(data)} bytes, and is no descriptor of a recurrent layer",
            hint=f"it has {struct.calcsize(_DESCRIPTOR)} bytes: sizes, dropout, whether there are two directions",
        )
    fields = struct.unpack(_DESCRIPTOR, data)
    return fields[5], bool(fields[6])


def _size(features: int, hidden: int, layers: int, directions: int) -> int:
    """How many weights there are."""
    inputs = [features if layer == 0 else directions * hidden for layer in range(layers)]
    return sum(directions * 4 * hidden * (size + hidden + 2) for size in inputs)


def _cells(
    weights: XlaOp, features: int, hidden: int, counts: tuple[int, int], order: Sequence[int]
) -> tuple[_Cell, ...]:
    """The weights of each direction of each layer."""
    layers, directions = counts
    start = 0

    def taken(*sizes: int) -> XlaOp:
        """The next of the weights, with the gates in cuDNN's order."""
        nonlocal start
        end = start + 4 * hidden * (sizes[0] if sizes else 1)
        parts = _gates(reshape(slice_in_dim(weights, start, end, 1, 0), [4 * hidden, *sizes]), hidden, 0)
        start = end
        return concat_in_dim([parts[order.index(n)] for n in range(4)], 0)

    matrices = [
        (taken(features if layer == 0 else directions * hidden), taken(hidden))
        for layer in range(layers)
        for _ in range(directions)
    ]
    return tuple(_Cell(*pair, taken() + taken()) for pair in matrices)


def _gates(array: XlaOp, hidden: int, dimension: int) -> list[XlaOp]:
    """The parts of the four gates."""
    return [slice_in_dim(array, n * hidden, (n + 1) * hidden, 1, dimension) for n in range(4)]


def _is_running(time: XlaOp, lengths: XlaOp, hidden: int) -> XlaOp:
    """For each state whether its sequence has this step."""
    runs = lt(broadcast_in_dim(time, lengths.shape.dimensions, []), lengths)
    return broadcast_in_dim(runs, [*lengths.shape.dimensions, hidden], [0])


def _product(lhs: XlaOp, rhs: XlaOp, left: int, right: int) -> XlaOp:
    return dot_general(lhs, rhs, DotDimensionNumbers((left,), (right,), (), ()))


def _at(array: XlaOp, number: int) -> XlaOp:
    return reshape(slice_in_dim(array, number, number + 1, 1, 0), list(array.shape.dimensions[1:]))


def _stacked(arrays: Sequence[XlaOp]) -> XlaOp:
    return concat_in_dim([reshape(array, [1, *array.shape.dimensions]) for array in arrays], 0)


def _merged(array: XlaOp) -> XlaOp:
    """Steps and batch as one dimension."""
    steps, batch, features = array.shape.dimensions
    return reshape(array, [steps * batch, features])


def _flat(array: XlaOp) -> XlaOp:
    return reshape(array, [math.prod(array.shape.dimensions)])
