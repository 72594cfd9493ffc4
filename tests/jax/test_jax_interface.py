"""What jaxlib calls and reads, without JAX: sizes and places of functions, what is not supported, outlines."""

import ctypes
import time

import pytest

from xlakit.formats.hlo_proto import read_module, schema
from xlakit.formats.hlo_proto.shapes import read_program_shape
from xlakit.formats.hlo_text import parse_module
from xlakit.jax.api.arguments import arguments_of
from xlakit.jax.api.numbers import TYPE_NUMBERS
from xlakit.jax.api.slots import LAYOUTS, SLOTS, TABLE_BYTES
from xlakit.jax.arguments import ArgumentStruct
from xlakit.jax.sources import config_of, outline_of
from xlakit.jax.wire import fields


def test_the_table_is_that_of_its_version():
    assert TABLE_BYTES == 1008
    assert len(set(SLOTS)) == len(SLOTS) == 121
    # Where the interface's header has them.
    assert (SLOTS[0], SLOTS[20], SLOTS[55], SLOTS[120]) == (
        "Error_Destroy", "Client_Compile", "LoadedExecutable_Execute", "Buffer_CopyRawToHostFuture"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("function", "size"),
    [
        ("Error_GetCode", 32),
        ("Event_OnReady", 40),
        ("Client_BufferFromHostBuffer", 120),
        ("LoadedExecutable_Execute", 80),
        ("Buffer_GetMemoryLayout", 104),
        ("NamedValue", 56),
        ("ShapeSpec", 40),
        ("Client_CreateBuffersForAsyncHostToDevice", 72),
        ("AsyncHostToDeviceTransferManager_TransferData", 72),
        ("AsyncHostToDeviceTransferManager_SetBufferError", 48),
        ("Buffer_CopyRawToHostFuture", 64),
        ("CopyRawToHostFuture_Callback", 48),
    ],
)
def test_structures_have_their_sizes(function, size):
    assert arguments_of(function).size == size


def test_types_have_the_numbers_of_the_interface():
    numbers = {kind.name: number for kind, number in TYPE_NUMBERS.items()}
    assert [numbers[name] for name in ("PRED", "S32", "F32", "BF16", "C128", "S4", "TOKEN", "U1")] == [
        1, 4, 11, 13, 15, 21, 23, 31
    ]  # fmt: skip


def structure(function, **fields):
    """The arguments of a function in memory, and as Python sees them."""
    size = arguments_of(function).size
    memory = ctypes.create_string_buffer(size)
    given = ArgumentStruct(function, ctypes.addressof(memory))
    given["struct_size"] = size
    for name, value in fields.items():
        given[name] = value
    return memory, given


def call(native, function, memory):
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(native.slots[function])(ctypes.addressof(memory))


def message(native, error):
    memory, given = structure("Error_Message", error=error)
    call(native, "Error_Message", memory)
    text = given.data("message", "message_size").decode()
    code_memory, code = structure("Error_GetCode", error=error)
    call(native, "Error_GetCode", code_memory)
    destroy, _ = structure("Error_Destroy", error=error)
    call(native, "Error_Destroy", destroy)
    return code["code"], text


def test_every_function_is_there_and_says_if_it_is_not_supported(native):
    assert set(native.slots) == {*SLOTS, *LAYOUTS}
    assert all(native.slots.values())
    memory, _ = structure("Event_Error")
    error = call(native, "Client_DmaMap", memory)
    assert message(native, error) == (12, "xlakit does not support PJRT_Client_DmaMap")


def test_errors_keep_their_text(native):
    assert message(native, native.make_error(13, "it went wrong: ä")) == (13, "it went wrong: ä")


def test_one_process_is_a_whole_program(native):
    memory, _ = structure("Client_Destroy")
    assert call(native, "Client_UpdateGlobalProcessInfo", memory) is None


@pytest.fixture
def factories(monkeypatch):
    """What JAX is to make its clients with."""
    pytest.importorskip("jaxlib")
    from jax._src import xla_bridge

    from xlakit.jax import plugin

    made = {}
    monkeypatch.setattr(plugin, "_registered", {})
    # Other tests of the process may have used JAX.
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: False)
    monkeypatch.setattr(xla_bridge, "register_backend_factory", lambda name, factory, **_: made.update({name: factory}))
    return made


