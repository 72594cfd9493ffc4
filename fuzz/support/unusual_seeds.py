"""Programs that combine what generated ones do not: each is a seed of programs that are changed."""

from __future__ import annotations

UNUSUAL: tuple[str, ...] = (
    # Tuples in tuples in a loop, each array in another layout.
    """HloModule m, entry_computation_layout={(f32[3,4,5]{0,2,1}, s32[4,3]{0,1})->(f32[3,4,5]{1,0,2}, (s32[4,3]{1,0}, \
f32[5,3]{0,1}))}
c {
  s = (s32[], (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}), f32[5,3]{0,1}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT r = pred[] compare(i,n), direction=LT
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a,b)
}
b {
  s = (s32[], (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}), f32[5,3]{0,1}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  t = (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}) get-tuple-element(s), index=1
  x = f32[3,4,5]{1,2,0} get-tuple-element(t), index=0
  y = s32[4,3]{0,1} get-tuple-element(t), index=1
  z = f32[5,3]{0,1} get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i,one)
  yb = f32[4,3]{1,0} convert(y)
  yt = f32[3,4]{0,1} transpose(yb), dimensions={1,0}
  yy = f32[3,4,5]{0,1,2} broadcast(yt), dimensions={0,1}
  x2 = f32[3,4,5]{2,0,1} add(x,yy)
  x3 = f32[3,4,5]{1,2,0} copy(x2)
  zero = f32[] constant(0)
  red = f32[3,5]{0,1} reduce(x2,zero), dimensions={1}, to_apply=sum
  rt = f32[5,3]{1,0} transpose(red), dimensions={1,0}
  z2 = f32[5,3]{0,1} add(z,rt)
  y2 = s32[4,3]{0,1} negate(y)
  t2 = (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}) tuple(x3,y2)
  ROOT r = (s32[], (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}), f32[5,3]{0,1}) tuple(j,t2,z2)
}
ENTRY e {
  x = f32[3,4,5]{0,2,1} parameter(0)
  y = s32[4,3]{0,1} parameter(1)
  x1 = f32[3,4,5]{1,2,0} copy(x)
  t = (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}) tuple(x1,y)
  zero = f32[] constant(0)
  z = f32[5,3]{0,1} broadcast(zero), dimensions={}
  i = s32[] constant(0)
  s = (s32[], (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}), f32[5,3]{0,1}) tuple(i,t,z)
  w = (s32[], (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}), f32[5,3]{0,1}) while(s), condition=c, body=b
  wt = (f32[3,4,5]{1,2,0}, s32[4,3]{0,1}) get-tuple-element(w), index=1
  wx = f32[3,4,5]{1,2,0} get-tuple-element(wt), index=0
  wy = s32[4,3]{0,1} get-tuple-element(wt), index=1
  wz = f32[5,3]{0,1} get-tuple-element(w), index=2
  ox = f32[3,4,5]{1,0,2} copy(wx)
  oy = s32[4,3]{1,0} copy(wy)
  o2 = (s32[4,3]{1,0}, f32[5,3]{0,1}) tuple(oy,wz)
  ROOT r = (f32[3,4,5]{1,0,2}, (s32[4,3]{1,0}, f32[5,3]{0,1})) tuple(ox,o2)
}
""",
    # A loop over an array of a size that it computes.
    """HloModule m
c {
  s = (s32[], f32[<=7,3], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[<=7,3] get-tuple-element(s), index=1
  d = s32[] get-dimension-size(x), dimensions={0}
  ROOT r = pred[] compare(i,d), direction=LT
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a,b)
}
b {
  s = (s32[], f32[<=7,3], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[<=7,3] get-tuple-element(s), index=1
  k = s32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i,one)
  z = f32[] constant(0)
  t = f32[3] reduce(x,z), dimensions={0}, to_apply=sum
  tb = f32[7,3] broadcast(t), dimensions={1}
  d = s32[] get-dimension-size(x), dimensions={0}
  d1 = s32[] subtract(d,one)
  d2 = s32[] maximum(d1,one)
  tb2 = f32[<=7,3] set-dimension-size(tb,d2), dimensions={0}
  k2 = s32[] add(k,d)
  ROOT r = (s32[], f32[<=7,3], s32[]) tuple(j,tb2,k2)
}
ENTRY e {
  p = f32[7,3] parameter(0)
  n = s32[] parameter(1)
  x = f32[<=7,3] set-dimension-size(p,n), dimensions={0}
  i = s32[] constant(0)
  t = (s32[], f32[<=7,3], s32[]) tuple(i,x,i)
  ROOT w = (s32[], f32[<=7,3], s32[]) while(t), condition=c, body=b
}
""",
    # A sort of five arrays, whose comparator puts NaN last.
    """HloModule m
cmp {
  a0 = f32[] parameter(0)
  a1 = f32[] parameter(1)
  b0 = bf16[] parameter(2)
  b1 = bf16[] parameter(3)
  c0 = s4[] parameter(4)
  c1 = s4[] parameter(5)
  d0 = c64[] parameter(6)
  d1 = c64[] parameter(7)
  e0 = pred[] parameter(8)
  e1 = pred[] parameter(9)
  na = pred[] compare(a0,a0), direction=NE
  nb = pred[] compare(a1,a1), direction=NE
  lt = pred[] compare(a0,a1), direction=LT
  eq = pred[] compare(a0,a1), direction=EQ
  bothnan = pred[] and(na,nb)
  eq2 = pred[] or(eq,bothnan)
  nna = pred[] not(na)
  l1 = pred[] and(nna,nb)
  less = pred[] or(lt,l1)
  c = pred[] compare(c0,c1), direction=GT
  ec = pred[] and(eq2,c)
  ROOT r = pred[] or(less,ec)
}
ENTRY e {
  a = f32[3,41]{0,1} parameter(0)
  b = bf16[3,41]{1,0} parameter(1)
  c = s4[3,41]{0,1} parameter(2)
  d = c64[3,41]{1,0} parameter(3)
  p = pred[3,41]{0,1} parameter(4)
  ROOT s = (f32[3,41]{1,0}, bf16[3,41]{0,1}, s4[3,41]{1,0}, c64[3,41]{1,0}, pred[3,41]{0,1}) sort(a,b,c,d,p), \
dimensions={1}, is_stable=true, to_apply=cmp
}
""",
    # Reductions and windows of five element types at once.
    """HloModule m
red {
  a = s4[] parameter(0)
  b = bf16[] parameter(1)
  c = c64[] parameter(2)
  d = pred[] parameter(3)
  e = f8e5m2[] parameter(4)
  a2 = s4[] parameter(5)
  b2 = bf16[] parameter(6)
  c2 = c64[] parameter(7)
  d2 = pred[] parameter(8)
  e2 = f8e5m2[] parameter(9)
  x = s4[] add(a,a2)
  y = bf16[] maximum(b,b2)
  z = c64[] add(c,c2)
  w = pred[] xor(d,d2)
  v = f8e5m2[] minimum(e,e2)
  ROOT r = (s4[], bf16[], c64[], pred[], f8e5m2[]) tuple(x,y,z,w,v)
}
ENTRY e {
  a = s4[5,6,3]{0,2,1} parameter(0)
  b = bf16[5,6,3] parameter(1)
  c = c64[5,6,3]{1,2,0} parameter(2)
  d = pred[5,6,3] parameter(3)
  f = f8e5m2[5,6,3]{0,1,2} parameter(4)
  a0 = s4[] constant(3)
  b0 = bf16[] constant(-inf)
  c0 = c64[] constant((1,2))
  d0 = pred[] constant(true)
  f0 = f8e5m2[] constant(inf)
  r = (s4[6], bf16[6], c64[6], pred[6], f8e5m2[6]) reduce(a,b,c,d,f,a0,b0,c0,d0,f0), dimensions={0,2}, \
to_apply=red
  q = (s4[5,3]{0,1}, bf16[5,3], c64[5,3], pred[5,3]{0,1}, f8e5m2[5,3]) reduce(a,b,c,d,f,a0,b0,c0,d0,f0), \
dimensions={1}, to_apply=red
  w = (s4[5,4,3]{0,1,2}, bf16[5,4,3], c64[5,4,3], pred[5,4,3]{0,2,1}, f8e5m2[5,4,3]) \
reduce-window(a,b,c,d,f,a0,b0,c0,d0,f0), window={size=1x3x1}, to_apply=red
  ROOT t = ((s4[6], bf16[6], c64[6], pred[6], f8e5m2[6]), (s4[5,3]{0,1}, bf16[5,3], c64[5,3], pred[5,3]{0,1}, \
f8e5m2[5,3]), (s4[5,4,3]{0,1,2}, bf16[5,4,3], c64[5,4,3], pred[5,4,3]{0,2,1}, f8e5m2[5,4,3])) tuple(r,q,w)
}
""",
    # Scatters of windows that overlap, with reducers that do not commute.
    """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  h = f32[] constant(0.5)
  ah = f32[] multiply(a,h)
  ROOT r = f32[] subtract(ah,b)
}
g {
  a = s16[] parameter(0)
  c = bf16[] parameter(1)
  b = s16[] parameter(2)
  d = bf16[] parameter(3)
  m = s16[] multiply(a,b)
  m2 = s16[] subtract(m,b)
  n = bf16[] subtract(d,c)
  ROOT r = (s16[], bf16[]) tuple(m2,n)
}
ENTRY e {
  x = f32[6,7]{0,1} parameter(0)
  i = s8[5,2]{0,1} parameter(1)
  u = f32[5,2,3]{1,0,2} parameter(2)
  a = s16[6,7] parameter(3)
  c = bf16[6,7]{0,1} parameter(4)
  ua = s16[5,2,3] parameter(5)
  uc = bf16[5,2,3]{0,1,2} parameter(6)
  s = f32[6,7]{0,1} scatter(x,i,u), update_window_dims={1,2}, inserted_window_dims={}, \
scatter_dims_to_operand_dims={1,0}, index_vector_dim=1, to_apply=f
  q = (s16[6,7]{1,0}, bf16[6,7]{0,1}) scatter(a,c,i,ua,uc), update_window_dims={1,2}, inserted_window_dims={}, \
scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=g
  ROOT t = (f32[6,7]{0,1}, (s16[6,7]{1,0}, bf16[6,7]{0,1})) tuple(s,q)
}
""",
    # Integers of two and four bits, in a loop and a product.
    """HloModule m
c {
  s = (u4[], s4[5,3]{0,1}, u2[5,3], s2[]) parameter(0)
  i = u4[] get-tuple-element(s), index=0
  n = u4[] constant(13)
  ROOT r = pred[] compare(i,n), direction=LT
}
sum {
  a = s4[] parameter(0)
  b = s4[] parameter(1)
  ROOT r = s4[] add(a,b)
}
b {
  s = (u4[], s4[5,3]{0,1}, u2[5,3], s2[]) parameter(0)
  i = u4[] get-tuple-element(s), index=0
  x = s4[5,3]{0,1} get-tuple-element(s), index=1
  y = u2[5,3] get-tuple-element(s), index=2
  q = s2[] get-tuple-element(s), index=3
  one = u4[] constant(1)
  j = u4[] add(i,one)
  is = s4[] convert(i)
  ib = s4[5,3]{0,1} broadcast(is), dimensions={}
  x2 = s4[5,3]{0,1} multiply(x,ib)
  ys = s4[5,3]{1,0} convert(y)
  x3 = s4[5,3]{0,1} subtract(x2,ys)
  z = s4[] constant(-7)
  r1 = s4[3] reduce(x3,z), dimensions={0}, to_apply=sum
  r2 = s4[5,3]{0,1} broadcast(r1), dimensions={1}
  x4 = s4[5,3]{0,1} xor(x3,r2)
  y2 = u2[5,3] convert(x4)
  y3 = u2[5,3] subtract(y,y2)
  q1 = s2[] constant(-2)
  q2 = s2[] subtract(q1,q)
  sh = s4[5,3]{0,1} shift-right-arithmetic(x4,ys)
  ROOT r = (u4[], s4[5,3]{0,1}, u2[5,3], s2[]) tuple(j,sh,y3,q2)
}
ENTRY e {
  x = s4[5,3]{0,1} parameter(0)
  y = u2[5,3] parameter(1)
  q = s2[] parameter(2)
  i = u4[] constant(0)
  t = (u4[], s4[5,3]{0,1}, u2[5,3], s2[]) tuple(i,x,y,q)
  w = (u4[], s4[5,3]{0,1}, u2[5,3], s2[]) while(t), condition=c, body=b
  a = s4[5,3]{0,1} get-tuple-element(w), index=1
  b1 = u2[5,3] get-tuple-element(w), index=2
  at = s4[3,5] transpose(a), dimensions={1,0}
  d = s4[5,5] dot(a,at), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d32 = s32[5,5]{0,1} dot(a,at), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = ((u4[], s4[5,3]{0,1}, u2[5,3], s2[]), s4[5,5], s32[5,5]{0,1}) tuple(w,d,d32)
}
""",
    # Windows with dilated arrays, in half precision.
    """HloModule m
sum {
  a = f16[] parameter(0)
  b = f16[] parameter(1)
  ROOT r = f16[] add(a,b)
}
mx {
  a = f16[] parameter(0)
  b = f16[] parameter(1)
  ROOT r = f16[] maximum(a,b)
}
ENTRY e {
  x = f16[3,7,6]{1,2,0} parameter(0)
  z = f16[] constant(0)
  i = f16[] constant(-inf)
  a = f16[3,13,18]{0,1,2} reduce-window(x,z), window={size=1x2x3 pad=0_0x1_0x2_2 lhs_dilate=1x2x3 \
rhs_dilate=1x1x1}, to_apply=sum
  b = f16[7,9,2]{2,0,1} reduce-window(x,i), window={size=2x3x2 stride=1x2x3 pad=1_2x4_4x0_1 lhs_dilate=2x2x1 \
rhs_dilate=1x2x2}, to_apply=mx
  ROOT t = (f16[3,13,18]{0,1,2}, f16[7,9,2]{2,0,1}) tuple(a,b)
}
""",
    # Collectives in a loop, their arrays in unusual layouts.
    """HloModule m, replica_count=2
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a,b)
}
c {
  s = (s32[], f32[4,3]{0,1}, f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT r = pred[] compare(i,n), direction=LT
}
b {
  s = (s32[], f32[4,3]{0,1}, f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i,one)
  x = f32[4,3]{0,1} get-tuple-element(s), index=1
  y = f32[2,3] get-tuple-element(s), index=2
  ar = f32[4,3]{0,1} all-reduce(x), replica_groups={{0,1}}, to_apply=sum
  rs = f32[2,3]{0,1} reduce-scatter(ar), dimensions={0}, replica_groups={}, to_apply=sum
  y2 = f32[2,3]{1,0} add(rs,y)
  ag = f32[4,3]{1,0} all-gather(y2), dimensions={0}, replica_groups={{1,0}}
  cp = f32[4,3]{0,1} collective-permute(ag), source_target_pairs={{0,1},{1,0}}
  h = f32[] constant(0.25)
  hb = f32[4,3]{0,1} broadcast(h), dimensions={}
  x2 = f32[4,3]{0,1} multiply(cp,hb)
  a2a = f32[4,3]{0,1} all-to-all(x2), dimensions={0}, replica_groups={{0,1}}
  ROOT t = (s32[], f32[4,3]{0,1}, f32[2,3]) tuple(j,a2a,y2)
}
ENTRY e {
  x = f32[4,3]{0,1} parameter(0)
  y = f32[2,3] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[4,3]{0,1}, f32[2,3]) tuple(z,x,y)
  ROOT w = (s32[], f32[4,3]{0,1}, f32[2,3]) while(t), condition=c, body=b
}
""",
    # A loop of branches that give and take dynamic sizes.
    """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a,b)
}
lt {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a,b), direction=LT, type=TOTALORDER
}
y {
  p = f32[<=9] parameter(0)
  ROOT s = f32[<=9] sort(p), dimensions={0}, is_stable=true, to_apply=lt
}
n {
  p = f32[<=9] parameter(0)
  d = s32[] get-dimension-size(p), dimensions={0}
  two = s32[] constant(2)
  h = s32[] divide(d,two)
  q = f32[<=9] set-dimension-size(p,h), dimensions={0}
  ROOT r = f32[<=9] negate(q)
}
c {
  s = (s32[], f32[<=9], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT r = pred[] compare(i,n), direction=LT
}
b {
  s = (s32[], f32[<=9], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i,one)
  x = f32[<=9] get-tuple-element(s), index=1
  f = f32[] get-tuple-element(s), index=2
  two = s32[] constant(2)
  m = s32[] remainder(i,two)
  q = f32[<=9] conditional(m,x,x), branch_computations={y,n}
  z = f32[] constant(0)
  r = f32[] reduce(q,z), dimensions={0}, to_apply=sum
  f2 = f32[] add(f,r)
  ROOT t = (s32[], f32[<=9], f32[]) tuple(j,q,f2)
}
ENTRY e {
  p = f32[9] parameter(0)
  k = s32[] constant(7)
  x = f32[<=9] set-dimension-size(p,k), dimensions={0}
  i = s32[] constant(0)
  z = f32[] constant(0)
  t = (s32[], f32[<=9], f32[]) tuple(i,x,z)
  ROOT w = (s32[], f32[<=9], f32[]) while(t), condition=c, body=b
}
""",
    # A fusion that takes and gives nested tuples.
    """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a,b)
}
f1 {
  a = f32[3,5,2]{1,0,2} parameter(0)
  t = (f32[5,3]{0,1}, s16[3]) parameter(1)
  b = f32[5,3]{0,1} get-tuple-element(t), index=0
  k = s16[3] get-tuple-element(t), index=1
  bt = f32[3,5]{1,0} transpose(b), dimensions={1,0}
  bb = f32[3,5,2]{0,2,1} broadcast(bt), dimensions={0,1}
  s = f32[3,5,2]{2,1,0} add(a,bb)
  z = f32[] constant(0)
  r = f32[3,2]{0,1} reduce(s,z), dimensions={1}, to_apply=sum
  kf = f32[3] convert(k)
  kb = f32[3,2] broadcast(kf), dimensions={0}
  r2 = f32[3,2]{1,0} multiply(r,kb)
  bc = s32[3,5,2]{0,1,2} bitcast-convert(s)
  in = (s32[3,5,2]{0,1,2}, f32[3,2]{0,1}) tuple(bc,r)
  ROOT o = (f32[3,2]{1,0}, (s32[3,5,2]{0,1,2}, f32[3,2]{0,1})) tuple(r2,in)
}
ENTRY e {
  a = f32[3,5,2]{1,0,2} parameter(0)
  b = f32[5,3]{0,1} parameter(1)
  k = s16[3] parameter(2)
  t = (f32[5,3]{0,1}, s16[3]) tuple(b,k)
  f = (f32[3,2]{1,0}, (s32[3,5,2]{0,1,2}, f32[3,2]{0,1})) fusion(a,t), kind=kLoop, calls=f1
  i = (s32[3,5,2]{0,1,2}, f32[3,2]{0,1}) get-tuple-element(f), index=1
  i0 = s32[3,5,2]{0,1,2} get-tuple-element(i), index=0
  i1 = f32[3,2]{0,1} get-tuple-element(i), index=1
  fl = s32[30] reshape(i0)
  ROOT r = (s32[30], f32[3,2]{0,1}, (f32[3,2]{1,0}, (s32[3,5,2]{0,1,2}, f32[3,2]{0,1}))) tuple(fl,i1,f)
}
""",
    # Floats of eight bits in a loop, a product, a window.
    """HloModule m
s {
  a = f8e5m2[] parameter(0)
  b = f8e5m2[] parameter(1)
  ROOT r = f8e5m2[] maximum(a,b)
}
c {
  s = (s32[], f8e5m2[5,7]{0,1}, f32[5,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i,n), direction=LT
}
b {
  s = (s32[], f8e5m2[5,7]{0,1}, f32[5,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i,one)
  x = f8e5m2[5,7]{0,1} get-tuple-element(s), index=1
  d0 = f32[5,5] get-tuple-element(s), index=2
  d = f32[5,5]{0,1} dot(x,x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  d2 = f32[5,5] add(d0,d)
  x2 = f8e5m2[5,7]{0,1} add(x,x)
  x3 = f8e5m2[5,7]{1,0} minimum(x2,x)
  xr = f8e5m2[5,7]{0,1} reverse(x3), dimensions={0}
  ROOT t = (s32[], f8e5m2[5,7]{0,1}, f32[5,5]) tuple(j,xr,d2)
}
ENTRY e {
  x = f8e5m2[5,7]{0,1} parameter(0)
  z = f32[] constant(0)
  zb = f32[5,5] broadcast(z), dimensions={}
  i = s32[] constant(0)
  t = (s32[], f8e5m2[5,7]{0,1}, f32[5,5]) tuple(i,x,zb)
  w = (s32[], f8e5m2[5,7]{0,1}, f32[5,5]) while(t), condition=c, body=b
  y = f8e5m2[5,7]{0,1} get-tuple-element(w), index=1
  o = f8e5m2[] constant(1)
  m = f8e5m2[7] reduce(y,o), dimensions={0}, to_apply=s
  rw = f8e5m2[5,6]{0,1} reduce-window(y,o), window={size=1x2}, to_apply=s
  cv = s4[5,7]{0,1} convert(y)
  ROOT r = ((s32[], f8e5m2[5,7]{0,1}, f32[5,5]), f8e5m2[7], f8e5m2[5,6]{0,1}, s4[5,7]{0,1}) tuple(w,m,rw,cv)
}
""",
)
