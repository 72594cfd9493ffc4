"""Faults of machine code: of kernels, loops, functions of elements and what LLVM is told."""

from __future__ import annotations

from fuzz.bug_bank.bug import Bug, Edit

BUGS: tuple[Bug, ...] = (
    Bug(
        "packed-across-runs",
        "71fd2a0",
        ("products", "plain-large"),
        "vectors of packed rows reach from one run of rows into the next",
        (
            Edit(
                "xlakit/cpu/kernels/gemm/blocking.py",
                "row_multiple = math.lcm(engine.mr, engine.lanes) if len(product.lhs.across.dims) > 1 else engine.mr",
                "row_multiple = engine.mr",
            ),
            Edit(
                "xlakit/cpu/kernels/gemm/driver.py",
                "        if len(self.product.lhs.across.dims) <= 1:\n            return True\n",
                "        if len(self.product.lhs.across.dims) >= 1:\n            return True\n",
            ),
        ),
    ),
    # At first only pointers were loaded so, from tables that the entry writes. LLVM makes nothing of these loads now.
    # All loads make the same promise here: of what loops carry it is wrong, too.
    Bug(
        "invariant-loads",
        "701e42f",
        ("idioms", "idioms-plain", "idioms-narrow", "modules"),
        "loads are invariant, of memory that is written where their function is inlined",
        (
            Edit(
                "xlakit/cpu/llvm/function.py",
                "        return self.emit(type, f\"load {'volatile ' * alone}{type.name}, ptr {pointer.text}{tail}\")",
                '        tail += ", !invariant.load !0"\n'
                "        return self.emit(type, f\"load {'volatile ' * alone}{type.name}, ptr {pointer.text}{tail}\")",
            ),
            Edit("xlakit/cpu/llvm/module.py", '= ["!{i32 1}"]', '= ["!{}", "!{i32 1}"]'),
            Edit("xlakit/cpu/llvm/module.py", 'return "!0"', 'return "!1"'),
        ),
    ),
    Bug(
        "small-integer-sums",
        "1d3180d",
        ("forced", "specials", "compiled", "forms"),
        "sums of integers of fewer than eight bits are compared with bits above their range",
        (
            Edit(
                "xlakit/cpu/loops/emit/emitter.py",
                "r if init.kind.is_complex else rounded(self.fn, init.kind, as_real(r))",
                "r if init.kind.is_complex or init.kind.is_integral else rounded(self.fn, init.kind, as_real(r))",
            ),
        ),
    ),
    Bug(
        "slices-of-nothing",
        "c737cee",
        ("compiled", "jax-programs", "forced"),
        "gathered slices without elements of a collapsed dimension are read from foreign memory",
        (
            Edit("xlakit/passes/simplify/dynamic_slices.py", " or 0 in op.slice_sizes:", ":"),
            Edit("xlakit/cpu/loops/ir/tracer.py", "if 0 in op.slice_sizes:", "if op.slice_sizes is None:"),
        ),
    ),
    Bug(
        "expm1-at-infinity",
        "71fd2a0",
        ("specials", "compiled", "math-library"),
        "complex expm1 of an infinite real part without a direction is no NaN",
        (
            Edit(
                "xlakit/cpu/scalars/complex_exponential.py",
                "return where(absolute(x) < 1.0, near, far[0] - 1.0), far[1]",
                "far = where(x.eq(INFINITY) & ~(absolute(y) < INFINITY), x, far[0]), far[1]\n"
                "    return where(absolute(x) < 1.0, near, far[0] - 1.0), far[1]",
            ),
        ),
    ),
    Bug(
        "streamed-pieces",
        "9e25fc7",
        ("forced", "large", "plain-large", "sanitized"),
        "pieces of one array that a loop writes are streamed each from a buffer that takes the other's writes",
        (
            Edit(
                "xlakit/cpu/loops/emit/non_temporal.py",
                "return [o for o in outputs if written[o.array] == 1]",
                "return list(outputs)",
            ),
        ),
    ),
    Bug(
        "tuple-for-an-array",
        "7d93069",
        ("modules-fused", "modules", "legal-mutants"),
        "a fusion that takes a tuple gets a kernel, in whose table all that stands behind it is another array",
        (Edit("xlakit/cpu/kernels/library.py", "            check_arrays(instruction.op.calls)\n", ""),),
    ),
    Bug(
        "one-lane",
        "37c40a2",
        ("specials", "compiled", "forms", "modules"),
        "the imaginary part of real numbers is written for the first element of each vector alone",
        (
            Edit(
                "xlakit/cpu/scalars/apply.py",
                "as_real, rounded, rounded_result, select\n",
                "as_real, register_type, rounded, rounded_result, select\n",
            ),
            Edit(
                "xlakit/cpu/scalars/apply.py", "fn.constant(first.type, 0.0)", "fn.constant(register_type(result), 0.0)"
            ),
            Edit(
                "xlakit/cpu/loops/emit/iterations.py",
                "if self.variable in node.variables and any(",
                "if not self.width and any(",
            ),
        ),
    ),
    Bug(
        "divided-index",
        "7292fdc",
        ("sanitized", "modules", "plain"),
        "an index that is divided is negative where its piece is not chosen, and what is read then is far outside",
        (
            Edit(
                "xlakit/cpu/loops/emit/emitter.py",
                "node.count is None or (is_bounded and low >= 0",
                "node.count is None or (is_bounded in (True, False) and low >= 0",
            ),
        ),
    ),
    Bug(
        "phases-read-the-kernel",
        "a2fbc67",
        ("convolutions", "products", "forced", "large"),
        "phases of a transposed convolution whose rows are positions read the converted kernel as their input",
        (
            Edit(
                "xlakit/cpu/kernels/conv/convolution.py",
                "_with_kernel(p, converted) if p.arrays[0] == _KERNEL else p for p, _ in products",
                "_with_kernel(p, converted) for p, _ in products",
            ),
        ),
    ),
    Bug(
        "bits-of-moved-nans",
        "e900827",
        ("specials", "forms", "compiled"),
        "moves of BF16 go through F32, which gives all NaNs the same bits",
        (Edit("xlakit/cpu/loops/emit/levels.py", "    node = as_moved(node)\n", ""),),
    ),
    Bug(
        "order-of-nans",
        "f0c6f9f",
        ("specials", "compiled", "forms"),
        "narrow floats are widened before they are compared in a total order, which gives several NaNs the same bits",
        (Edit("xlakit/cpu/loops/ir/tracer.py", "arguments = [as_ordered(a) for a in arguments]", "pass"),),
    ),
    Bug(
        "another-tasks-tail",
        "8241d2e",
        ("large-watched", "large", "products", "layers"),
        "tasks of a product of BF16 look at the exponents behind their last sliver, which they do not pack",
        (
            Edit(
                "xlakit/cpu/kernels/gemm/driver.py",
                'slivers = (self._width() + (engine.nr - 1)).integer("udiv", engine.nr)',
                "slivers = self.whole + 1",
            ),
        ),
        needs="avx512bf16",
    ),
    Bug(
        "subnormal-sums",
        "ba2d3fe",
        ("jax-programs", "math-library", "specials"),
        "LLVM folds sums of subnormal constants exactly in programs that take subnormal numbers for zero",
        (
            Edit("xlakit/cpu/llvm/promises.py", "_FLUSHES if current().flush_subnormals else _EITHER_MODE", '""'),
            Edit(
                "xlakit/cpu/scalars/memory.py",
                "< least_normal or not current().flush_subnormals",
                "< least_normal or True",
            ),
        ),
    ),
    Bug(
        "packed-truth-values",
        "61ede1f",
        ("compiled", "forms", "modules", "forced"),
        "truth values that are reduced over columns are packed into bits, in vectors of other widths than are read",
        (
            Edit("xlakit/cpu/scalars/memory.py", "return I8 if type is I1 else type", "return type"),
            Edit("xlakit/cpu/llvm/types.py", "if type.lanes > 1 and type.element.bits % 8:", "if type.lanes < 1:"),
        ),
    ),
    Bug(
        "signs-of-zeros",
        "e641fbc5",
        ("specials", "forms", "compiled"),
        "negations of eight-bit floats that have no negative zero give one where they are read in the same loop",
        (
            Edit(
                "xlakit/cpu/scalars/real.py",
                "kind.bit_width == 8 and not _has_zeros_of_both_signs(kind)",
                "kind.bit_width == 0",
            ),
        ),
    ),
    Bug(
        "rounded-past-the-largest",
        "144871c5",
        ("specials", "forms", "compiled"),
        "numbers of f8e3m4 that are rounded past the largest one are finite where they are read in the same loop",
        (Edit("xlakit/cpu/scalars/real.py", "max).is_integer()", "max).is_integer() or True"),),
    ),
)
