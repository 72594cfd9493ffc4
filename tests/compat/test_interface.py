"""Classes of xla_client: shapes, options, shardings, arrays, errors. What is expected is what jaxlib 0.6.0 answers."""

import ctypes
import gc
import pickle
import threading
import traceback

import numpy as np
import pytest

from xlakit.compat import xla_client as xc
from xlakit.formats.xspace import chrome_events

ops, xe = xc.ops, xc._xla
S = xc.Shape


DEVICES = 2


class TestShapes:
    def test_text_and_proto(self):
        shape = S.array_shape(np.dtype("float32"), (2, 3))
        assert (str(shape), shape.rank(), shape.dimensions()) == ("f32[2,3]{1,0}", 2, (2, 3))
        expected = b"\x10\x0b\x1a\x02\x02\x03*\x07\n\x02\x01\x00\x80\x01\x012\x02\x00\x00"
        assert shape.to_serialized_proto() == expected
        assert S("(f32[2], s32[])").tuple_shapes() == [S("f32[2]{0}"), S("s32[]")]
        assert repr(S.array_shape(xc.PrimitiveType.F32, [2, 3], [0, 1])) == "f32[2,3]{0,1}"

    def test_kinds(self):
        both = S.tuple_shape([S("f32[2]"), S.token_shape()])
        assert (both.is_tuple(), both.is_array(), both.leaf_count()) == (True, False, 2)
        assert both.numpy_dtype() == np.dtype(object)
        assert both.xla_element_type() == xc.PrimitiveType.TUPLE == 13
        with pytest.raises(xc.XlaRuntimeError, match="UNIMPLEMENTED"):
            both.element_type()
        with pytest.raises(xc.XlaRuntimeError):
            both.dimensions()

    def test_dynamic_dimensions_can_be_set(self):
        shape = S("f32[4,2]")
        shape.set_dynamic_dimension(0, True)
        assert (repr(shape), shape.is_dynamic(), shape.is_dynamic_dimension(1)) == ("f32[<=4,2]{1,0}", True, False)

    @pytest.mark.parametrize(("dims", "layout"), [([-2], None), ([2, 2], [0, 0])])
    def test_invalid_shapes(self, dims, layout):
        with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
            S.array_shape(np.dtype("float32"), dims, layout)

    def test_other_element_types_are_a_type_error(self):
        with pytest.raises(TypeError):
            S.array_shape("float32", (2,))

    def test_from_values(self):
        values = (np.float32(1), np.zeros((2, 3)))
        assert repr(xc.shape_from_pyval(values)) == "(f32[], f64[2,3]{1,0})"
        assert repr(xc.shape_from_pyval(values[1], [0, 1])) == "f64[2,3]{0,1}"
        with pytest.raises(NotImplementedError):
            xc.shape_from_pyval(values, [0])

    def test_program_shape_index_and_layout(self):
        shape = xc.ProgramShape([S("f32[2]")], S("s8[]"))
        assert repr(shape) == "((unknown): f32[2]) -> s8[]"
        assert (repr(xc.ShapeIndex([1, 2])), xc.ShapeIndex([1]) == xc.ShapeIndex([1])) == ("{1,2}", True)
        assert str(xc.Layout([1, 0], [(8, 128)], 4)) == "{1,0:T(8,128)E(4)}"
        assert pickle.loads(pickle.dumps(xc.Layout((0, 1)))) == xc.Layout((0, 1))

    def test_literal_can_be_written(self):
        literal = xe.Literal(S("s32[2]"))
        np.asarray(literal)[1] = 7
        assert np.asarray(literal).tolist() == [0, 7]

    def test_element_types(self):
        for kind, dtype in xc.XLA_ELEMENT_TYPE_TO_DTYPE.items():
            if dtype != np.dtype(object):
                assert xc.dtype_to_etype(dtype) is kind
        with pytest.raises(KeyError):
            xc.dtype_to_etype("S3")


