"""Recurrent layers of cuDNN and MIOpen compute LSTMs and their gradients, on both backends."""

import struct

import numpy as np
import pytest
from foreign_programs import check, drawn, program

import xlakit
from xlakit.errors import ShapeError, UnsupportedError
from xlakit.ir.operation import Array

BATCH, STEPS, FEATURES, HIDDEN = 2, 4, 3, 2
# The second sequence is shorter.
LENGTHS = np.int32([4, 2])
FORWARD = ("x", "h", "c", "w", "n")
BACKWARD = ("dy", "dh", "dc", "x", "h", "c", "w", "y", "r", "dw", "n")


def sizes_of(layers: int, directions: int) -> dict[str, tuple[int, ...]]:
    """The dimensions of all operands."""
    inputs = [FEATURES if layer == 0 else directions * HIDDEN for layer in range(layers)]
    weights = sum(directions * 4 * HIDDEN * (size + HIDDEN + 2) for size in inputs)
    states, outputs = (layers * directions, BATCH, HIDDEN), (BATCH, STEPS, directions * HIDDEN)
    x = (BATCH, STEPS, FEATURES)
    return {"dy": outputs, "dh": states, "dc": states, "x": x, "h": states, "c": states, "w": (weights,),
            "y": outputs, "r": (5,), "dw": (weights,)}  # fmt: skip


def descriptor(layers: int, directions: int, dropout: float = 0.0) -> str:
    """The attributes of the typed FFI, as XLA prints them."""
    data = struct.pack("<5if2i2Q", FEATURES, HIDDEN, layers, BATCH, STEPS, dropout, directions - 1, 1, 0, 0)
    return '{opaque = "' + "".join(f"\\{byte:02X}" for byte in data) + '"}'


def matrices(weights: Array, layers: int, directions: int) -> list[list[Array]]:
    """For each direction of each layer the two matrices and the two biases."""
    cells, start = [[] for _ in range(layers * directions)], 0
    for number, cell in enumerate(cells):
        for columns in (FEATURES if number < directions else directions * HIDDEN, HIDDEN):
            cell.append(weights[start : start + 4 * HIDDEN * columns].reshape(4 * HIDDEN, columns))
            start += 4 * HIDDEN * columns
    for cell in cells:
        for _ in range(2):
            cell.append(weights[start : start + 4 * HIDDEN])
            start += 4 * HIDDEN
    return cells


def lstm(given: dict[str, Array], layers: int, directions: int, order: str = "ifgo") -> tuple[Array, Array, Array]:
    """Outputs and last states, one sequence and one step after another."""
    cells = matrices(given["w"], layers, directions)
    inputs, last_h, last_c = given["x"], given["h"].copy(), given["c"].copy()
    for layer in range(layers):
        outputs = np.zeros((BATCH, STEPS, directions * HIDDEN))
        for direction in range(directions):
            number = layer * directions + direction
            into, across, *biases = cells[number]
            for row in range(BATCH):
                steps = range(LENGTHS[row])
                for time in reversed(steps) if direction else steps:
                    sums = into @ inputs[row, time] + across @ last_h[number, row] + sum(biases)
                    gate = dict(zip(order, sums.reshape(4, HIDDEN), strict=True))
                    i, f, o = (1 / (1 + np.exp(-gate[name])) for name in "ifo")
                    last_c[number, row] = f * last_c[number, row] + i * np.tanh(gate["g"])
                    last_h[number, row] = o * np.tanh(last_c[number, row])
                    outputs[row, time, direction * HIDDEN : (direction + 1) * HIDDEN] = last_h[number, row]
        inputs = outputs
    return inputs, last_h, last_c


def operands(names: tuple[str, ...], layers: int, directions: int) -> tuple[list[str], list[Array]]:
    """Their shapes as text, and numbers."""
    sizes = sizes_of(layers, directions)
    given = [LENGTHS if n == "n" else drawn(sizes[n], "f64", seed) for seed, n in enumerate(names)]
    kinds = ["s32" if n == "n" else "f64" for n in names]
    return [f"{k}[{','.join(map(str, a.shape))}]" for k, a in zip(kinds, given, strict=True)], given


