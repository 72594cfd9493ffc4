"""Programs that the tests of the viewer show."""

from xlakit.ir.instruction import HloModule

STEP = """HloModule step

square {
  a = f32[8,8]{1,0} parameter(0)
  ROOT b = f32[8,8]{1,0} multiply(a, a)
}

ENTRY main {
  x = f32[8,8]{1,0} parameter(0), metadata={op_name="x" source_file="model.py" source_line=12}
  one = f32[] constant(1)
  ones = f32[8,8]{1,0} broadcast(one), dimensions={}
  same = f32[8,8]{1,0} multiply(x, ones)
  s = f32[8,8]{1,0} call(same), to_apply=square, metadata={op_name="f/square" source_file="model.py" source_line=13}
  d = f32[8,8]{1,0} dot(x, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[8,8]{1,0} tanh(d)
}
"""


def step() -> HloModule:
    """A small program, of which the passes remove a product with one and a call."""
    return HloModule.from_text(STEP)


def chain(count: int) -> HloModule:
    """A program of so many instructions, each of which uses the one before and an earlier one."""
    lines = ["v0 = f32[16]{0} parameter(0)"]
    for number in range(1, count):
        opcode = ("add", "multiply", "maximum", "subtract")[number % 4]
        metadata = f'metadata={{op_name="f/{opcode}" source_file="model.py" source_line={number % 97 + 1}}}'
        operands = f"v{number - 1}, v{number // 2}"
        lines.append(f"v{number} = f32[16]{{0}} {opcode}({operands}), {metadata}")
    lines[-1] = f"ROOT {lines[-1]}"
    return HloModule.from_text("HloModule chain\n\nENTRY main {\n  " + "\n  ".join(lines) + "\n}\n")
