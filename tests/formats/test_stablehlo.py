"""StableHLO through jaxlib."""

import io
import sys

import numpy as np
import pytest
from evaluating import opcodes

from xlakit.errors import FormatError, UnsupportedError
from xlakit.formats.detect import load
from xlakit.formats.stablehlo import read_stablehlo

PROGRAM = """
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.multiply %x, %y : tensor<3xf32>
    %1 = stablehlo.add %0, %y : tensor<3xf32>
    return %1 : tensor<3xf32>
  }
}
"""


@pytest.fixture
def mlir():
    return pytest.importorskip("jaxlib._jax").mlir


def test_text_is_read(mlir):
    module = read_stablehlo(PROGRAM)
    module.verify()
    assert opcodes(module) == ["parameter", "parameter", "multiply", "add"]
    assert (module.num_partitions, module.replica_count) == (4, 2)
    assert opcodes(read_stablehlo(PROGRAM.encode())) == opcodes(module)


def test_instructions_come_from_the_named_file(mlir):
    metadata = [i.annotations.metadata for i in read_stablehlo(PROGRAM, name="m.mlir").entry.instructions[2:]]
    assert [(m.source_file, m.source_line) for m in metadata] == [("m.mlir", 4), ("m.mlir", 5)]


def test_a_portable_artifact_is_read(mlir):
    data = mlir.serialize_portable_artifact(PROGRAM, "1.0.0")
    module = read_stablehlo(data)
    assert opcodes(module) == ["parameter", "parameter", "multiply", "add"]
    assert (module.num_partitions, module.replica_count) == (4, 2)


def test_bytecode_is_read():
    mlir = pytest.importorskip("jax.interpreters.mlir")
    ir = pytest.importorskip("jaxlib.mlir.ir")
    file = io.BytesIO()
    with mlir.make_ir_context():
        ir.Module.parse(PROGRAM).operation.write_bytecode(file)
    module = read_stablehlo(file.getvalue())
    assert opcodes(module) == ["parameter", "parameter", "multiply", "add"]
    assert (module.num_partitions, module.replica_count) == (4, 2)


@pytest.mark.parametrize(
    ("program", "line", "rule"),
    [
        ("module {\n  func.func @main() {\n    frobnicate\n  }\n}", 3, "frobnicate"),
        (
            "module {\n  func.func @main(%x: tensor<2xf32>) -> tensor<3xf32> {\n    return %x : tensor<2xf32>\n  }\n}",
            3,
            "type",
        ),
        ("", 1, "StableHLO|module|func"),
        (b"\xff\xfe", 1, "neither"),
        (b"ML\xefR", 1, "bytecode"),
        (b"ML\xefR" + bytes(100), 1, "StableHLO"),
    ],
)
def test_faults_have_their_line(mlir, program, line, rule):
    with pytest.raises(FormatError, match=rule) as caught:
        read_stablehlo(program, name="f.mlir")
    assert caught.value.location.file == "f.mlir"
    assert caught.value.location.line == line


def test_without_jaxlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxlib._jax", None)
    with pytest.raises(UnsupportedError) as caught:
        read_stablehlo(PROGRAM)
    assert caught.value.hint == "pip install 'xlakit[jax]'"


def test_programs_of_jax_are_read():
    jax = pytest.importorskip("jax")
    export = pytest.importorskip("jax.export")
    lax, jnp = jax.lax, jax.numpy
    x = np.ones((4, 4), np.float32)
    programs = [
        lambda x: jnp.sort(jnp.sin(x) @ x),
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        lambda x: lax.cond(x.sum() > 0, jnp.cos, jnp.tanh, x),
        lambda x: x.at[1].add(x[2])[::-1, 1:],
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "SAME"),
        lambda x: lax.conv_general_dilated(x[None, None], x[None, None], (1, 1), "SAME"),
        lambda x: (jnp.fft.rfft(x), lax.linalg.cholesky(x), jax.random.normal(jax.random.key(0), (3,))),
    ]
    for program in programs:
        jitted = jax.jit(program)
        module = read_stablehlo(jitted.lower(x).as_text())
        module.verify()
        exported = read_stablehlo(export.export(jitted)(x).mlir_module_serialized)
        exported.verify()
        assert exported.program_shape.result == module.program_shape.result


