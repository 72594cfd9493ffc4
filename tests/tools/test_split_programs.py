"""Programs that are split over devices, from the command line: whole arrays go in, and whole results come out."""

import numpy as np
import pytest

from xlakit.tools import cli, shards

ROWS = "{devices=[2,1]<=[2]}"
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }"
WHOLE = """HloModule m, num_partitions=2
ENTRY e { p = f32[8] parameter(0), sharding={devices=[2]<=[2]} ROOT r = f32[8] add(p, p) }"""
# As lowered programs of JAX are: the header says a mesh, and not how many partitions there are.
MESH = 'frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2]>}}'
UNSAID = f"""HloModule m, {MESH}
{ADD}
ENTRY main.1 {{
  a = f32[4,3] parameter(0), sharding={ROWS}
  zero = f32[] constant(0)
  sums = f32[3] reduce(a, zero), dimensions={{0}}, to_apply=add
  i = (f32[3]) tuple(sums)
  ROOT t = (f32[4,3], (f32[3])) tuple(a, i)
}}
"""
# As XLA's partitioner leaves it: shapes of parts, shardings of whole arrays.
SPLIT = f"""HloModule m, num_partitions=2
{ADD}
ENTRY main.1_spmd {{
  a = f32[2,3] parameter(0), sharding={ROWS}
  zero = f32[] constant(0)
  own = f32[3] reduce(a, zero), dimensions={{0}}, to_apply=add
  ROOT sums = f32[3] all-reduce(own), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=add
}}
"""


def crossing(name, shape, operand, target, key):
    shardings = '#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}, {}]>]>'
    return (
        f'{name} = {shape} custom-call({operand}), custom_call_target="xla.sdy.{target}", '
        f'custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.{key}_shardings="{shardings}",'
        'xla.sdy.manual_axes="#sdy<manual_axes{\\"x\\"}>"}'
    )


MANUAL = f"""HloModule m, num_partitions=2, {MESH}
body {{
  a = f32[2,3] parameter(0)
  ROOT r = f32[2,3] collective-permute(a), channel_id=1, source_target_pairs={{{{0,1}},{{1,0}}}}
}}
ENTRY main {{
  a = f32[4,3] parameter(0), sharding={ROWS}
  {crossing("b", "f32[2,3]", "a", "GlobalToLocalShape", "in")}
  c = f32[2,3] call(b), to_apply=body
  ROOT {crossing("d", "f32[4,3]", "c", "LocalToGlobalShape", "out")}
}}
"""
UNEVEN = f"""HloModule m, num_partitions=2
ENTRY e {{ p = f32[3,2] parameter(0), sharding={ROWS} ROOT r = f32[3,2] add(p, p), sharding={ROWS} }}"""
UNREDUCED = """HloModule m, num_partitions=2
ENTRY e {
  p = f32[3] parameter(0), sharding={unreduced}
  q = f32[2] parameter(1), sharding={devices=[2]<=[2]}
  ROOT t = (f32[3], f32[2]) tuple(p, q)
}"""
SCALAR = f"""HloModule m, num_partitions=2
ENTRY e {{
  n = s32[] parameter(0)
  c = f32[4,3] iota(), iota_dimension=0, sharding={ROWS}
  b = f32[4,3] custom-call(c), custom_call_target="ShardBarrierFrom"
  f = f32[] convert(n)
  all = f32[4,3] broadcast(f), dimensions={{}}
  ROOT r = f32[4,3] add(b, all)
}}"""
REPLICATED = WHOLE.replace("num_partitions=2", "replica_count=2, num_partitions=2")


@pytest.fixture
def execute(tmp_path, capsys):
    """Run a program on a first argument; gives the status, the results by name, and what it said."""

    def run(text, argument=None, *options):
        path, given, made = tmp_path / "m.hlo", tmp_path / "x.npz", tmp_path / "y.npz"
        path.write_text(text)
        made.unlink(missing_ok=True)
        arguments = ["run", str(path), "--output", str(made), *options]
        if argument is not None:
            np.savez(given, arg0=argument)
            arguments += ["--input", str(given)]
        status = cli.main(arguments)
        results = dict(np.load(made)) if made.exists() else {}
        return status, results, "".join(capsys.readouterr())

    return run


