"""The verifier: each rule is broken once, and the error names the instruction."""

import re

import pytest

import xlakit as xla
from xlakit.errors import XlakitError
from xlakit.verifier import findings


def module(body: str, header: str = "HloModule m") -> xla.HloModule:
    return xla.HloModule.from_text(f"{header}\n\nENTRY main {{\n{body}\n}}\n")


def test_a_well_formed_module_passes():
    module("x = f32[2] parameter(0)\nROOT y = f32[2] add(x, x)").verify()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = f32[2] parameter(0)\nROOT y = f32[3] add(x, x)", "'y'"),
        ("x = f32[2] parameter(0)\nROOT y = s32[2] add(x, x)", "'y'"),
        ("x = f32[2] parameter(0)\nz = f32[3] parameter(1)\nROOT y = f32[2] add(x, z)", "'y'"),
        ("x = f32[2] parameter(1)\nROOT y = f32[2] add(x, x)", "parameters numbered"),
        ("x = f32[2] parameter(0)\nz = f32[2] parameter(0)\nROOT y = f32[2] add(x, z)", "parameters numbered"),
        ("x = f32[2] parameter(0)\nROOT y = (f32[2], f32[3]) tuple(x, x)", "'y'"),
        ("x = f32[2] parameter(0)\nROOT y = f32[] get-tuple-element(x), index=0", "tuple"),
        ("x = f32[2,3] parameter(0)\nROOT y = f32[2,3] transpose(x), dimensions={1,0}", "'y'"),
        ("x = f32[2,3] parameter(0)\nROOT y = f32[7] reshape(x)", "reshape"),
        ('x = f32[2] parameter(0)\nROOT y = () custom-call(x), custom_call_target="control_dep"', "takes two operands"),
        (
            "x = f32[2] parameter(0)\na = f32[2] sine(x)\nROOT b = f32[2] cosine(a)\n"
            'y = () custom-call(b, a), custom_call_target="control_dep"',
            "neither before nor after",
        ),
    ],
)
def test_broken_rules_are_named(body, message):
    with pytest.raises(XlakitError) as error:
        module(body).verify()
    assert message in str(error.value)


@pytest.mark.parametrize(
    "header",
    [
        "HloModule m, entry_computation_layout={(f32[3]{0})->f32[2]{0}}",
        "HloModule m, entry_computation_layout={(f32[2]{0})->f32[3]{0}}",
        "HloModule m, entry_computation_layout={()->f32[2]{0}}",
        "HloModule m, input_output_alias={ {}: (1, {}, may-alias) }",
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }",
        "HloModule m, buffer_donor={ (2, {}) }",
    ],
)
def test_headers_must_fit_the_entry(header):
    with pytest.raises(XlakitError, match=header.split()[2].partition("=")[0]):
        module("x = f32[2] parameter(0)\nROOT y = f32[2] add(x, x)", header).verify()


def test_what_shares_memory_is_of_one_size():
    header = "HloModule m, input_output_alias={ {}: (0, {}, must-alias) }"
    with pytest.raises(xla.VerificationError, match="of 8 bytes cannot lie in parameter 0"):
        module("x = f32[3] parameter(0)\nROOT y = f32[2] slice(x), slice={[0:2]}", header).verify()
    module("x = f32[3] parameter(0)\nROOT y = s32[3] convert(x)", header).verify()


@pytest.mark.parametrize(
    ("aliases", "said"),
    [
        ("{0}: (0, {}), {1}: (0, {})", "parameter 0, {}, is aliased twice"),
        ("{0}: (0, {}), {0}: (1, {})", "output {0} is aliased twice"),
    ],
)
def test_what_shares_memory_is_in_pairs(aliases, said):
    # Two results in the memory of one argument would be one.
    header = f"HloModule m, input_output_alias={{ {aliases} }}"
    body = "x = f32[2] parameter(0)\ny = f32[2] parameter(1)\nROOT r = (f32[2], f32[2]) tuple(y, x)"
    with pytest.raises(xla.VerificationError, match=re.escape(said)):
        module(body, header).verify()


def test_float_types_may_differ_in_precision_and_layouts_may_differ():
    module("x = bf16[2] parameter(0)\nROOT y = f32[2] add(x, x)").verify()
    module("x = f32[2,3]{1,0} parameter(0)\nROOT y = f32[2,3]{0,1} add(x, x)").verify()


def test_an_error_of_a_dump_points_into_the_source():
    text = 'ROOT y = f32[3] add(x, x), metadata={op_name="f" source_file="model.py" source_line=7}'
    with pytest.raises(xla.ShapeError, match=r"model\.py:7"):
        module(f"x = f32[2] parameter(0)\n{text}").verify()


