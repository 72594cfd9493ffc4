"""Chooses the kernel of a fused computation by the loops that it needs.

If the minor dimension is reduced, each row is reduced in vector registers, and code that depends on the result (the
rest of a softmax or a layer norm) follows while the row is in the cache: :mod:`rows`. If it is kept, a strip of results
is accumulated in the cache while the loops over the reduced dimensions run: :mod:`columns`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.llvm import Module
from xlakit.cpu.loops.emit.kernel import Kernel
from xlakit.cpu.loops.emit.levels import Output, output
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Affine, Variable, linear
from xlakit.cpu.loops.ir.nodes import Load, walk
from xlakit.cpu.loops.ir.space import Space, with_splits
from xlakit.cpu.loops.ir.tracer import Index, Source, Tracer
from xlakit.cpu.loops.nests.loop_kernel import loop_kernel
from xlakit.cpu.loops.nests.pieces import emit_pieces, emit_spread
from xlakit.cpu.loops.nests.reduced import Reduced, Root
from xlakit.cpu.loops.nests.regions import emit_nest
from xlakit.data.shape import Shape
from xlakit.ir.instruction import Computation, Instruction
from xlakit.ops.data import Tuple
from xlakit.ops.dynamic import DynamicUpdateSlice
from xlakit.ops.reduction import Reduce
from xlakit.passes.fusion.fusible import is_large_reduction, is_short_row
from xlakit.passes.fusion.stacking import pieces_of


def emit_reduction(
    module: Module,
    name: str,
    sources: dict[Instruction, Source],
    computation: Computation,
    roots: Sequence[Root],
) -> Kernel | None:
    """A kernel for a fusion whose reductions all go over the same dimensions; None for other fusions."""
    # Smaller reductions are emitted inside of the loop over their results.
    reduces = [i for i in computation.instructions if is_large_reduction(i)]
    if not reduces:
        return _emit_short_rows(module, name, sources, computation, roots)
    # Imported here: most fusions have no large reductions.
    from xlakit.cpu.loops.nests.arg_min_max import emit_arg_min_max
    from xlakit.cpu.loops.nests.columns import emit_columns
    from xlakit.cpu.loops.nests.rows import emit_rows

    sizes = reduces[0].operands[0].shape.dimensions
    over = frozenset(reduces[0].op_as(Reduce).dimensions)
    for reduce in reduces[1:]:
        if reduce.operands[0].shape.dimensions != sizes or frozenset(reduce.op_as(Reduce).dimensions) != over:
            return None
    if 0 in sizes:
        return None
    reduced = Reduced(tuple(reduces), sizes, over, tuple(roots), len(sources))
    major = max((d for d in range(len(sizes)) if sizes[d] > 1), default=0)
    if major in over:
        arg_min_max = emit_arg_min_max(module, name, sources, reduced)
        if arg_min_max is not None:
            return arg_min_max
        return emit_rows(module, name, sources, reduced)
    return emit_columns(module, name, sources, reduced)


def _emit_short_rows(
    module: Module,
    name: str,
    sources: dict[Instruction, Source],
    computation: Computation,
    roots: Sequence[Root],
) -> Kernel | None:
    """A kernel for a fusion with results that are as large as the short rows it reduces; None for other fusions.

    Each row is a vector or two. In a loop over all elements, the reduction would be computed element by element.
    """
    reduces = [i for i in computation.instructions if isinstance(i.op, Reduce)]
    if not reduces or not all(is_short_row(i) for i in reduces):
        return None
    sizes, over = reduces[0].operands[0].shape.dimensions, frozenset(reduces[0].op_as(Reduce).dimensions)
    same = all(
        i.operands[0].shape.dimensions == sizes and frozenset(i.op_as(Reduce).dimensions) == over for i in reduces
    )
    if not same or not any(shape.num_elements == math.prod(sizes) for _, _, shape in roots):
        return None
    from xlakit.cpu.loops.nests.rows import emit_rows

    return emit_rows(module, name, sources, Reduced(tuple(reduces), sizes, over, tuple(roots), len(sources)))


# Pieces are computed side by side if that reduces their cost below this fraction.
_SHARED = 0.9


def array_source(array: int, instruction: Instruction) -> Source:
    """The source that loads elements of an array in memory."""
    shape = instruction.shape
    return lambda index, _: Load(shape.element_type, array, linear(index, shape.dimensions), shape.num_elements)


def roots_of(computation: Computation) -> list[tuple[Instruction, int, Shape]]:
    """The results of a computation: for each array, the instruction, which part of its result, and its shape."""
    root = computation.root
    if isinstance(root.op, Tuple):
        return [(operand, 0, operand.shape) for operand in root.operands]
    if root.shape.is_tuple:
        return [(root, part, shape) for part, shape in enumerate(root.shape.tuple_shapes)]
    return [(root, 0, root.shape)]


def check_arrays(computation: Computation) -> None:
    """Raise DeclinedError for tuples as parameters or results, which only another compiler's fusions have.

    A kernel's table has one array for each parameter and each result, so arrays after a tuple would be shifted.
    """
    root = computation.root.shape
    results = root.tuple_shapes_or_self
    for shape in (*(p.shape for p in computation.parameters), *results):
        if not shape.is_array:
            raise DeclinedError(f"no loop is made for a fusion that takes or gives {shape} as one value")


def emit_fusion(module: Module, computation: Computation, name: str) -> Kernel:
    """A kernel whose table has the parameters' arrays, then the results' arrays."""
    parameters = computation.parameters
    roots = roots_of(computation)
    sources: dict[Instruction, Source] = {p: array_source(i, p) for i, p in enumerate(parameters)}
    if len(roots) == 1 and isinstance(roots[0][0].op, DynamicUpdateSlice):
        update = _emit_update(module, name, sources, roots[0][0])
        if update is not None:
            return update
    moved = emit_pieces(module, name, computation) or emit_spread(module, name, computation)
    if moved is not None:
        return Kernel((moved,))
    reduction = emit_reduction(module, name, sources, computation, roots)
    if reduction is not None:
        return reduction

    pieces = _side_by_side(sources, roots)

    def make(space: Space) -> tuple[list[Variable], list[Output]]:
        return _elements(sources, space, roots, pieces)

    return Kernel((emit_nest(module, name, len(parameters) + len(roots), make),))


def _side_by_side(sources: dict[Instruction, Source], roots: Sequence[Root]) -> dict[int, int]:
    """The dimensions that are divided, and into how many pieces, if pieces computed side by side share work."""
    dimensions = roots[0][2].dimensions
    pieces: dict[int, int] = {}
    for root, _, shape in roots:
        if shape.dimensions == dimensions and not root.shape.is_tuple:
            pieces = pieces or pieces_of(root)
    if not pieces:
        return {}
    _, outputs = with_splits(lambda space: _elements(sources, space, roots, pieces))
    apart = sum(element_cost(o.nodes) for o in outputs)
    together = element_cost(n for o in outputs for n in o.nodes)
    return pieces if together < _SHARED * apart else {}


def _elements(
    sources: dict[Instruction, Source], space: Space, roots: Sequence[Root], pieces: Mapping[int, int]
) -> tuple[list[Variable], list[Output]]:
    """The variables of the roots' common dimensions, and the outputs at each index: an element of each piece."""
    tracer = Tracer(sources, space)
    dimensions = roots[0][2].dimensions
    if any(shape.num_elements != roots[0][2].num_elements for _, _, shape in roots):
        raise DeclinedError("no loop is made for results of different numbers of elements")
    axes: list[list[Affine]] = []
    for d, size in enumerate(dimensions):
        count = pieces.get(d, 1)
        index = space.axis(size // count).index
        axes.append([index + k * (size // count) for k in range(count)])
    variables = list(space.variables)
    outputs: list[Output] = []
    for index in itertools.product(*axes):
        offset = linear(index, dimensions)
        for k, (root, part, shape) in enumerate(roots):
            node = tracer.element(root, tracer.reindexed(index, dimensions, shape.dimensions), part)
            outputs.append(output(len(sources) + k, offset, node))
    return variables, outputs


def _emit_update(module: Module, name: str, sources: dict[Instruction, Source], root: Instruction) -> Kernel | None:
    """A dynamic-update-slice of a parameter, in place: only the slice is written, into the operand's memory."""
    target, update, *starts = root.operands
    arrays = list(sources)
    if target not in sources:
        return None

    def make(space: Space) -> tuple[list[Variable], list[Output]]:
        tracer = Tracer(sources, space)
        index: Index = tuple(space.axis(size).index for size in update.shape.dimensions)
        variables = list(space.variables)
        offsets = tracer.starts(starts, target.shape, update.shape.dimensions)
        offset = linear([i + o for i, o in zip(index, offsets, strict=True)], target.shape.dimensions)
        return variables, [output(len(arrays), offset, tracer.element(update, index))]

    variables, outputs = with_splits(make)
    if reads_elsewhere(outputs, arrays.index(target)):
        return None
    phase = loop_kernel(module, name, len(arrays) + 1, variables, outputs)
    return Kernel((phase,), {0: arrays.index(target)})


def reads_elsewhere(outputs: Sequence[Output], array: int) -> bool:
    """Whether a kernel reads an array at another index than it writes in the same iteration."""
    written = {o.offset for o in outputs}
    found = walk(n for o in outputs for n in o.nodes)
    return any(isinstance(n, Load) and n.array == array and n.offset not in written for n in found)
