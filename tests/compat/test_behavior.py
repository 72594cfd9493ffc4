"""Builders, results, options and texts of xla_client in use. What is expected is what jaxlib 0.6.0 answers."""

import gzip
import json
import sys

import numpy as np
import pytest

from xlakit.compat import xla_client as xc
from xlakit.formats.hlo_proto import schema

ops = xc.ops


def test_a_builder_is_empty_after_it_has_built():
    builder = xc.XlaBuilder("reused_builder")
    x = ops.Parameter(builder, 0, xc.Shape("f32[2]"))
    assert builder.build(ops.Neg(x)).name() == "reused_builder.3"
    with pytest.raises(xc.XlaRuntimeError, match="has built already"):
        builder.get_shape(x)
    ops.Parameter(builder, 0, xc.Shape("f32[3]"))
    built = builder.build()
    assert built.name() == "reused_builder.5"
    assert repr(built.program_shape()) == "(parameter: f32[3]) -> f32[3]"
    ops.Exp(x)
    with pytest.raises(xc.XlaRuntimeError, match="has built already"):
        builder.build()


def test_names_do_not_count_in_hashes():
    def made(name, function, number=1):
        builder = xc.XlaBuilder(name)
        function(ops.Add(ops.Constant(builder, np.float32(number)), ops.Parameter(builder, 0, xc.Shape("f32[]"))))
        return builder.build().hash()

    assert made("hash_a", ops.Neg) == made("hash_b", ops.Neg)
    assert len({made("hash_a", ops.Neg), made("hash_a", ops.Exp), made("hash_a", ops.Neg, 2)}) == 3


def test_results_are_taken_apart_once(client):
    builder = xc.XlaBuilder("taken_apart")
    x = ops.Parameter(builder, 0, xc.Shape("f32[]"))
    ops.Tuple(builder, [x, ops.Neg(x)])
    executable = client.compile(builder.build())
    results = executable.execute_sharded([client.buffer_from_pyval(np.float32(2))], with_tokens=True)
    assert np.asarray(results.disassemble_prefix_into_single_device_arrays(1)[0][0]) == 2
    ((negated,),) = results.disassemble_into_single_device_arrays()
    assert np.asarray(negated) == -2
    results.consume_token().block_until_ready()
    for again in (results.disassemble_into_single_device_arrays, results.consume_token, results.__len__):
        with pytest.raises(ValueError, match="already"):
            again()
    with pytest.raises(ValueError, match="0 handlers are given for 2 results"):
        executable.execute_sharded([client.buffer_from_pyval(np.float32(2))]).consume_with_handlers([])


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_replicas", "two"), ("use_spmd_partitioning", 1), ("result_layout", 3), ("fdo_profile", "text")],
)
def test_build_options_have_types(name, value):
    options = xc.CompileOptions().executable_build_options
    with pytest.raises(TypeError, match=name):
        setattr(options, name, value)


def test_what_is_no_array_is_a_type_error(client):
    with pytest.raises(TypeError, match="None"):
        client.buffer_from_pyval(None)
    with pytest.raises(TypeError, match="PyCapsule"):
        xc._xla.dlpack_managed_tensor_to_buffer(3, client.devices()[0], None)
    with pytest.raises(TypeError, match=r"incompatible function arguments.*None"):
        xc._xla.buffer_to_dlpack_managed_tensor(None)
    with pytest.raises(TypeError, match="tuple_shape"):
        xc.Shape.tuple_shape([1])


def test_literals_lie_as_their_layout_says():
    assert np.asarray(xc._xla.Literal(xc.Shape("f32[2,3]{0,1}"))).strides == (4, 8)


def test_scalars_of_select_and_clamp_are_broadcast():
    builder = xc.XlaBuilder("broadcast_scalars")
    x = ops.Parameter(builder, 0, xc.Shape("f32[3]"))
    low = ops.Parameter(builder, 1, xc.Shape("f32[]"))
    clamped = ops.Clamp(low, x, x)
    ops.Select(ops.Parameter(builder, 2, xc.Shape("pred[]")), clamped, x)
    size = ops.GetDimensionSize(x, 0)
    text = builder.build(ops.Tuple(builder, [clamped, size])).as_hlo_text()
    assert "broadcast.3 = f32[3]{0} broadcast(parameter.2), dimensions={}" in text
    assert "select.7 = f32[3]{0} select(broadcast.6, clamp.4, parameter.1)" in text
    assert "constant.8 = s32[] constant(3)" in text


