"""The programs that are damaged: short, and between them with every kind of attribute that HLO text has."""

from __future__ import annotations

from pathlib import Path

from fuzz.programs.plan import plan

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "hlo"
_LONGEST_EXAMPLE = 12_000

_OWN = (
    # The header, aliases, metadata with stack frames, shardings, frontend attributes.
    """HloModule header, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }, \
entry_computation_layout={(f32[4,2]{1,0}, f32[4,2]{0,1:T(2,128)})->(f32[4,2]{1,0}, f32[4,2]{1,0})}, num_partitions=2, \
frontend_attributes={owner="net",level="3"}

FileNames
1 "model.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY main {
  a = f32[4,2]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}, metadata={op_name="a" stack_frame_id=1}
  b = f32[4,2]{0,1:T(2,128)} parameter(1), sharding={devices=[2,1]0,1}
  s = f32[4,2]{1,0} add(a, b), sharding={replicated}, control-predecessors={a}, frontend_attributes={kind="sum"}
  t = f32[4,2]{1,0} multiply(s, s), metadata={op_type="mul" op_name="sq" source_file="model.py" source_line=7}
  ROOT r = (f32[4,2]{1,0}, f32[4,2]{1,0}) tuple(s, t), sharding={{replicated}, {maximal device=1}}
}
""",
    # Literals of every form.
    """HloModule literals

ENTRY main {
  a = f32[2,3] constant({ { 1, -2.5, nan }, { inf, -inf, 1e-3 } })
  b = pred[4] constant({1, 0, true, false})
  c = c64[2] constant({(1, -2), (0.5, nan)})
  d = s4[3] constant({-8, 7, 0})
  e = bf16[] constant(0.1)
  f = (f32[2], (s32[], u8[1])) constant(({1, 2}, (3, {4})))
  g = f8e4m3fn[2] constant({448, -0})
  h = s32[0,3] constant({ })
  i = f32[6,7] constant({...})
  ROOT r = u64[] constant(18446744073709551615)
}
""",
    # Windows, paddings, slices, dimension numbers.
    """HloModule windows

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY main {
  a = f32[2,8,8,3] parameter(0)
  k = f32[3,3,3,4] parameter(1)
  z = f32[] constant(0)
  c = f32[2,4,4,4] convolution(a, k), window={size=3x3 stride=2x2 pad=1_0x0_1 rhs_reversal=1x0}, \
dim_labels=b01f_01io->b01f, operand_precision={highest,default}
  w = f32[2,3,3,4] reduce-window(c, z), window={size=1x2x2x1 stride=1x1x1x1}, to_apply=sum
  p = f32[2,5,7,4] pad(w, z), padding=0_0x1_1x-1_1_1x0_0
  s = f32[2,2,3,1] slice(p), slice={[0:2], [1:5:2], [0:3], [3:4]}
  m = f32[2,3] reduce(s, z), dimensions={1,3}, to_apply=sum
  ROOT d = f32[3,3] dot(m, m), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
""",
    # Collectives with replica groups in each of their forms, async pairs.
    """HloModule groups, replica_count=4

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

wrapped {
  q = f32[8] parameter(0)
  ROOT n = f32[8] negate(q)
}

ENTRY main {
  a = f32[8] parameter(0)
  b = f32[8] all-reduce(a), replica_groups=[2,2]<=[4], to_apply=sum
  c = f32[16] all-gather(b), dimensions={0}, replica_groups={{0,1},{2,3}}, channel_id=1, use_global_device_ids=true
  d = f32[8] reduce-scatter(c), dimensions={0}, replica_groups=[2,2]<=[2,2]T(1,0), to_apply=sum
  e = f32[8] collective-permute(d), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  f = ((f32[8]), f32[8], u32[]) async-start(e), calls=wrapped
  g = f32[8] async-done(f)
  h = token[] after-all()
  i = (f32[8], u32[], token[]) send(g, h), channel_id=2
  j = token[] send-done(i), channel_id=2
  k = f32[8] custom-call(g), custom_call_target="mine", api_version=API_VERSION_TYPED_FFI, backend_config={"n": [1, 2]}
  ROOT r = f32[8] add-dependency(k, j)
}
""",
    # Control flow, nested tuples, dynamic sizes.
    """HloModule control

low {
  s = (s32[], f32[<=5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT, type=SIGNED
}

next {
  s = (s32[], f32[<=5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[<=5] get-tuple-element(s), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  ROOT t = (s32[], f32[<=5]) tuple(j, x)
}

ENTRY main {
  a = f32[5] parameter(0)
  k = s32[] parameter(1)
  x = f32[<=5] set-dimension-size(a, k), dimensions={0}
  t = (s32[], f32[<=5]) tuple(k, x)
  w = (s32[], f32[<=5]) while(t), condition=low, body=next
  v = (s32[], f32[<=5]) conditional(k, w, w), branch_computations={next, next}
  ROOT r = f32[<=5] get-tuple-element(v), index=1
}
""",
    # Gather and scatter, sort, random bits, fft, linear algebra.
    """HloModule indexing

less {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT c = pred[] compare(x, y), direction=GT, type=TOTALORDER
}

second {
  x = f32[] parameter(0)
  ROOT y = f32[] parameter(1)
}

ENTRY main {
  a = f32[5,5] parameter(0)
  i = s32[2,1] parameter(1)
  g = f32[2,5] gather(a, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, \
slice_sizes={1,5}, indices_are_sorted=true
  s = f32[5,5] scatter(a, i, g), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, \
index_vector_dim=1, unique_indices=true, to_apply=second
  o = f32[5,5] sort(s), dimensions={1}, is_stable=true, to_apply=less
  l = f32[5,5] cholesky(o), lower=true
  t = f32[5,5] triangular-solve(l, o), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
  f = c64[5,3] fft(t), fft_type=RFFT, fft_length={5}
  u = u64[2] constant({1, 2})
  b = (u64[2], u32[3]) rng-bit-generator(u), algorithm=rng_philox
  ROOT r = (c64[5,3], (u64[2], u32[3])) tuple(f, b)
}
""",
    # Annotations that no pass reads, layouts of sparse and of tiled arrays, what a custom call may say.
    """HloModule annotations

wrapped {
  q = f32[4] parameter(0)
  ROOT n = f32[4] negate(q)
}

ENTRY main {
  a = ((), f32[4], (s32[2], ())) parameter(0), origin={((), {"x" {0}}, ({}))}, parameter_replication={true,false}
  b = f32[4] get-tuple-element(a), index=1, statistics={visualizing_index=1,count=12,stat-0=33.3}
  c = f32[6,9]{1,0:D(D,C+)} parameter(1)
  d = bf16[16,20]{1,0:T(8,128)(2,1)SC(0:3,6)S(1)} parameter(2)
  e = f32[4] custom-call(b), custom_call_target="f", window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, \
feature_group_count=2, batch_group_count=3, padding_type=PADDING_VALID, called_computations={wrapped, wrapped}, \
output_to_operand_aliasing={{}: (0, {})}, origin={[synthetic_call]}
  g = f32[4] exponential(e), result_accuracy={tolerance={atol=0.1,rtol=0.2,ulps=3}}, metadata={op_name="a" \
profile_type={1,2} deduplicated_name="b" scheduling_name="c"}
  h = f32[4] call(g), to_apply=wrapped, is_composite=true, frontend_attributes={composite.name="n.m"}
  ROOT r = f32[4] domain(h), domain={kind="sharding", entry={maximal device=0}, exit={}}
}
""",
)


def seed_texts(seed: int) -> list[str]:
    """Programs to damage: those above, one of each operation of ``fuzz.jaxlib``, and the short examples."""
    short = [p.read_text(encoding="utf-8") for p in sorted(_EXAMPLES.glob("*.hlo"))]
    made = [entry.make().text for entry in plan(1, seed)]
    return [*_OWN, *_OWN, *made, *(text for text in short if len(text) <= _LONGEST_EXAMPLE)]
