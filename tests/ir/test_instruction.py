"""Programs are values: a change makes another one."""

import numpy as np
import pytest

import xlakit as xla

COPIES = """HloModule m

twice {
  x = f32[2] parameter(0)
  ROOT y = f32[2] add(x, x)
}

ENTRY main {
  p = f32[2] parameter(0)
  c = f32[2] copy(p)
  d = f32[2] copy(c)
  t = f32[2] call(d), to_apply=twice
  ROOT s = f32[2] add(c, t)
}
"""


def without_copies(module: xla.HloModule) -> xla.HloModule:
    def change(instruction, operands):
        return operands[0] if instruction.opcode == "copy" else instruction.replace(operands=operands)

    return module.replace(entry=module.entry.rebuild(change))


def test_a_pass_makes_a_new_module_and_leaves_the_old_one():
    old = xla.HloModule.from_text(COPIES)
    text = old.to_text()
    new = without_copies(old)
    new.verify()
    assert [i.name for i in new.entry.instructions] == ["p", "t", "s"]
    assert [c.name for c in new.computations] == ["twice", "main"]
    assert old.to_text() == text
    argument = np.float32([1, 2])
    np.testing.assert_array_equal(xla.compile(new)(argument), xla.compile(old)(argument))


@pytest.mark.parametrize(
    ("root", "results"), [("(f32[], f32[]) tuple(n, x)", ["n", "x"]), ("f32[] abs(n)", ["r"])], ids=["tuple", "array"]
)
def test_the_results_of_a_computation_are_its_roots_elements_or_its_root(root, results):
    text = f"HloModule m\nENTRY e {{\n  x = f32[] parameter(0)\n  n = f32[] negate(x)\n  ROOT r = {root}\n}}"
    assert [i.name for i in xla.HloModule.from_text(text).entry.results] == results
