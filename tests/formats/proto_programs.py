"""What the tests of HLO protos share: a program for each group of operations, and small modules."""

from xlakit.data.literal import Literal
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import make_shape
from xlakit.formats.hlo_proto import schema, write_module
from xlakit.ir.attributes import (
    Annotations,
)
from xlakit.ir.instruction import Computation, HloModule, Instruction
from xlakit.ops.data import Constant, Parameter

F32 = PrimitiveType.F32

SUM = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""

# One program for each group of operations, in HLO text of this test's own.
PROGRAMS = {
    "elementwise": """HloModule m
        ENTRY e { x = f32[3] parameter(0)
          s = f32[3] sine(x), result_accuracy={mode=highest}
          p = pred[3] compare(x, s), direction=LT, type=TOTALORDER
          ROOT r = f32[3] select(p, x, s) }""",
    "reduce": f"""HloModule m {SUM}
        ENTRY e {{ x = f32[4,8]{{0,1}} parameter(0)
          z = f32[] constant(0)
          r = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add
          w = f32[4,4] reduce-window(x, z), window={{size=1x2 stride=1x2 pad=0_0x0_0}}, to_apply=add
          ROOT t = (f32[4], f32[4,4]) tuple(r, w) }}""",
    "convolution": """HloModule m
        ENTRY e { x = f32[2,8,8,3] parameter(0)
          k = f32[3,3,3,4] parameter(1)
          ROOT c = f32[2,4,8,4] convolution(x, k), window={size=3x3 stride=2x1 pad=0_1x2_2 rhs_dilate=1x2},
            dim_labels=b01f_01io->b01f, operand_precision={high,highest} }""",
    "dot": """HloModule m
        ENTRY e { x = bf16[2,3,4] parameter(0)
          y = bf16[2,4,5] parameter(1)
          ROOT d = f32[2,3,5] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
            rhs_contracting_dims={1}, algorithm=dot_bf16_bf16_f32 }""",
    "gather": f"""HloModule m {SUM}
        ENTRY e {{ x = f32[5,6] parameter(0)
          i = s32[3,1] parameter(1)
          g = f32[3,6] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
            index_vector_dim=1, slice_sizes={{1,6}}, indices_are_sorted=true
          ROOT s = f32[5,6] scatter(x, i, g), update_window_dims={{1}}, inserted_window_dims={{0}},
            scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add, unique_indices=true }}""",
    "control": """HloModule m
        cond { p = (s32[], f32[2]) parameter(0)
          i = s32[] get-tuple-element(p), index=0
          n = s32[] constant(3)
          ROOT c = pred[] compare(i, n), direction=LT }
        body { p = (s32[], f32[2]) parameter(0)
          i = s32[] get-tuple-element(p), index=0
          one = s32[] constant(1)
          j = s32[] add(i, one)
          v = f32[2] get-tuple-element(p), index=1
          w = f32[2] cosine(v)
          ROOT t = (s32[], f32[2]) tuple(j, w) }
        yes { x = (s32[], f32[2]) parameter(0) ROOT g = f32[2] get-tuple-element(x), index=1 }
        no { x = (s32[], f32[2]) parameter(0) h = f32[2] get-tuple-element(x), index=1 ROOT n = f32[2] negate(h) }
        ENTRY e { p = (s32[], f32[2]) parameter(0)
          w = (s32[], f32[2]) while(p), condition=cond, body=body
          f = pred[] parameter(1)
          ROOT r = f32[2] conditional(f, w, w), true_computation=yes, false_computation=no }""",
    "movement": """HloModule m
        ENTRY e { x = f32[4,6] parameter(0)
          z = f32[] constant(-1)
          i = s32[] constant(1)
          s = f32[2,3] slice(x), slice={[0:4:2], [1:4]}
          d = f32[2,3] dynamic-slice(x, i, i), dynamic_slice_sizes={2,3}
          p = f32[4,8] pad(s, z), padding=1_1x2_1_1
          q = f32[3,2] transpose(d), dimensions={1,0}
          k = f32[3,4] concatenate(q, q), dimensions={1}
          v = f32[3,4] reverse(k), dimensions={0}
          n = f32[3,4] iota(), iota_dimension=1
          ROOT t = (f32[4,8], f32[3,4], f32[3,4]) tuple(p, v, n) }""",
    "linear": """HloModule m
        ENTRY e { x = f32[4,4] parameter(0)
          c = f32[4,4] cholesky(x), lower=true
          s = f32[4,4] triangular-solve(c, x), left_side=true, lower=true, transpose_a=TRANSPOSE
          f = c64[4,3] fft(x), fft_type=RFFT, fft_length={4}
          ROOT t = (f32[4,4], c64[4,3]) tuple(s, f) }""",
    "random": """HloModule m
        ENTRY e { a = f32[] constant(0)
          b = f32[] constant(1)
          r = f32[5] rng(a, b), distribution=rng_uniform
          s = u64[2] parameter(0)
          g = (u64[2], u32[7]) rng-bit-generator(s), algorithm=rng_three_fry
          ROOT t = (f32[5], (u64[2], u32[7])) tuple(r, g) }""",
    "collectives": f"""HloModule m {SUM}
        ENTRY e {{ x = f32[4] parameter(0)
          a = f32[4] all-reduce(x), replica_groups={{{{0,1}},{{2,3}}}}, to_apply=add
          b = f32[4] all-reduce(a), channel_id=2, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true,
            to_apply=add
          g = f32[8] all-gather(b), replica_groups={{{{0,1}}}}, dimensions={{0}}
          ROOT p = f32[8] collective-permute(g), source_target_pairs={{{{0,1}},{{1,0}}}} }}""",
    "sort": """HloModule m
        less { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
          ROOT r = pred[] compare(a, b), direction=LT }
        ENTRY e { x = f32[8] parameter(0) y = s32[8] parameter(1)
          ROOT s = (f32[8], s32[8]) sort(x, y), dimensions={0}, is_stable=true, to_apply=less }""",
    "custom call": r"""HloModule m
        ENTRY e { x = f32[2,3]{0,1} parameter(0)
          t = token[] after-all()
          c = f32[2,3]{0,1} custom-call(x, t), custom_call_target="f", operand_layout_constraints={f32[2,3]{0,1},
            token[]}, custom_call_has_side_effect=true, api_version=API_VERSION_TYPED_FFI,
            output_to_operand_aliasing={{}: (0, {})}, backend_config="a\"b\377"
          ROOT o = f32[2,3]{0,1} custom-call(c), custom_call_target="g" }""",
    "fusion": """HloModule m, is_scheduled=true
        fused { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }
        ENTRY e { x = f32[4] parameter(0) y = f32[4] parameter(1)
          f = f32[4] fusion(x), kind=kLoop, calls=fused
          g = f32[4] add(y, y), control-predecessors={f}
          ROOT r = f32[4] add(f, g) }""",
    "annotations": """HloModule m, input_output_alias={ {0}: (1, {}, must-alias) }, buffer_donor={ (0, {}) },
          entry_computation_layout={(f32[4,4]{0,1}, f32[4])->(f32[4], f32[4,4]{0,1})}, frontend_attributes={a="b"}
        ENTRY e { x = f32[4,4] parameter(0), sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate},
            parameter_replication={true}
          y = f32[4] parameter(1), sharding={maximal device=3}, metadata={op_type="t" op_name="n" source_file="f.py"
            source_line=7}
          z = f32[4] negate(y), frontend_attributes={k="v"}, origin={{"q" {1}}}
          ROOT t = (f32[4], f32[4,4]) tuple(z, x), sharding={{replicated}, {devices=[2,2]0,1,2,3}} }""",
    "feeds": """HloModule m
        ENTRY e { t = token[] after-all()
          i = (f32[3], token[]) infeed(t), infeed_config="c"
          v = f32[3] get-tuple-element(i), index=0
          n = token[] get-tuple-element(i), index=1
          o = token[] outfeed(v, n), outfeed_shape=f32[3], outfeed_config="\\001"
          s = (f32[3], u32[], token[]) send(v, o), channel_id=1, is_host_transfer=true
          ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true }""",
    "layouts": """HloModule m
        ENTRY e { x = f32[8,16]{1,0:T(8,128)(2,1)S(1)} parameter(0)
          y = f32[<=8,16]{0,1} parameter(1)
          c = s4[2,3]{0,1} constant({{1,2,3},{-4,-5,7}})
          z = s4[2,3]{0,1:E(4)} parameter(2)
          ROOT t = (f32[8,16]{1,0:T(8,128)(2,1)S(1)}, s4[2,3]{0,1}, s4[2,3]{0,1:E(4)}) tuple(x, c, z) }""",
}


def message(module):
    return schema.parse("HloModuleProto", write_module(module))


def scalar_module(annotations=None):
    root = Instruction(Parameter(number=0), (), make_shape(F32, ()), "x", annotations=annotations or Annotations())
    return HloModule("m", Computation("e", (root,), root))


def constant_module(array):
    literal = Literal.from_numpy(array)
    root = Instruction(Constant(literal=literal), (), literal.shape, "c")
    return HloModule("m", Computation("e", (root,), root))
