"""The pipeline: the passes in their order, and the function that runs them."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from xlakit.deprecation import warn_renamed
from xlakit.errors import ArgumentError, meant
from xlakit.ir.instruction import HloModule
from xlakit.ops.communication.collective import Collective
from xlakit.ops.communication.collective_moves import CollectivePermute
from xlakit.ops.communication.collectives import AllGather, AllReduce, ReduceScatter
from xlakit.ops.control import While
from xlakit.ops.convolution import Convolution
from xlakit.ops.dot import Dot
from xlakit.ops.sort import Sort
from xlakit.ops.windows import SelectAndScatter
from xlakit.options import current
from xlakit.passes.batches.forms import has_batch
from xlakit.passes.canonicalize.control_dependencies import ControlDependencies
from xlakit.passes.canonicalize.expand import Expand
from xlakit.passes.canonicalize.inline_calls import InlineCalls
from xlakit.passes.canonicalize.normalize_layouts import NormalizeLayouts
from xlakit.passes.canonicalize.normalize_precision import NormalizePrecision
from xlakit.passes.core.deferred import Deferred, calls, has
from xlakit.passes.core.framework import Pass, PassContext
from xlakit.passes.core.rules import Rule, RulePass, Rules
from xlakit.passes.fusion.instruction_fusion import Fuse
from xlakit.passes.scheduling.peak_memory import may_have_large_peak
from xlakit.passes.simplify.arithmetic import ARITHMETIC
from xlakit.passes.simplify.common_subexpressions import CommonSubexpressions
from xlakit.passes.simplify.control_flow import CONTROL_FLOW
from xlakit.passes.simplify.conversions import CONVERSIONS
from xlakit.passes.simplify.dead_code import DeadCode
from xlakit.passes.simplify.dots import DOTS
from xlakit.passes.simplify.dynamic_slices import DYNAMIC_SLICES
from xlakit.passes.simplify.empty_arrays import EMPTY_ARRAYS
from xlakit.passes.simplify.fold_constants import CONSTANTS
from xlakit.passes.simplify.indexing import INDEXING
from xlakit.passes.simplify.logic import LOGIC
from xlakit.passes.simplify.movement import MOVEMENT
from xlakit.passes.simplify.reductions import REDUCTIONS
from xlakit.passes.simplify.slices import SLICES
from xlakit.passes.simplify.sorts import SORTS
from xlakit.passes.simplify.special_functions import SPECIAL_FUNCTIONS
from xlakit.passes.simplify.windows import WINDOWS
from xlakit.settings import debugged, names_in

# The tables of rules, in the order in which their rules are tried.
TABLES: tuple[Rules, ...] = (
    EMPTY_ARRAYS,
    CONTROL_FLOW,
    ARITHMETIC,
    LOGIC,
    CONVERSIONS,
    SLICES,
    DYNAMIC_SLICES,
    INDEXING,
    REDUCTIONS,
    WINDOWS,
    DOTS,
    MOVEMENT,
    SORTS,
    SPECIAL_FUNCTIONS,
    CONSTANTS,
)

_SIMPLIFY = RulePass(
    "simplify", sum(TABLES, Rules("all")), "apply the rules of all tables together, until none applies"
)


def _of_loops(name: str, module: str, class_name: str) -> Pass:
    return Deferred(name, f"xlakit.passes.loops.{module}", class_name, calls(While))


_PAD_DYNAMIC = Deferred(
    "pad-dynamic",
    "xlakit.passes.dynamic.padding",
    "PadDynamic",
    lambda module: module.is_dynamic,
    left_out_by="",
    is_needed=True,
)
_PACK_INVARIANTS = _of_loops("pack-invariants", "pack_invariants", "PackInvariants")
_WHILE_INVARIANTS = _of_loops("while-invariants", "invariants", "WhileInvariants")
_WHILE_ELEMENTS = _of_loops("while-elements", "carried", "WhileElements")
_UNROLL_LOOPS = _of_loops("unroll-loops", "unroll", "UnrollLoops")
_WHILE_RANGES = _of_loops("while-ranges", "ranges", "WhileRanges")
_WHILE_SUMS = _of_loops("while-sums", "sums", "WhileSums")
_WHILE_OVERWRITTEN = _of_loops("while-overwritten", "overwritten", "WhileOverwritten")
_PARTIAL_SORTS = Deferred(
    "partial-sorts", "xlakit.passes.simplify.partial_sorts", "PartialSorts", has(Sort), left_out_by="fusion"
)
_POOLING_GRADIENTS = Deferred(
    "pooling-gradients",
    "xlakit.passes.simplify.pooling_gradients",
    "PoolingGradients",
    has(SelectAndScatter),
    left_out_by="fusion",
)
_BATCH_MINOR = Deferred(
    "batch-minor", "xlakit.passes.batches.batch_minor", "BatchMinor", has_batch, left_out_by="fusion"
)
_SMALL_PRODUCTS = Deferred(
    "small-products", "xlakit.passes.batches.small_products", "SmallProducts", has(Dot), left_out_by="fusion"
)
_SCATTER_SUMS = Deferred("scatter-sums", "xlakit.passes.scheduling.scatter_sums", "ScatterSums", has(AllReduce))
_COMBINE_COLLECTIVES = Deferred(
    "combine-collectives",
    "xlakit.passes.scheduling.combine_collectives",
    "CombineCollectives",
    has(Collective, CollectivePermute),
)
_COLLECTIVE_MATMUL = Deferred(
    "collective-matmul",
    "xlakit.passes.scheduling.collective_matmul",
    "CollectiveMatmul",
    has(AllGather, ReduceScatter),
)
_EPILOGUES = Deferred(
    "epilogues", "xlakit.passes.fusion.epilogues", "Epilogues", has(Dot, Convolution), left_out_by="fusion"
)
_REMATERIALIZE = Deferred(
    "rematerialize",
    "xlakit.passes.scheduling.rematerialize",
    "Rematerialize",
    may_have_large_peak,
    left_out_by="memory",
)
_OVERLAP_COLLECTIVES = Deferred(
    "overlap-collectives", "xlakit.passes.scheduling.overlap_collectives", "OverlapCollectives"
)
_UNIQUE_NAMES = Deferred(
    "unique-names", "xlakit.passes.canonicalize.unique_names", "UniqueNames", left_out_by="", is_needed=True
)
_PARTITION = Deferred("partition", "xlakit.passes.spmd", "Partition")

# The passes that optimize a program, in the order in which they run.
PIPELINE: tuple[Pass, ...] = (
    ControlDependencies(),
    NormalizeLayouts(),
    NormalizePrecision(),
    _PAD_DYNAMIC,
    Expand(),
    InlineCalls(),
    DeadCode(),
    CommonSubexpressions(),
    _SIMPLIFY,
    # Loops still compute the numbers of devices in their bodies.
    _SCATTER_SUMS,
    _PACK_INVARIANTS,
    _WHILE_INVARIANTS,
    _WHILE_ELEMENTS,
    _UNROLL_LOOPS,
    _WHILE_RANGES,
    # Simplified instructions may be equal now; known branches and unrolled iterations have become calls.
    InlineCalls(),
    CommonSubexpressions(),
    _SIMPLIFY,
    _PARTIAL_SORTS,
    DeadCode(),
    _WHILE_SUMS,
    _WHILE_ELEMENTS,
    _POOLING_GRADIENTS,
    _BATCH_MINOR,
    _SMALL_PRODUCTS,
    _COMBINE_COLLECTIVES,
    _COLLECTIVE_MATMUL,
    # Equal arrays are one after common-subexpressions; each loop needs memory of its own for these.
    _WHILE_OVERWRITTEN,
    Fuse(),
    _EPILOGUES,
    # Fusions have copies of constants, whose originals are dead now.
    DeadCode(),
    _REMATERIALIZE,
)
# The passes that run after the pipeline in programs that span processes.
BETWEEN_PROCESSES: tuple[Pass, ...] = (_OVERLAP_COLLECTIVES, _UNIQUE_NAMES)

# Old names of rules, which switch the rules off for one more version.
RENAMED_RULES = {
    "dynamic-slice-of-known-place": "dynamic-slice-of-known-start",
    "update-of-known-place": "update-of-known-start",
    "scatter-at-known-place": "scatter-at-known-index",
    "extreme-of-itself": "combined-with-itself",
    "extreme-that-never-wins": "min-max-with-identity",
    "extreme-that-always-wins": "min-max-with-absorbing-bound",
    "constants-meet": "reassociate-constants",
    "reshape-later": "sink-reshape",
    "broadcast-later": "sink-broadcast",
    "pad-takes-away": "negative-pad-as-slice",
    "window-one-dimension-after-another": "separate-window-dimensions",
    "long-window-in-two": "split-long-window",
    "reshape-nothing": "identity-reshape",
    "transpose-nothing": "identity-transpose",
    "broadcast-nothing": "identity-broadcast",
    "reverse-nothing": "identity-reverse",
    "slice-nothing": "identity-slice",
    "pad-nothing": "identity-pad",
    "scatter-nothing": "empty-scatter",
    "conditional-of-quick-branches": "conditional-of-cheap-branches",
}
# The passes by name: those of the pipeline, those after it for programs that span processes, the partitioner, which
# runs first in programs with shardings, and a pass for each table of rules, for tests and experiments.
PASSES: dict[str, Pass] = {
    p.name: p for p in (_PARTITION, *PIPELINE, *BETWEEN_PROCESSES, *(RulePass(t.name, t) for t in TABLES))
}

# Called after each pass: its number from 1, its name, and the module before and after it.
Dump = Callable[[int, str, HloModule, HloModule], None]


def run_pipeline(
    module: HloModule,
    passes: Iterable[str | Pass] | None = None,
    disabled: Iterable[str] = (),
    until: str | None = None,
    fuel: int | None = None,
    dump: Dump | None = None,
    *,
    context: PassContext | None = None,
) -> HloModule:
    """Optimize a module. The new module gives the same results; it takes and gives dynamic arrays as padded ones.

    module: the module to optimize; it must be well formed.
    passes: names of passes, or pass objects, in the order in which they run; by default ``PIPELINE``, without the
        passes that the options leave out (:mod:`xlakit.options`).
    disabled: names of passes, tables of rules or rules to leave out, beside those in ``XLAKIT_DISABLE_PASSES``.
    until: the last pass to run: its name, or its number where it runs more than once.
    fuel: stop after so many rewrites; by default ``XLAKIT_FUEL``, or never. Passes that code generation requires do
        not use fuel.
    dump: called after each pass with its number, its name, and the module before and after it.
    context: the shared state of the passes, for a caller that reads the statistics; its fuel and disabled names apply.

    With ``XLAKIT_DEBUG=passes`` each pass's time and rewrites are printed, and the verifier runs after it.
    Raises ArgumentError for unknown names, UnsupportedError for programs that a pass does not handle.
    """
    debug = "passes" in debugged()
    if context is None:
        context = new_context(disabled, fuel)
    chosen = _until(passes_of_options() if passes is None else [_pass_named(p) for p in passes], until)
    # For each pass the module that it left unchanged: running the pass on it again would change nothing.
    left: dict[str, HloModule] = {}
    for number, step in enumerate(chosen, 1):
        if step.name in context.disabled or (context.fuel == 0 and not step.is_needed):
            continue
        before = module
        context.begin(step.name, takes_fuel=not step.is_needed)
        start = time.perf_counter()
        if left.get(step.name) is not module:
            module = step.run(module, context)
            if module is before:
                left[step.name] = module
        if debug:
            _report(step, time.perf_counter() - start, context.statistics[-1][1])
        if context.check:
            module.verify()
        if dump is not None:
            dump(number, step.name, before, module)
    return module


def new_context(disabled: Iterable[str] = (), fuel: int | None = None) -> PassContext:
    """The shared state of passes, as :func:`run_pipeline` makes it; for a caller that reads the statistics.

    Raises ArgumentError for unknown names.
    """
    names = _known([*disabled, *names_in(os.environ.get("XLAKIT_DISABLE_PASSES", ""))])
    return PassContext(fuel=_fuel() if fuel is None else fuel, disabled=names, check="passes" in debugged())


def rules_of(passes: Iterable[Pass]) -> list[Rule]:
    """The rules that these passes apply, each once."""
    return list(dict.fromkeys(r for p in passes if isinstance(p, RulePass) for r in p.rules.rules))


def passes_of_options(*, between_processes: bool = False) -> Sequence[Pass]:
    """The passes of the pipeline that the options do not leave out.

    between_processes: whether the program spans processes, for which more passes follow.
    """
    plain = current().plain
    every = (*PIPELINE, *BETWEEN_PROCESSES) if between_processes else PIPELINE
    return [step for step in every if step.left_out_by not in plain]


def check_choice(disabled: Iterable[str], until: str | None) -> None:
    """Raise ArgumentError for names that :func:`run_pipeline` would refuse."""
    new_context(disabled)
    _until(passes_of_options(), until)


def _pass_named(step: str | Pass) -> Pass:
    if isinstance(step, Pass):
        return step
    found = PASSES.get(step)
    if found is None:
        raise ArgumentError(f"there is no pass '{step}'", hint=meant(step, PASSES, f"known: {', '.join(PASSES)}"))
    return found


def _known(names: Sequence[str]) -> Sequence[str]:
    if not names:
        return names
    rules = rules_of(PASSES.values())
    parts = (name for step in PASSES.values() for name in step.parts)
    known = {*PASSES, *(r.name for r in rules), *(r.table for r in rules), *parts}
    for name in RENAMED_RULES.keys() & names:
        warn_renamed(f"the rule '{name}'", f"'{RENAMED_RULES[name]}'")
    names = [RENAMED_RULES.get(name, name) for name in names]
    for name in names:
        if name not in known:
            hint = meant(name, known, "'xlakit opt --list-passes' lists them")
            raise ArgumentError(f"there is no pass and no rule '{name}'", hint=hint)
    return names


def _until(passes: Sequence[Pass], name: str | None) -> Sequence[Pass]:
    if name is None:
        return passes
    last = next((i for i, p in enumerate(passes) if name in (p.name, str(i + 1))), None)
    if last is None:
        names = dict.fromkeys(p.name for p in passes)
        raise ArgumentError(f"no pass '{name}' runs", hint=meant(name, names, f"these do: {', '.join(names)}"))
    return passes[: last + 1]


def _fuel() -> int | None:
    text = os.environ.get("XLAKIT_FUEL", "")
    if not text:
        return None
    if not text.isdigit():
        raise ArgumentError(
            f"XLAKIT_FUEL is {text!r}, not a number of rewrites", hint="set it to a number such as 100, or unset it"
        )
    return int(text)


def _report(step: Pass, seconds: float, rewrites: Counter[str]) -> None:
    print(f"{step.name:24} {seconds * 1e3:8.1f} ms {sum(rewrites.values()):7} rewrites", file=sys.stderr)
    for rule, count in rewrites.most_common():
        print(f"    {count:7} {rule}", file=sys.stderr)
