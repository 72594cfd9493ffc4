"""The base of collectives: their groups of devices, and the packing of several operands into one value.

The groups follow from ``channel_id`` and ``use_global_device_ids``, as CollectiveOpGroupMode tells: without a
channel the groups list replicas; with one they list partitions, or, where the operation has
``use_global_device_ids``, replicas of all partitions (false) or devices, replica * num_partitions + partition (true).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from xlakit.data.primitive import PrimitiveType, same_type_family
from xlakit.data.shape import Shape, make_tuple_shape
from xlakit.dataclass import dataclass
from xlakit.errors import ExecutionError, ShapeError, UnsupportedError
from xlakit.ir.attributes import CollectiveGroups, ReplicaGroups
from xlakit.ir.instruction import Computation
from xlakit.ir.operation import Array, Evaluation, Kind, Op, Value, attribute
from xlakit.ops.data import get_tuple_element, tuple_
from xlakit.ops.elementwise.binary import Add, Multiply
from xlakit.ops.handle import Builder, XlaOp, common_builder
from xlakit.ops.reduction import check_reducer, reducer_op
from xlakit.ops.shared.checks import check_channel

# Replica groups as a caller of the builder may pass them: lists of ids, or the attribute. Empty means one group of all.
GroupsLike = ReplicaGroups | Sequence[Sequence[int]]
# Operands of a collective as a caller of the builder may pass them: a handle of an array or tuple, or several handles.
OperandsLike = XlaOp | Sequence[XlaOp]


NO_GROUPS = ReplicaGroups()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(Op):
    """The base of collectives. All devices must run them, so they are never removed as dead code."""

    channel_id: int | None = attribute(Kind.INT64, default=None)
    replica_groups: ReplicaGroups = attribute(Kind.REPLICA_GROUPS, default=NO_GROUPS, always=True)
    constrain_layout: bool = attribute(Kind.BOOL, default=False)

    @property
    def has_side_effect(self) -> bool:
        return True

    @property
    def global_ids(self) -> bool | None:
        """``use_global_device_ids``, or None for operations without that attribute."""
        return getattr(self, "use_global_device_ids", None)

    @property
    def groups(self) -> CollectiveGroups:
        """The attributes that say which devices take part together."""
        return CollectiveGroups(self.replica_groups, self.channel_id, self.global_ids)

    @property
    def group_size(self) -> int | None:
        """The number of devices of a group if it follows from the attributes alone; else None."""
        groups = self.replica_groups.groups
        spans_partitions = self.channel_id is not None and self.global_ids is False
        return len(groups[0]) if groups and not spans_partitions else None

    def check_groups(self, operands: Sequence[Shape], *, uniform: bool = True, all_ids: bool = True) -> None:
        """Raise ShapeError unless the operands are arrays and each id from 0 on is in exactly one group."""
        check_channel(self.channel_id)
        if not operands:
            raise ShapeError("takes at least one operand", hint="give the arrays that take part")
        for operand in operands:
            if not operand.is_array:
                raise ShapeError(f"takes arrays, got {operand}", hint="give the elements of a tuple one by one")
        groups = self.replica_groups.groups
        if self.global_ids and self.channel_id is None:
            raise ShapeError(
                "use_global_device_ids needs a channel_id",
                hint="give a channel_id, a number from 1 on that no other collective has",
            )
        if self.global_ids and not groups:
            raise ShapeError(
                "use_global_device_ids needs replica_groups",
                hint="list the ids of all devices, replica * num_partitions + partition",
            )
        ids = [i for group in groups for i in group]
        if any(not group for group in groups):
            raise ShapeError(
                "a replica group is empty", hint="leave empty groups out; no groups at all mean one of all"
            )
        if len(set(ids)) != len(ids):
            repeated = next(i for i in ids if ids.count(i) > 1)
            raise ShapeError(f"replica {repeated} is in the replica groups twice", hint="give each id once")
        if any(i < 0 for i in ids) or (all_ids and ids and max(ids) >= len(ids)):
            raise ShapeError(
                f"replica groups {list(map(list, groups))} do not list the ids 0 .. {len(ids) - 1}",
                hint=f"list each id from 0 to {len(ids) - 1} once",
            )
        if uniform and len({len(group) for group in groups}) > 1:
            raise ShapeError("replica groups have different sizes", hint="all groups must have the same size")

    def all_gather_members(self, context: Evaluation, payload: Value) -> list[Value]:
        """The payloads of all members in the order of this device's group; ExecutionError for a device in no group."""
        gathered, index = context.all_gather(self.groups, payload)
        if index < 0:
            raise _in_no_group()
        return gathered

    def index_in_group(self, context: Evaluation, *, optional: bool = False) -> tuple[int, int]:
        """This device's index in its group, and the number of devices of the group.

        A device in no group gets -1 and 0 where that is ``optional``, else ExecutionError.
        """
        index, count = context.index_in_group(self.groups)
        if not count and not optional:
            raise _in_no_group()
        return index, count

    def all_to_all(self, context: Evaluation, payloads: Sequence[Value]) -> list[Value]:
        """The payload that each member of the group addresses to this device.

        payloads: this device's payload for each member. Raises ExecutionError for another number of them.
        """
        _, count = self.index_in_group(context)
        if len(payloads) != count:
            raise ExecutionError(
                f"the shapes are for groups of {len(payloads)}, the group has {count} devices",
                hint="run with the num_replicas and num_partitions that the program was written for",
            )
        return context.all_to_all(self.groups, payloads)

    def reduce(self, context: Evaluation, arrays: Sequence[Array], computation: Computation) -> list[Array]:
        """The arrays of all members combined, in the order of the group."""
        totals = context.reduce(self.groups, arrays, computation)
        if totals is None:
            raise _in_no_group()
        return totals


