"""Arguments and results that are easily otherwise. What is expected is what jaxlib 0.6.0 does."""

import copy
import gzip
import json
import threading
import time

import numpy as np
import pytest

from xlakit.compat import xla_client as xc
from xlakit.errors import UnsupportedError
from xlakit.formats import stablehlo
from xlakit.formats.xspace import write_xspace

ops, xe, S = xc.ops, xc._xla, xc.Shape


DEVICES = 2


@pytest.fixture(scope="module")
def negate(client):
    builder = xc.XlaBuilder("small_negate")
    return client.compile(builder.build(ops.Neg(ops.Parameter(builder, 0, S("f32[2]")))))


@pytest.mark.parametrize("value", ["x", None, object(), (np.float32(1), "x")])
def test_infeeds_take_arrays_only(client, value):
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: a .* is no array and no number"):
        client.devices()[0].transfer_to_infeed(value)


def test_arrays_in_a_tuple_get_the_default_layout():
    assert repr(S("(f32[2,3]{0,1}, s8[2])").with_major_to_minor_layout_if_absent()) == "(f32[2,3]{1,0}, s8[2]{0})"
    assert repr(S("f32[2,3]{0,1}").with_major_to_minor_layout_if_absent()) == "f32[2,3]{0,1}"


def test_element_types_are_numbers_too():
    assert S.array_shape(11, (2,)) == S.array_shape(xc.PrimitiveType.F32, (2,))
    with pytest.raises(TypeError):
        S.array_shape(99, (2,))


@pytest.mark.parametrize("dtype", ["O", "U3", "M8[s]"])
def test_dtypes_without_an_element_type_are_invalid(client, dtype):
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT: Unknown NumPy dtype"):
        S.array_shape(np.dtype(dtype), (2,))
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
        client.buffer_from_pyval(np.zeros(2, dtype))


def test_truth_values_are_no_numbers(client):
    for call in (
        lambda: S("f32[2]").set_dynamic_dimension(0, 1),
        lambda: client.buffer_from_pyval(np.float32(3), force_copy=1),
        lambda: S.tuple_shape(iter([S("f32[]")])),
        lambda: client.compile_ifrt_program(3, 4),
        lambda: client.devices()[0].transfer_from_outfeed(3),
    ):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            call()
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
        xc.batched_block_until_ready([3])


def test_arguments_are_a_sequence(client, negate):
    array = client.buffer_from_pyval(np.zeros(2, np.float32))
    for call in (negate.execute, negate.execute_sharded):
        with pytest.raises(TypeError, match="execute_sharded"):
            call(array)
    token = negate.execute_sharded([array], with_tokens=True).consume_token()
    for number in (1, -1):
        with pytest.raises(IndexError):
            token.get_token(number)


def test_lists_of_devices_are_of_anything(client):
    first, second = client.devices()
    devices = xc.DeviceList((first, second))
    assert devices[:1] == (first,)
    assert devices != (first, second)
    assert devices == xc.DeviceList((first, second))
    assert repr(xc.DeviceList(("a", "b"))) == "('a', 'b')"
    with pytest.raises(TypeError):
        xc.DeviceList([first])


def test_passes_without_a_constructor_or_with_nothing_to_do(negate):
    with pytest.raises(TypeError, match="no constructor"):
        xe.HloPassInterface()
    (module,) = negate.hlo_modules()
    assert (xe.FlattenCallGraph().run(module), xe.HloDCE().run(module)) == (True, False)


def test_partitioners_are_registered_and_not_called(client):
    xc.register_custom_call_partitioner("small_split", None, None, None)
    xc.register_custom_call_as_batch_partitionable("small_split")
    assert client.supports_executable_serialization
    with pytest.raises(xc.XlaRuntimeError, match="INTERNAL"):
        client.deserialize_executable(b"abc", None)


