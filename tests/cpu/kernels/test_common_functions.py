"""Functions that programs share: their names, what they compute, and code of several efforts linked together."""

import ctypes
import importlib
from dataclasses import replace

import numpy as np
import pytest

from xlakit import target
from xlakit.cpu.cache.cache_key import runtime_key
from xlakit.cpu.compiler import compile_module
from xlakit.cpu.kernels import common_families
from xlakit.cpu.kernels.fft.lanes import Pass
from xlakit.cpu.kernels.fft.moves import LoadColumns, LoadRows, StoreColumns, StoreRows
from xlakit.cpu.kernels.gemm.address_tables import FillTable
from xlakit.cpu.kernels.gemm.blocking import plan_gemm
from xlakit.cpu.kernels.gemm.driver import emit_gemm
from xlakit.cpu.kernels.gemm.engine import choose_engine
from xlakit.cpu.kernels.gemm.macro_kernel import MacroKernel
from xlakit.cpu.kernels.gemm.operands import ACROSS, ALONG, SINGLE, Direction, Matrix
from xlakit.cpu.kernels.gemm.panels import PackPanels
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.gemm.rows import PackRows
from xlakit.cpu.kernels.gemm.slivers import PackSlivers
from xlakit.cpu.kernels.shared import common, common_code
from xlakit.cpu.llvm import I64, Effort, Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.data.primitive import PrimitiveType as P
from xlakit.formats.hlo_text.parser import parse_module
from xlakit.options import compiling, current

WORD = ctypes.c_int64


pytestmark = pytest.mark.usefixtures("no_chosen_width")


@pytest.mark.parametrize(
    "function",
    [
        FillTable(),
        Pass("float", 8, True),
        LoadColumns("float", False),
        StoreColumns("double", True, True),
        LoadRows("double", 1, False),
        StoreRows("float", 2, True, False),
        MacroKernel(choose_engine(P.F32, P.F32, P.F32), 13, 16, 1, None, P.BF16, P.F32, None, True),
        MacroKernel(choose_engine(P.F32, P.F32, P.F32), 16, 16, 1, 16, None, None, None, True, ahead=True),
        MacroKernel(choose_engine(P.F32, P.F32, P.F32), None, 8, 1, None, P.F32, None, None, False),
        MacroKernel(choose_engine(P.C128, P.C128, P.C128), 2, 2, None, 4, None, None, 3, False),
        MacroKernel(
            choose_engine(P.F32, P.F32, P.F32), 16, 16, 12, 16, None, None, None, True, ahead=True, panels=True
        ),
        PackRows(choose_engine(P.S8, P.S8, P.S32), P.S8, P.S32, ALONG),
        PackPanels(choose_engine(P.F32, P.F32, P.F32), P.BF16, P.F32, ACROSS),
        PackSlivers(choose_engine(P.F8E4M3FN, P.F32, P.F32), P.F8E4M3FN, P.F32, ACROSS, 7, 7),
    ],
    ids=lambda function: function.family,
)
def test_a_name_says_all(function):
    symbol = common.symbol_of(function)
    again = common_families.function_of(symbol)
    assert common.symbol_of(again) == symbol
    assert f"define void @{symbol}(" in common_families.text(symbol)


@pytest.mark.parametrize("family", common_families.FAMILIES)
def test_each_family_is_found_where_its_class_is(family):
    module, name = common_families.FAMILIES[family]
    assert getattr(importlib.import_module(f"xlakit.cpu.kernels.{module}"), name).family == family


