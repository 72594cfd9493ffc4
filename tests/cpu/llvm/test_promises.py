"""What code promises LLVM: that nothing else is promised than what promises.py has, and what was promised wrongly."""

import ast
import ctypes
import re
from pathlib import Path

import pytest

import xlakit as xla
from fuzz.large import KINDS, large_program
from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.shared.common_code import PREFIX
from xlakit.cpu.llvm import F32, I64, PTR, VOID, Effort, Module, engine, promises
from xlakit.cpu.llvm.library import Library
from xlakit.cpu.runtime.text import runtime_text
from xlakit.errors import InternalError
from xlakit.formats.hlo_text.parser import parse_module

# Words by which LLVM's text says something of memory, numbers or calls that it may rely on.
WORDS = (
    "noalias|nonnull|dereferenceable|dereferenceable_or_null|readonly|readnone|writeonly|argmemonly|memory|willreturn"
    "|mustprogress|nosync|nofree|norecurse|speculatable|nocapture|captures|returned|noundef|nounwind|noreturn|inrange"
    "|nuw|nsw|exact|disjoint|nneg|samesign|inbounds|nusw|fast|nnan|ninf|nsz|arcp|afn|reassoc|contract"
    r"|invariant\.load|invariant\.group|invariant\.start|range|alias\.scope|tbaa|access\.group|nontemporal"
    "|parallel_accesses|mem_parallel_loop_access|assume|tail|musttail|unnamed_addr|dso_local|unreachable|convergent"
    "|alwaysinline|noinline|cold|naked|poison|undef|dead_on_return|initializes|sret|byval|allocsize|allockind"
)
_WORD = re.compile(rf"(?<![\w.@%])(?:!?\"?(?:llvm\.(?:loop\.)?)?)({WORDS})\b(?!\.)")
_STRINGS = re.compile(r'c"[^"]*"|asm sideeffect "[^"]*", "[^"]*"|@[\w.$-]+')
# Those that sentences have, too.
PROSE = {"range", "memory", "exact", "fast", "tail", "cold", "returned"}
# What is promised, and for noalias where.
PROMISED = {
    *(promises.NO_UNWIND, promises.NO_ALIAS, promises.ALWAYS_INLINE, promises.NO_INLINE, promises.COLD),
    *(promises.ASSEMBLY, promises.BEHIND_ASSEMBLY),
    *("access.group", "parallel_accesses", "nontemporal"),
    *(promises.COUNTS, promises.REASSOCIATES, promises.CONTRACTS, promises.UNDEFINED),
}
UNALIASED = re.compile(r"@(transpose_block_\d+|fft\.lanes\.[\w.]+|xlakit_common\.fft\$[\w.$-]+)\(")


def check(text):
    """Go over IR that was written; gives the words that it has."""
    found = set()
    for line in text.splitlines():
        if line.startswith("!") and "branch_weights" in line:
            continue
        words = set(_WORD.findall(_STRINGS.sub("", line)))
        found |= words
        assert words <= PROMISED, line
        if promises.NO_ALIAS in words:
            assert UNALIASED.search(line), line
        if promises.COUNTS in words:
            assert re.search(r" = add nsw i\d+ %v\d+, \d+$", line), line
        if {promises.REASSOCIATES, promises.CONTRACTS} & words:
            assert re.search(r" = (fadd|fmul|fsub|call) (reassoc|contract) ", line), line
    for function in re.findall(r"^define .*?^}", text, re.MULTILINE | re.DOTALL):
        # What goes round the caches is waited for where the function ends.
        assert "!nontemporal" not in function or re.search(r"sfence\(\).*\n  ret ", function), function[:80]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_programs_promise_nothing_else(kind):
    code = xla.compile(parse_module(large_program(kind, 0, 0).text))._generated_code
    assert promises.NO_UNWIND in check(code.text)
    for name in code.imports:
        if name.startswith(PREFIX):
            check(common_families.text(name))


def test_transforms_promise_that_their_arrays_are_apart():
    text = """HloModule transform
      ENTRY e {
        x = c64[4,1024] parameter(0)
        ROOT y = c64[4,1024] fft(x), fft_type=FFT, fft_length={1024}
      }"""
    code = xla.compile(parse_module(text))._generated_code
    common = [check(common_families.text(name)) for name in code.imports if name.startswith(PREFIX)]
    assert any(promises.NO_ALIAS in found for found in common)