@pytest.mark.parametrize("shape", ["f32[3,2]", "f32[2,2]", "c64[2,3]", "f64[2,3,3]"])
def test_singular_vectors_have_the_default_layout(client, shape):
    builder = xc.XlaBuilder("small_svd")
    x = ops.Parameter(builder, 0, S(shape))
    found = ops.SVD(x)
    for part in found:
        laid_out = builder.get_shape(part)
        assert laid_out == S.array_shape(laid_out.element_type(), laid_out.dimensions())
    values = np.random.default_rng(0).standard_normal(S(shape).dimensions()).astype(S(shape).element_type())
    results = client.compile(builder.build(ops.Tuple(builder, list(found)))).execute([client.buffer_from_pyval(values)])
    u, d, v = (np.asarray(result) for result in results)
    n = d.shape[-1]
    product = (u[..., :n] * d[..., None, :]) @ v[..., :n].conj().swapaxes(-1, -2)
    assert np.allclose(product, values, atol=1e-5)


def test_after_an_error_a_builder_gives_no_shapes():
    builder = xc.XlaBuilder("small_broken")
    x, y = (ops.Parameter(builder, number, S(shape)) for number, shape in enumerate(("f32[2]", "f32[3]")))
    ops.Add(x, y)
    for call in (builder.get_shape, builder.is_constant):
        with pytest.raises(xc.XlaRuntimeError, match="add: dimension 0 has size"):
            call(x)


def test_members_of_enumerations_are_numbers_too():
    builder = xc.XlaBuilder("small_numbers")
    x = ops.Parameter(builder, 0, S("c64[2]"))
    assert repr(builder.get_shape(ops.Fft(x, 0, [2]))) == "c64[2]{0}"
    with pytest.raises(TypeError, match="FftType"):
        ops.Fft(x, 9, [2])
    with pytest.raises(TypeError, match="Constant"):
        ops.Constant(builder, None)
    ops.Sort(builder, [])
    with pytest.raises(xc.XlaRuntimeError, match="at least one array"):
        builder.build()


@pytest.mark.parametrize(
    ("devices", "kinds", "text"),
    [
        ([[[0, 1]]], "R", "{replicated}"),
        ([[0, 1]], "M", "{manual}"),
        ([[0, 1]], "RR", "{replicated}"),
        ([[[0], [1]]], "M", "{devices=[1,2]0,1}"),
        ([[[0, 1], [2, 3]]], "RM", "{devices=[1,2,2]0,2,1,3 last_tile_dims={manual, replicated}}"),
        ([[[0, 1], [2, 3]]], "R", "{devices=[1,2,2]0,1,2,3 last_tile_dim_replicate}"),
        ([[0]], "", "{devices=[1,1]0}"),
    ],
)
def test_subgroups_of_shardings(devices, kinds, text):
    types = [{"R": xc.OpSharding.Type.REPLICATED, "M": xc.OpSharding.Type.MANUAL}[kind] for kind in kinds]
    assert repr(xc.HloSharding.subgroup_with_device_ordering(np.array(devices), types)) == text


def test_subgroups_of_devices_in_order():
    replicated = [xc.OpSharding.Type.REPLICATED]
    assert repr(xc.HloSharding.iota_tile((1, 2), (2,), (0,), replicated)) == "{replicated}"
    assert repr(xc.HloSharding.iota_tile((2, 1), (2,), (0,), replicated)) == "{devices=[2]<=[2]}"
    assert repr(xc.HloSharding.iota_tile((2, 2), (4,), (0,), replicated)).endswith("<=[4] last_tile_dim_replicate}")


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool"])
def test_the_arc_sine_takes_short_integers(client, dtype):
    builder = xc.XlaBuilder("small_asin")
    x = np.array([0, 1, 1], dtype)
    ops.Asin(ops.Parameter(builder, 0, xc.shape_from_pyval(x)))
    (found,) = client.compile(builder.build()).execute([client.buffer_from_pyval(x)])
    assert np.array_equal(np.asarray(found), np.arcsin(x.astype(np.float32)).astype(dtype))
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
        builder.get_shape(ops.Asin(ops.Parameter(builder, 0, S("s32[3]"))))


