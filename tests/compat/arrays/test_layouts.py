"""Arguments and results that do not lie major to minor. What is expected is what jaxlib 0.6.0 answers."""

import numpy as np
import pytest

from xlakit import HloModule
from xlakit.compat import xla_client as xc

ops = xc.ops
A = np.arange(6, dtype=np.float32).reshape(2, 3)
MODULE = """
module @m {{
  func.func public @main(%x: tensor<2x3xf32> {{mhlo.layout_mode = "{0}"}}, %y: tensor<2x3xf32>)
      -> (tensor<2x3xf32> {{mhlo.layout_mode = "{1}"}}) {{
    %0 = stablehlo.subtract %x, %y : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }}
}}"""


DEVICES = 2


def program():
    builder = xc.XlaBuilder("layouts")
    parameter = ops.Parameter(builder, 0, xc.shape_from_pyval(A))
    ops.Add(parameter, parameter)
    return builder.build()


def column_major():
    return xc.Shape.array_shape(np.dtype("float32"), (2, 3), (0, 1))


def layouts(executable):
    return [str(found) for found in executable.get_parameter_layouts() + executable.get_output_layouts()]


def test_compile_options_say_layouts(client):
    options = xc.CompileOptions()
    options.argument_layouts = [column_major()]
    options.executable_build_options.result_layout = column_major()
    executable = client.compile(program(), options)
    assert layouts(executable) == ["{0,1}", "{0,1}"]
    (first,) = executable.execute([client.buffer_from_pyval(A)])
    (second,) = executable.execute([first])
    assert (first.shape, str(first._pjrt_layout), np.asarray(first).strides) == ((2, 3), "{0,1}", (4, 8))
    np.testing.assert_array_equal(second, 4 * A)
    assert memoryview(second).tolist() == (4 * A).tolist()
    np.testing.assert_array_equal(np.from_dlpack(second), 4 * A)
    np.testing.assert_array_equal(second.clone(), 4 * A)
    # A program that takes arrays major to minor takes these, too.
    (third,) = client.compile(program()).execute([second])
    assert (str(third._pjrt_layout), np.asarray(third).tolist()) == ("{1,0}", (8 * A).tolist())
    again = client.deserialize_executable(client.serialize_executable(executable))
    assert layouts(again) == ["{0,1}", "{0,1}"]


def test_a_module_says_layouts(client):
    executable = client.compile(MODULE.format("{0,1}", "default"))
    assert layouts(executable) == ["{0,1}", "{1,0}", "{1,0}"]
    (result,) = executable.execute([client.buffer_from_pyval(A), client.buffer_from_pyval(A[::-1].copy())])
    np.testing.assert_array_equal(result, A - A[::-1])
    assert layouts(client.compile(MODULE.format("default", "{0,1}"))) == ["{1,0}", "{1,0}", "{0,1}"]
    with pytest.raises(xc.XlaRuntimeError, match="UNIMPLEMENTED"):
        client.compile(MODULE.format("{1,0:T(8,128)}", "default"))


def test_parts_lie_as_the_whole(client):
    options = xc.CompileOptions()
    options.num_partitions = 2
    options.executable_build_options.use_spmd_partitioning = True
    split = MODULE.format("{0,1}", "{0,1}").replace(
        'mhlo.layout_mode = "{0,1}"', 'mhlo.layout_mode = "{0,1}", mhlo.sharding = "{devices=[2,1]<=[2]}"'
    )
    executable = client.compile(split, options)
    assert layouts(executable) == ["{0,1}", "{1,0}", "{0,1}"]
    devices = executable.local_devices()
    x = [client.buffer_from_pyval(A[i : i + 1], device) for i, device in enumerate(devices)]
    y = [client.buffer_from_pyval(A[::-1].copy(), device) for device in devices]
    (parts,) = executable.execute_sharded([x, y]).disassemble_into_single_device_arrays()
    np.testing.assert_array_equal(np.concatenate([np.asarray(part) for part in parts]), A - A[::-1])