def concatenated(context: Evaluation, arrays: Sequence[Array], dimension: int, number: int = 0) -> Array:
    """The arrays of a group's devices, concatenated; raises ExecutionError where sizes do not fit.

    number: which result of the instruction this is.
    """
    first = arrays[0].shape
    for array in arrays[1:]:
        if any(a != b for d, (a, b) in enumerate(zip(first, array.shape, strict=True)) if d != dimension):
            raise different_sizes(first, array.shape)
    shape = list(first)
    shape[dimension] = sum(array.shape[dimension] for array in arrays)
    return np.concatenate(arrays, axis=dimension, out=context.new_result(number, tuple(shape), arrays[0].dtype))


def different_sizes(one: Sequence[int], other: Sequence[int]) -> ExecutionError:
    """The error for members of a group whose arrays have different dynamic sizes."""
    return ExecutionError(
        f"devices bring different sizes, {list(one)} and {list(other)}",
        hint="give all devices of a group the same size, padded if need be",
    )


def _in_no_group() -> ExecutionError:
    return ExecutionError("a device that runs this is in no replica group", hint="list all ids, or none")


def bundle(values: Sequence[Value]) -> Value:
    """A single value itself, several values as a tuple."""
    return tuple(values) if len(values) != 1 else values[0]


def bundle_shapes(shapes: Sequence[Shape]) -> Shape:
    """A single shape without its layout, several shapes as a tuple shape."""
    return shapes[0].without_layout() if len(shapes) == 1 else make_tuple_shape([s.without_layout() for s in shapes])


def as_groups(groups: GroupsLike) -> ReplicaGroups:
    """Replica groups as the attribute holds them."""
    return groups if isinstance(groups, ReplicaGroups) else ReplicaGroups.from_lists(groups)


def unpack(operand: OperandsLike) -> tuple[Builder, list[XlaOp], bool]:
    """The arrays that a collective works on, and whether they were given as a tuple."""
    builder = common_builder([operand] if isinstance(operand, XlaOp) else operand)
    if not isinstance(operand, XlaOp):
        return builder, list(operand), True
    if not operand.shape.is_tuple:
        return builder, [operand], False
    if not operand.shape.tuple_shapes:
        raise ShapeError("a tuple of no arrays cannot take part in a collective", hint="leave the collective out")
    return builder, [get_tuple_element(operand, i) for i in range(len(operand.shape.tuple_shapes))], True


def repack(builder: Builder, result: XlaOp, is_tuple: bool, count: int) -> XlaOp:
    """The result, a tuple where the operand was one."""
    return tuple_(builder, result) if is_tuple and count == 1 else result


