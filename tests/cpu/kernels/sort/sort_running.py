"""Compiles a sort's phases and runs them, in any split of their tasks."""

import ctypes
import itertools

import numpy as np

import xlakit as xla
from xlakit.builder.xla_builder import trace
from xlakit.cpu.kernels.shared import common_code
from xlakit.cpu.kernels.sort.sort import comparator_less, emit_sort, plan_sort
from xlakit.cpu.llvm import Module, engine
from xlakit.cpu.llvm.library import Library
from xlakit.data.primitive import PrimitiveType
from xlakit.ops.sort import Sort


class Program:
    """Machine code of phases that share a table of arrays."""

    count = 0

    def __init__(self, module, phases, scratch_bytes):
        Program.count += 1
        names = sorted({p.function for p in phases})
        for name in names:
            module.functions[name].linkage = ""
        data = engine.make_object(module.text())
        symbols = {name: address for name in module.declared if (address := common_code.resolve(name)) is not None}
        self.library = Library(f"sort_test_{Program.count}", data, names, symbols)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.phases = [(prototype(self.library.address(p.function)), p.tasks) for p in phases]
        memory = np.full(scratch_bytes + 64, 0xA5, np.uint8)
        self.scratch = memory[-memory.ctypes.data % 64 :]

    def run(self, arrays, parts=1):
        """Run each phase's tasks in ``parts`` calls, the last ones first."""
        pointers = [a.ctypes.data for a in (*arrays, self.scratch)]
        table = (ctypes.c_void_p * len(pointers))(*pointers)
        for function, tasks in self.phases:
            cuts = [tasks * i // parts for i in range(parts + 1)]
            for begin, end in reversed(list(itertools.pairwise(cuts))):
                if begin < end:
                    function(table, begin, end)


def make_sort(comparator, arrays, dimension):
    """The plan and the program of a sort of such arrays."""
    scalars = [xla.Shape(PrimitiveType.from_dtype(a.dtype)) for a in arrays for _ in range(2)]
    called = trace(comparator, scalars).computation if callable(comparator) else comparator
    op = Sort(dimension=dimension, is_stable=True, to_apply=called)
    plan = plan_sort(op, [xla.make_shape(a.dtype, a.shape) for a in arrays])
    module = Module("sort")
    phases = emit_sort(module, plan, comparator_less(called, plan.kinds))
    return plan, Program(module, phases, plan.scratch_bytes)


def same_bits(actual, expected, words=""):
    """Equal to the last bit, NaN and zeros too."""
    actual, expected = (np.ascontiguousarray(a).view(np.uint8) for a in (actual, expected))
    wrong = np.flatnonzero((actual != expected).reshape(-1))
    assert not wrong.size, f"{words}: {wrong.size} bytes differ, the first is {wrong[0]}"