def test_tokens_are_results(client):
    builder = xc.XlaBuilder("small_tokens")
    shape = S("f32[2]{0}")
    fed = ops.InfeedWithToken(ops.CreateToken(builder), shape)
    values, token = (ops.GetTupleElement(fed, number) for number in range(2))
    executable = client.compile(builder.build(ops.Tuple(builder, [ops.OutfeedWithToken(values, token, shape), values])))
    device = client.devices()[0]
    device.transfer_to_infeed(np.float32([1, 2]))
    done, found = executable.execute([])
    assert device.transfer_from_outfeed(shape).tolist() == np.asarray(found).tolist() == [1, 2]
    done.block_until_ready()
    assert (repr(done), done.is_ready(), len(executable.get_output_layouts())) == ("Array(token)", True, 1)
    with pytest.raises(xc.XlaRuntimeError, match="no NumPy dtype"):
        done.dtype  # noqa: B018
    taker = xc.XlaBuilder("small_taker")
    ops.AfterAll(taker, [ops.Parameter(taker, 0, S.token_shape())])
    (again,) = client.compile(taker.build()).execute([done])
    again.block_until_ready()


def test_custom_calls_that_are_not_registered_are_not_found(client):
    builder = xc.XlaBuilder("small_missing")
    ops.CustomCall(builder, b"small_nothing", [ops.Parameter(builder, 0, S("f32[2]"))], S("f32[2]"))
    array = client.buffer_from_pyval(np.zeros(2, np.float32))
    with pytest.raises(xc.XlaRuntimeError, match=r"NOT_FOUND: .*small_nothing"):
        client.compile(builder.build()).execute([array])[0].block_until_ready()


def test_frontend_attributes_are_text():
    with pytest.raises(TypeError, match="__setitem__"):
        xe.FrontendAttributes()["name"] = 3


@pytest.mark.parametrize(
    "value",
    [S("f32[2]"), xc.Layout([0]), xc.ShapeIndex([0]), xc.HloSharding.replicate()],
    ids=lambda v: type(v).__name__,
)
def test_values_are_compared_with_their_own_kind(value):
    again = copy.copy(value)
    assert value == again and hash(value) == hash(again)
    assert not value != again  # noqa: SIM202
    for other in (3, None, "f32[2]"):
        for compare in (lambda o: value == o, lambda o: value != o):
            with pytest.raises(TypeError, match="incompatible function arguments"):
                compare(other)


def test_bytes_that_are_no_program_are_told_late(client):
    made = xc.XlaComputation(b"junk")
    for use in (made.as_hlo_text, made.hash, made.get_hlo_module, lambda: xe.mlir.xla_computation_to_mlir_module(made)):
        with pytest.raises(xc.XlaRuntimeError, match="FAILED_PRECONDITION: No program shape found in the proto"):
            use()
    for use in (client.compile, xe.mlir.mlir_module_to_xla_computation, xc.ifrt_programs.make_hlo_program):
        with pytest.raises(xc.XlaRuntimeError, match="UNKNOWN"):
            use("module { junk }")


def test_integers_are_what_int_makes_of_anything_but_floats():
    assert xc.ShapeIndex(["1", np.float32(2), b"3"]) == xc.ShapeIndex([1, 2, 3])
    for given in (1.0, "one", None, 1j, np.float64(1)):
        with pytest.raises(TypeError):
            xc.ShapeIndex([given])
    assert S.array_shape(np.dtype("float32"), ("2",)) == S("f32[2]")
    with pytest.raises(RuntimeError, match="bad_cast"):
        S.array_shape(np.dtype("float32"), (2.0,))


def test_options_are_set_and_not_unset():
    options = xc.CompileOptions()
    build = options.executable_build_options
    for owner, name in ((options, "argument_layouts"), (options, "device_assignment"), (build, "result_layout")):
        assert getattr(owner, name) is None
        with pytest.raises(TypeError, match=name):
            setattr(owner, name, None)
    for owner, name in ((options, "executable_build_options"), (build, "debug_options")):
        with pytest.raises(AttributeError, match="no setter"):
            setattr(owner, name, getattr(owner, name))


def test_the_upper_gamma_function_is_one_outside_of_its_domain(client):
    builder = xc.XlaBuilder("small_igammac")
    a, x = (ops.Constant(builder, np.float32(v)) for v in ([0, 1, 1, np.nan, 2], [1, -2, 0, 1, np.nan]))
    (found,) = client.compile(builder.build(ops.Igammac(a, x))).execute([])
    np.testing.assert_array_equal(np.asarray(found), np.float32([1, 1, 1, np.nan, np.nan]))


