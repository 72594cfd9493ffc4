"""Loop nests that read across memory."""

import numpy as np
import pytest
from cpu.agreeing import KINDS, agree, numbers

import xlakit as xla
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.non_temporal import has_non_temporal_stores
from xlakit.cpu.loops.nests import loop_kernel
from xlakit.cpu.loops.nests.fusion import emit_fusion
from xlakit.ir.instruction import HloModule
from xlakit.options import Options, compiling


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(64, 64), (33, 130), (257, 19)])
def test_a_matrix_is_transposed(kind, sizes):
    agree(lambda x: xla.transpose(x, [1, 0]), numbers(kind, *sizes))


@pytest.mark.parametrize("permutation", [[0, 2, 1, 3], [0, 2, 3, 1], [3, 1, 2, 0], [2, 3, 0, 1]])
def test_dimensions_change_places(permutation):
    agree(lambda x: xla.transpose(x, permutation), numbers(np.float32, 3, 21, 5, 35))


@pytest.mark.parametrize("sizes", [(3, 1000), (1000, 3), (7, 70), (1, 600)])
def test_short_dimensions_are_written_out(sizes):
    agree(lambda x: xla.transpose(x, [1, 0]) * np.float32(2), numbers(np.float32, *sizes))


@pytest.mark.parametrize("ways", [0, 1, 12])
@pytest.mark.parametrize("sizes", [(4, 3, 64, 25), (26, 2, 64, 3), (2, 5, 21, 40)])
def test_streams_that_are_pages_apart_run_block_by_block(sizes, ways):
    """Short runs of lines that would leave the cache before the next run completes them."""
    with compiling(Options(knobs={"loop_kernel.ways": ways})):
        agree(lambda x: xla.transpose(x, [3, 1, 2, 0]) * np.float32(2), numbers(np.float32, *sizes))
        agree(lambda x: xla.transpose(x, [3, 1, 2, 0]), numbers(np.int8, *sizes))


def test_the_loop_that_completes_lines_runs_inside_of_blocks(monkeypatch):
    blocks: list[int] = []
    written = loop_kernel._in_blocks
    monkeypatch.setattr(loop_kernel, "_in_blocks", lambda *given: (blocks.append(1), written(*given)))
    agree(lambda x: xla.transpose(x, [3, 1, 2, 0]) * np.float32(2), numbers(np.float32, 4, 16, 256, 24))
    assert blocks


@pytest.mark.parametrize("kind", [np.int8, np.float32, np.complex64])
@pytest.mark.parametrize("sizes", [(64, 128), (101, 75), (2, 40, 90)])
def test_a_large_result_goes_around_the_caches(kind, sizes):
    x, y = numbers(kind, *sizes), numbers(kind, *sizes[:-2], sizes[-1], sizes[-2], seed=1)
    turned = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
    with compiling(knobs={"non_temporal.least_scattered": 0}):
        agree(lambda x: xla.transpose(x, turned), x)
        agree(lambda x, y: xla.transpose(x, turned) * y, x, y)
        agree(lambda x: xla.convert_element_type(xla.transpose(x, turned), xla.C64), x)
        agree(lambda x, y: xla.concat_in_dim([xla.transpose(x, turned), y], len(sizes) - 1), x, y)


@pytest.mark.parametrize("work", ["copy", "negate"])
@pytest.mark.parametrize("size", [128, 1024])
def test_tiles_go_around_the_caches_if_their_result_leaves_the_second_level(usual_machine, work, size):
    module = HloModule.from_text(
        f"""HloModule m
    ENTRY e {{
        x = f32[{size},1024] parameter(0)
        y = f32[1024,{size}] transpose(x), dimensions={{1,0}}
        ROOT z = f32[1024,{size}] {work}(y)
    }}"""
    )
    made = xla.compile(module, backend="cpu")
    assert ("nontemporal" in made.llvm_ir()) == (size == 1024 and has_non_temporal_stores())


def test_work_is_fused_with_a_transposition():
    x, y, b = numbers(np.float32, 70, 90), numbers(np.float32, 90, 70, seed=1), numbers(np.float32, 70, seed=2)
    agree(lambda x, y, b: xla.transpose(x, [1, 0]) * y + xla.broadcast_in_dim(b, [90, 70], [1]), x, y, b)


def test_two_operands_are_read_across():
    x, y = numbers(np.float32, 70, 90), numbers(np.float32, 70, 90, seed=1)
    agree(lambda x, y: xla.transpose(x, [1, 0]) - xla.transpose(y, [1, 0]), x, y)


def test_what_is_read_across_is_reversed_padded_or_sliced():
    x = numbers(np.float32, 70, 90)
    agree(lambda x: xla.transpose(xla.rev(x, [0, 1]), [1, 0]), x)
    agree(lambda x: xla.pad(xla.transpose(x, [1, 0]), np.float32(7), [(1, 2, 0), (3, 0, 1)]), x)
    agree(lambda x: xla.transpose(xla.slice(x, [3, 5], [60, 77], [1, 2]), [1, 0]), x)


def test_a_transposition_keeps_the_bits_of_nan():
    bits = np.random.default_rng(0).integers(0, 2**32, (80, 80), dtype=np.uint32)
    agree(lambda x: xla.bitcast_convert_type(xla.transpose(x, [1, 0]), xla.U32), bits.view(np.float32))


def test_the_parts_of_one_number_are_no_run_of_memory():
    """The loop over its parts goes round for each element, though all that is read and written would be one loop."""
    agree(lambda x: xla.bitcast_convert_type(xla.broadcast(x, [300]), xla.U8), np.array(0x04030201, np.int32))


@pytest.mark.parametrize("sizes", [(8, 100, 16, 32), (1, 300, 100, 16), (2, 50, 3, 64)])
def test_short_runs_change_places(sizes):
    agree(lambda x: xla.transpose(x, [0, 2, 1, 3]) * np.float32(2), numbers(np.float32, *sizes))


def order(monkeypatch, kind, batch, rows, streams, run):
    """The extents of the loops of a transpose of rows and streams, outer to inner."""
    found = []

    def recorded(*arguments):
        groups = along(*arguments)
        found.append([g.extent for g in groups])
        return groups

    along = loop_kernel._along_memory
    monkeypatch.setattr(loop_kernel, "_along_memory", recorded)
    module = HloModule.from_text(
        f"""HloModule m
    ENTRY e {{
        x = {kind}[{batch},{rows},{streams},{run}] parameter(0)
        ROOT y = {kind}[{batch},{streams},{rows},{run}] transpose(x), dimensions={{0,2,1,3}}
    }}"""
    )
    emit_fusion(Module("m"), module.entry, "transpose")
    return found[0]


@pytest.mark.parametrize(
    ("kind", "rows", "streams", "run"),
    [("f32", 512, 100, 16), ("s8", 512, 3, 24), ("s8", 500, 100, 40), ("f64", 512, 4, 4)],
)
def test_memory_is_read_in_order_where_written_lines_stay_in_the_cache(monkeypatch, kind, rows, streams, run):
    assert order(monkeypatch, kind, 2, rows, streams, run) == [2, rows, streams, run]


@pytest.mark.parametrize(
    ("kind", "rows", "run"), [("s8", 512, 32), ("f32", 512, 8), ("f64", 1024, 4), ("bf16", 512, 24)]
)
def test_parts_of_lines_in_one_set_are_written_one_after_another(monkeypatch, kind, rows, run):
    assert order(monkeypatch, kind, 2, rows, 100, run) == [2, 100, rows, run]
