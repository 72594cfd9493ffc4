"""Arguments and attributes of other types raise TypeError, as in jaxlib's bindings; what converts is converted."""

import numpy as np
import pytest

from xlakit.compat import xla_client as xc

xe = xc._xla


@pytest.mark.parametrize(
    "call",
    [
        lambda: xc.XlaComputation("text"), lambda: xc.Frame(1, 2, 3, 4), lambda: xc.make_cpu_client(1),
        lambda: xc.HloSharding.from_proto("x"), lambda: xe.hlo_module_from_text(b"HloModule m"),
        lambda: xe.hlo_module_to_dot_graph(None), lambda: xe.mlir.xla_computation_to_mlir_module(1),
        lambda: xe.HloModule.from_serialized_hlo_module_proto("x"), lambda: xc.custom_call_targets(b"Host"),
        lambda: xc.XlaBuilder("b").set_sharding(None), lambda: xc.XlaBuilder("b").set_frontend_attributes({}),
        lambda: xc.HloSharding.replicate().tile([2]), lambda: xe.ExecutableBuildOptions(1),
        xe.hlo_module_from_text, lambda: xe.hlo_module_from_text(other="x"),
    ],
)  # fmt: skip
def test_arguments_of_other_types(call):
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (xc.CompileOptions, "num_replicas", 10**30), (xc.CompileOptions, "profile_version", 1.5),
        (xc.CompileOptions, "argument_layouts", [1]), (xc.CompileOptions, "env_option_overrides", [("a",)]),
        (xe.ExecutableBuildOptions, "use_spmd_partitioning", 1), (xe.ExecutableBuildOptions, "fdo_profile", "x"),
        (xc.OpSharding, "type", 1.5), (xc.OpSharding, "tile_assignment_devices", 3),
        (xc.OpSharding, "tile_assignment_devices", ["x"]), (xc.OpSharding, "is_shard_group", 1),
    ],
)  # fmt: skip
def test_attributes_of_other_types(make, name, value):
    made = make()
    before = getattr(made, name)
    with pytest.raises(TypeError, match=f"{name}.*incompatible function arguments"):
        setattr(made, name, value)
    assert getattr(made, name) == before


def test_what_is_converted():
    options = xc.CompileOptions()
    options.num_replicas, options.profile_version = np.int32(3), True
    options.executable_build_options.memory_fitting_effort = np.float32(0.5)
    assert [options.num_replicas, options.profile_version] == [3, 1]
    assert type(options.executable_build_options.memory_fitting_effort) is float
    assert xc.DeviceAssignment.create(np.array([[0.0, 1.0]])).computation_count() == 2
    with pytest.raises(AttributeError):
        xc.Frame("file", "function", 1, 2).line_num = 3


@pytest.mark.parametrize(
    "kind",
    [
        *("Client", "Device", "Memory", "DeviceTopology", "HloSharding", "PjRtLayout", "LoadedExecutable", "XlaOp"),
        *("DebugOptions", "Token"),
    ],
)
@pytest.mark.parametrize("arguments", [(), (1,), ("x",), (None,), (1, None)])
def test_what_only_this_package_makes_has_no_constructor(kind, arguments):
    with pytest.raises(TypeError, match="no constructor defined!"):
        getattr(xe, kind)(*arguments)


def test_debug_options_convert_as_jaxlibs_do():
    options = xe.ExecutableBuildOptions().debug_options
    names = [name for name in dir(options) if not name.startswith("_")]
    assert len(names) == 39
    for name in names:
        value = getattr(options, name)
        kind = type(value)
        # By the type of the option: what is taken, and as what.
        numbers = {True: 1, False: 0, np.int32(2): 2}
        taken = {bool: {True: True, False: False}, int: {**numbers, -(2**31): -(2**31)}, str: {"x": "x", "": ""}}
        for given, kept in taken.get(kind, {n: xe.AutotuneCacheMode(m) for n, m in numbers.items()}).items():
            setattr(options, name, given)
            assert getattr(options, name) == kept and type(getattr(options, name)) is kind, name
        refused = {bool: [1, 0, "true", None], int: [1.5, "one", None, 2**31], str: [1, True, None, b"x"]}
        for given in refused.get(kind, [3, -1, "READ", None]):
            with pytest.raises(TypeError, match=f"{name}.*incompatible function arguments"):
                setattr(options, name, given)
    with pytest.raises(AttributeError):
        options.no_such_option = 1


def test_records_take_what_jaxlib_takes():
    (device,) = xc.make_cpu_client().devices()
    assert xc.SingleDeviceSharding(device, "unpinned_host").memory_kind == "unpinned_host"
    assert xc.GSPMDSharding([device], xc.HloSharding.replicate(), "unpinned_host").memory_kind == "unpinned_host"
    for call in (
        lambda: xc.PmapSharding([device], None),
        lambda: xc.DeviceList("x"),
        lambda: xc.Layout("x"),
        lambda: xc.ShapeIndex("x"),
        lambda: xc._xla.Literal(3),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="requires >= 1 devices"):
        xc.get_topology_for_devices([])


@pytest.mark.parametrize("sizes", [(0, 0), (3, 0), (0, 3), (2, 0, 4)])
def test_svd_of_no_elements_is_an_error_of_the_builder(sizes):
    builder = xc.XlaBuilder("svd")
    factors = xc.ops.SVD(xc.ops.Parameter(builder, 0, xc.Shape.array_shape(np.dtype(np.float32), sizes)))
    with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT.*matrices that have elements"):
        builder.build(xc.ops.Tuple(builder, list(factors)))


@pytest.mark.parametrize("sizes", [(), (3,)])
def test_svd_of_no_matrix_is_a_value_error(sizes):
    builder = xc.XlaBuilder("svd")
    with pytest.raises(ValueError, match="SVD takes matrices"):
        xc.ops.SVD(xc.ops.Parameter(builder, 0, xc.Shape.array_shape(np.dtype(np.float32), sizes)))


@pytest.mark.parametrize(
    ("dtype", "is_taken"), [("int8", 0), ("uint64", 0), ("bool", 0), ("float16", 1), ("complex64", 1)]
)
def test_reciprocals_are_of_numbers_that_have_one(dtype, is_taken):
    builder = xc.XlaBuilder("reciprocal")
    result = xc.ops.Reciprocal(xc.ops.Parameter(builder, 0, xc.Shape.array_shape(np.dtype(dtype), (3,))))
    if is_taken:
        assert builder.build(result).program_shape().result_shape().dimensions() == (3,)
    else:
        with pytest.raises(xc.XlaRuntimeError, match=r"INVALID_ARGUMENT.*takes floating point or complex numbers"):
            builder.build(result)