def test_an_outfeed_waits_for_a_program_that_is_run_later(client):
    builder = xc.XlaBuilder("small_outfeed")
    shape = S("f32[]")
    ops.OutfeedWithToken(ops.Constant(builder, np.float32(3)), ops.CreateToken(builder), shape)
    program = client.compile(builder.build())
    device = client.devices()[0]
    found = []
    reader = threading.Thread(target=lambda: found.append(device.transfer_from_outfeed(shape)))
    reader.start()
    time.sleep(0.02)
    program.execute([])
    reader.join()
    assert found == [3]


def test_parameters_that_leave_one_out_are_an_internal_error():
    builder = xc.XlaBuilder("small_gap")
    ops.Parameter(builder, 1, S("f32[]"))
    with pytest.raises(xc.XlaRuntimeError, match="INTERNAL: invalid parameter number: 1"):
        builder.build()


def test_modules_leave_their_group(negate):
    group = xe.HloModuleGroup("group", negate.hlo_modules())
    assert "HloModule small_negate" in group.to_string()
    assert len(group.to_modules()) == 1
    assert (group.to_modules(), group.to_string()) == ([], "HloModuleGroup group\n\n")


def test_heap_profiles_are_pprofs(client):
    array = client.buffer_from_pyval(np.zeros(123))
    profile = client.heap_profile()
    found = json.loads(xe.pprof_profile_to_json(profile))
    texts = found["stringTable"]
    labels = [
        {texts[int(label["key"])]: texts[int(label["str"])] for label in sample["label"]} for sample in found["sample"]
    ]
    assert {"kind": "buffer", "device": "TFRT_CPU_0"} in labels
    assert ["1", str(array.nbytes)] in [sample["value"] for sample in found["sample"]]
    assert __file__ in texts and "test_heap_profiles_are_pprofs" in texts
    assert xe.json_to_pprof_profile(json.dumps(found)) == profile
    assert gzip.decompress(xc.heap_profile(client)) == client.heap_profile()
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
        xe.json_to_pprof_profile("{]")


@pytest.mark.parametrize("aliases", [[([0], 0)], [([], -1)], [([], 0), ([], 0)]], ids=["index", "parameter", "twice"])
def test_aliases_that_there_cannot_be_are_internal_errors(aliases):
    builder = xc.XlaBuilder("small_alias")
    x = ops.Parameter(builder, 0, S("f32[2]"))
    for output, parameter in aliases:
        builder.setup_alias(output, parameter, [])
    with pytest.raises(xc.XlaRuntimeError, match="INTERNAL"):
        builder.build(ops.Add(x, x))


@pytest.mark.parametrize("dimensions", [[], [0], [5], [-1]])
def test_one_dimension_is_not_collapsed(dimensions):
    builder = xc.XlaBuilder("small_collapse")
    x = ops.Parameter(builder, 0, S("f32[2,3]"))
    assert builder.get_shape(ops.Collapse(x, dimensions)) == S("f32[2,3]{1,0}")


@pytest.mark.parametrize("allowed", [None, True])
@pytest.mark.parametrize("is_tuple", [False, True])
def test_results_without_a_sharding_are_whole_unless_they_may_be_split(client, allowed, is_tuple):
    builder = xc.XlaBuilder("small_whole")
    sharding = xc.OpSharding()
    sharding.type = xc.OpSharding.Type.OTHER
    sharding.tile_assignment_dimensions, sharding.tile_assignment_devices = [2], [0, 1]
    builder.set_sharding(sharding)
    x = ops.Parameter(builder, 0, S("f32[4]"))
    builder.clear_sharding()
    result = ops.Add(x, x)
    options = xc.CompileOptions()
    options.num_partitions = 2
    options.executable_build_options.use_spmd_partitioning = True
    if allowed:
        options.executable_build_options.allow_spmd_sharding_propagation_to_output = [True]
    program = client.compile(builder.build(ops.Tuple(builder, [result, x]) if is_tuple else result), options)
    parts = [client.buffer_from_pyval(np.float32([n, n + 1]), d) for n, d in zip((1, 3), client.devices(), strict=True)]
    found = program.execute_sharded([parts]).disassemble_into_single_device_arrays()
    for scale, arrays in zip((2, 1), found, strict=False):
        expected = np.float32([1, 2, 3, 4]) * scale
        for array, part in zip(arrays, (expected[:2], expected[2:]) if allowed else (expected, expected), strict=True):
            assert np.array_equal(np.asarray(array), part)