# -- what hands values on keeps their type ---------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "x = f32[2] parameter(0)\nROOT y = (bf16[2]) tuple(x)",
        "x = (f32[2]) parameter(0)\nROOT y = bf16[2] get-tuple-element(x), index=0",
        "x = f32[4] parameter(0)\ni = s32[] constant(0)\nROOT y = bf16[4] dynamic-update-slice(x, x, i)",
        "x = f32[4] parameter(0)\nROOT y = bf16[4] opt-barrier(x)",
    ],
)
def test_moved_values_keep_their_precision(body):
    with pytest.raises(xla.ShapeError, match="declared as"):
        module(body).verify()


# -- async pairs -------------------------------------------------------------------------------------

ASYNC = """
twice {
  p = f32[2] parameter(0)
  ROOT r = f32[2] add(p, p)
}
both {
  p = f32[2] parameter(0)
  q = f32[2] parameter(1)
  ROOT r = (f32[2], f32[2]) tuple(p, q)
}
long {
  p = f32[2] parameter(0)
  n = f32[2] negate(p)
  ROOT r = f32[2] add(n, n)
}
"""
TURNS = """
forever {
  s = (f32[2], ((f32[2]), f32[2], u32[])) parameter(0)
  ROOT t = pred[] constant(false)
}
turn {
  s = (f32[2], ((f32[2]), f32[2], u32[])) parameter(0)
  old = ((f32[2]), f32[2], u32[]) get-tuple-element(s), index=1
  d = f32[2] async-done(old)
  new = ((f32[2]), f32[2], u32[]) async-start(d), calls=twice
  ROOT next = (f32[2], ((f32[2]), f32[2], u32[])) tuple(d, new)
}
"""
START = "x = f32[2] parameter(0)\ns = ((f32[2]), f32[2], u32[]) async-start(x), calls=twice\n"


def asynchronous(body: str) -> xla.HloModule:
    return module(body, f"HloModule m\n{ASYNC}")


@pytest.mark.parametrize(
    "body",
    [
        START + "u = ((f32[2]), f32[2], u32[]) async-update(s)\nROOT d = f32[2] async-done(u)",
        # The result is known piece by piece.
        "x = f32[2] parameter(0)\ns = ((f32[2], f32[2]), (), u32[]) async-start(x, x), calls=both\n"
        "u = ((f32[2], f32[2]), (f32[2]), u32[]) async-update(s)\nROOT d = (f32[2], f32[2]) async-done(u)",
        # An alias may name an argument that comes later.
        "x = f32[2] parameter(0)\n"
        "s = ((), f32[2], u32[]) async-start(), calls=twice, output_to_operand_aliasing={{1}: (0, {})}\n"
        "u = ((f32[2]), f32[2], u32[]) async-update(s, x)\nROOT d = f32[2] async-done(u)",
        "x = f32[2] parameter(0)\nc = (f32[2], f32[2], u32[]) copy-start(x)\nROOT d = f32[2] copy-done(c)",
        # A barrier hands on what has begun.
        START + "t = (((f32[2]), f32[2], u32[])) tuple(s)\nb = (((f32[2]), f32[2], u32[])) opt-barrier(t)\n"
        "g = ((f32[2]), f32[2], u32[]) get-tuple-element(b), index=0\nROOT d = f32[2] async-done(g)",
    ],
)
def test_async_pairs_that_fit(body):
    asynchronous(body).verify()