X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_whole_arrays_are_cut_and_results_joined(execute, backend):
    x = np.arange(8, dtype=np.float32)
    status, results, said = execute(WHOLE, x, "--backend", backend)
    assert status == 0, said
    np.testing.assert_array_equal(results["result"], 2 * x)


@pytest.mark.parametrize(
    ("text", "argument", "expected"),
    [
        (UNSAID, X, {"0": X, "1.0": X.sum(0)}),
        (MANUAL, X, {"result": np.roll(X, 2, axis=0)}),
        (UNEVEN, X[:3, :2], {"result": 2 * X[:3, :2]}),
        (SCALAR, np.int32(7), {"result": np.full((4, 3), 7.0) + np.arange(4)[:, None]}),
        (REPLICATED, np.arange(8, dtype=np.float32), {str(n): 2 * np.arange(8.0) for n in range(2)}),
    ],
    ids=["unsaid", "manual", "uneven", "scalar", "replicas"],
)
def test_what_programs_say_of_their_devices(execute, text, argument, expected):
    status, results, said = execute(text, argument)
    assert status == 0, said
    assert sorted(results) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value)


def test_what_xla_has_split_takes_whole_arrays_too(execute):
    status, results, said = execute(SPLIT, X)
    assert status == 0, said
    for partition in ("0", "1"):
        np.testing.assert_array_equal(results[partition], X.sum(0))
    # An array of a part's shape is every device's own.
    status, results, said = execute(SPLIT, X[:2])
    assert status == 0, said
    np.testing.assert_array_equal(results["1"], 2 * X[:2].sum(0))


def test_made_up_arguments_are_those_of_the_whole_program(execute):
    _, whole, _ = execute(UNSAID)
    _, split, _ = execute(SPLIT)
    np.testing.assert_allclose(split["0"], whole["1.0"], rtol=1e-6)


def test_an_outfeed_says_how_its_operands_are_split(execute):
    text = f"""HloModule m, num_partitions=2
ENTRY e {{
  p = f32[4,3] parameter(0), sharding={ROWS}
  t = token[] after-all()
  o = token[] outfeed(p, t), outfeed_shape=f32[4,3], sharding={{{ROWS}, {{maximal device=0}}}}
  ROOT r = f32[4,3] add(p, p)
}}"""
    status, _, said = execute(text, X)
    assert status == 1
    assert "outfeed" in said
    assert "Traceback" not in said


def test_values_that_are_still_to_be_added(execute, tmp_path):
    np.savez(tmp_path / "two.npz", p=X[0], q=X[1, :2])
    status, results, said = execute(UNREDUCED, None, "--input", str(tmp_path / "two.npz"))
    assert status == 0, said
    np.testing.assert_array_equal(results["0"], X[0])
    np.testing.assert_array_equal(results["1"], X[1, :2])


def test_arrays_of_other_shapes_are_refused(execute):
    status, _, said = execute(WHOLE, np.zeros(6, np.float32))
    assert status == 1
    assert "parameter 'p' takes f32[8], got an array [6]" in said


def test_copies_that_differ_are_told(execute):
    body = "p = u32[] partition-id() ROOT r = u32[] copy(p), sharding={replicated}"
    text = f"HloModule m, num_partitions=2\nENTRY e_spmd {{ {body} }}"
    status, _, said = execute(text)
    assert status == 1
    assert "partitions 0 and 1 have the same part of a result, with different values" in said


@pytest.mark.parametrize("text", [WHOLE, UNSAID, SPLIT, MANUAL, UNEVEN, REPLICATED])
def test_comparisons_with_the_interpreter(execute, text):
    status, _, said = execute(text, None, "--compare", "interpreter")
    assert status == 0, said
    assert "ok" in said


@pytest.mark.usefixtures("one_jaxlib")
@pytest.mark.parametrize("text", [UNSAID, SPLIT, MANUAL])
def test_comparisons_with_jaxlib(execute, text):
    status, _, said = execute(text, None, "--compare", "jaxlib")
    assert status == 0, said
    assert "ok" in said


