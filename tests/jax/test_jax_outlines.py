"""Programs in outline, as JAX gets them back."""

import pytest

from xlakit.formats.hlo_proto import read_module, schema
from xlakit.formats.hlo_proto.shapes import read_program_shape
from xlakit.formats.hlo_text import parse_module
from xlakit.jax.outlines import config_of, outline_of
from xlakit.jax.wire import fields

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