def test_the_runtime_promises_nothing_else():
    assert promises.ALWAYS_INLINE in check(runtime_text())


def test_functions_for_jax_promise_nothing_else():
    pytest.importorskip("jax")
    from xlakit.jax.native.text import slots_text

    check(slots_text(())[0])


def test_the_check_finds_what_is_not_promised():
    good = "define internal void @f(ptr %p0) nounwind {\nentry:\n  ret void\n}\n"
    assert check(good) == {"nounwind"}
    for bad in (
        good.replace("ptr %p0", "ptr noalias %p0"),
        good.replace("ptr %p0", "ptr nonnull %p0"),
        good.replace("ret void", "%v1 = load ptr, ptr %p0, align 8, !invariant.load !1\n  ret void"),
        good.replace("ret void", "%v1 = getelementptr inbounds float, ptr %p0, i64 %v0\n  ret void"),
        good.replace("ret void", "%v1 = add nuw nsw i64 %v0, 1\n  ret void"),
        good.replace("ret void", "store float %v1, ptr %p0, align 32, !nontemporal !0\n  ret void"),
        good.replace("nounwind", "nounwind memory(none)"),
        good.replace("ret void", "call void @llvm.assume(i1 %v1)\n  ret void").replace("@llvm.assume", "assume"),
    ):
        with pytest.raises(AssertionError):
            check(bad)


def test_the_words_stand_in_one_place():
    root = Path(xla.__file__).parent
    for path in [*root.glob("cpu/**/*.py"), *root.glob("jax/native/*.py")]:
        if path.name == "promises.py":
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        prose = {id(d.value) for d in nodes if isinstance(d, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                words = set(_WORD.findall(node.value)) - PROSE
                assert not words, f"{path}:{node.lineno}: {node.value!r}"


# -- what was promised, and did not hold -----------------------------------------------------------


def compiled(write, effort, *parameters):
    module = Module("promises")
    fn = module.function("f", I64, [I64] * len(parameters), external=True)
    write(fn)
    library = Library(f"promises.{effort.value}", engine.compiled(module.text(), effort), ["f"], {})
    code = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(parameters))(library.address("f"))
    return code(*parameters)


@pytest.mark.parametrize("effort", Effort)
def test_loops_may_begin_below_zero(effort):
    """Counting was promised not to pass from the greatest unsigned number to zero: loops that do never ended."""

    def write(fn):
        with fn.loop(*fn.parameters, carried=[fn.i64(0)]) as loop:
            loop.next(loop.carried[0] * 3 + loop.index)
        fn.ret(loop.results[0])

    total = 0
    for index in range(-4, 4):
        total = total * 3 + index
    assert compiled(write, effort, -4, 4) == total


def test_turns_that_are_independent_share_no_memory_on_the_stack():
    module = Module("m")
    keeps = module.function("keeps", VOID, [I64])
    keeps.store(keeps.parameters[0], keeps.alloca(I64))
    keeps.ret()
    fn = module.function("f", VOID, [I64])
    with fn.loop(0, fn.parameters[0], independent=True):
        with pytest.raises(InternalError, match="share"):
            fn.alloca(I64)
        with pytest.raises(InternalError, match="share"):
            fn.call(keeps, VOID, fn.i64(1))
    fn.alloca(I64)
    fn.call(keeps, VOID, fn.i64(1))


def test_what_is_not_in_the_list_is_refused():
    module = Module("m")
    with pytest.raises(InternalError, match="willreturn"):
        module.function("f", VOID, [PTR], attributes=["willreturn"])
    fn = module.function("f", F32, [F32])
    with pytest.raises(InternalError, match="mustprogress"), fn.loop(0, 4, hints=['"llvm.loop.mustprogress"']):
        pass
    fn.fast_math = "fast"
    with pytest.raises(InternalError, match="fast"):
        fn.parameters[0] + 1.0


@pytest.mark.parametrize("bits", [8, 16, 32, 64, 128])
def test_accesses_are_no_more_aligned_than_arrays(bits):
    from xlakit.cpu.llvm import integer

    assert promises.alignment(integer(bits)) == min(bits // 8, 8)