def test_names_of_custom_calls_do_not_begin_with_a_dollar():
    builder = xc.XlaBuilder("small_dollar")
    ops.CustomCall(builder, b"$name", [], S("f32[2]"))
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: .*for calls of its own"):
        builder.build()


def test_the_cache_is_a_function_of_the_module():
    class Key:
        pass

    keys = [Key() for _ in range(5)]
    cache = xc.weakref_lru_cache(lambda: None, lambda key: key, -1)
    assert [cache(key) for key in keys] == keys
    assert cache.cache_info().currsize == 5


def test_traces_of_processors_have_no_profiles_of_instructions(tmp_path):
    profiler = xc.profiler
    session = profiler.ProfilerSession()
    with profiler.TraceMe("block"):
        pass
    trace = session.stop()
    assert profiler.get_fdo_profile(trace) == profiler.aggregate_profiled_instructions([b""], 90) == b""
    with pytest.raises(xc.XlaRuntimeError, match="NOT_FOUND: there is no trace in"):
        profiler.get_profiled_instructions_proto(str(tmp_path))
    (tmp_path / "a.xplane.pb").write_bytes(trace)
    assert profiler.get_instructions_profile(str(tmp_path)) == []
    (tmp_path / "b.xplane.pb").write_bytes(write_xspace("/device:GPU:0", []))
    with pytest.raises(xc.XlaRuntimeError, match="UNIMPLEMENTED: the trace of /device:GPU:0"):
        profiler.get_instructions_profile(str(tmp_path))
    with pytest.raises(TypeError, match="TraceMe"):
        profiler.TraceMe(3)


def test_a_module_that_carries_hlo_is_a_computation(monkeypatch):
    def without_jaxlib(module):
        raise UnsupportedError("there is no jaxlib", hint="install it")

    monkeypatch.setattr(stablehlo, "stablehlo_text", without_jaxlib)
    builder = xc.XlaBuilder("small_carried")
    built = builder.build(ops.Neg(ops.Parameter(builder, 0, S("f32[2]"))))
    text = xe.mlir.xla_computation_to_mlir_module(built)
    assert "xlakit.hlo" in text
    for module in (text, str(text), text.encode()):
        assert xe.mlir.mlir_module_to_xla_computation(module).as_hlo_text() == built.as_hlo_text()


def test_messages_show_layouts_that_are_not_major_to_minor_only():
    builder = xc.XlaBuilder("messages")
    x, y = (ops.Parameter(builder, i, S(text)) for i, text in enumerate(["f32[2,3]{1,0}", "s32[2,3]{0,1}"]))
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT") as raised:
        ops.Add(x, y)
        builder.build()
    assert "f32[2,3], s32[2,3]{0,1}" in str(raised.value)


def test_trees_are_jaxlibs():
    pytest.importorskip("jaxlib")
    leaves, structure = xe.PyTreeRegistry().flatten({"b": [1, None], "a": (2,)})
    assert (leaves, structure.num_nodes) == ([2, 1], 6)
    registry = xe.pytree.default_registry()
    assert str(xe.pytree.tuple(registry, [registry.flatten([1])[1]])) == "PyTreeDef(([*],))"
    with pytest.raises(AttributeError):
        xe.pytree.no_such_name  # noqa: B018


