"""Old public names keep working, with a warning that says the new one."""

import evaluating
import pytest

import xlakit as xla
from xlakit import distributed
from xlakit.passes.pipeline import PASSES, RENAMED_RULES, rules_of, run_pipeline

S32 = xla.make_shape(xla.S32)
SLICED = """HloModule sliced
ENTRY e {
  x = f32[8] parameter(0)
  i = s32[] constant(3)
  ROOT r = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}
}"""


def program():
    return evaluating.build(lambda x: x + x, S32)


def test_the_class_has_its_old_name():
    with pytest.deprecated_call(match="xlakit.World is now xlakit.ExecutionContext"):
        assert xla.World is xla.ExecutionContext
    assert "World" not in dir(xla)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_compile_and_executables_know_the_old_name(backend):
    context = xla.ExecutionContext()
    with pytest.deprecated_call(match="execution_context"):
        executable = xla.compile(program(), backend=backend, world=context)
    with pytest.deprecated_call(match="world is now execution_context"):
        assert executable.world is context
    assert executable.execution_context is context
    assert executable(3) == 6


def test_clients_know_the_old_name():
    with xla.Client() as client, pytest.deprecated_call():
        assert client.world is client.execution_context


def test_a_backend_with_the_old_parameter_gets_it():
    given = []

    def compile_module(module, *, num_replicas, num_partitions, seed, custom_calls, world):
        given.append(world)
        return xla.compile(module, backend="interpreter", execution_context=world)

    xla.register_backend("old", compile_module)
    context = xla.ExecutionContext()
    with pytest.deprecated_call(match="'world' of a backend"):
        executable = xla.compile(program(), backend="old", execution_context=context)
    assert given == [context]
    assert executable(4) == 8


def test_a_cluster_knows_the_old_name(not_joined):
    cluster = distributed.initialize(launched=False)
    with pytest.deprecated_call(match="new_execution_context"):
        assert isinstance(cluster.make_world(), xla.ExecutionContext)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dynamic-slice-of-known-place", "dynamic-slice-of-known-start"),
        ("update-of-known-place", "update-of-known-start"),
        ("scatter-at-known-place", "scatter-at-known-index"),
    ],
)
def test_rules_are_switched_off_by_their_old_names(old, new):
    assert new in {rule.name for rule in rules_of(PASSES.values())}
    module = xla.HloModule.from_text(SLICED)
    assert "dynamic-slice(" not in run_pipeline(module, ["dynamic-slices"]).to_text()
    with pytest.deprecated_call(match=f"'{old}' is now '{new}'"):
        left = run_pipeline(module, ["dynamic-slices"], disabled=[old])
    assert ("dynamic-slice(" in left.to_text()) is old.startswith("dynamic-slice")


def test_every_old_name_of_a_rule_stands_for_a_rule_of_today():
    known = {rule.name for rule in rules_of(PASSES.values())}
    assert set(RENAMED_RULES.values()) <= known
    assert not RENAMED_RULES.keys() & known
