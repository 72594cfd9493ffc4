"""Fusions of a product and its epilogue, which runs on each block of the product's results while it is in the cache.

The product is a function that writes a rectangle of results and then calls its epilogue: a loop over the rectangle's
elements, or over its rows (``loops/nests/rectangle.py``), which may be followed by a second product with these rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.conv.pad import emit_pad, scratch_bytes
from xlakit.cpu.kernels.gemm.driver import emit_gemm
from xlakit.cpu.kernels.gemm.epilogue import ENTRY, PARAMETERS, EpilogueCall, rectangle_of
from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.gemm.packed_once import emit_packing, packing_phase
from xlakit.cpu.kernels.gemm.product import Product
from xlakit.cpu.kernels.product_fusion.tiling import ProductTiling, product_of_rows, tile_first, tile_second
from xlakit.cpu.kernels.shared.scratch import acquire, release
from xlakit.cpu.llvm import PTR, VOID, Effort, Function, Module, Value
from xlakit.cpu.llvm.promises import NO_INLINE
from xlakit.cpu.loops.emit.accesses import Accesses, Nest
from xlakit.cpu.loops.emit.kernel import Kernel, Phase, kernel_function
from xlakit.cpu.loops.emit.levels import Output
from xlakit.cpu.loops.ir.cost import element_cost
from xlakit.cpu.loops.ir.index import Affine, Node, Variable, linear, of
from xlakit.cpu.loops.ir.nodes import Load
from xlakit.cpu.loops.ir.space import Space, with_splits
from xlakit.cpu.loops.ir.tracer import Index, Source, Tracer
from xlakit.cpu.loops.nests.rectangle import (
    Bounds,
    Directions,
    LocalIndex,
    directions,
    local_index,
    write_elements,
    write_rows,
)
from xlakit.cpu.loops.nests.reduced import Reduced
from xlakit.cpu.loops.nests.rows import Plan, acquire_rows, plan_rows
from xlakit.cpu.scalars.memory import memory_type
from xlakit.ir.instruction import Computation, Instruction
from xlakit.passes.analysis.cost_model import cost_model
from xlakit.passes.fusion.product_chain import Chain, Link, chain_of


def emit_product_fusion(module: Module, computation: Computation, name: str) -> Kernel | None:
    """A kernel for a product with an epilogue; None if the computation is not such a chain."""
    chain = chain_of(computation)
    if chain is None:
        return None
    return _Fusion(module, computation, name, chain).emit()


# -- the fusion ------------------------------------------------------------------------------------


class _Fusion:
    """Writes the kernel of one fusion. Its table has the arrays of parameters and results, and a padded input."""

    def __init__(self, module: Module, computation: Computation, name: str, chain: Chain) -> None:
        self.module, self.name, self.chain = module, name, chain
        self.parameters = {p: n for n, p in enumerate(computation.parameters)}
        self.computation = computation
        beside = self._beside()
        self.tiling = tile_first(chain, reads_beside=bool(beside))
        # Whether all rectangles have the same number of rows.
        self.even = self.tiling.product.sizes[0] % self.tiling.most == 0
        # Whether the weights are stored in the rectangle, maybe also in their array: the second product reads rows past
        # the end.
        self.has_weights = chain.weights is not None and not (self.even and chain.weights in chain.roots)
        self.arrays = len(self.parameters) + len(chain.roots)
        self.product_slot = self._product_slot(beside)
        self.cost = 0.0
        # A nest for each product, with what follows it: block by block of the first product's rows.
        self.nests: list[Nest] = []

    def emit(self) -> Kernel:
        """Write the functions of all phases, and make the kernel."""
        operands = [self._parameter(o) for o in self.chain.first.product.operands]
        reads = Accesses.anywhere(operands)
        follows = self._elements() if not self.chain.reduces else self._rows()
        # The entries of a product's table: operands, result, and the scratch of copied or packed operands.
        product, blocking = self.tiling.product, self.tiling.blocking
        scratch = self.arrays if self.tiling.copies or blocking.packs_once else None
        entries = [*operands, self.product_slot, scratch]
        phases: list[Phase] = []
        for copy in self.tiling.copies:
            pad = self._shared(("pad", copy), lambda name, copy=copy: emit_pad(self.module, copy, 3, name))
            fn = self._calling(pad, entries, None)
            cost = math.prod(copy.padded) * cost_model().multiplication
            phases.append(Phase(fn.name, copy.tasks, cost, nests=((reads,),)))
        if blocking.packs_once:
            packing = self._shared(
                ("packing", product, blocking), lambda name: emit_packing(self.module, product, blocking, name=name)
            )
            fn = self._calling(packing, entries, None)
            phases.append(packing_phase(fn.name, product, blocking, reads))
        fn = self._calling(self._product(self.tiling, EpilogueCall(self.product_slot is None)), entries, follows)
        phases.append(Phase(fn.name, self.tiling.tasks, self.tiling.cost + self.cost, nests=tuple(self.nests)))
        of_scratch = blocking.packed_once_bytes(product) or scratch_bytes(self.tiling.copies)
        return Kernel(tuple(phases), scratch_bytes=of_scratch)

    def _parameter(self, operand: Instruction) -> int:
        number = self.parameters.get(operand)
        if number is None:
            raise DeclinedError("an operand of a fused product that is computed in the fusion")
        return number

    def _beside(self) -> set[Instruction]:
        """The parameters with the size of the product's result that the epilogue reads."""
        count, product = self.chain.first.value.shape.num_elements, self.chain.first.product
        read = {o for i in self.computation.instructions if i is not product for o in i.operands}
        return {o for o in read if o in self.parameters and o.shape.num_elements == count}

    def _product_slot(self, beside: set[Instruction]) -> int | None:
        """The result array that stores the product until the epilogue has used it; None if none is suitable."""
        shape = self.chain.first.value.shape
        bytes, count, value = shape.element_type.byte_width, shape.num_elements, self.chain.first.value
        # A result may share the memory of an operand that the epilogue still reads.
        if self.has_weights or any(o.shape.element_type.byte_width == bytes for o in beside):
            return None
        slots = [
            len(self.parameters) + n
            for n, r in enumerate(self.chain.roots)
            if r not in self.chain.last and r.shape.num_elements == count and r.shape.element_type.byte_width == bytes
        ]
        same_value = [slot for slot in slots if self.chain.roots[slot - len(self.parameters)] is value]
        return next(iter(same_value or slots), None)

    def _shared(self, key: Any, emit: Any) -> str:
        """The name of a function that all kernels of the module with the same key share."""
        name = f"{key[0]}.{hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}"
        if name not in self.module.functions:
            fn: Function = emit(name)
            # Not inlined: its table is on the stack of its caller, which writes it first.
            fn.attributes.append(NO_INLINE)
        return name

    def _product(self, tiling: ProductTiling, epilogue_call: EpilogueCall | None) -> str:
        """The name of the function of a product."""

        def emit(name: str) -> Function:
            return emit_gemm(self.module, tiling.product, tiling.blocking, name=name, epilogue_call=epilogue_call)

        return self._shared(("product", tiling, epilogue_call), emit)

    def _calling(self, function: str, entries: Sequence[int | None], follows: Function | None) -> Function:
        """A task function that calls the function of a product with a table of its own."""
        fn, table, begin, end = kernel_function(self.module, self.name)
        product_table = fn.alloca(PTR, ENTRY + 2, align=8)
        for number, entry in enumerate(entries):
            value = fn.null() if entry is None else fn.pointer(table, entry)
            fn.store(value, fn.at(product_table, PTR, number))
        if follows is not None:
            fn.store(fn.address(follows.name), fn.at(product_table, PTR, ENTRY))
            fn.store(table, fn.at(product_table, PTR, ENTRY + 1))
        fn.call(function, VOID, product_table, begin, end)
        fn.effort = Effort.LITTLE
        return fn

    def _state(self, link: Link, epilogue: Sequence[Accesses], result: int | None) -> None:
        """State that the elements of a product, which may be stored in a result, are computed before its epilogue."""
        operands = [self.parameters[o] for o in link.product.operands if o in self.parameters]
        written = () if result is None else (result,)
        self.nests.append((Accesses.anywhere(operands, written), *epilogue))

    # -- the epilogue ------------------------------------------------------------------------------

    def _begin(self) -> tuple[Function, list[Value], Bounds]:
        """Begin the function of the epilogue; gives it, its arrays, and the ranges of its loops."""
        fn = self.module.function(f"{self.name}.after", VOID, PARAMETERS)
        rectangle = rectangle_of(fn)
        columns, task_columns = self.tiling.product.sizes[1], self.tiling.blocking.task_columns
        whole = fn.i64(0), fn.i64(columns)
        bounds = Bounds(
            rectangle.batch,
            rectangle.rows,
            whole if columns <= task_columns else rectangle.columns,
            math.gcd(columns, task_columns),
        )
        return fn, self._arrays(fn, rectangle.base), bounds

    def _arrays(self, fn: Function, rectangle: Value) -> list[Value]:
        return [*(fn.pointer(fn.parameters[0], n) for n in range(self.arrays)), rectangle]

    def _sources(self) -> dict[Instruction, Source]:
        return {
            p: (lambda index, _, p=p, n=n: Load(p.shape.element_type, n, linear(index, p.shape.dimensions)))
            for p, n in self.parameters.items()
        }

    def _elements(self) -> Function:
        roots = [(r, len(self.parameters) + n) for n, r in enumerate(self.chain.roots)]
        local = _local_index(self.tiling.most, self.tiling.product.sizes[1])
        width = self.tiling.width if self.product_slot is None else None
        where, outputs = with_splits(
            lambda space: self._traced(space, self.chain.first.value, self.tiling.result, roots, local, width)
        )
        self.cost += element_cost([n for o in outputs for n in o.nodes]) * self.chain.first.value.shape.num_elements
        self._state(self.chain.first, [Accesses.of(outputs)], self.product_slot)
        fn, arrays, bounds = self._begin()
        write_elements(fn, arrays, where, bounds, local, outputs)
        return fn

    def _traced(
        self,
        space: Space,
        value: Instruction,
        dims: tuple[Direction, Direction, Direction],
        roots: Sequence[tuple[Instruction, int]],
        local: LocalIndex,
        width: int | None,
    ) -> tuple[Directions, list[Output]]:
        """The results that depend on each element of ``value``, traced.

        width: the stride of the rows of the rectangle; None if it is a part of the result's array.
        """
        sizes = value.shape.dimensions
        index: Index = tuple(space.axis(size).index for size in sizes)
        where = directions(_dims(dims), sizes, _by_dimension(space, len(sizes)))

        def source(read_index: Index, part: int) -> Node:
            if read_index != index:
                raise DeclinedError("an element of a product is needed at another index")
            if width is None:
                return Load(value.shape.element_type, self.product_slot or 0, linear(index, sizes))
            return Load(value.shape.element_type, self.arrays, local_index(local, where, width))

        tracer = Tracer({**self._sources(), value: source}, space)
        outputs: list[Output] = []
        for root, array in roots:
            dimensions = root.shape.dimensions
            node = tracer.element(root, tracer.reindexed(index, sizes, dimensions))
            outputs.append(Output(root.shape.element_type, array, linear(index, sizes), node))
        return where, outputs

    # -- rows --------------------------------------------------------------------------------------

    def _rows(self) -> Function:
        """Write the epilogue of a chain with reductions: row by row, then the second product, if there is one."""
        chain = self.chain
        local = _local_index(self.tiling.most, self.tiling.product.sizes[1])
        roots = [r for r in chain.roots if r not in chain.last]
        stored = [*roots, chain.weights] if self.has_weights and chain.weights is not None else roots
        where, plan = with_splits(lambda space: self._planned(space, stored, local))
        self.cost += element_cost(plan.nodes) * chain.first.value.shape.num_elements
        numbers = {self.arrays + 1 + n: self._array(r) for n, r in enumerate(roots)}
        self._state(chain.first, [a.renumbered(numbers) for a in plan.statement], self.product_slot)
        fn, arrays, bounds = self._begin()
        memory = arrays[-1]
        width = stored[-1].shape.element_type.byte_width
        has_own_memory = self.has_weights and width != self.tiling.product.result.byte_width
        if has_own_memory:
            memory = acquire(fn, self.tiling.most * self.tiling.width * width)
        arrays += [arrays[self._array(r)] for r in roots]
        if self.has_weights:
            arrays.append(memory)
        length = math.prod(v.extent for v in plan.inner_variables)
        release_rows = acquire_rows(fn, arrays, [size * length for size in plan.scratch])
        write_rows(fn, arrays, where, bounds, local, plan)
        release_rows()
        if chain.second is not None and chain.weights is not None:
            weights = memory
            if not self.has_weights:
                first = self._first_element(fn, bounds)
                kind = memory_type(chain.weights.shape.element_type)
                weights = fn.at(arrays[self._array(chain.weights)], kind, first)
            self._second(fn, chain.second, chain.weights, weights, bounds)
        if has_own_memory:
            release(fn, memory)
        return fn

    def _array(self, root: Instruction | None) -> int:
        return len(self.parameters) + next(n for n, r in enumerate(self.chain.roots) if r is root)

    def _first_element(self, fn: Function, bounds: Bounds) -> Value:
        batch, rows, _ = self.tiling.result
        return batch.offset(fn, bounds.batch) + rows.offset(fn, bounds.rows[0])

    def _planned(self, space: Space, roots: Sequence[Instruction], element: LocalIndex) -> tuple[Directions, Plan]:
        """The stages of a row. The weights are the last root if they are stored in the rectangle."""
        chain = self.chain
        value = chain.first.value
        sizes = value.shape.dimensions
        over = frozenset(chain.reduces[0].op.dimensions)  # pyright: ignore[reportAttributeAccessIssue]
        columns = tuple(sizes[d] for d in sorted(over))

        def local(index: Sequence[Affine]) -> Affine:
            return of(element.row, self.tiling.width) + linear([index[d] for d in sorted(over)], columns)

        def source(read_index: Index, part: int) -> Node:
            if self.product_slot is not None:
                return Load(value.shape.element_type, self.product_slot, linear(read_index, sizes))
            return Load(value.shape.element_type, self.arrays, local(read_index))

        reduced = Reduced(chain.reduces, sizes, over, tuple((r, 0, r.shape) for r in roots), self.arrays + 1)
        plan = plan_rows(space, {**self._sources(), value: source}, reduced)
        if self.has_weights:
            array = self.arrays + 1 + len(roots) - 1
            variables = _by_dimension(space, len(sizes))
            index = [_index(v) for v in variables]
            for stage in plan.stages:
                stage.stores = [replace(o, offset=local(index)) if o.array == array else o for o in stage.stores]
        return directions(_dims(self.tiling.result), sizes, _by_dimension(space, len(sizes))), plan

    # -- the second product ------------------------------------------------------------------------

    def _second(self, fn: Function, link: Link, weights: Instruction, rows: Value, bounds: Bounds) -> None:
        """Multiply the rows of ``weights``, which begin at ``rows``, and store the second epilogue of the results."""
        whole = product_of_rows(link, weights)
        direct = self.even and self.chain.last == (link.value,) and len(whole.rows.dims) < 2
        tiling = tile_second(whole, self.tiling.most, local=not direct)
        other = next(o for o in link.product.operands if o is not weights)
        columns = tiling.product.sizes[1]
        table = fn.parameters[0]
        array = fn.pointer(table, self._parameter(other))
        right = fn.at(array, memory_type(whole.rhs.kind), whole.batches[1].offset(fn, bounds.batch))
        if direct:
            pointer = fn.pointer(table, self._array(link.value))
            first = whole.batches[2].offset(fn, bounds.batch) + whole.rows.offset(fn, bounds.rows[0])
            memory = fn.at(pointer, memory_type(whole.result), first)
        else:
            memory = acquire(fn, self.tiling.most * columns * whole.result.byte_width)
        count = bounds.rows[1] - bounds.rows[0]
        product_table = fn.table((rows, right, memory))
        task_rows = tiling.blocking.task_rows
        tasks = (count + (task_rows - 1)).integer("udiv", task_rows)
        fn.call(self._product(tiling, None), VOID, product_table, fn.i64(0), tasks)
        self.cost += whole.batch * math.prod(whole.sizes) * cost_model().multiplication
        if direct:
            self._state(link, (), self._array(link.value))
        else:
            self._last(fn, link, whole, memory, bounds)
            release(fn, memory)

    def _last(self, fn: Function, link: Link, whole: Product, memory: Value, bounds: Bounds) -> None:
        """Store the epilogue of a second product, whose rectangle of results is in ``memory``."""
        columns = whole.sizes[1]
        local = _local_index(self.tiling.most, columns)
        roots = [(r, self._array(r)) for r in self.chain.last]
        dims = (whole.batches[2], whole.rows, whole.columns)
        where, outputs = with_splits(lambda space: self._traced(space, link.value, dims, roots, local, columns))
        self._state(link, [Accesses.of(outputs)], None)
        # A separate function, because LLVM may need another effort for it than for the code before it.
        function = self.module.function(f"{self.name}.last", VOID, PARAMETERS, attributes=[NO_INLINE])
        rectangle = rectangle_of(function)
        span = function.i64(0), function.i64(columns)
        write_elements(
            function,
            self._arrays(function, rectangle.base),
            where,
            Bounds(rectangle.batch, rectangle.rows, span),
            local,
            outputs,
        )
        fn.call(function, VOID, fn.parameters[0], memory, bounds.batch, *bounds.rows, fn.i64(0), fn.i64(columns))
        self.cost += element_cost([n for o in outputs for n in o.nodes]) * link.product.shape.num_elements


def _local_index(rows: int, columns: int) -> LocalIndex:
    """The index of an element of a rectangle of ``rows`` rows, in one of ``columns`` columns of the result.

    By this index, stores to a rectangle are known to be small, so they are not non-temporal.
    """
    # Identifiers that no variable of a space has.
    return LocalIndex(Variable(rows, 1 << 18), Variable(max(1, columns), (1 << 18) + 1))


def _dims(directions: tuple[Direction, Direction, Direction]) -> tuple[Sequence[tuple[int, int]], ...]:
    return tuple(s.dims for s in directions)


def _by_dimension(space: Space, rank: int) -> list[list[Variable]]:
    """The variables of the first axes, by axis."""
    variables: list[list[Variable]] = [[] for _ in range(rank)]
    for variable in space.variables:
        axis = space.position_of(variable)[0]
        if axis < rank:
            variables[axis].append(variable)
    return variables


def _index(variables: Sequence[Variable]) -> Affine:
    """The index of a dimension that the variables span, major to minor."""
    total, stride = Affine(), 1
    for variable in reversed(variables):
        total, stride = total + of(variable, stride), stride * variable.extent
    return total
