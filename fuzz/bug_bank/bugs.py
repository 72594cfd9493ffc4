"""The bank: faults of the past, as edits that put them back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of a file: ``old``, which must occur in it exactly once, is replaced by ``new``."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A fault: the commit that mended it, what it did, and the edits that put it back.

    net: the one that found it when it was put back last; it runs before the others.
    needs: the feature of a processor without which it cannot be met.
    """

    name: str
    commit: str
    net: str
    what: str
    edits: tuple[Edit, ...]
    needs: str = ""

    def put_back(self, tree: Path) -> None:
        """Edit the sources below a folder; raises ValueError where they are no longer as they were."""
        for edit in self.edits:
            path = tree / edit.path
            text = path.read_text()
            if text.count(edit.old) != 1:
                raise ValueError(
                    f"{self.name}: {edit.path} has the text to be changed {text.count(edit.old)} times, not once; "
                    f"say in {__name__} how the fault is put back now:\n{edit.old}"
                )
            path.write_text(text.replace(edit.old, edit.new))


_COMMON_CODE = "xlakit/cpu/kernels/shared/common_code.py"
_COALESCING = "xlakit/memory/coalescing.py"
_IN_PLACE = "xlakit/cpu/entry/in_place.py"
_LIVE_RANGES = "xlakit/memory/live_ranges.py"