def test_what_one_iteration_begins_the_next_one_ends():
    body = (
        START + "i = (f32[2], ((f32[2]), f32[2], u32[])) tuple(x, s)\n"
        "w = (f32[2], ((f32[2]), f32[2], u32[])) while(i), condition=forever, body=turn\n"
        "ROOT g = f32[2] get-tuple-element(w), index=0"
    )
    module(body, f"HloModule m\n{ASYNC}{TURNS}").verify()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (START + "ROOT y = f32[2] add(x, x)", "has no async-done"),
        (START + "a = f32[2] async-done(s)\nb = f32[2] async-done(s)\nROOT y = f32[2] add(a, b)", "ends already"),
        (START + "ROOT y = (f32[2]) bitcast(s)", "'y'"),
        (START + "ROOT d = f32[2] async-done(s), calls=long", "its start runs twice"),
        ("s = ((), f32[2], u32[]) async-start(), calls=twice\nROOT d = f32[2] async-done(s)", "not got all"),
        (
            "x = f32[2] parameter(0)\ns = ((f32[2]), f32[2], u32[]) async-start(x), calls=twice\n"
            "u = ((f32[2], f32[2]), f32[2], u32[]) async-update(s, x)\nROOT d = f32[2] async-done(u)",
            "has the arguments",
        ),
        (
            "x = f32[2] parameter(0)\ns = ((f32[2]), f32[2], u32[]) async-start(x), calls=long\n"
            "ROOT d = f32[2] async-done(s)",
            "one instruction besides its parameters",
        ),
        (
            START + "u = ((f32[2]), f32[2], u32[]) async-update(s), output_to_operand_aliasing={{2}: (1, {2})}\n"
            "ROOT d = f32[2] async-done(u)",
            "can only join the contexts",
        ),
        ("x = ((f32[2]), f32[2], u32[]) parameter(0)\nROOT d = f32[2] async-done(x)", "lead back to an async-start"),
        ("x = f32[2] parameter(0)\nROOT c = (f32[2], f32[2], u32[]) copy-start(x)", "has 0 users"),
        (
            "x = f32[2] parameter(0)\nn = u32[] constant(0)\nc = (f32[2], f32[2], u32[]) tuple(x, x, n)\n"
            "ROOT d = f32[2] copy-done(c)",
            "can end nothing but copy-start",
        ),
        (
            "x = f32[2] parameter(0)\nt = token[] after-all()\n"
            "s = (f32[2], u32[], token[]) send(x, t), channel_id=1\nROOT d = token[] send-done(s), channel_id=2",
            "channel_id is 2, its send says 1",
        ),
        (
            "x = f32[2] parameter(0)\ny = f32[3] parameter(1)\nt = token[] after-all()\n"
            "s = (f32[2], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true\n"
            "d = token[] send-done(s), channel_id=1, is_host_transfer=true\n"
            "r = (f32[3], u32[], token[]) send(y, d), channel_id=1, is_host_transfer=true\n"
            "ROOT e = token[] send-done(r), channel_id=1, is_host_transfer=true",
            "uses channel 1 to the host too",
        ),
    ],
)
def test_async_pairs_that_do_not_fit(body, message):
    with pytest.raises(XlakitError) as error:
        asynchronous(body).verify()
    assert message in str(error.value)


# -- what runs what ---------------------------------------------------------------------------------

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
LOOP = """
no {
  s = f32[4] parameter(0)
  ROOT n = pred[] constant(false)
}
same {
  s = f32[4] parameter(0)
  ROOT n = f32[4] copy(s), sharding={replicated}
}
side {
  s = f32[4] parameter(0)
  ROOT n = f32[4] copy(s)
}, execution_thread="side"
"""


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        ("", "ROOT x = f32[4,2] parameter(0), sharding={devices=[2]0,1}", "tiles 1 dimensions"),
        ("", "ROOT x = f32[4] parameter(0), sharding={devices=[2]0,0}", "names device 0 twice"),
        ("", "ROOT x = f32[4] parameter(0), sharding={maximal device=-1}", "names device -1"),
        ("", "ROOT x = f32[4] parameter(0), sharding={{replicated}}", "is for a tuple"),
        ("", "ROOT x = (f32[4], f32[4]) parameter(0), sharding={{replicated}}", "has 1 elements"),
        (
            LOOP,
            "x = f32[4] parameter(0)\nROOT w = f32[4] while(x), condition=no, body=same, sharding={devices=[2]0,1}",
            "sharded differently",
        ),
        (LOOP, "x = f32[4] parameter(0)\nROOT f = f32[4] fusion(x), kind=kLoop, calls=side", "runs on thread main"),
        (
            ADD,
            "x = f32[4] parameter(0)\ny = f32[4] all-reduce(x), to_apply=add\n"
            "ROOT z = f32[4] all-reduce(y), to_apply=add, constrain_layout=true",
            "cannot be mixed",
        ),
        (
            ", replica_count=4\n" + ADD,
            "x = f32[4] parameter(0)\nROOT y = f32[4] all-reduce(x), to_apply=add, replica_groups={{0,1}}",
            "have 2 members, the program runs on 4 replicas",
        ),
        (
            ", num_partitions=8\n",
            "x = f32[4] parameter(0)\nROOT y = f32[8] all-gather(x), dimensions={0}, replica_groups={{0,1}}, "
            "use_global_device_ids=true, channel_id=1",
            "have 2 members, the program runs on 8 devices",
        ),
        (
            ", replica_count=3\n",
            "x = f32[4] parameter(0)\nROOT y = f32[4] collective-permute(x), source_target_pairs={{0,1},{2,7}}",
            "name 7, the program runs on 3 replicas",
        ),
    ],
)
def test_devices_and_threads(header, body, message):
    with pytest.raises(xla.VerificationError) as error:
        module(body, f"HloModule m{header if header.startswith(',') else chr(10) + header}").verify()
    assert message in str(error.value)


