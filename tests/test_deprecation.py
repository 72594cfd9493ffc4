"""Old public names keep working, with a warning that says the new one."""

import evaluating
import pytest

import xlakit as xla
from xlakit import distributed

S32 = xla.make_shape(xla.S32)


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


def test_a_cluster_knows_the_old_name():
    cluster = distributed.initialize(launched=False)
    with pytest.deprecated_call(match="new_execution_context"):
        assert isinstance(cluster.make_world(), xla.ExecutionContext)