def test_versions_that_were_not_tested_are_refused(factories, monkeypatch):
    from xlakit.errors import UnsupportedError
    from xlakit.jax import plugin, versions

    monkeypatch.setattr(versions, "VERSIONS", ("0.0.1",))
    for platform in ("xlakit", "cpu"):
        plugin.register(platform, is_default=True)
        with pytest.raises(UnsupportedError, match=r"runs programs of jax 0\.0\.1; this is jax"):
            factories[platform]()
    with pytest.raises(UnsupportedError, match="this is jax"):
        plugin.take_over("cpu")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"XLAKIT_AS": "gpu"}, "XLAKIT_AS is 'gpu'"),
        ({"XLAKIT_AS": "cpu", "JAX_PLATFORMS": "xlakit"}, "JAX_PLATFORMS asks for the platform xlakit"),
        ({"XLAKIT_AS": "cpu", "XLAKIT_CACHE": "/some/folder"}, "XLAKIT_CACHE is '/some/folder'"),
    ],
)
def test_what_is_wrong_in_the_environment_is_said_when_the_client_is_made(factories, monkeypatch, variables, sentence):
    import jax

    from xlakit.errors import ArgumentError
    from xlakit.jax import initialize

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    platforms = variables.get("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(type(jax.config), "jax_platforms", property(lambda _: platforms), raising=False)
    initialize()
    with pytest.raises(ArgumentError, match=sentence):
        factories[platforms]()


def way_after(native, calls, gap, periods, threads=4, later=None):
    """The ways of calls of 10 ms; Python takes so many microseconds between them, and all takes so many by each way."""
    from xlakit.jax.native.records import EXECUTABLE
    from xlakit.jax.records import Words

    record = Words(EXECUTABLE, time=10_000_000)
    way_of = native._function("way_of", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    way, ways = 0, []
    for number in range(calls):
        now, taken = time.monotonic_ns(), (periods if number < 100 or later is None else later)[way]
        record["entered"], record["left"] = now - taken * 1000, now - gap * 1000
        way = way_of(record.address, threads)
        ways.append(way)
    return ways


def test_the_way_of_calls_is_the_best_of_those_tried(native):
    # Python has nothing to do: no other way is tried.
    assert set(way_after(native, 40, 300, (10_300, 9_000, 9_000))) == {0}
    found = way_after(native, 600, 5_000, (15_000, 11_000, 13_000))
    assert found[:37] == [0] * 11 + [1] * 12 + [2] * 12 + [1] * 2
    # It stays for a while, and tries again then.
    assert set(found[36:540]) == {1} and {0, 2} <= set(found[540:])
    assert set(way_after(native, 60, 5_000, (15_000, 13_000, 11_000))[36:]) == {2}
    # A little better is none.
    assert set(way_after(native, 60, 5_000, (15_000, 14_500, 14_500))[36:]) == {0}
    # The best way takes longer from the 100th call on.
    found = way_after(native, 300, 5_000, (15_000, 11_000, 13_000), later=(15_000, 17_000, 13_000))
    assert set(found[40:100]) == {1} and set(found[250:]) == {2}
    # With one thread less of two a program would take longer than it and Python after each other.
    assert 1 not in way_after(native, 60, 2_000, (12_000, 9_000, 11_000), threads=2)
    assert 1 not in way_after(native, 60, 2_000, (12_000, 9_000, 11_000), threads=1)


PLAIN = """
HloModule plain
ENTRY main {
  p = f32[2,300]{1,0} parameter(0)
  q = pred[] parameter(1)
  ROOT t = (f32[2,300]{1,0}, pred[]) tuple(p, q)
}
"""
LAID_OUT = """
HloModule laid_out, entry_computation_layout={(bf16[2,3,5]{0,2,1:S(5)}, s4[0]{0})->f64[<=7]{0}}
ENTRY main {
  p = bf16[2,3,5]{0,2,1:S(5)} parameter(0)
  q = s4[0]{0} parameter(1)
  ROOT c = f64[<=7]{0} custom-call(p, q), custom_call_target="x"
}
"""
SPLIT = """
HloModule split, num_partitions=2
ENTRY main_spmd {
  p = f32[4]{0} parameter(0), sharding={devices=[2]<=[2]}
  ROOT r = (f32[4]{0}) tuple(p), sharding={{devices=[2]<=[2]}}
}
"""


@pytest.mark.parametrize("text", [PLAIN, LAID_OUT, SPLIT])
def test_an_outline_says_arguments_and_results(text):
    module = parse_module(text)
    if text == SPLIT:
        shardings = module.entry.parameters[0].annotations.sharding, module.entry.root.annotations.sharding
        module = module.replace(spmd_parameters_shardings=shardings[:1], spmd_output_sharding=shardings[1])
    found = read_module(outline_of(module))
    found.verify()
    assert (found.name, found.entry.name) == (module.name, module.entry.name)
    pairs = [*zip(found.entry.parameters, module.entry.parameters, strict=True), (found.entry.root, module.entry.root)]
    for ours, theirs in pairs:
        assert str(ours.shape) == str(theirs.shape)
        assert ours.annotations.sharding == theirs.annotations.sharding
    assert found.spmd_output_sharding == module.spmd_output_sharding
    assert found.spmd_parameters_shardings == module.spmd_parameters_shardings
    config = schema.parse("HloModuleConfigProto", config_of(module))
    assert (config.replica_count, config.num_partitions) == (module.replica_count, module.num_partitions)


def test_the_configuration_says_layouts_without_memory():
    _, layout = next(fields(config_of(parse_module(LAID_OUT))))
    shape = read_program_shape(schema.parse("ProgramShapeProto", layout))
    assert str(shape) == "(bf16[2,3,5]{0,2,1}, s4[0]{0}) -> f64[<=7]{0}"