# -- annotations that mean something ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ROOT y = f32[] call(x, x), to_apply=add, is_composite=true", "needs the frontend attribute"),
        (
            "ROOT y = f32[] call(x, x), to_apply=add, is_composite=true, "
            'frontend_attributes={composite.name="f",composite.version="-1"}',
            "composite.version is -1",
        ),
        ("ROOT y = f32[2]{0:D(C)} broadcast(x), dimensions={}", "f32[2]{0:D(C)} is sparse"),
        ('ROOT y = (f32[], (f32[2]{0:D(C)})) custom-call(x), custom_call_target="a"', "is sparse"),
        ('ROOT y = u32[] custom-call(), custom_call_target="GetRngSeed"', r"gives u64[]"),
        ('ROOT y = u64[] custom-call(x), custom_call_target="GetRngSeed"', "takes no operands"),
        ('ROOT y = f32[] copy(x), origin={({"a"}, {"b"})}', "original value"),
    ],
)
def test_annotations(body, message):
    with pytest.raises(xla.VerificationError) as error:
        module(f"x = f32[] parameter(0)\n{body}", f"HloModule m\n{ADD}").verify()
    assert message in str(error.value)


# -- buffers ---------------------------------------------------------------------------------------

PIN = 'p = b(f32[4]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}\n'
UNPIN = 'custom-call(w), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}'
WRITE = 'custom_call_target="write", output_to_operand_aliasing={{}: (0, {})}'


def test_a_buffer_is_pinned_written_and_unpinned():
    module(f"x = f32[4] parameter(0)\n{PIN}w = b(f32[4]) custom-call(p), {WRITE}\nROOT y = f32[4] {UNPIN}").verify()


# One buffer in two elements of a tuple, which two operations write to, and in two operands of one operation.
TWICE = (
    "t = (b(f32[4]), b(f32[4])) tuple(p, p)\n"
    "first = b(f32[4]) get-tuple-element(t), index=0\nsecond = b(f32[4]) get-tuple-element(t), index=1\n"
    f"v = b(f32[4]) custom-call(first), {WRITE}\nROOT w = b(f32[4]) custom-call(second), {WRITE}"
)
BOTH = (
    'ROOT w = (b(f32[4]), b(f32[4])) custom-call(p, p), custom_call_target="write",'
    " output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}"
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ROOT w = b(f32[4]) copy(p)", "neither take nor give"),
        ('ROOT w = f32[4] custom-call(p), custom_call_target="read"', "in operand 0 must be"),
        ('ROOT w = b(f32[4]) custom-call(x), custom_call_target="make"', "of the result must be"),
        (f"v = b(f32[4]) custom-call(p), {WRITE}\nROOT w = b(f32[4]) custom-call(p), {WRITE}", "both write"),
        (TWICE, "'w' and 'v' both write"),
        (BOTH, "'w' takes its buffer twice"),
        ('ROOT w = b(f32[4]) custom-call(x), custom_call_target="Pin"', "has one pair"),
        ('ROOT w = b(f32[3]) custom-call(x), custom_call_target="Pin"', "a buffer of it"),
        ('ROOT w = b(f32[4]) custom-call(x), custom_call_target="CreateBuffer"', "takes nothing"),
    ],
)
def test_rules_of_buffers(body, message):
    with pytest.raises(xla.VerificationError) as error:
        module(f"x = f32[4] parameter(0)\n{PIN}{body}").verify()
    assert message in str(error.value)


def test_the_entry_takes_no_buffers():
    with pytest.raises(xla.VerificationError, match="neither take nor give"):
        module("ROOT x = b(f32[4]) parameter(0)").verify()


def test_operations_that_were_checked_once_hide_no_fault_of_others():
    """The same operation on the same shapes is checked once for each shape that is declared; faults are all told."""
    written = xla.HloModule.from_text("""HloModule m

ENTRY main {
  x = f32[2] parameter(0)
  a = f32[2] add(x, x)
  b = f32[2] add(a, x)
  c = f32[3] add(b, x)
  d = f32[3] add(a, x)
  g = pred[2] compare(a, b), direction=EQ
  h = f32[2] compare(a, b), direction=LT
  ROOT r = (f32[2], f32[3], f32[3], pred[2], f32[2]) tuple(b, c, d, g, h)
}""")
    shapes: dict[xla.Shape, xla.Shape] = {}

    def shared(instruction, operands):
        return instruction.replace(operands=operands, shape=shapes.setdefault(instruction.shape, instruction.shape))

    found = findings(written.replace(entry=written.entry.rebuild(shared)))
    assert [finding.instruction.name for finding in found] == ["c", "d", "h"]