def test_what_is_written_in_vectors_takes_no_passes():
    """They took as long as generating the code; what they are to vectorize, or to write out, still gets them."""
    floats = choose_engine(P.F32, P.F32, P.F32)
    efforts = {
        MacroKernel(floats, floats.nr, floats.nr, 1, floats.nr, None, None, None, True): Effort.TIDY,
        PackRows(floats, P.F32, P.F32, ALONG): Effort.TIDY,
        PackRows(floats, P.F32, P.F32, SINGLE): Effort.ALL,
        PackRows(floats, P.BF16, P.F32, ALONG): Effort.ALL,
        PackPanels(floats, P.F32, P.F32, ALONG): Effort.TIDY,
        PackSlivers(floats, P.F32, P.F32, ACROSS, 7, 7): Effort.TIDY,
        PackSlivers(floats, P.F32, P.F32, SINGLE, None, None): Effort.ALL,
        Pass("float", 8, True): Effort.ALL,
    }
    for function, effort in efforts.items():
        assert common_families.part(common.symbol_of(function))[0] is effort, function


def test_packing_is_the_same_for_micro_tiles_of_all_heights():
    """A product with another number of rows took the time to compile what packs its operands again."""
    tiles, packing = set[str](), set[str]()
    for rows in (6, 8, 9):
        dot = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
        text = f"a = f32[{rows},500] parameter(0)\n b = f32[576,500] parameter(1)\n ROOT r = f32[{rows},576] {dot}"
        code = compile_module(parse_module(f"HloModule m\nENTRY e {{\n {text}\n}}"))._generated_code
        tiles |= {name for name in code.imports if name.startswith(f"{common_code.PREFIX}{MacroKernel.family}$")}
        packing |= {name for name in code.imports if name.startswith(f"{common_code.PREFIX}{PackSlivers.family}$")}
    assert (len(tiles), len(packing)) == (3, 1)