def test_a_comparison_sees_a_wrong_split(execute, monkeypatch):
    """The reference is the whole program on one device, and not the same parts once more."""
    monkeypatch.setattr(shards, "_box", lambda splits, local, partition: tuple(slice(0, size) for size in local))
    status, _, said = execute(WHOLE, np.arange(8, dtype=np.float32), "--compare", "interpreter")
    assert status == 1
    assert "DIFFERS" in said


GATHERED = """HloModule m, num_partitions=2
ENTRY e {
  p = f32[] parameter(0), sharding={replicated}
  b = f32[4] broadcast(p), dimensions={}
  split = f32[4] custom-call(b), custom_call_target="Sharding", sharding={devices=[2]<=[2]}
  ROOT r = f32[4] add(split, split), sharding={replicated}
}"""


def test_passes_run_on_the_program_of_one_device(tmp_path, capsys):
    """They leave out shardings, without which a program is no longer one for whole arrays."""
    path = tmp_path / "m.hlo"
    path.write_text(GATHERED)
    assert cli.main(["opt", str(path)]) == 0
    text = capsys.readouterr().out
    assert "all-gather(" in text
    assert "sharding=" not in text
    assert cli.main(["opt", str(path), "--diff"]) == 0
    assert "--- before 00-partition" in capsys.readouterr().out
    for whole in (["--disable", "partition"], ["--passes", "dead-code"]):
        assert cli.main(["opt", str(path), *whole]) == 0
        assert "all-gather(" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "verb", [["check"], ["inspect"], ["inspect", "--as", "memory"], ["convert", "--to", "text"], ["opt"]]
)
@pytest.mark.parametrize("text", [WHOLE, UNSAID, SPLIT, MANUAL])
def test_every_command_takes_them(tmp_path, capsys, verb, text):
    path = tmp_path / "m.hlo"
    path.write_text(text)
    assert cli.main([verb[0], str(path), *verb[1:]]) == 0, capsys.readouterr()
    if verb == ["inspect"] and text is UNSAID:
        assert "f32[2,3]" in capsys.readouterr().out


# A program before and after XLA's optimization, which drops shardings.
BEFORE = f"""HloModule m, num_partitions=2
ENTRY e {{ p = f32[4,3] parameter(0), sharding={ROWS} ROOT r = f32[4,3] negate(p), sharding={ROWS} }}"""
AFTER = """HloModule m, is_scheduled=true, num_partitions=2
ENTRY e_spmd { p = f32[2,3] parameter(0)SAID ROOT r = f32[2,3] OPCODE(p) }"""


@pytest.mark.parametrize("said", ["", f", sharding={ROWS}"])
@pytest.mark.parametrize("opcode", ["negate", "tanh"])
@pytest.mark.parametrize("is_first", [False, True])
def test_programs_before_and_after_optimization_are_compared(tmp_path, capsys, said, opcode, is_first):
    (tmp_path / "before.hlo").write_text(BEFORE)
    (tmp_path / "after.hlo").write_text(AFTER.replace("SAID", said).replace("OPCODE", opcode))
    files = [str(tmp_path / "before.hlo"), str(tmp_path / "after.hlo")]
    status = cli.main(["diff", *(files[::-1] if is_first else files), "--run"])
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert (status, row[:2], row[-2:]) == (
        (0, ["result", "f32[4,3]"], ["0/12", "ok"])
        if opcode == "negate"
        else (1, ["result", "f32[4,3]"], ["12/12", "DIFFERS"])
    )


def test_a_result_and_shards_of_unknown_places_are_not_compared(tmp_path, capsys):
    """Where nothing says how results are split, the partitioner's choice here is not XLA's."""
    (tmp_path / "before.hlo").write_text(BEFORE.replace(f"negate(p), sharding={ROWS}", "negate(p)"))
    (tmp_path / "after.hlo").write_text(AFTER.replace("SAID", "").replace("OPCODE", "negate"))
    assert cli.main(["diff", str(tmp_path / "before.hlo"), str(tmp_path / "after.hlo"), "--run"]) == 2
    said = capsys.readouterr().err
    assert "the results of m are those of 1 devices, of m those of 2" in said