def test_computations_that_operations_make_have_their_names():
    builder = xc.XlaBuilder("made_computations")
    x = ops.Parameter(builder, 0, xc.Shape("f32[3]"))
    y = ops.Parameter(builder, 1, xc.Shape("pred[3]"))
    ops.Tuple(builder, [ops.Sort(builder, [x, y]), ops.CrossReplicaSum(x), ops.CrossReplicaSum(y)])
    text = builder.build().as_hlo_text()
    assert "compare-less-than.3 {" in text
    assert "compare(p.0.lhs.4, p.0.rhs.5), direction=LT, type=TOTALORDER" in text
    assert "p.1.rhs.7 = pred[] parameter(3)" in text
    assert "add(x.11, y.12)" in text
    assert "or(x.16, y.17)" in text


def test_approximate_top_k_gives_the_candidates_of_a_partial_reduction(client):
    builder, inner = xc.XlaBuilder("candidates"), xc.XlaBuilder("more")
    x = ops.Parameter(builder, 0, xc.Shape("f32[8000]"))
    scalars = [ops.Parameter(inner, i, xc.Shape("f32[]")) for i in range(2)]
    more, start = inner.build(ops.Gt(*scalars)), ops.Constant(builder, np.float32(-1))
    ops.ApproxTopK(builder, [x], [start], 2, 0, more, recall_target=0.9, aggregate_to_topk=False)
    values = np.arange(8000, dtype=np.float32)
    (found,) = client.compile(builder.build()).execute([client.buffer_from_pyval(values)])
    assert np.array_equal(np.asarray(found), values[::-1][:2048])
    with pytest.raises(xc.XlaRuntimeError, match="5000"):
        ops.ApproxTopKReductionOutputSize(8000, 1, 2, 0.9, False, 5000)


def test_options_are_the_protocol_buffer_of_xla():
    options = xc.CompileOptions()
    build = options.executable_build_options
    options.argument_layouts, options.profile_version = [xc.Shape("f32[2]{0}")], 5
    options.env_option_overrides = [("xla_a", True), ("xla_b", 3), ("xla_c", "s"), ("xla_d", 2.5)]
    options.num_replicas, options.num_partitions = 2, 3
    options.device_assignment = xc.DeviceAssignment.create(np.arange(6).reshape(2, 3))
    build.result_layout, build.auto_spmd_partitioning_mesh_shape = xc.Shape("f32[2]{0}"), [2, 5]
    build.memory_fitting_effort = 0.25
    build.debug_options.xla_dump_to, build.debug_options.xla_backend_optimization_level = "there", 1
    data = options.SerializeAsString()
    # As jaxlib 0.6.0 writes these fields.
    assert data.startswith(b"\n\x10\x10\x0b\x1a\x01\x02*\x06\n\x01\x00\x80\x01\x012\x01\x00\x1a")
    assert b" \x02(\x03J\x16\x08\x02\x10\x03\x1a\x04\n\x02\x00\x03\x1a\x04\n\x02\x01\x04\x1a\x04\n\x02\x02\x05" in data
    assert b"\x82\x01\x02\x02\x05" in data
    assert data.endswith(
        b"(\x05:\x0b\n\x05xla_a\x12\x02\x10\x01:\x0b\n\x05xla_b\x12\x02\x18\x03"
        b":\x0c\n\x05xla_c\x12\x03\n\x01s:\x12\n\x05xla_d\x12\t!\x00\x00\x00\x00\x00\x00\x04@"
    )
    again = xc.CompileOptions.ParseFromString(data)
    assert again.SerializeAsString() == data
    assert again.executable_build_options.debug_options.xla_dump_to == "there"
    assert again.executable_build_options.debug_options.xla_gpu_cuda_data_dir == "./cuda_sdk_lib"
    assert repr(again.device_assignment) == repr(options.device_assignment)
    assert again.env_option_overrides == options.env_option_overrides
    with pytest.raises(xc.XlaRuntimeError, match="CompileOptionsProto"):
        xc.CompileOptions.ParseFromString(b"\xff\xff")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 4)])