class TestBuilder:
    def test_first_error_is_raised_by_build(self):
        builder = xc.XlaBuilder("b")
        three, four = (ops.Constant(builder, np.zeros(n, np.float32)) for n in (3, 4))
        wrong = ops.Neg(ops.Add(three, four))
        with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT: (.|\n)*add: (.|\n)*test_interface.py"):
            builder.build()
        with pytest.raises(xc.XlaRuntimeError):
            builder.get_shape(wrong)

    def test_several_results_of_a_wrong_operation(self):
        builder = xc.XlaBuilder("b")
        vectors, values = ops.Eigh(ops.Constant(builder, np.zeros((2, 3), np.float32)))
        ops.Neg(vectors)
        with pytest.raises(xc.XlaRuntimeError, match="square"):
            builder.build(values)

    def test_wrong_types(self):
        builder = xc.XlaBuilder("b")
        one = ops.Constant(builder, 1)
        with pytest.raises(TypeError, match="rhs is 3"):
            ops.Add(one, 3)
        with pytest.raises(TypeError, match="new_element_type is 999"):
            ops.ConvertElementType(one, 999)
        assert str(builder.get_shape(ops.ConvertElementType(one, int(xc.PrimitiveType.F32)))) == "f32[]"
        with pytest.raises(TypeError):
            ops.Iota(builder, "f32", 3)
        with pytest.raises(TypeError):
            ops.Slice(one, [0])

    def test_queries(self):
        builder = xc.XlaBuilder("b")
        x = ops.Parameter(builder, 0, S("f32[2]"), "x")
        two = ops.Constant(builder, np.float32(2))
        product = ops.Mul(x, two)
        assert (builder.is_constant(two), builder.is_constant(product)) == (True, False)
        assert repr(builder.get_program_shape(product)) == "(x: f32[2]) -> f32[2]"
        assert repr(builder.GetShape(product)) == "f32[2]{0}"

    def test_settings(self):
        builder = xc.XlaBuilder("b")
        sharding = xc.OpSharding()
        sharding.type = xc.OpSharding.Type.OTHER
        sharding.tile_assignment_dimensions = [2]
        sharding.tile_assignment_devices = [0, 1]
        attributes = xe.FrontendAttributes()
        attributes["a"] = "b"
        builder.set_sharding(sharding)
        builder.set_frontend_attributes(attributes)
        builder.set_op_metadata(xc.CurrentSourceInfoMetadata(op_type="kind", op_name="name"))
        x = ops.Parameter(builder, 0, S("f32[4]"))
        builder.clear_sharding()
        builder.clear_frontend_attributes()
        builder.clear_op_metadata()
        ops.Neg(x)
        builder.setup_alias([], 0, [])
        module = builder.build().as_hlo_module()
        parameter, negate = (line for line in module.to_string().split("\n") if "f32[4]{0} " in line)
        for part in ("devices=[2]0,1", 'a="b"', 'op_name="name"', "test_interface.py"):
            assert part in parameter
        assert "devices" not in negate and 'a="b"' not in negate
        assert "input_output_alias" in module.to_string()

    def test_computation(self):
        builder = xc.XlaBuilder("many")
        ops.Constant(builder, np.arange(20.0))
        made = builder.build()
        assert "{...}" in made.as_hlo_text()
        assert "19" in made.as_hlo_text(print_large_constants=True)
        again = xc.XlaComputation(made.as_serialized_hlo_module_proto())
        assert (again.hash(), again.name()) == (made.hash(), made.name())
        assert made.as_hlo_dot_graph().startswith("digraph G {")
        with pytest.raises(xc.XlaRuntimeError, match="FAILED_PRECONDITION: No program shape found in the proto"):
            xc.XlaComputation(b"\xff\x00").as_hlo_text()


