"""What the compile cache keeps of the calls of a program: their places, and not the program's tables of them all."""

import xlakit as xla
from xlakit.cpu.program import Program
from xlakit.errors import Location

PROGRAM = """HloModule m

FileNames
1 "a.py"
2 "b.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=9}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2] custom-call(x), custom_call_target="f", metadata={op_name="y" stack_frame_id=2}
  z = f32[2] custom-call(y), custom_call_target="f", metadata={op_name="z" stack_frame_id=9}
  ROOT w = f32[2] tanh(z)
}
"""


def test_calls_keep_their_places_without_the_tables_of_stack_frames():
    module = xla.HloModule.from_text(PROGRAM)
    calls = module.entry.instructions[1:3]
    program = Program((), "entry", (), 0, host_instructions=calls, host_module=module)
    kept = Program.from_entry(program.to_entry(module), lambda: module)
    assert kept.host_module is not None
    assert not kept.host_module.stack_frames.stack_frames
    first, second = kept.host_instructions
    assert kept.host_module.location_of(first) == module.location_of(calls[0]) == Location("b.py", 7, 1)
    assert kept.host_module.location_of(second) is module.location_of(calls[1]) is None
    assert [m and m.op_name for m in (i.annotations.metadata for i in (first, second))] == ["y", "z"]
