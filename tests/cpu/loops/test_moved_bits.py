"""Narrow floats that only move keep their bits, those of NaNs included; bits that are rotated."""

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.options import compiling

TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e3m4": ml_dtypes.float8_e3m4,
}
OTHERS = {"bf16": "f16", "f16": "bf16", "f8e5m2": "f8e4m3", "f8e4m3": "f8e3m4", "f8e3m4": "f8e5m2"}
# What moves, chooses or reads the bits of x; K is the type, U and W the integers of its width and of twice that, and O
# another float of its width.
PROGRAMS = {
    "slice": "ROOT r = K[3,34] slice(x), slice={[1:4],[2:36]}",
    "transpose": "ROOT r = K[36,5] transpose(x), dimensions={1,0}",
    "reverse": "ROOT r = K[5,36] reverse(x), dimensions={1}",
    "select": "y = K[5,36] reverse(x), dimensions={0} ROOT r = K[5,36] select(p, x, y)",
    "concatenate": "y = K[5,36] reverse(x), dimensions={1} ROOT r = K[10,36] concatenate(x, y), dimensions={0}",
    "pad": "z = K[] constant(nan) ROOT r = K[7,39] pad(x, z), padding=1_1x1_2",
    "broadcast": "ROOT r = K[5,3,36] broadcast(x), dimensions={0,2}",
    "gather": """i = s32[3] constant({4,0,2})
        ROOT r = K[3,36] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
          index_vector_dim=1, slice_sizes={1,36}""",
    "update": """s = K[2,36] slice(x), slice={[3:5],[0:36]} z = s32[] constant(0)
        ROOT r = K[5,36] dynamic-update-slice(x, s, z, z)""",
    "integers": """i = U[5,36] bitcast-convert(x) j = U[5,36] xor(i, i) k = U[5,36] or(i, j)
        ROOT r = K[5,36] bitcast-convert(k)""",
    "the same type": "ROOT r = K[5,36] bitcast-convert(x)",
    "another float": "ROOT r = O[5,36] bitcast-convert(x)",
    "chosen bits": """y = K[5,36] reverse(x), dimensions={0} s = K[5,36] select(p, x, y)
        ROOT r = U[5,36] bitcast-convert(s)""",
    "total order": """y = K[5,36] reverse(x), dimensions={0} s = K[5,36] select(p, x, y)
        ROOT r = pred[5,36] compare(s, y), direction=LT, type=TOTALORDER""",
    "joined": "y = K[5,18,2] reshape(x) ROOT r = W[5,18] bitcast-convert(y)",
    "joined after choices": """y = K[5,36] reverse(x), dimensions={0} n = K[5,36] negate(y) s = K[5,36] select(p, x, n)
        t = K[5,36] add(x, x) c = K[5,36,1] reshape(s) d = K[5,36,1] reshape(t)
        both = K[5,36,2] concatenate(c, d), dimensions={2} ROOT r = W[5,36] bitcast-convert(both)""",
    "split": """y = K[5,18,2] reshape(x) w = W[5,18] bitcast-convert(y) v = W[5,18] not(w)
        ROOT r = K[5,18,2] bitcast-convert(v)""",
}


def numbers(kind):
    """All sorts of bits, every third those of a NaN or of an infinity."""
    dtype = np.dtype(TYPES[kind])
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = np.random.default_rng(5).integers(0, 1 << 8 * dtype.itemsize, (5, 36)).astype(unsigned)
    bits[:, ::3] |= np.asarray(np.inf, dtype).view(unsigned)
    return bits.view(dtype)


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_are_those_of_the_interpreter(name, kind, width):
    size = np.dtype(TYPES[kind]).itemsize
    text = (
        PROGRAMS[name]
        .replace("K[", f"{kind}[")
        .replace("O[", f"{OTHERS[kind]}[")
        .replace("U[", f"u{8 * size}[")
        .replace("W[", f"u{16 * size}[")
    )
    module = xla.HloModule.from_text(f"""HloModule moved
        ENTRY e {{
          x = {kind}[5,36] parameter(0)
          p = pred[5,36] parameter(1)
          {text}
        }}""")
    x, p = numbers(kind), np.random.default_rng(6).random((5, 36)) < 0.5
    with compiling(vector_bytes=width):
        actual = np.asarray(xla.compile(module)(x, p))
    expected = np.asarray(xla.compile(module, backend="interpreter")(x, p))
    as_bits = f"u{actual.dtype.itemsize}"
    narrow = f"u{size}" if name == "joined after choices" else as_bits
    found, wanted = (a.reshape(-1).view(as_bits).view(narrow) for a in (actual, expected))
    differ = found != wanted
    if name == "joined after choices":
        # Arithmetic may give another NaN.
        with np.errstate(invalid="ignore"):
            differ &= ~(np.isnan(found.view(TYPES[kind])) & np.isnan(wanted.view(TYPES[kind])))
    assert not differ.any()


ROTATED = """HloModule rotated
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  a = {kind}[] constant({left})
  up = {kind}[{n}] broadcast(a), dimensions={{}}
  b = {kind}[] constant({right})
  down = {kind}[{n}] broadcast(b), dimensions={{}}
  y = {kind}[{n}] {first}
  l = {kind}[{n}] shift-left(x, up)
  r = {kind}[{n}] {shift}(y, down)
  ROOT o = {kind}[{n}] or({joined})
}}"""


def rotated(kind, left, right, *, n=70, first="copy(x)", shift="shift-right-logical", joined="l, r"):
    """The LLVM IR of two shifts joined, whose results are compared with the interpreter's."""
    text = ROTATED.format(**locals())
    module = xla.HloModule.from_text(text)
    dtype = np.dtype({"s": "i", "u": "u"}[kind[0]] + str(int(kind[1:]) // 8))
    bits = np.random.default_rng(8).integers(0, 256, n * dtype.itemsize, dtype=np.uint8).view(dtype)
    executable = xla.compile(module)
    np.testing.assert_array_equal(executable(bits), xla.compile(module, backend="interpreter")(bits))
    return executable.llvm_ir()


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_two_shifts_that_rotate_are_one_operation(kind, width):
    bits = int(kind[1:])
    with compiling(vector_bytes=width):
        assert "llvm.fshl" in rotated(kind, 13, bits - 13)
        assert "llvm.fshl" in rotated(kind, bits - 1, 1, joined="r, l")


@pytest.mark.parametrize(
    ("kind", "left", "right", "others"),
    [
        ("u32", 13, 18, {}),
        ("u32", 13, 20, {}),
        ("u32", 0, 32, {}),
        ("u32", 32, 0, {}),
        ("u64", 13, 19, {}),
        ("s32", 13, 19, {"shift": "shift-right-arithmetic"}),
        ("u32", 13, 19, {"first": "not(x)"}),
        ("u32", 13, 19, {"joined": "l, l"}),
        ("u16", 13, 3, {}),
    ],
)
def test_other_shifts_that_are_joined_stay(kind, left, right, others):
    assert "llvm.fshl" not in rotated(kind, left, right, **others)