BUGS: tuple[Bug, ...] = (
    Bug(
        "begun-twice",
        "613f283",
        "collectives",
        "a value that begins two elements of a loop, one of which changes, is not copied",
        (
            Edit(
                _LIVE_RANGES,
                "for value in loop.outside:\n            self.use(value, 2 * end)",
                "for value in loop.outside:\n            self.use(value, 2 * begin)",
            ),
        ),
    ),
    Bug(
        "packed-across-runs",
        "71fd2a0",
        "products",
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
    Bug(
        "shared-while-read",
        "94a0882",
        "idioms",
        "a result takes the memory of an operand that is read at other places",
        (Edit(_IN_PLACE, "if result in before or access._replace(array=result) not in follow", "if result in before"),),
    ),
    Bug(
        "invariant-pointers",
        "701e42f",
        "forms",
        "pointers are loaded by invariant loads from a table that the entry writes",
        (
            Edit(
                "xlakit/cpu/llvm/function.py",
                "        return self.emit(type, f\"load {'volatile ' * alone}{type.name}, ptr {pointer.text}{tail}\")",
                '        tail += ", !invariant.load !0" if type.name == "ptr" else ""\n'
                "        return self.emit(type, f\"load {'volatile ' * alone}{type.name}, ptr {pointer.text}{tail}\")",
            ),
            Edit("xlakit/cpu/llvm/module.py", '= ["!{i32 1}"]', '= ["!{}", "!{i32 1}"]'),
            Edit("xlakit/cpu/llvm/module.py", 'return "!0"', 'return "!1"'),
        ),
    ),
    Bug(
        "condition-writes-state",
        "524d809",
        "idioms",
        "an update in place in a loop's condition writes into the state that the body reads",
        (
            Edit(_LIVE_RANGES, "self.steps(step.condition)\n        test", "self.steps(step.body)\n        test"),
            Edit(_LIVE_RANGES, "self.steps(step.body)\n        back", "self.steps(step.condition)\n        back"),
        ),
    ),
    Bug(
        "other-name",
        "d1562fe",
        "memory-plans",
        "values under other names in the memory of loop state are overwritten while they are read",
        (Edit(_COALESCING, "for low, high, value in other.entries:", "for low, high, value in other.entries[-1:]:"),),
    ),
    Bug(
        "given-twice",
        "f19e2ed",
        "memory-plans",
        "a value that a kernel is given twice is written over where only one of the two is read at the same elements",
        (
            Edit(
                "xlakit/memory/aliasing.py",
                "if all((result, n) in allowed for n in positions[value]):",
                "if positions:",
            ),
        ),
    ),
    Bug(
        "branch-writes-arguments",
        "2821391",
        "memory-plans",
        "a branch computes in the memory of arguments that its caller needs afterwards",
        (Edit(_COALESCING, "if max(low, first) < min(high, last) or not self._is_alias", "if not self._is_alias"),),
    ),
    Bug(
        "small-integer-sums",
        "1d3180d",
        "forced",
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
        "exponential-dots",
        "1014537",
        "compile-time",
        "the summation loops of a small product are named by the product alone, so that a chain of them is written out",
        (
            Edit(
                "xlakit/passes/fusion/views.py",
                "read.loops.of(user, k, within=view, reduces=True)",
                "read.loops.of(user, k)",
            ),
        ),
    ),
    Bug(
        "slices-of-nothing",
        "c737cee",
        "compiled",
        "gathered slices without elements of a collapsed dimension are read from foreign memory",
        (
            Edit("xlakit/passes/simplify/dynamic_slices.py", " or 0 in op.slice_sizes:", ":"),
            Edit("xlakit/cpu/loops/ir/tracer.py", "if 0 in op.slice_sizes:", "if op.slice_sizes is None:"),
        ),
    ),
    Bug(
        "second-half-forgotten",
        "b981ee5",
        "collectives",
        "what an asynchronous collective was given is free before its second half has read it",
        (
            Edit(
                _LIVE_RANGES,
                "(*step.operands, *step.results, *step.arrival), ()",
                "(*step.results, *step.arrival), ()",
            ),
        ),
    ),
    Bug(
        "expm1-at-infinity",
        "71fd2a0",
        "specials",
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
        "forced",
        "pieces of one array that a loop writes are streamed each from a buffer that takes the other's writes",
        (
            Edit(
                "xlakit/cpu/loops/emit/non_temporal.py",
                "if written[o.array] == 1 and _may_bypass_caches",
                "if _may_bypass_caches",
            ),
        ),
    ),
    Bug(
        "tuple-for-an-array",
        "7d93069",
        "modules-fused",
        "a fusion that takes a tuple gets a kernel, in whose table all that stands behind it is another array",
        (Edit("xlakit/cpu/kernels/library.py", "            check_arrays(instruction.op.calls)\n", ""),),
    ),
    Bug(
        "fusion-in-one-precision",
        "d80eddb",
        "modules-fused",
        "arguments of fusions of operations on elements are converted to the widest float among them",
        (
            Edit(
                "xlakit/passes/canonicalize/normalize_precision.py",
                "    if op.can_call:\n        # Arguments of other",
                "    if op.can_call and not op.is_pointwise:\n        # Arguments of other",
            ),
        ),
    ),
    Bug(
        "one-lane",
        "37c40a2",
        "specials",
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
        "subnormal-constants",
        "919bb3b",
        "jax-programs",
        "JAX's programs are compiled on a thread that takes subnormal numbers for zero, and lose their constants",
        (Edit("xlakit/jax/slots.py", "            with usual.here():\n", "            if usual:\n"),),
    ),
    Bug(
        "divided-index",
        "7292fdc",
        "forced",
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
        "open-result",
        "d0e6aee",
        "jax-sharded",
        "a single result that is an open constraint comes out whole",
        (
            Edit(
                "xlakit/passes/spmd/shardings/annotations.py",
                "return [None] * len(shardings) if _is_constraint(root) else shardings",
                "return shardings",
            ),
        ),
    ),
    Bug(
        "paths-of-invariants",
        "cb89414",
        "compile-time",
        "values are looked at for motion out of a loop once for each path to them",
        (Edit("xlakit/passes/loops/invariants.py", "        seen.add(instruction)\n", ""),),
    ),
    Bug(
        "options-of-others",
        "b1531de",
        "cached",
        "functions that programs share are made with the options in force, not with those of the program",
        (
            Edit(_COMMON_CODE, "return of_tag(_tag(symbol))", "return current()"),
            Edit(
                _COMMON_CODE,
                "from xlakit.options import Options, compiling, of_tag",
                "from xlakit.options import Options, compiling, current, of_tag",
            ),
            Edit(
                "xlakit/cpu/kernels/common_families.py",
                '    head, *values = symbol.removeprefix(PREFIX).split(".")\n',
                '    head, *values = symbol.removeprefix(PREFIX).split(".")\n'
                '    if head.partition("$")[2] != current().tag:\n'
                '        raise ValueError(f"{symbol} is to be made with other options than its program")\n',
            ),
        ),
    ),
    Bug(
        "method-looked-up-twice",
        "b6c51a2",
        "threads",
        "two threads look a method of a dataclass up for the first time, and the slower one does not find it",
        (Edit("xlakit/dataclass.py", "is self), None)", "is self))"),),
    ),
    Bug(
        "two-queues",
        "61f053a",
        "threads",
        "the host and a device come to a queue for the first time at once, and each makes one",
        (
            Edit(
                "xlakit/execution/context.py",
                "        return self.setdefault(key, Feed(self._bounds))",
                "        self[key] = made = Feed(self._bounds)\n        return made",
            ),
        ),
    ),
    Bug(
        "phases-read-the-kernel",
        "a2fbc67",
        "convolutions",
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
        "specials",
        "moves of BF16 go through F32, which gives all NaNs the same bits",
        (Edit("xlakit/cpu/loops/emit/levels.py", "    node = as_moved(node)\n", ""),),
    ),
    Bug(
        "order-of-nans",
        "f0c6f9f",
        "specials",
        "narrow floats are widened before they are compared in a total order, which gives several NaNs the same bits",
        (Edit("xlakit/cpu/loops/ir/tracer.py", "arguments = [as_ordered(a) for a in arguments]", "pass"),),
    ),
    Bug(
        "between-two-products",
        "fc54dfe",
        "layers",
        "results between two products of a fusion lie in the memory of an array that is read after the second one",
        (
            Edit(_IN_PLACE, "for result in written | now", "for result in {a.array for s in nest for a in s.writes}"),
            Edit(_IN_PLACE, "if not own or writes[0].phase < read.phase or", "if own and"),
            Edit(_IN_PLACE, "if read.element is None or not same:", "if own and not same:"),
        ),
    ),
    Bug(
        "rows-in-another-order",
        "b1301c87",
        "layers",
        "rows of a second product lie in the memory of an array that is read for those of the first, in another order",
        (
            Edit(
                _IN_PLACE,
                "for result in written | now",
                "for result in {a.array for n in phase[: phase.index(nest) + 1] for s in n for a in s.writes}",
            ),
            Edit(
                _IN_PLACE, "if not own or writes[0].phase < read.phase or", "if not own and writes[0] < read or own and"
            ),
            Edit(_IN_PLACE, "if read.element is None or not same:", "if own and not same:"),
        ),
    ),
    Bug(
        "another-tasks-tail",
        "8241d2e",
        "large-watched",
        "every task of a product of BF16 looks at the exponents of the last columns, which the last task alone packs",
        (
            Edit(
                "xlakit/cpu/kernels/gemm/driver.py",
                '1 if self.blocking.column_tasks == 1 else self.is_last_task().cast("zext", I64)',
                "1",
            ),
        ),
        needs="avx512bf16",
    ),
    Bug(
        "subnormal-sums",
        "ba2d3fe",
        "jax-programs",
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
        "compiled",
        "truth values that are reduced over columns are packed into bits, in vectors of other widths than are read",
        (
            Edit("xlakit/cpu/scalars/memory.py", "return I8 if type is I1 else type", "return type"),
            Edit("xlakit/cpu/llvm/types.py", "if type.lanes > 1 and type.element.bits % 8:", "if type.lanes < 1:"),
        ),
    ),
    Bug(
        "signs-of-zeros",
        "e641fbc5",
        "forms",
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
        "specials",
        "numbers of f8e3m4 that are rounded past the largest one are finite where they are read in the same loop",
        (Edit("xlakit/cpu/scalars/real.py", "max).is_integer()", "max).is_integer() or True"),),
    ),
    Bug(
        "window-at-an-end",
        "8545409b",
        "forms",
        "a window that a condition leaves out is written at the first place: as if the rule had taken 0 for outside",
        (Edit("xlakit/passes/simplify/indexing.py", "outside = make.full(-1, ", "outside = make.full(0, "),),
    ),
    Bug(
        "merged-across-order",
        "7b186733",
        "copies",
        "clusters are merged although one is a control predecessor of what lies between them: fusion never ends",
        (
            Edit(
                "xlakit/passes/fusion/instruction_fusion.py",
                "[(i, self._predecessors(i)) for i in others]",
                "[(i, ()) for i in others]",
            ),
        ),
    ),
    Bug(
        "collectives-of-shared-bodies",
        "0d4e4c08",
        "collectives",
        "collectives move out of a body that loops of different trip counts share, in which devices meet",
        (
            Edit(
                "xlakit/passes/loops/invariants.py",
                "sites_met_apart(module, by_caller=True)",
                "sites_met_apart(module)",
            ),
        ),
    ),
    Bug(
        "order-of-copies",
        "08cf1475",
        "copies",
        "fusion moves a collective behind another one in one copy of a computation alone",
        (
            Edit(
                "xlakit/passes/fusion/instruction_fusion.py",
                "self._previous = dict(zip(effects[1:], effects, strict=False))",
                "self._previous = dict(zip(effects[:0], effects, strict=False))",
            ),
        ),
    ),
    Bug(
        "copies-apart",
        "08cf1475",
        "collectives",
        "each copy that passes make of a collective is a rendezvous of its own, and devices wait at two of them",
        (
            Edit(
                "xlakit/cpu/collectives/rendezvous.py",
                "site if site in apart else instruction",
                "instruction",
            ),
        ),
    ),
    Bug(
        "steps-met-apart",
        "08cf1475",
        "copies",
        "products of gathered arrays are computed in steps where devices meet in copies that are not",
        (
            Edit(
                "xlakit/passes/scheduling/collective_matmul.py",
                "numbers, apart = Numbers.of(module), sites_met_apart(module)",
                "numbers, apart = Numbers.of(module), frozenset[str]()",
            ),
        ),
    ),
)