def test_devices_of_a_topology_are_described_only(client):
    devices = xe.get_topology_for_devices(client.devices())._make_compile_only_devices()
    assert [(repr(d), d.platform, d.local_hardware_id) for d in devices] == [
        ("CpuDevice(id=0)", "cpu", None),
        ("CpuDevice(id=1)", "cpu", None),
    ]
    theirs = devices[0].client
    assert isinstance(theirs, xc.Client)
    assert (theirs.runtime_type, theirs.device_count(), theirs.local_devices()) == ("compile_only_runtime", 2, [])
    assert theirs.devices() == devices
    assert devices[0].addressable_memories() == theirs.live_arrays() == []
    for call, said in (
        (lambda: theirs.compile("x"), "NOT_FOUND: Compile needs a device"),
        (devices[0].default_memory, "UNIMPLEMENTED: DefaultMemory needs a device"),
        (lambda: devices[0].transfer_to_infeed(np.zeros(2)), "INVALID_ARGUMENT: TransferToInfeed needs"),
        (devices[0].memory_stats, "INVALID_ARGUMENT: MemoryStats needs"),
    ):
        with pytest.raises(xc.XlaRuntimeError, match=said):
            call()


def test_spatial_dimensions_have_the_kernels_order():
    numbers = xc.make_convolution_dimension_numbers(("CNab", "bIOa", "NabC"), 2)
    assert (numbers.input_spatial_dimensions, numbers.output_spatial_dimensions) == ([3, 2], [2, 1])
    # What the kernel has more is no dimension of the others.
    numbers = xc.make_convolution_dimension_numbers(("NC", "HIO", "NC"), 0)
    assert (numbers.input_spatial_dimensions, numbers.kernel_spatial_dimensions) == ([], [0])
    with pytest.raises(ValueError, match="substring not found"):
        xc.make_convolution_dimension_numbers(("NHC", "IO", "NC"), 1)


@pytest.mark.parametrize(
    ("operands", "inits", "dimension", "said"),
    [
        ([], [], 0, "at least one array"),
        (["f32[8]"], [], 0, "1 arrays, 0 values"),
        (["f32[]"], [np.float32(0)], 0, "no dimension 0"),
        (["f32[8,4]"], [np.float32(0)], -1, "no dimension -1"),
        (["f32[8,4]"], [np.int32(0)], 0, "array's type: f32, not s32"),
    ],
)
def test_what_approximate_top_k_refuses(operands, inits, dimension, said):
    inner = xc.XlaBuilder("greater")
    greater = inner.build(ops.Gt(ops.Parameter(inner, 0, S("f32[]")), ops.Parameter(inner, 1, S("f32[]"))))
    builder = xc.XlaBuilder("top")
    arrays = [ops.Parameter(builder, n, S(shape)) for n, shape in enumerate(operands)]
    values = [ops.Constant(builder, value) for value in inits]
    for function in (ops.ApproxTopK, ops.ApproxTopKFallback):
        with pytest.raises(xc.XlaRuntimeError, match=said):
            builder.get_shape(function(builder, arrays, values, 2, dimension, greater))


def test_a_table_of_results_counts_and_modules_have_names_of_parameters(client):
    builder = xc.XlaBuilder("several")
    x, y = ops.Parameter(builder, 0, S("f32[2]")), ops.Parameter(builder, 1, S("f32[8]"))
    several = builder.build(ops.Tuple(builder, [x, y, x]))
    stats = client.compile(several).get_compiled_memory_stats()
    assert (stats.argument_size_in_bytes, stats.output_size_in_bytes) == (40, 48 + 3 * 8)
    module = xe.hlo_module_from_text("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }")
    read = xc.XlaComputation(module.as_serialized_hlo_module_proto())
    assert repr(read.program_shape()) == "(p0: f32[2]) -> f32[2]"


def test_a_value_on_one_device_has_one_tile():
    proto = xc.HloSharding.from_string("{maximal device=1}").to_proto()
    assert (proto.tile_assignment_dimensions, proto.tile_assignment_devices) == ([1], [1])
    both = xc.HloSharding.from_string("{{replicated}, {maximal device=1}}")
    assert both.is_maximal()
    assert xc.HloSharding.from_proto(both.to_proto()) == both
    assert not xc.HloSharding.from_string("{{manual}, {maximal device=1}}").is_maximal()


def test_shardings_have_the_memory_of_their_devices(client):
    made = xc.GSPMDSharding(client.devices(), xc.HloSharding.replicate())
    assert made.memory_kind == "unpinned_host"
