"""Rewrites a module with dynamic dimensions to padded arrays and scalars for their sizes.

An array with bounded dynamic dimensions becomes an array at its bounds and an S32 scalar for each of those dimensions.
The entry has its original parameters, followed by their sizes, in order; its result is a tuple that ends with the sizes
of its arrays. The caller of the program pads arguments and slices results: see :func:`dynamic_dimensions`.

A size that may be invalid (beyond its bound, or with too few elements for a reshape) is checked by a conditional, one
branch of which calls a host function that raises; see ``execution/calls/size_checks.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import ProgramShape, Shape
from xlakit.dataclass import dataclass
from xlakit.errors import UnsupportedError, XlakitError
from xlakit.ir.attributes import AliasEntry
from xlakit.ir.instruction import Computation, HloModule, Instruction, located
from xlakit.ops.communication.asynchronous import Async
from xlakit.ops.communication.transfer import Infeed, Recv, RecvDone
from xlakit.ops.control import Call, Conditional, Fusion, While
from xlakit.ops.custom_call import CustomCall
from xlakit.ops.data import Constant, GetTupleElement, Tuple
from xlakit.ops.dynamic import DynamicReshape, SetDimensionSize
from xlakit.passes.canonicalize.expand import Expand
from xlakit.passes.core.computation_builder import ComputationCloner
from xlakit.passes.core.framework import Pass, PassContext, live_instructions
from xlakit.passes.dynamic.padded_algebra import ALGEBRA, NORMS
from xlakit.passes.dynamic.padded_calls import at_sizes, joined, parted, with_sizes
from xlakit.passes.dynamic.padded_collectives import COLLECTIVES
from xlakit.passes.dynamic.padded_elements import ELEMENTS, element_wise
from xlakit.passes.dynamic.padded_indexing import INDEXING
from xlakit.passes.dynamic.padded_movement import MOVEMENT
from xlakit.passes.dynamic.padded_reductions import REDUCTIONS
from xlakit.passes.dynamic.padded_regrouping import REGROUPING
from xlakit.passes.dynamic.padded_values import (
    DynamicDimension,
    NoRuleError,
    Padded,
    Padder,
    dynamic_dimensions,
    static_shape,
)

# The rules for operations on padded arrays, by opcode; element-wise operations need no entry.
RULES = {**MOVEMENT, **ELEMENTS, **REGROUPING, **REDUCTIONS, **INDEXING, **ALGEBRA, **NORMS, **COLLECTIVES}

# Operations that need a rule even without dynamic operands: they may have dynamic results, or depend on sizes.
_SOURCES = (SetDimensionSize, DynamicReshape, Constant, CustomCall, Infeed, Recv, RecvDone)

_SIZE = Shape(PrimitiveType.S32)
# For each parameter of a computation its dimensions that have a size.
_DimensionsByParameter = tuple[frozenset[DynamicDimension], ...]


class PadDynamic(Pass):
    """Give every array static dimensions: a dynamic one gets its bound, and an S32 scalar with its size.

    Raises UnsupportedError for dimensions without a bound, and async pairs whose results have dynamic dimensions.
    """

    name = "pad-dynamic"
    left_out_by = ""
    is_needed = True

    def run(self, module: HloModule, context: PassContext) -> HloModule:
        """Change all computations in one rewrite, since sizes are passed between them."""
        stale = sum(1 for i in module.instructions if i.shape.is_dynamic)
        if not stale or not context.spend("dynamic", stale):
            return module
        # Async pairs, hints and scans are expanded while their operands still have dynamic dimensions.
        module = Expand().run(module, context)
        context.computation_names = {c.name for c in module.computations}
        return _Padding(module, context).module()


@dataclass(frozen=True, slots=True)
class _PaddedComputation:
    """A computation on padded values, and the dimensions of its result whose sizes it also returns."""

    computation: Computation
    dynamic_dims: tuple[DynamicDimension, ...]


class _Padding:
    """The rewrite of one module; memoizes the padded versions of its computations."""

    def __init__(self, module: HloModule, context: PassContext) -> None:
        self._module = module
        self._context = context
        self._padded: dict[
            tuple[Computation, _DimensionsByParameter, bool, tuple[DynamicDimension, ...] | None], _PaddedComputation
        ] = {}
        self._affected: set[Computation] = set()
        for computation in module.computations:
            if any(
                i.shape.is_dynamic or any(c in self._affected for c in i.op.called_computations)
                for i in computation.instructions
            ):
                self._affected.add(computation)

    def module(self) -> HloModule:
        """The padded module."""
        old = self._module
        dynamic_dims = [frozenset(dynamic_dimensions(p.shape)) for p in old.entry.parameters]
        results = tuple(dynamic_dimensions(old.entry.root.shape))
        entry = _Computation(self, old.entry, self._context).entry(dynamic_dims, results)
        layout = old.entry_computation_layout
        if layout is not None:
            given = [*map(static_shape, layout.parameters), *[_SIZE] * sum(map(len, dynamic_dims))]
            layout = ProgramShape(tuple(given), with_sizes(layout.result, len(results)))
        aliases = old.input_output_alias
        if results and not old.entry.root.shape.is_tuple:
            aliases = tuple(
                AliasEntry((0, *a.output_index), a.parameter_number, a.parameter_index, a.must) for a in aliases
            )
        return old.replace(entry=entry, computations=(), entry_computation_layout=layout, input_output_alias=aliases)

    def padded_computation(
        self,
        computation: Computation,
        dynamic_dims: _DimensionsByParameter,
        *,
        packed: bool,
        wanted: tuple[DynamicDimension, ...] | None = None,
    ) -> _PaddedComputation:
        """The padded version of a computation whose parameters have sizes at ``dynamic_dims``.

        ``packed``: whether the sizes are in a tuple with its one parameter (see :func:`joined`); else they are
        parameters after the others. ``wanted``: the dimensions whose sizes the result is joined with, by default those
        that have a size.
        """
        key = (computation, dynamic_dims, packed, wanted)
        if key not in self._padded:
            if computation not in self._affected and not any(dynamic_dims) and not wanted:
                self._padded[key] = _PaddedComputation(computation, ())
            else:
                rewrite = _Computation(self, computation, self._context)
                made = self._padded[key] = rewrite.callee(dynamic_dims, packed, wanted)
                self._padded[computation, dynamic_dims, packed, made.dynamic_dims] = made
        return self._padded[key]

    def is_affected(self, instruction: Instruction) -> bool:
        """Whether an instruction has dynamic dimensions, or calls a computation with such instructions."""
        return instruction.shape.is_dynamic or any(c in self._affected for c in instruction.op.called_computations)

    def located(self, error: XlakitError, instruction: Instruction) -> XlakitError:
        """The error with the location of the instruction in the program."""
        return located(error, self._module, instruction)


class _Computation:
    """The rewrite of one computation."""

    def __init__(self, padding: _Padding, computation: Computation, context: PassContext) -> None:
        self._padding = padding
        self._computation = computation
        self._context = context
        self._cloner = ComputationCloner(computation, context)
        self._values: dict[Instruction, Padded] = {}

    # -- the computation -------------------------------------------------------------------------

    def entry(
        self, dynamic_dims: Sequence[Iterable[DynamicDimension]], results: Sequence[DynamicDimension]
    ) -> Computation:
        """The padded entry, with parameters for sizes, and a result that ends with the sizes of ``results``."""
        self._parameters(dynamic_dims)
        root = self._run()
        make = self._padder(self._computation.root)
        full = Padded(self._full(root, frozenset(results), make), root.sizes)
        return self._cloner.build(joined(full, results, make))

    def callee(
        self, dynamic_dims: _DimensionsByParameter, packed: bool, wanted: tuple[DynamicDimension, ...] | None
    ) -> _PaddedComputation:
        """The padded version of a called computation; see :meth:`_Padding.padded_computation`."""
        if packed:
            self._packed_parameter(dynamic_dims[0])
        else:
            self._parameters(dynamic_dims)
        root = self._run()
        given = tuple(sorted(root.sizes)) if wanted is None else wanted
        made = joined(root, given, self._padder(self._computation.root))
        name = self._context.computation_name(self._computation.name)
        return _PaddedComputation(self._cloner.build(made, name=name), given)

    def _padder(self, old: Instruction) -> Padder:
        return Padder(self._cloner, old, self._cloner.clones)

    def _full(self, value: Padded, open_dims: frozenset[DynamicDimension], make: Padder) -> Instruction:
        """The value with zeros where an array that is declared static has fewer elements."""
        closed = {dim: size for dim, size in value.sizes.items() if dim not in open_dims}
        return self._zeroed(value.value, closed, make) if closed else value.value

    def _zeroed(self, value: Instruction, sizes: Mapping[DynamicDimension, Instruction], make: Padder) -> Instruction:
        whole = Padded(value, sizes)
        if not value.shape.is_tuple:
            return make.zeroed(whole)
        parts = make.elements(value)
        return make.tuple(*(self._zeroed(p, whole.element_sizes(i), make) for i, p in enumerate(parts)))

    # -- parameters ------------------------------------------------------------------------------

    def _parameters(self, dynamic_dims: Sequence[Iterable[DynamicDimension]]) -> None:
        number = len(dynamic_dims)
        for old, open_dims in zip(self._computation.parameters, dynamic_dims, strict=True):
            value = self._padder(old).at_bounds([])
            sizes: dict[DynamicDimension, Instruction] = {}
            for dim in sorted(open_dims):
                sizes[dim] = self._cloner.parameter(number, _SIZE)
                number += 1
            self._enter(old, Padded(value, sizes))

    def _packed_parameter(self, dynamic_dims: frozenset[DynamicDimension]) -> None:
        (old,) = self._computation.parameters
        parameter = self._cloner.append(old.replace(shape=with_sizes(old.shape, len(dynamic_dims))))
        self._enter(old, parted(parameter, old.shape, sorted(dynamic_dims), self._padder(old)))

    def _enter(self, old: Instruction, new: Padded) -> None:
        self._values[old] = new
        self._cloner.substitute(old, new.value)

    # -- instructions ----------------------------------------------------------------------------

    def _run(self) -> Padded:
        # Dead instructions are skipped, so that they raise no errors.
        live = live_instructions(self._computation)
        for old in self._computation.instructions:
            if old in self._values or old not in live:
                continue
            operands = [self._values[o] for o in old.operands]
            try:
                new = self._instruction(old, operands)
            except XlakitError as error:
                raise self._padding.located(error, old) from error.__cause__
            self._enter(old, new)
        return self._values[self._computation.root]

    def _instruction(self, old: Instruction, operands: Sequence[Padded]) -> Padded:
        op, make = old.op, self._padder(old)
        if not any(x.sizes for x in operands) and not self._padding.is_affected(old):
            return Padded(self._cloner.clone(old))
        if isinstance(op, Tuple):
            sizes = {((i, *path), d): n for i, x in enumerate(operands) for (path, d), n in x.sizes.items()}
            return Padded(make.at_bounds([x.value for x in operands]), sizes)
        if isinstance(op, GetTupleElement):
            return Padded(make.element(operands[0].value, op.index), operands[0].element_sizes(op.index))
        if isinstance(op, (Call, Fusion)):
            return self._call(op.to_apply if isinstance(op, Call) else op.calls, operands, make)
        if isinstance(op, While):
            return self._while(op, operands[0], make)
        if isinstance(op, Conditional):
            return self._conditional(op, operands, make)
        if any(x.sizes for x in operands) or isinstance(op, _SOURCES):
            return _on_padded(old, operands, make)
        if isinstance(op, Async):
            raise UnsupportedError(
                f"{op.opcode} with a result of dynamic dimensions", hint="use the operation itself, not an async pair"
            )
        # No operand is padded and the results are static: only the shapes inside change.
        return Padded(make.at_bounds([x.value for x in operands]))

    # -- control ---------------------------------------------------------------------------------

    def _call(self, callee: Computation, operands: Sequence[Padded], make: Padder) -> Padded:
        """call(x) -> call(x, sizes)"""
        # A fusion may have more operands than its computation takes.
        given = operands[: len(callee.parameters)]
        new = self._padding.padded_computation(callee, tuple(frozenset(x.sizes) for x in given), packed=False)
        sizes = [x.sizes[dim] for x in given for dim in sorted(x.sizes)]
        value = make.add(Call(to_apply=new.computation), *(x.value for x in given), *sizes)
        return parted(value, callee.root.shape, new.dynamic_dims, make)

    def _while(self, op: While, initial: Padded, make: Padder) -> Padded:
        """while(x) -> while(x, sizes), for all dimensions that have a size at the start or after an iteration."""
        dynamic_dims = frozenset(initial.sizes)
        while True:
            wanted = tuple(sorted(dynamic_dims))
            body = self._padding.padded_computation(op.body, (dynamic_dims,), packed=True)
            if dynamic_dims.issuperset(body.dynamic_dims):
                break
            dynamic_dims |= frozenset(body.dynamic_dims)
        body = self._padding.padded_computation(op.body, (dynamic_dims,), packed=True, wanted=wanted)
        condition = self._padding.padded_computation(op.condition, (dynamic_dims,), packed=True)
        loop = While(condition=condition.computation, body=body.computation)
        return parted(make.add(loop, joined(initial, wanted, make)), initial.shape, wanted, make)

    def _conditional(self, op: Conditional, operands: Sequence[Padded], make: Padder) -> Padded:
        """conditional(p, x, y) -> conditional(p, (x, sizes), (y, sizes)), each branch with the sizes of all results."""
        chooser, *arguments = operands
        dynamic_dims = [(frozenset(x.sizes),) for x in arguments]
        pairs = list(zip(op.branch_computations, dynamic_dims, strict=True))
        found = [self._padding.padded_computation(branch, own, packed=True) for branch, own in pairs]
        wanted = tuple(sorted({dim for new in found for dim in new.dynamic_dims}))
        branches = tuple(
            self._padding.padded_computation(branch, own, packed=True, wanted=wanted).computation
            for branch, own in pairs
        )
        packed = [joined(x, sorted(x.sizes), make) for x in arguments]
        value = make.add(Conditional(branch_computations=branches), chooser.value, *packed)
        return parted(value, op.branch_computations[0].root.shape, wanted, make)


def _on_padded(old: Instruction, operands: Sequence[Padded], make: Padder) -> Padded:
    """Replace an operation on padded arrays by its rule, or else by a host call."""
    rule = RULES.get(old.op.opcode, element_wise if old.shape.is_array and old.is_pointwise else at_sizes)
    try:
        return rule(old, operands, make)
    except NoRuleError:
        return at_sizes(old, operands, make)
