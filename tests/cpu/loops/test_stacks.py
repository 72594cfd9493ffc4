"""Stacks and stencils: what pieces share is computed once, and nothing is computed again without limit."""

import numpy as np
import pytest
from cpu.agreeing import numbers

import xlakit as xla
from fuzz.modules import difference

SINE = "@math.sin."


def compiled(text):
    """The program on the compiled backend, where it gives what the interpreter gives."""
    module = xla.HloModule.from_text(text)
    executable = xla.compile(module, backend="cpu")
    values = [numbers(np.float32, *p.shape.dimensions) for p in module.entry.parameters]
    assert not difference(executable(*values), xla.compile(module, backend="interpreter")(*values))
    return executable


def calls(executable, function):
    """How often its code calls a function, at how many places."""
    return sum(" call " in line and function in line for line in executable.llvm_ir(optimized=False).splitlines())


def stacked(stages, count, dimension, size=512):
    """``s <- s + stack(sin(s[0]) * s[1], sin(s[1]) * s[2], ..)``, so often."""
    shape = [size]
    shape.insert(dimension, count)
    thin = [1 if d == dimension else n for d, n in enumerate(shape)]
    whole, part = (f"f32[{','.join(map(str, s))}]" for s in (shape, thin))
    text = f"HloModule stacked\nENTRY e {{\n  s0 = {whole} parameter(0)\n"
    for n in range(stages):
        for k in range(count):
            ranges = ", ".join(f"[{k}:{k + 1}]" if d == dimension else f"[0:{m}]" for d, m in enumerate(shape))
            text += f"  x{n}_{k} = {part} slice(s{n}), slice={{{ranges}}}\n"
        for k in range(count):
            text += f"  v{n}_{k} = {part} sine(x{n}_{k})\n"
            text += f"  w{n}_{k} = {part} multiply(v{n}_{k}, x{n}_{(k + 1) % count})\n"
        pieces = ", ".join(f"w{n}_{k}" for k in range(count))
        text += f"  k{n} = {whole} concatenate({pieces}), dimensions={{{dimension}}}\n"
        text += f"  s{n + 1} = {whole} add(s{n}, k{n})\n"
    return text.replace(f"  s{stages} =", f"  ROOT s{stages} =") + "}\n"


@pytest.mark.parametrize(("count", "dimension"), [(2, 0), (3, 1), (8, 0)])
def test_what_the_pieces_of_a_stack_share_is_computed_once(count, dimension):
    stages = 4
    assert calls(compiled(stacked(stages, count, dimension)), SINE) == stages * count


def test_pieces_of_pieces_are_computed_once():
    text = """HloModule nested
      ENTRY e {
        x = f32[512] parameter(0)
        y = f32[512] parameter(1)
        a = f32[512] sine(x)
        b = f32[512] multiply(a, y)
        c = f32[512] sine(b)
        d = f32[512] add(a, c)
        a1 = f32[1,512] reshape(a)
        b1 = f32[1,512] reshape(b)
        c1 = f32[1,512] reshape(c)
        d1 = f32[1,512] reshape(d)
        ab = f32[2,512] concatenate(a1, b1), dimensions={0}
        cd = f32[2,512] concatenate(c1, d1), dimensions={0}
        ab1 = f32[1,2,512] reshape(ab)
        cd1 = f32[1,2,512] reshape(cd)
        ROOT s = f32[2,2,512] concatenate(ab1, cd1), dimensions={0}
      }"""
    assert calls(compiled(text), SINE) == 2


@pytest.mark.parametrize("size", [1, 512])
def test_pieces_of_several_sizes_are_cut_to_the_least(size):
    text = """HloModule unequal
      ENTRY e {
        s = f32[4,SIZE] parameter(0)
        a = f32[1,SIZE] slice(s), slice={[0:1], [0:SIZE]}
        b = f32[1,SIZE] slice(s), slice={[1:2], [0:SIZE]}
        speeds = f32[2,SIZE] slice(s), slice={[2:4], [0:SIZE]}
        f = f32[1,SIZE] sine(a)
        g = f32[1,SIZE] multiply(f, b)
        k = f32[4,SIZE] concatenate(speeds, f, g), dimensions={0}
        t = f32[4,SIZE] add(s, k)
        c = f32[1,SIZE] slice(t), slice={[3:4], [0:SIZE]}
        h = f32[1,SIZE] sine(c)
        i = f32[1,SIZE] multiply(h, a)
        l = f32[4,SIZE] concatenate(h, i, speeds), dimensions={0}
        ROOT r = f32[4,SIZE] add(t, l)
      }"""
    # Of one place there is no vector, and the function is called.
    function = SINE if size > 1 else SINE + "float.called("
    assert calls(compiled(text.replace("SIZE", str(size))), function) == 2