@pytest.mark.parametrize("kind", ["f6E2M3FN", "f6E3M2FN"])
def test_constants_that_end_the_process_are_refused(kind):
    ir = pytest.importorskip("jaxlib.mlir.ir")
    program = f"""
func.func @main() -> tensor<2x{kind}> {{
  %0 = stablehlo.constant dense<[1.0,
                                 2.0]> : tensor<2x{kind}>
  return %0 : tensor<2x{kind}>
}}
"""
    with pytest.raises(UnsupportedError, match=kind.lower()) as caught:
        read_stablehlo(program, name="f.mlir")
    assert caught.value.location == ("f.mlir", 3, 0)
    bytecode = io.BytesIO()
    with pytest.importorskip("jax.interpreters.mlir").make_ir_context():
        ir.Module.parse(program).operation.write_bytecode(bytecode)
    with pytest.raises(UnsupportedError, match=kind.lower()):
        read_stablehlo(bytecode.getvalue())


def test_what_hlo_lacks_is_told_at_the_persons_line():
    program = """module {
  func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>) -> tensor<?xf32> {
    %0 = stablehlo.dynamic_broadcast_in_dim %x, %n, dims = [0] : (tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32> LOC
    return %0 : tensor<?xf32>
  }
}"""
    for location, file, line in (("", "f.mlir", 3), ('loc("model.py":7:5)', "model.py", 7)):
        with pytest.raises(FormatError, match="HLO lacks") as caught:
            read_stablehlo(program.replace("LOC", location), name="f.mlir")
        assert caught.value.location[:2] == (file, line)
        assert "fixed shapes" in caught.value.hint


def test_a_convolution_with_dimensions_of_no_kind_is_refused():
    """An error that prints one, here as no function is called main, ends the process in jaxlib."""
    text = """module @m {
  func.func @f(%x: tensor<1x6x6x1x3xf32>, %k: tensor<3x3x1x3x4xf32>) -> tensor<1x1x4x4x4xf32> {
    %0 = "mhlo.convolution"(%x, %k) {
      batch_group_count = 1 : i64, feature_group_count = 1 : i64,
      dimension_numbers = #mhlo.conv<[b, 0, 1, ?, f]x[0, 1, ?, i, o]->[?, b, 0, 1, f]>
    } : (tensor<1x6x6x1x3xf32>, tensor<3x3x1x3x4xf32>) -> tensor<1x1x4x4x4xf32>
    return %0 : tensor<1x1x4x4x4xf32>
  }
}"""
    with pytest.raises(FormatError, match="none of batch, feature and window") as caught:
        read_stablehlo(text, name="m.mlir")
    assert caught.value.location == ("m.mlir", 5, 0)


def test_a_raw_convolution_without_all_dimensions_is_refused():
    dimensions = ", ".join(
        f"{side}_{a}_dimension = 0, {side}_{b}_dimension = 4, {side}_spatial_dimensions = [1, 2]"
        for side, a, b in (
            ("input", "batch", "feature"),
            ("kernel", "input_feature", "output_feature"),
            ("output", "batch", "feature"),
        )
    )
    text = f'module {{\n  %0 = "stablehlo.convolution"() {{dimension_numbers = #stablehlo.conv<raw {dimensions}>}}\n}}'
    with pytest.raises(FormatError, match=r"input has the dimensions \[0, 4, 1, 2\]"):
        read_stablehlo(text)


def test_a_call_of_a_function_without_a_body_is_refused():
    text = """func.func private @g(tensor<2xf32>) -> tensor<2xf32>
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
    with pytest.raises(FormatError, match="@g is called and has no body"):
        read_stablehlo(text)


def test_a_text_may_begin_with_a_mesh():
    text = """sdy.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}"""
    assert load(text.encode()).entry.parameters[0].annotations.sharding is not None


def test_a_program_in_a_flatbuffer_is_read():
    """As JAX's Exported has it: bytes behind their length, and other tables around them."""
    export, jax = pytest.importorskip("jax.export"), pytest.importorskip("jax")
    program = export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((3,), np.float32)).mlir_module_serialized
    table = (16).to_bytes(4, "little") + bytes(20)
    assert load(table + len(program).to_bytes(4, "little") + program + bytes(40)) == load(program)


def test_what_jax_serializes_is_read():
    export, jax = pytest.importorskip("jax.export"), pytest.importorskip("jax")
    pytest.importorskip("flatbuffers", reason="what JAX writes it with")
    exported = export.export(jax.jit(lambda x: jax.numpy.tanh(x).sum()))(jax.ShapeDtypeStruct((4, 3), np.float32))
    data = bytes(exported.serialize())
    assert load(data) == load(exported.mlir_module_serialized)
    with pytest.raises(FormatError, match="no HLO module"):
        load(data[: len(data) // 2])