def results(names: tuple[str, ...], layers: int, directions: int) -> str:
    sizes = sizes_of(layers, directions)
    parts = [f"f64[{','.join(map(str, sizes[name]))}]" for name in names]
    return f"({', '.join([*parts, 'f64[7]'])})"


@pytest.mark.parametrize("element", range(3))
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_outputs_and_last_states(layers: int, directions: int, element: int):
    shapes, given = operands(FORWARD, layers, directions)
    text = program(
        shapes, results(("y", "h", "c"), layers, directions), "cudnn_rnn_ffi", descriptor(layers, directions),
        element=element,
    )  # fmt: skip
    wanted = lstm(dict(zip(FORWARD, given, strict=True)), layers, directions)
    check(text, given, wanted[element], "f64")


def test_gates_have_another_order_in_miopen():
    shapes, given = operands(FORWARD, 2, 1)
    text = program(shapes, results(("y", "h", "c"), 2, 1), "hipdnn_rnn_ffi", descriptor(2, 1))
    check(text, given, lstm(dict(zip(FORWARD, given, strict=True)), 2, 1, "ifog")[0], "f64")


def test_the_descriptor_may_be_the_whole_config():
    shapes, given = operands(FORWARD, 1, 1)
    escaped = descriptor(1, 1).removeprefix("{opaque = ").removesuffix("}")
    text = program(shapes, results(("y", "h", "c"), 1, 1), "cudnn_rnn", escaped.replace("\\", "\\x"))
    check(text, given, lstm(dict(zip(FORWARD, given, strict=True)), 1, 1)[0], "f64")


@pytest.mark.parametrize("target", ["cudnn_rnn_bwd_ffi", "hipdnn_rnn_bwd_ffi"])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2)])
def test_gradients_are_those_of_the_layers(layers: int, directions: int, target: str):
    shapes, given = operands(BACKWARD, layers, directions)
    named = dict(zip(BACKWARD, given, strict=True))
    order = "ifog" if target.startswith("hip") else "ifgo"

    def total(changed: dict[str, Array]) -> float:
        made = lstm({**named, **changed}, layers, directions, order)
        return sum(float((value * named[of]).sum()) for value, of in zip(made, ("dy", "dh", "dc"), strict=True))

    for element, name in enumerate(("x", "h", "c", "w")):
        text = program(
            shapes, results(("x", "h", "c", "w"), layers, directions), target, descriptor(layers, directions),
            element=element,
        )  # fmt: skip
        found = np.asarray(xlakit.compile(xlakit.HloModule.from_text(text))(*given))
        if name == "w":
            found = found - named["dw"]
        for place in np.random.default_rng(1).choice(found.size, min(found.size, 12), replace=False):
            step = np.zeros(found.size)
            step[place] = 1e-6
            step = step.reshape(found.shape)
            slope = (total({name: named[name] + step}) - total({name: named[name] - step})) / 2e-6
            assert found.flat[place] == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("shape", "config", "error", "message"),
    [
        (None, descriptor(2, 1, 0.5), UnsupportedError, "dropout of 0.5 between recurrent layers has no meaning here"),
        (None, '{opaque = "abc"}', ShapeError, "backend_config has 3 bytes, and is no descriptor of a recurrent"),
        (None, descriptor(1, 2), ShapeError, "weights is .* its dimensions must be"),
        ("f64[9]", descriptor(2, 1), ShapeError, r"weights is f64\[9\].*, its dimensions must be \[104\]"),
        ("f32[104]", descriptor(2, 1), UnsupportedError, "a recurrent layer of f32, f64 has no meaning here"),
    ],
)
def test_what_has_no_meaning_is_refused(shape, config, error, message):
    shapes, _ = operands(FORWARD, 2, 1)
    if shape is not None:
        shapes[3] = shape
    text = program(shapes, results(("y", "h", "c"), 2, 1), "cudnn_rnn_ffi", config)
    with pytest.raises(error, match=message):
        xlakit.compile(xlakit.HloModule.from_text(text))


def test_dropout_does_nothing_to_a_single_layer():
    shapes, given = operands(FORWARD, 1, 1)
    text = program(shapes, results(("y", "h", "c"), 1, 1), "cudnn_rnn_ffi", descriptor(1, 1, 0.5))
    check(text, given, lstm(dict(zip(FORWARD, given, strict=True)), 1, 1)[0], "f64")