def stencil(stages, opcode, size=4096):
    """``u <- f(u)[i - 1] - f(u)[i + 2]`` in a circle, so often."""
    text = f"HloModule stencil\nENTRY e {{\n  u0 = f32[{size}] parameter(0)\n"
    for n in range(stages):
        text += f"  f{n} = f32[{size}] {opcode}(u{n})\n"
        for name, at in (("a", size - 1), ("b", 2)):
            text += f"  {name}l{n} = f32[{size - at}] slice(f{n}), slice={{[{at}:{size}]}}\n"
            text += f"  {name}r{n} = f32[{at}] slice(f{n}), slice={{[0:{at}]}}\n"
            text += f"  {name}{n} = f32[{size}] concatenate({name}l{n}, {name}r{n}), dimensions={{0}}\n"
        text += f"  u{n + 1} = f32[{size}] subtract(a{n}, b{n})\n"
    return text.replace(f"  u{stages} =", f"  ROOT u{stages} =") + "}\n"


def test_an_elementary_function_is_not_computed_again_by_each_stage():
    assert calls(compiled(stencil(6, "sine")), SINE) <= 2 * 6


@pytest.mark.parametrize("opcode", ["sine", "negate"])
def test_code_grows_with_the_stages_and_not_with_the_paths_through_them(opcode):
    few, many = (len(compiled(stencil(stages, opcode)).llvm_ir(optimized=False)) for stages in (6, 12))
    assert many < 3 * few


def test_short_rows_of_a_stack_apart_in_memory_are_not_written_out():
    # A transposed operand has the pieces side by side, so a loop around 16 pieces of 8 elements would access 128 of
    # each array in each of its iterations: LLVM compares all of them with all others for seconds.
    text = """HloModule apart
      ENTRY e {
        p = c64[8,16,16] parameter(0)
        q = c64[16] parameter(1)
        t = c64[16,16,8] transpose(p), dimensions={1,2,0}
        b = c64[16,16,8] broadcast(q), dimensions={1}
        first = c64[16,1,8] slice(t), slice={[0:16], [0:1], [0:8]}
        others = c64[16,15,8] slice(t), slice={[0:16], [1:16], [0:8]}
        mirrored = c64[16,15,8] reverse(others), dimensions={1}
        c = c64[16,16,8] concatenate(first, mirrored), dimensions={1}
        m = c64[16,16,8] multiply(b, c)
        ROOT s = c64[16,16,8] add(m, t)
      }"""
    module = xla.HloModule.from_text(text)
    executable = xla.compile(module, backend="cpu")
    values = [numbers(np.complex64, *p.shape.dimensions) for p in module.entry.parameters]
    assert not difference(executable(*values), xla.compile(module, backend="interpreter")(*values))
    # 16 pieces of a real and an imaginary part, each written at one place.
    assert executable.llvm_ir(optimized=False).count("store float") <= 32


def test_short_rows_of_a_stack_that_reads_each_column_once_are_written_out():
    # Six columns of rows of 16 elements: 96 elements apart in an iteration of a loop around the pieces.
    places = (3, 9, 0, 14, 7, 4)
    columns = [f"s{n} = f32[500,1] slice(p), slice={{[0:500], [{k}:{k + 1}]}}" for n, k in enumerate(places)]
    joined = "c = f32[500,6] concatenate(s0, s1, s2, s3, s4, s5), dimensions={1}"
    lines = ["p = f32[500,16] parameter(0)", *columns, joined, "ROOT r = f32[500,6] sqrt(c)"]
    text = "\n".join(["HloModule columns", "ENTRY e {", *lines, "}"])
    executable = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    values = np.square(numbers(np.float32, 500, 16))
    assert np.array_equal(executable(values), np.sqrt(values[:, places]))
    assert executable.llvm_ir(optimized=False).count("store float") == 6