def test_executables_print_the_shapes_and_layouts_of_arguments_and_results(client):
    builder = xc.XlaBuilder("printed")
    x, y = (ops.Parameter(builder, i, xc.Shape(s)) for i, s in enumerate(["f32[2,3]{1,0}", "f32[4]{0}"]))
    ops.Tuple(builder, [ops.Add(x, x), ops.Neg(y), x])
    options = xc.CompileOptions()
    options.argument_layouts = [column_major(), xc.Shape("f32[4]{0}")]
    result = "(f32[2,3]{0,1}, f32[4]{0}, f32[2,3]{0,1})"
    options.executable_build_options.result_layout = xc.Shape(result)
    (module,) = client.compile(builder.build(), options).hlo_modules()
    text = module.to_string()
    assert f"entry_computation_layout={{(f32[2,3]{{0,1}}, f32[4]{{0}})->{result}}}" in text
    assert "= f32[2,3]{0,1} parameter(0)" in text
    HloModule.from_text(text).verify()
    read = xc._xla.hlo_module_from_text(text)
    assert read.to_string() == text
    # A result that is no tuple.
    options.argument_layouts = [column_major()]
    options.executable_build_options.result_layout = column_major()
    (module,) = client.compile(program(), options).hlo_modules()
    assert "entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{0,1}}" in module.to_string()
    HloModule.from_text(module.to_string()).verify()


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_layouts_is_an_error(client, count):
    options = xc.CompileOptions()
    options.argument_layouts = [column_major()] * count
    with pytest.raises(
        xc.XlaRuntimeError, match=f"argument_layouts has {count} shapes, the computation has 1 arguments"
    ):
        client.compile(program(), options)


def test_modules_of_executables_are_those_of_the_compiler(client):
    (module,) = client.compile(program()).hlo_modules()
    text = module.to_string()
    assert (text.startswith("HloModule layouts"), "is_scheduled=true" in text, "{1,0}" in text) == (True,) * 3
    assert xc.XlaComputation(module.as_serialized_hlo_module_proto()).get_hlo_module().to_string() == text


@pytest.mark.parametrize(
    ("made", "order"),
    [
        (lambda t, z: t, "{1,0,2}"),
        (lambda t, z: ops.Neg(t), "{1,0,2}"),
        (ops.Add, "{1,0,2}"),
        (lambda t, z: ops.Add(z, t), "{2,1,0}"),
        (lambda t, z: ops.Select(ops.Gt(t, t), z, z), "{1,0,2}"),
        (lambda t, z: ops.Clamp(z, t, z), "{1,0,2}"),
        (lambda t, z: ops.Rev(t, [0]), "{1,0,2}"),
        (lambda t, z: ops.Slice(t, [0, 0, 0], [1, 2, 2], [1, 1, 1]), "{2,1,0}"),
        (lambda t, z: ops.Transpose(t, [2, 0, 1]), "{2,1,0}"),
    ],
)
def test_a_transpose_moves_nothing_in_shapes(made, order):
    builder = xc.XlaBuilder("layouts")
    shape = xc.Shape.array_shape(np.dtype(np.float32), (2, 3, 4))
    t = ops.Transpose(ops.Parameter(builder, 0, shape), [1, 2, 0])
    z = ops.Parameter(builder, 1, xc.Shape.array_shape(np.dtype(np.float32), (3, 4, 2)))
    assert str(builder.get_shape(made(t, z))).endswith(order)
    computation = builder.build(made(t, z))
    text = computation.as_hlo_text()
    assert f"{order} " in text[text.index("ROOT") :].split("(")[0]
    # A proto says its layouts itself.
    again = xc.XlaComputation(computation.as_serialized_hlo_module_proto())
    assert "{1,0,2}" not in again.as_hlo_text()