TEXT = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main { p = f32[2] parameter(0), metadata={op_name="here"}
  z = f32[] constant(0)
  k = f32[] constant(4)
  t = (f32[2], f32[]) tuple(p, z)
  e = f32[2] get-tuple-element(t), index=0
  ROOT r = f32[] reduce(e, z), dimensions={0}, to_apply=add }"""


class TestModules:
    def test_printing(self):
        module = xe.hlo_module_from_text(TEXT)
        short = module.to_string(xe.HloPrintOptions.short_parsable())
        assert "%" in module.to_string() and "%" not in short
        assert "metadata" in module.to_string() and "metadata" not in short
        assert xe.hlo_module_from_text(short).to_string(xe.HloPrintOptions.short_parsable()) == short
        options = xe.HloPrintOptions()
        options.print_metadata = False
        assert "metadata" not in module.to_string(options)
        assert "tmp_0" in module.to_string(xe.HloPrintOptions.canonical())

    def test_passes_change_a_module_in_place(self):
        module = xe.hlo_module_from_text(TEXT)
        assert xe.HloDCE().run(module)
        assert not xe.HloDCE().run(module)
        assert "tuple" in module.to_string() and "constant(4)" not in module.to_string()
        assert xe.TupleSimplifier().run(module)
        assert "tuple" not in module.to_string()
        assert not xe.CallInliner().run(module)
        assert [c.name for c in module.computations()] == ["add", "main"]

    def test_cost_graph_and_group(self, client, tmp_path):
        module = xe.hlo_module_from_text(TEXT)
        assert xe.hlo_module_cost_analysis(client, module)["flops"] == 1.0
        assert "reduce" in xe.hlo_module_to_dot_graph(module)
        module.computations()[0].render_html(str(tmp_path / "page.html"))
        assert "add" in (tmp_path / "page.html").read_text()
        assert xe.HloModuleGroup("g", [module]).to_modules() == [module]

    def test_bad_text(self):
        with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
            xe.hlo_module_from_text("foo")


class TestOptions:
    def test_round_trip(self):
        options = xc.CompileOptions()
        build = options.executable_build_options
        options.num_replicas, options.num_partitions, options.profile_version = 2, 3, 7
        options.device_assignment = xc.DeviceAssignment.create(np.arange(6).reshape(2, 3))
        options.env_option_overrides = [("a", True), ("b", 3), ("c", 1.5), ("d", "x")]
        options.argument_layouts = [S("f32[2]{0}")]
        build.fdo_profile, build.result_layout = b"ab", S("f32[2]{0}")
        build.debug_options.xla_dump_to = "/somewhere"
        again = pickle.loads(pickle.dumps(options))
        assert (again.num_replicas, again.num_partitions, again.profile_version) == (2, 3, 7)
        assert repr(again.device_assignment) == repr(options.device_assignment)
        assert list(again.env_option_overrides) == options.env_option_overrides
        assert (again.argument_layouts, again.executable_build_options.fdo_profile) == ([S("f32[2]{0}")], b"ab")
        assert again.executable_build_options.debug_options.xla_dump_to == "/somewhere"

    @pytest.mark.parametrize(("name", "error"), [("num_replicas", TypeError), ("nothing", AttributeError)])
    def test_wrong_fields(self, name, error):
        with pytest.raises(error):
            setattr(xc.CompileOptions(), name, "x")

    def test_device_assignment(self):
        made = xc.DeviceAssignment.create(np.arange(2).reshape(1, 2))
        assert str(made) == "Computations: 2 Replicas: 1\nComputation 0: 0 \nComputation 1: 1 \n"
        assert made.serialize() == b"\x08\x01\x10\x02\x1a\x03\n\x01\x00\x1a\x03\n\x01\x01"
        with pytest.raises(TypeError):
            xc.DeviceAssignment.create(np.arange(3))


class TestShardings:
    TILES = xc.HloSharding.iota_tile([2, 2], [2, 2], [1, 0])

    def test_message(self):
        message = self.TILES.to_proto()
        again = xc.OpSharding()
        again.ParseFromString(message.SerializeToString())
        assert xc.HloSharding.from_proto(again) == self.TILES
        assert repr(pickle.loads(pickle.dumps(message))) == repr(message) == repr(message.clone())
        assert list(message.iota_transpose_perm) == [1, 0]

    def test_value(self):
        assert (repr(self.TILES), self.TILES.num_devices()) == ("{devices=[2,2]<=[2,2]T(1,0)}", 4)
        assert self.TILES.tile_assignment_devices() == [0, 2, 1, 3]
        assert repr(self.TILES.tile(S("f32[4,4]"))) == "f32[2,2]{1,0}"
        assert xc.HloSharding.replicate() != xc.HloSharding.manual()
        assert xc.HloSharding.from_string("{replicated}").is_replicated()
        partly = xc.HloSharding.iota_tile([2, 2], subgroup_types=[xc.OpSharding.Type.REPLICATED])
        assert partly.replicate_on_last_tile_dim()
        assert repr(partly.tile(S("f32[4,4]"))) == "f32[2,4]{1,0}"
        with pytest.raises(xc.XlaRuntimeError):
            xc.HloSharding.from_string("{foo}")

    def test_partial_replication(self):
        made = xe.hlo_sharding_util.PartiallyReplicateTiledShardingOnDims(xc.HloSharding.iota_tile([2, 2]), [0])
        # {devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}, written out.
        assert made.tile_assignment_dimensions() == [1, 2, 2]
        assert made.tile_assignment_devices() == [0, 2, 1, 3]
        assert made.replicate_on_last_tile_dim()


class TestArrays:
    def test_values_and_states(self, client):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        array = client.buffer_from_pyval(x)
        assert np.asarray(array).tolist() == x.tolist()
        assert (array.shape, array.dtype, array.platform(), array.is_ready()) == ((2, 3), np.float32, "cpu", True)
        assert not np.asarray(array).flags.writeable
        assert array.on_device_size_in_bytes() == 24
        other = array.clone()
        array.delete()
        assert array.is_deleted() and not other.is_deleted()
        for use in (np.asarray, lambda a: a.block_until_ready()):
            with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
                use(array)
        with pytest.raises(xc.XlaRuntimeError, match="UNIMPLEMENTED: a deleted array"):
            xe.buffer_to_dlpack_managed_tensor(array)
        with pytest.raises(AttributeError):
            _ = other.__cuda_array_interface__

    @pytest.mark.parametrize("value", [3, 2.5, True, 1j, np.float16(1), np.zeros((0, 2))])
    def test_numbers(self, client, value):
        assert np.asarray(client.buffer_from_pyval(value)).dtype == np.asarray(value).dtype

    def test_what_is_no_array(self, client):
        with pytest.raises(xc.XlaRuntimeError):
            client.buffer_from_pyval([1, 2])
        with pytest.raises(TypeError, match="device is 3"):
            client.buffer_from_pyval(1.0, 3)

    def test_live_arrays(self, client):
        before = len(client.live_arrays())
        array = client.buffer_from_pyval(np.zeros(3))
        assert len(client.live_arrays()) == before + 1
        del array
        gc.collect()
        assert len(client.live_arrays()) == before

    def test_dlpack(self, client):
        array = client.buffer_from_pyval(np.arange(3.0))
        capsule = xe.buffer_to_dlpack_managed_tensor(array)
        assert np.asarray(xe.dlpack_managed_tensor_to_buffer(capsule, client)).tolist() == [0, 1, 2]
        with pytest.raises(xc.XlaRuntimeError):
            xe.dlpack_managed_tensor_to_buffer(capsule, client)


class TestDevices:
    def test_names(self, client):
        device = client.devices()[1]
        assert (repr(device), str(device), device.id, device.process_index) == ("CpuDevice(id=1)", "TFRT_CPU_1", 1, 0)
        assert (client.platform, device.default_memory().kind) == ("cpu", "unpinned_host")
        assert client.device_from_local_hardware_id(1) is device
        with pytest.raises(xc.XlaRuntimeError):
            client.device_from_local_hardware_id(9)
        with pytest.raises(xc.XlaRuntimeError):
            device.memory("foo")
        with pytest.raises(AttributeError):
            _ = device.coords

    def test_lists(self, client):
        devices = xc.DeviceList(tuple(client.devices()))
        assert (len(devices), devices[0], devices.memory_kinds) == (2, client.devices()[0], ("unpinned_host",))
        assert xc.check_and_canonicalize_memory_kind(None, devices) == "unpinned_host"
        with pytest.raises(ValueError, match="foo"):
            xc.check_and_canonicalize_memory_kind("foo", devices)

    def test_feeds(self, client):
        builder = xc.XlaBuilder("feeds")
        both = ops.InfeedWithToken(ops.CreateToken(builder), S("f32[2]"))
        value = ops.GetTupleElement(both, 0)
        ops.OutfeedWithToken(ops.Neg(value), ops.GetTupleElement(both, 1), S("f32[2]"))
        executable = client.compile(builder.build(value))
        device = executable.local_devices()[0]
        device.transfer_to_infeed(np.array([1, 2], np.float32))
        thread = threading.Thread(target=executable.execute, args=([],))
        thread.start()
        assert device.transfer_from_outfeed(S("f32[2]")).tolist() == [-1, -2]
        thread.join()


class TestExecutables:
    @staticmethod
    def doubling():
        builder = xc.XlaBuilder("double")
        x = ops.Parameter(builder, 0, S("f32[2]"))
        ops.Tuple(builder, [ops.Add(x, x), ops.Tuple(builder, [x])])
        return builder.build()

    def test_results_are_flat(self, client):
        executable = client.compile(self.doubling())
        x = client.buffer_from_pyval(np.array([1, 2], np.float32))
        assert [np.asarray(r).tolist() for r in executable.execute([x])] == [[2, 4], [1, 2]]
        results, token = executable.execute_with_token([x])
        token.block_until_ready()
        assert len(results) == 2
        again = client.deserialize_executable(client.serialize_executable(executable))
        assert np.asarray(again.execute([x])[0]).tolist() == [2, 4]
        assert executable.cost_analysis()["flops"] == 2.0
        assert executable.get_compiled_memory_stats().argument_size_in_bytes == 8
        assert [str(layout) for layout in executable.get_parameter_layouts()] == ["{0}"]
        assert executable in client.live_executables()

    def test_wrong_arguments(self, client):
        executable = client.compile(self.doubling())
        with pytest.raises(xc.XlaRuntimeError, match="takes 1 arrays, got 0"):
            executable.execute([])
        with pytest.raises(xc.XlaRuntimeError, match="INVALID_ARGUMENT"):
            executable.execute([client.buffer_from_pyval(np.zeros(3, np.float32))])
        with pytest.raises(TypeError):
            executable.execute([np.zeros(2, np.float32)])
        executable.delete()
        assert executable.execute([client.buffer_from_pyval(np.zeros(2, np.float32))])

    def test_replicas(self, client):
        builder = xc.XlaBuilder("sum")
        ops.CrossReplicaSum(ops.Parameter(builder, 0, S("f32[]")))
        options = xc.CompileOptions()
        options.num_replicas = 2
        options.device_assignment = xc.DeviceAssignment.create(np.array([[1], [0]]))
        executable = client.compile(builder.build(), options)
        found = xc.execute_with_python_values_replicated(executable, [[np.float32(1)], [np.float32(2)]], client)
        assert found == [[3.0], [3.0]]
        assert [device.id for device in executable.local_devices()] == [1, 0]

    @pytest.mark.parametrize("program", ["module {", b"xx", 3])
    def test_bad_programs(self, client, program):
        with pytest.raises((xc.XlaRuntimeError, TypeError)):
            client.compile(program)


class TestTheRest:
    def test_custom_calls(self, client):
        @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.POINTER(ctypes.c_float)))
        def half(out, operands):
            out[0] = operands[0][0] / 2

        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        capsule = make(ctypes.cast(half, ctypes.c_void_p), b"xla._CUSTOM_CALL_TARGET", None)
        xc.register_custom_call_target(b"compat_half", capsule, "cpu")
        builder = xc.XlaBuilder("call")
        operand = ops.Constant(builder, np.float32(5))
        shape = S("f32[]")
        ops.CustomCallWithLayout(builder, b"compat_half", [operand], shape, [shape])
        assert xc.execute_with_python_values(client.compile(builder.build()), [], client) == [2.5]
        assert "compat_half" in xc.custom_call_targets("cpu")
        with pytest.raises(xc.XlaRuntimeError):
            xc.register_custom_call_target("compat_wrong", "no function")

    def test_calls_of_other_platforms_wait_for_a_handler(self):
        seen = []
        xc.register_custom_call_target("waits", 5, "elsewhere")
        xc.register_custom_call_handler("elsewhere", lambda *call: seen.append(call[:3]))
        assert seen == [("waits", 5, "elsewhere")]

    def test_tracebacks(self, client):
        def here():
            return xc.Traceback.get_traceback()

        with xc.tracebacks(enabled=True):
            found = here()
            assert found.frames[0].function_name == "here"
            assert found.frames[0].file_name == __file__
            assert str(found).split("\n")[0].startswith(f"{__file__}:")
            # Python takes names and lines from the frames.
            seen = traceback.extract_tb(found.as_python_traceback())
            assert [(f.name, f.lineno) for f in seen[::-1]] == [(f.function_name, f.line_num) for f in found.frames]
            assert client.buffer_from_pyval(1).traceback.frames[0].function_name == "test_tracebacks"
        with xc.tracebacks(enabled=False):
            assert here() is None

    def test_trace_me(self):
        assert not xc.profiler.TraceMe.is_enabled()
        session = xc.profiler.ProfilerSession()
        with xc.profiler.TraceMe("block", size=3) as block:
            assert xc.profiler.TraceMe.is_enabled()
            block.set_metadata(more=1)
        (event,) = (e for e in chrome_events(session.stop()) if e["ph"] == "X")
        assert (event["name"], event["args"]) == ("block", {"size": "3", "more": "1"})
        assert session.stop() == session.stop()

    def test_one_session_at_a_time(self):
        session = xc.profiler.ProfilerSession()
        with pytest.raises(xc.XlaRuntimeError, match="ALREADY_EXISTS: a profiler session is active"):
            xc.profiler.ProfilerSession()
        del session
        # One that is no more does not record.
        assert not xc.profiler.TraceMe.is_enabled()

    def test_the_server_of_profiles_is_jaxlibs(self):
        pytest.importorskip("jaxlib._profiler")
        server = xc.profiler.start_server(0)
        with xc.profiler.TraceMe("block", size=3) as block:
            block.set_metadata(more=1)
        assert xc.profiler.ProfilerServer.count == 1
        del server
        gc.collect()
        assert xc.profiler.ProfilerServer.count == 0
        with pytest.raises(TypeError, match="start_server"):
            xc.profiler.start_server("port")

    def test_weakref_lru_cache(self):
        class Key:
            pass

        calls = []
        cache = xe.weakref_lru_cache(lambda: None, lambda key, x: calls.append(x) or x * 2, 2)
        key = Key()
        assert [cache(key, 1), cache(key, 1), cache(key, x=1)] == [2, 2, 2]
        assert calls == [1, 1]
        assert (cache.cache_info().hits, cache.cache_info().misses) == (1, 2)
        del key
        gc.collect()
        assert cache.cache_info().currsize == 0

    @pytest.mark.parametrize("kind", ["same", xc.PaddingType.SAME])
    def test_window_padding(self, kind):
        assert xc.window_padding_type_to_pad_values(kind, (5, 6), (3, 2), (1, 2)) == [(1, 1), (0, 0)]
        assert xc.window_padding_type_to_pad_values("VALID", (5, 6), (3, 2), (1, 2)) == [(0, 0), (0, 0)]

    @pytest.mark.parametrize(("padding", "error"), [(3, TypeError), ("other", ValueError)])
    def test_unknown_padding(self, padding, error):
        with pytest.raises(error):
            xc.window_padding_type_to_pad_values(padding, (5,), (3,), (1,))

    def test_sizes_of_approximate_top_k(self):
        size = ops.ApproxTopKReductionOutputSize
        given = [(1000, 1, 10, 0.9), (1000, 1, 10, 0.9, False), (100000, 1, 10, 0.9, False)]
        given += [(100000, 2, 10, 0.95, False), (100000, 2, 1, 0.95, False), (100000, 2, 3, 0.95, False, 200000)]
        given += [(4096, 1, 10, 0.99, False), (65536, 1, 64, 0.95, False)]
        expected = [(10, -1), (1000, 0), (2048, 6), (256, 9), (128, 10), (128, 10), (1024, 2), (2048, 5)]
        assert [size(*arguments) for arguments in given] == expected
