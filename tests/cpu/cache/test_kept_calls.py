"""What the compile cache keeps of the calls of a program: their places, and not the program's tables of them all."""

import dataclasses

import numpy as np
import pytest

import xlakit as xla
from xlakit import compile_cache as cache
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


def test_of_a_program_with_custom_calls_only_these_are_kept(folder, compiles):
    """They name their place in errors, and take each other's results; the rest of the program is not needed."""

    def fails(x, limit):
        if x.sum() > limit:
            raise ValueError("too much")
        return x + 1

    module = xla.HloModule.from_text("""HloModule m
      body { t = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(t), index=0  one = s32[] constant(1)
        x = f32[2] get-tuple-element(t), index=1  half = f32[2] constant({0.5, 0.5})  limit = f32[] constant(100)
        y = f32[2] multiply(x, half)
        first = f32[2] custom-call(y, limit), custom_call_target="fails", metadata={source_file="a.py" source_line=3}
        second = f32[2] custom-call(first, limit), custom_call_target="fails", metadata={source_line=4}
        j = s32[] add(i, one)  z = f32[2] multiply(second, second)  ROOT r = (s32[], f32[2]) tuple(j, z) }
      go { t = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(t), index=0  n = s32[] constant(3)
        ROOT p = pred[] compare(i, n), direction=LT }
      ENTRY e { x = f32[2] parameter(0)  zero = s32[] constant(0)  s = (s32[], f32[2]) tuple(zero, x)
        w = (s32[], f32[2]) while(s), condition=go, body=body  y = f32[2] get-tuple-element(w), index=1
        z = f32[2] tanh(y)  limit = f32[] constant(30)
        ROOT third = f32[2] custom-call(z, limit), custom_call_target="fails" } """)
    found = []
    for values in ([0, 0], [0, 0], [900, 900]):
        made = xla.compile(module, custom_calls={"fails": fails})
        try:
            found.append(made(np.array(values, np.float32)).tolist())
        except xla.ExecutionError as error:
            found.append((error.operation, error.location))
    assert len(compiles) == 1
    assert found[0] == found[1] == [2, 2]
    assert found[2] == ("custom-call 'first'", xla.Location("a.py", 3))
    (entry,) = folder.glob("*.xlakit")
    kept = Program.from_entry(cache.load(entry.stem), lambda: module).host_module
    opcodes = [i.opcode for c in kept.computations for i in c.instructions]
    assert sorted(opcodes) == ["custom-call"] * 3 + ["parameter"] * 4 + ["tuple"]


def test_errors_of_kept_calls_have_the_names_of_the_program(folder, compiles):
    """Calls of two computations have one name in the program, and are kept in one computation."""

    def fails(x):
        if x[0] > 0:
            raise ValueError("no")
        return x + 1

    module = xla.HloModule.from_text("""HloModule m
      body { t = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(t), index=0  one = s32[] constant(1)
        x = f32[2] get-tuple-element(t), index=1  j = s32[] add(i, one)
        c = f32[2] custom-call(x), custom_call_target="fails"  ROOT r = (s32[], f32[2]) tuple(j, c) }
      go { t = (s32[], f32[2]) parameter(0)  i = s32[] get-tuple-element(t), index=0  n = s32[] constant(30)
        ROOT p = pred[] compare(i, n), direction=LT }
      ENTRY e { c.operand.0 = f32[2] parameter(0)  zero = s32[] constant(0)
        c = f32[2] custom-call(c.operand.0), custom_call_target="adds"  s = (s32[], f32[2]) tuple(zero, c)
        w = (s32[], f32[2]) while(s), condition=go, body=body  y = f32[2] get-tuple-element(w), index=1
        ROOT c.1 = f32[2] custom-call(y), custom_call_target="adds" } """)
    operations = []
    for _ in range(2):
        made = xla.compile(module, custom_calls={"fails": fails, "adds": lambda x: x + 1})
        with pytest.raises(xla.ExecutionError) as caught:
            made(np.zeros(2, np.float32))
        operations.append(caught.value.operation)
    assert len(compiles) == 1
    assert operations == ["custom-call 'c'"] * 2
    (entry,) = folder.glob("*.xlakit")
    kept = Program.from_entry(cache.load(entry.stem), lambda: module)
    assert sorted(i.name for i in kept.host_instructions) == ["c", "c", "c.1"]


@pytest.mark.parametrize(("name", "section"), [("a.b", "host calls"), ("no word", "host module")])
def test_calls_are_kept_as_text_where_it_gives_them_back(folder, compiles, name, section):
    """To import protobuf for one call took longer than to compile a program."""
    module = xla.HloModule.from_text(r"""HloModule m
      add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[2,3]{0,1} parameter(0)
        ROOT y = f32[2,3]{0,1} custom-call(x), custom_call_target="a b", called_computations={add},
          backend_config="\377\000\"{%\n", metadata={source_file="a.py" source_line=3} }""")
    root = module.entry.root
    root = root.replace(annotations=dataclasses.replace(root.annotations, frontend_attributes=((name, "{"),)))
    module = module.with_entry(xla.Computation("e", (*root.operands, root), root))
    for _ in range(2):
        made = xla.compile(module, custom_calls={"a b": lambda x: x + 1})
        np.testing.assert_array_equal(made(np.ones((2, 3), np.float32)), np.full((2, 3), 2, np.float32))
    assert len(compiles) == 1
    (entry,) = folder.glob("*.xlakit")
    stored = cache.load(entry.stem)
    assert section in stored.sections
    kept = Program.from_entry(stored, lambda: module).host_instructions[0]
    assert (kept.op.custom_call_target, kept.annotations, kept.shape) == ("a b", root.annotations, root.shape)
    assert [c.name for c in kept.op.computations] == ["add"]
