"""Programs that the tests of the viewer show."""

import json

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


# Steps of a profile: one with operations, one with elementary functions alone, one that only moves, one without time.
STEPS = [
    {"name": "d", "opcode": "dot", "flops": 1000.0, "transcendentals": 0.0, "bytes": 100, "own_nanoseconds": 50},
    {"name": "t", "opcode": "tanh", "flops": 0.0, "transcendentals": 10.0, "bytes": 80, "own_nanoseconds": 400},
    {"name": "c", "opcode": None, "kind": "copy", "flops": 0, "transcendentals": 0, "bytes": 64, "own_nanoseconds": 10},
    {"name": "z", "opcode": "add", "flops": 1, "transcendentals": 0, "bytes": 1, "own_nanoseconds": 0},
]
ROOFS = {
    "flops_per_nanosecond": {"f32": 100.0, "f64": 50.0},
    "bytes_per_nanosecond": {"l1": 200.0, "memory": 10.0},
    "flops_per_transcendental": 20.0,
}


def report_of(steps=STEPS, roofs=ROOFS):
    """The report of a profile with these steps, on a machine with these roofs."""
    return json.dumps({"runs": 1, "instructions": [], "steps": steps, "machine": {"roofs": roofs}})