def test_products_with_one_block_of_k_and_with_several_share_their_tiles():
    """The function that adds to earlier sums and the one that does not took 25 ms each."""
    left = Matrix(P.F32, Direction(((64, 256),)), Direction(((256, 1),)))
    right = Matrix(P.F32, Direction(((64, 1),)), Direction(((256, 64),)))
    product = Product(left, right, P.F32, Direction(((64, 64),)), Direction(((64, 1),)))
    plan = plan_gemm(product)
    tiles = set[str]()
    for blocks in (1, 2):
        module = Module("gemm")
        emit_gemm(module, product, replace(plan, kc=256 // blocks, k_blocks=blocks))
        tiles |= {name for name in module.declared if MacroKernel.family in name}
    assert len(tiles) == 1


def test_transforms_of_all_lengths_share_what_moves_their_points():
    """A transform of another length took the time to compile it again: 30 ms, and 5 for the calls that are its own."""
    shared = set[frozenset[str]]()
    for points in (256, 4096):
        fft = f"fft(a), fft_type=IFFT, fft_length={{{points}}}"
        text = f"HloModule m\nENTRY e {{\n a = c64[40,{points}] parameter(0)\n ROOT r = c64[40,{points}] {fft}\n}}"
        code = compile_module(parse_module(text))._generated_code
        assert {effort for effort, _ in code.llvm.parts()} == {Effort.LITTLE}
        shared.add(frozenset(name for name in code.imports if "fft_load_" in name or "fft_store_" in name))
    assert list(map(len, shared)) == [2]


@pytest.mark.parametrize("panels", [False, True])
def test_tiles_prefetch_where_their_sums_go_and_the_next_sliver(panels):
    """The sums little by little: a burst held up the first steps of k, by an eighth of a product of 64 steps."""
    engine = choose_engine(P.F32, P.F32, P.F32)
    lines = -(-engine.nr * 4 // 64)
    step = engine.mr if panels else 1
    for ahead in (False, True):
        tiles = MacroKernel(engine, engine.nr, engine.nr, step, engine.nr, None, None, None, True, ahead, panels)
        text = common_families.text(common.symbol_of(tiles))
        # In the loop over the first steps a row of sums; in both loops the next sliver, or before them.
        of_sliver = (2 if panels else 1) if ahead else 0
        assert text.count("call void @llvm.prefetch") == lines + of_sliver


OPTIONS = [{}, {"vector_bytes": 16}, {"plain": "llvm"}, {"sanitize": True}, {"sanitize": True, "vector_bytes": 16}]


@pytest.mark.parametrize("options", [*OPTIONS, *({"cpu": level} for level in target.levels())])
def test_a_name_says_the_options_of_the_code(options):
    """A program that is loaded where other options are in force gets functions made with its own."""
    with compiling(**options):
        symbol = common.symbol_of(FillTable())
        told = common_code.options_of(symbol)
        assert told.tag == current().tag
        made, key = common_families.text(symbol), runtime_key(symbol)
    assert common_families.text(symbol) == made
    assert common_code.key_of(symbol) == key
    assert common_code.resolve(symbol)


def walked(dims, first, count, padded, base=0, scale=1, apart=1, pad=0):
    address = common_code.resolve(common.symbol_of(FillTable()))
    code = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[WORD] * 6, ctypes.c_void_p, WORD, WORD)(address)
    table = np.array(dims, np.int64)
    out = np.full(padded * apart + 1, -1, np.int64)
    code(table.ctypes.data, len(dims), first, count, padded, base, scale, out.ctypes.data, apart, pad)
    assert out[-1] == -1
    return out[:-1]


def test_a_walk_through_three_dimensions():
    sizes, strides = (3, 4, 5), (100, -7, 2)
    places = sum(np.indices(sizes)[d] * strides[d] for d in range(3)).ravel()
    dims = list(zip(sizes, strides, strict=True))
    np.testing.assert_array_equal(walked(dims, 0, 60, 60), places)
    np.testing.assert_array_equal(walked(dims, 13, 29, 29, base=1000, scale=4), 1000 + 4 * places[13:42])


def test_a_walk_is_padded():
    np.testing.assert_array_equal(walked([(9, 3)], 2, 3, 6), [6, 9, 12, 12, 12, 12])
    np.testing.assert_array_equal(walked([(9, 3)], 2, 3, 5, pad=77), [6, 9, 12, 77, 77])
    np.testing.assert_array_equal(walked([(9, 3)], 0, 2, 2, apart=2), [0, -1, 3, -1])


def test_parts_of_all_efforts_are_linked():
    module = Module("efforts")
    names = []
    for number, effort in enumerate(Effort):
        fn = module.function(f"f{number}", I64, [I64])
        fn.effort = effort
        # Else the effort for all is more than it needs.
        fn.has_independent_loops = effort is Effort.ALL
        value = fn.parameters[0] * 10 + number
        table = fn.address(module.shared_data("seven", (7).to_bytes(8, "little")))
        value = value + fn.load(I64, table)
        fn.ret(fn.call(names[-1], I64, value) if names else value)
        names.append(fn.name)
    module.functions[names[-1]].linkage = ""
    parts = module.parts()
    assert sorted((effort for effort, _ in parts), key=list(Effort).index) == list(Effort)
    objects = engine.compile_objects(parts, threads=2)
    library = Library("efforts_test", objects, [names[-1]], {})
    code = ctypes.CFUNCTYPE(WORD, WORD)(library.address(names[-1]))
    expected = 3
    for number in reversed(range(len(names))):
        expected = expected * 10 + number + 7
    assert code(3) == expected


def test_a_module_of_one_effort_is_whole():
    module = Module("one")
    fn = module.function("f", I64, [I64])
    fn.ret(fn.parameters[0])
    assert module.parts() == [(Effort.TIDY, module.text())]


def test_what_has_loops_for_vectors_gets_all_passes_with_what_it_calls():
    module = Module("loops")
    called = module.function("called", I64, [I64])
    called.ret(called.parameters[0] + 1)
    fn = module.function("f", I64, [I64], external=True)
    with fn.loop(0, fn.parameters[0], independent=True):
        pass
    fn.ret(fn.call(called, I64, fn.parameters[0]))
    alone = module.function("g", I64, [I64], external=True)
    alone.ret(alone.parameters[0])
    parts = dict(module.parts())
    assert "@called" in parts[Effort.ALL]
    assert "@f" in parts[Effort.ALL]
    assert "@g" in parts[Effort.TIDY]
