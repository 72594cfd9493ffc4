"""Instructions that compute the same have one kernel, however their computations are written down."""

from collections.abc import Sequence

import pytest

from xlakit.cpu.kernels.library import KernelLibrary
from xlakit.cpu.llvm import Module
from xlakit.formats.hlo_text.parser import parse_module

_P, _Q = "p = f32[8] parameter(0)", "q = f32[8] parameter(1)"
_C, _B = "c = f32[] constant(3)", "b = f32[8] broadcast(c), dimensions={}"
_WRITTEN = [_P, _Q, _C, _B, "s = f32[8] subtract(p, b)", "ROOT r = f32[8] multiply(s, q)"]


def _kernels(*computations: Sequence[str]) -> int:
    """How many kernels fusions of two operands need."""
    called = "\n".join(f"f{n} {{\n" + "\n".join(lines) + "\n}" for n, lines in enumerate(computations))
    made = "\n".join(f"r{n} = f32[8] fusion(x, y), kind=kLoop, calls=f{n}" for n in range(len(computations)))
    module = parse_module(
        f"HloModule m\n{called}\nENTRY e {{\nx = f32[8] parameter(0)\ny = f32[8] parameter(1)\n{made}\n"
        "ROOT t = (f32[8]) tuple(r0)\n}"
    )
    kernels = KernelLibrary(Module("m"))
    found = {id(kernels.kernel(i)) for i in module.entry.instructions if i.opcode == "fusion"}
    return len(found)


@pytest.mark.parametrize(
    "order",
    [[2, 3, 0, 1, 4, 5], [1, 0, 2, 3, 4, 5], [0, 2, 3, 4, 1, 5]],
    ids=["constants first", "parameters", "as used"],
)
def test_the_order_of_instructions_does_not_matter(order):
    assert _kernels(_WRITTEN, [_WRITTEN[n] for n in order]) == 1


def test_what_nothing_uses_does_not_matter():
    assert _kernels(_WRITTEN, [*_WRITTEN[:4], "u = f32[8] add(p, q)", *_WRITTEN[4:]]) == 1


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (4, "s = f32[8] subtract(b, p)"),
        (5, "ROOT r = f32[8] multiply(s, p)"),
        (2, "c = f32[] constant(4)"),
        (0, "p = f32[8] parameter(1)"),
    ],
)
def test_what_is_computed_matters(line, other):
    lines = list(_WRITTEN)
    lines[line] = other
    if line == 0:
        lines[1] = "q = f32[8] parameter(0)"
    assert _kernels(_WRITTEN, lines) == 2