def test_the_buffer_protocol_shows_the_values_in_place(client, dtype, shape):
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    array = client.buffer_from_pyval(x)
    references = sys.getrefcount(array)
    view = memoryview(array)
    assert (view.shape, view.readonly, view.c_contiguous, view.itemsize) == (shape, True, True, x.itemsize)
    assert view.tobytes() == x.tobytes()
    assert not x.size or np.asarray(view).ctypes.data == array.unsafe_buffer_pointer()
    array.delete()
    assert view.tobytes() == x.tobytes()
    # From Python 3.12 on a view holds the array until then.
    view.release()
    assert sys.getrefcount(array) == references


def test_arrays_without_a_buffer_say_so(client):
    halves = client.buffer_from_pyval(np.zeros(3, xc.bfloat16))
    with pytest.raises(BufferError, match="bfloat16 are not supported by the Python buffer protocol"):
        memoryview(halves)
    halves.delete()
    with pytest.raises(BufferError, match="Array is null"):
        memoryview(halves)
    numbers = client.buffer_from_pyval(np.arange(3))
    assert bytes(numbers) == np.arange(3).tobytes()
    with pytest.raises(TypeError, match="read-only"):
        memoryview(numbers)[0] = 1


def test_values_are_read_as_those_of_jax_arrays(client):
    array, number = client.buffer_from_pyval(np.float32([[0, 1], [2, 3]])), client.buffer_from_pyval(np.int32(2))
    assert repr(array) == "Array([[0., 1.],\n       [2., 3.]], dtype=float32)"
    assert (len(array), array.itemsize, array.tolist(), array[1].tolist()) == (2, 4, [[0, 1], [2, 3]], [2, 3])
    assert (array == np.asarray(array)).all()
    assert not (array != array.clone()).any()
    assert [row.tolist() for row in array] == array.tolist()
    assert (float(number), int(number), complex(number), bool(number), number.item()) == (2, 2, 2, True, 2)
    assert (list(range(number)), f"{number:3d}", str(number)) == ([0, 1], "  2", "2")
    with pytest.raises(TypeError, match="only scalar arrays"):
        float(array)
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    (device,) = array.devices()
    assert device is array.device is array.device() is client.devices()[0]
    assert array.addressable_data(0) is array
    assert client.live_arrays()[0] is number