def check_operator(computation: Computation, operands: Sequence[Shape]) -> None:
    """Raise ShapeError unless ``computation`` combines two scalars, for operands of one element type.

    For the builder only; the verifier also accepts mixed types, see :func:`check_combiner`.
    """
    kinds = {o.element_type: None for o in operands if o.is_array}
    if len(kinds) > 1:
        raise ShapeError(
            f"all operands must have the same element type, got {' and '.join(k.hlo_name for k in kinds)}",
            hint="combine those of each type in a call of their own",
        )
    if kinds:
        check_reducer(computation, list(kinds))


def check_combiner(computation: Computation) -> None:
    """Raise ShapeError unless ``computation`` takes two scalars and gives one, of whatever types."""
    program = computation.program_shape
    if len(program.parameters) != 2 or not all(s.is_scalar for s in (*program.parameters, program.result)):
        raise ShapeError(
            f"computation {computation.name} must combine two scalars into one, is {program.to_string()}",
            hint="give a computation (T, T) -> T such as that of add",
        )


def reduce_members(
    context: Evaluation, computation: Computation, gathered: Sequence[Sequence[Array]], *, is_part: bool = False
) -> list[Array]:
    """Combine the arrays of all members, in the order of the group, so that all devices get the same bits.

    is_part: whether the arrays are parts of the operands, so that they are not combined into the result's memory.
    """
    results: list[Array] = []
    for number, arrays in enumerate(zip(*gathered, strict=True)):
        own = arrays[0].dtype
        function = exact_function(computation, PrimitiveType.from_dtype(own))
        first, *others = arrays
        if function is not None and others and all(array.shape == first.shape for array in others):
            total = np.empty(first.shape, own) if is_part else context.new_result(number, first.shape, own)
            with np.errstate(all="ignore"):
                function(first, others[0], out=total)
                for array in others[1:]:
                    function(total, array, out=total)
            results.append(total)
            continue
        combine = combiner_of(computation, PrimitiveType.from_dtype(own))
        kind = combine.root.shape.element_type.dtype
        total = arrays[0].astype(kind, copy=False)
        for array in arrays[1:]:
            if array.shape != total.shape:
                raise different_sizes(total.shape, array.shape)
            (total,) = context.apply(combine, total, array.astype(kind, copy=False))
        results.append(total.astype(own, copy=False))
    return results


@lru_cache(maxsize=256)
def exact_function(computation: Computation, kind: PrimitiveType) -> np.ufunc | None:
    """NumPy's function that combines elements of a type as a computation does, to the bit; None if there is none.

    Raises UnsupportedError as :func:`combiner_of` does.
    """
    computation = combiner_of(computation, kind)
    if any(i.shape.element_type is not kind for i in (*computation.parameters, computation.root)):
        return None
    # For these types NumPy rounds, or wraps around, as HLO does.
    is_exact = kind in (PrimitiveType.F32, PrimitiveType.F64) or (kind.is_integral and kind.bit_width >= 8)
    op = reducer_op(computation) if is_exact else None
    return np.add if isinstance(op, Add) else np.multiply if isinstance(op, Multiply) else None


# Cached, as the interpreter keeps a plan for each computation object: equal arguments must give the same object.
@lru_cache(maxsize=256)
def combiner_of(computation: Computation, kind: PrimitiveType) -> Computation:
    """The computation that combines elements of a type; the given one may be of another type.

    Sums and products of floats narrower than F32 are computed wider, to be rounded once and not at every member. If the
    computation is of another kind of type altogether, only its operation is used, as in XLA. Raises UnsupportedError.
    """
    kinds = {i.shape.element_type for i in (*computation.parameters, computation.root)}
    op, working = reducer_op(computation), kind
    if all(same_type_family(kind, k) for k in kinds):
        is_narrow = kind.is_floating and kind.bit_width < 32
        if not is_narrow or kinds != {kind} or not isinstance(op, (Add, Multiply)):
            return computation
        working = PrimitiveType.F32
    elif op is None:
        raise UnsupportedError(
            f"computation {computation.name} is not of {kind.hlo_name}, and more than one operation",
            hint=f"give a computation of {kind.hlo_name}",
        )
    return computation.rebuild(lambda old, operands: old.replace(operands=operands, shape=Shape(working)))