def test_errors_say_what_is_wrong(client):
    builder = xc.XlaBuilder("words")
    x, y = (ops.Parameter(builder, i, xc.Shape("f32[2,3]")) for i in range(2))
    builder.setup_alias((), 0, ())
    executable = client.compile(builder.build(ops.Add(x, y)))
    array = client.buffer_from_pyval(np.zeros((2, 3), np.float32))
    small = client.buffer_from_pyval(np.zeros(4, np.float32))
    capsule = xc._xla.buffer_to_dlpack_managed_tensor(small)
    xc._xla.dlpack_managed_tensor_to_buffer(capsule, client.devices()[0], None)
    deleted = array.clone()
    deleted.delete()
    options = xc.CompileOptions()
    options.argument_layouts = [xc.Shape("f32[7]")]
    for call, words in [
        (lambda: np.asarray(deleted), r"Array has been deleted with shape=float32\[2,3\]\."),
        (deleted.block_until_ready, r"BlockHostUntilReady\(\) called on deleted or donated buffer"),
        (deleted.on_device_size_in_bytes, r"GetOnDeviceSizeInBytes\(\) called on deleted or donated buffer"),
        (lambda: executable.execute([array]), "takes 2 arrays, got 1"),
        (
            lambda: executable.execute([array, small]),
            r"takes f32\[2,3\], 24 bytes, as parameter 1, got f32\[4\], 16 bytes",
        ),
        (lambda: executable.execute([array, deleted]), "deleted"),
        (lambda: client.compile(built(), options), r"parameter 0 is f32\[2\], a layout is asked for of f32\[7\]"),
        (lambda: client.device_from_local_hardware_id(9), "No matching device found for local_device_id 9"),
        (
            lambda: xc._xla.dlpack_managed_tensor_to_buffer(capsule, client.devices()[0], None),
            "a DLPack tensor may be consumed at most once",
        ),
    ]:
        with pytest.raises(xc.XlaRuntimeError, match=words):
            call()
    for call in (lambda: ops.Add(x), lambda: ops.Add(x, 3), lambda: client.compile(3), lambda: client.compile("", 3)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            call()


@pytest.mark.parametrize(
    ("function", "dtype", "words"),
    [
        (ops.Add, np.float32, r"add: .*(\n.*)*f32\[2\], f32\[3\]"),
        (ops.Mul, np.int32, r"mul: .*(\n.*)*f32\[2\], s32\[3\]"),
        (ops.Lt, np.int32, r"lt: .*(\n.*)*f32\[2\], s32\[3\]"),
        (ops.Complex, np.float32, r"complex: .*(\n.*)*f32\[2\], f32\[3\]"),
    ],
)
def test_operands_that_do_not_go_together(function, dtype, words):
    builder = xc.XlaBuilder("apart")
    wrong = function(ops.Constant(builder, np.zeros(2, np.float32)), ops.Constant(builder, np.zeros(3, dtype)))
    for call in (builder.build, lambda: builder.get_shape(wrong)):
        with pytest.raises(xc.XlaRuntimeError, match=f"INVALID_ARGUMENT: {words}"):
            call()


@pytest.mark.parametrize(
    ("kind", "operate", "words"),
    [
        ("f32", lambda x: ops.Add(x, ops.Slice(x, [0, 0], [2, 2], [1, 1])), "add: dimension 1 has size"),
        (
            "f32",
            lambda x: ops.Sub(ops.Collapse(x, [0, 1]), x),
            "broadcast_dimensions",
        ),
        (
            "f32",
            lambda x: ops.Lt(x, ops.Collapse(x, [0, 1])),
            "broadcast_dimensions",
        ),
        ("f32", lambda x: ops.And(x, x), "and: lhs must have"),
        ("f16", lambda x: ops.Complex(x, x), "UNIMPLEMENTED: .*f32 or f64"),
        ("bf16", ops.Conj, "UNIMPLEMENTED: .*f32 or f64"),
        (
            "f32",
            lambda x: ops.Complex(x, ops.ConvertElementType(x, xc.PrimitiveType.F64)),
            "UNIMPLEMENTED: .*f32 and f64",
        ),
        ("s32", ops.Conj, "INVALID_ARGUMENT: real: operand must have"),
    ],
)
def test_words_name_the_rule_that_is_broken(kind, operate, words):
    builder = xc.XlaBuilder("rules")
    wrong = operate(ops.Parameter(builder, 0, xc.Shape(f"{kind}[2,3]")))
    with pytest.raises(xc.XlaRuntimeError, match=words):
        builder.get_shape(wrong)


def test_results_are_taken_apart_once_and_say_so(client):
    results = client.compile(built()).execute_sharded([[client.buffer_from_pyval(np.zeros(2, np.float32))]], True)
    results.disassemble_into_single_device_arrays()
    results.consume_token()
    with pytest.raises(ValueError, match="arrays of these ExecuteResults are taken already"):
        results.disassemble_into_single_device_arrays()
    with pytest.raises(ValueError, match="token of these ExecuteResults is taken already"):
        results.consume_token()


def test_dimensions_that_the_kernel_of_a_convolution_lacks():
    with pytest.raises(ValueError, match="lacks the dimensions"):
        xc.make_convolution_dimension_numbers(("NCHW", "OIH", "NCHW"), 2)
    assert list(xc.make_convolution_dimension_numbers(("NHWC", "OIHW", "CWNH"), 2).output_spatial_dimensions) == [3, 1]


def built():
    builder = xc.XlaBuilder("built")
    ops.Neg(ops.Parameter(builder, 0, xc.Shape("f32[2]")))
    return builder.build()


def test_programs_are_compiled_for_devices_in_an_order():
    client = xc.make_cpu_client(num_devices=2)
    first, second = client.devices()
    executable = client.compile_and_load(built(), xc.DeviceList((second, first)))
    assert executable.local_devices() == [second]
    (negative,) = executable.execute([client.buffer_from_pyval(np.float32([1, 2]), second)])
    assert (negative.tolist(), negative.device()) == ([-1, -2], second)
    options = xc.CompileOptions()
    options.num_replicas = 2
    assert client.compile_and_load(built(), [second, first], options).local_devices() == [second, first]
    assert client.compile_and_load(built(), (), options).local_devices() == [first, second]
    with pytest.raises(xc.XlaRuntimeError, match="run on 2 devices, executable_devices has 1"):
        client.compile_and_load(built(), [first], options)


def test_names_of_older_releases_say_what_to_write():
    with pytest.raises(AttributeError, match=r"no attribute 'get_local_backend'; write make_cpu_client\(\)"):
        _ = xc.get_local_backend
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = xc.nonsense


def test_executables_know_how_their_program_was_split():
    sharding = xc.OpSharding()
    sharding.type, sharding.tile_assignment_dimensions, sharding.tile_assignment_devices = (
        sharding.Type.OTHER,
        [2],
        [0, 1],
    )
    builder, client = xc.XlaBuilder("split"), xc.make_cpu_client(num_devices=2)
    builder.set_sharding(sharding)
    ops.Neg(ops.Parameter(builder, 0, xc.Shape("f32[4]")))
    options = xc.CompileOptions()
    options.num_partitions, options.executable_build_options.use_spmd_partitioning = 2, True
    executable = client.compile(builder.build(), options)
    for found in (executable.get_parameter_shardings(), executable.get_output_shardings()):
        assert [repr(part) for part in found] == [repr(sharding)]
    first, second = (client.buffer_from_pyval(np.float32([d, 2]), d_) for d, d_ in enumerate(client.devices()))
    results = executable.execute_sharded([[first, second]]).disassemble_into_single_device_arrays()
    assert [part.tolist() for part in results[0]] == [[0, -2], [-1, -2]]
    with pytest.raises(xc.XlaRuntimeError, match="of replica 0 is on device TFRT_CPU_1, the replica on"):
        executable.execute_sharded([[second, first]])
    with pytest.raises(xc.XlaRuntimeError, match=r"has 1 arrays, .* runs on 2 devices"):
        executable.execute([first])
    with pytest.raises(ValueError, match="device cpu has no memory of kind other"):
        xc.SingleDeviceSharding(client.devices()[0], memory_kind="other")


def test_traces_lie_where_tensorboard_looks(tmp_path):
    session = xc.profiler.ProfilerSession()
    with xc.profiler.TraceMe("a block"):
        pass
    session.stop_and_export(str(tmp_path))
    (trace,) = tmp_path.glob("plugins/profile/*/*.trace.json.gz")
    (event,) = (e for e in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] if e["ph"] == "X")
    assert event["name"] == "a block"
    (plane,) = schema.parse("XSpace", next(tmp_path.glob("plugins/profile/*/*.xplane.pb")).read_bytes()).planes
    assert (plane.name, [m.name for m in plane.event_metadata.values()]) == ("/host:CPU", ["a block"])
    with pytest.raises(xc.XlaRuntimeError, match="XSpace"):
        session.export(b"\xff", str(tmp_path))


def test_parameters_keep_their_names_in_a_proto():
    builder, shape = xc.XlaBuilder("kept_names"), xc.Shape("f32[2]")
    ops.Add(ops.Parameter(builder, 0, shape, "x"), ops.Parameter(builder, 1, shape))
    computation = builder.build()
    again = xc.XlaComputation(computation.as_serialized_hlo_module_proto())
    for _ in range(2):
        assert repr(again.program_shape()) == "(x: f32[2], parameter: f32[2]) -> f32[2]"
        again = xc.XlaComputation(again.as_serialized_hlo_module_proto())
    # A module numbers them.
    of_module = xc.XlaComputation(computation.as_hlo_module().as_serialized_hlo_module_proto())
    assert repr(of_module.program_shape()) == "(p0: f32[2], p1: f32[2]) -> f32[2]"


def test_settings_that_mean_nothing_are_refused(client):
    with pytest.raises(TypeError, match="enabled is True or False, not a int"):
        xc.Traceback.enabled = 3
    options = xc.CompileOptions()
    options.num_replicas = -1
    with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT: -1 replicas"):
        client.compile(built(), options)
