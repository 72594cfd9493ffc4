"""Collectives on several replicas and partitions."""

import evaluating
import numpy as np
import pytest
from evaluating import build, f32, floats, ints, refused, s32, same

import xlakit as xla
from xlakit.ops.communication.collective_moves import AllToAll
from xlakit.ops.communication.collective_pairs import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
    CollectivePermuteDone,
    CollectivePermuteStart,
)
from xlakit.ops.communication.collectives import CollectiveBroadcast


def replicated(function, *arguments, replicas=None, partitions=1):
    """Run on devices whose arguments are the rows of ``arguments``; the results stacked."""
    count = len(arguments[0])
    shapes = [xla.make_shape(a[0].dtype, a[0].shape) for a in map(np.asarray, arguments)]
    replicas = count // partitions if replicas is None else replicas
    executable = evaluating.compiled(build(function, *shapes), num_replicas=replicas, num_partitions=partitions)
    return executable.execute_replicated([[a[i] for a in arguments] for i in range(count)])


# -- the documents' examples -----------------------------------------------------------------------


def test_ragged_all_to_all_of_the_document():
    def move(data, output, starts, sizes, targets, received):
        return xla.ragged_all_to_all(data, starts, sizes, output, targets, received)

    results = replicated(
        move,
        ints([[1, 2, 2], [3, 4, 0]]),
        ints([[0, 0, 0, 0], [0, 0, 0, 0]]),
        ints([[0, 1], [0, 1]]),
        ints([[1, 2], [1, 1]]),
        ints([[0, 0], [1, 2]]),
        ints([[1, 1], [2, 1]]),
    )
    same(results[0], ints([1, 3, 0, 0]))
    same(results[1], ints([2, 2, 4, 0]))


# -- groups ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "use_global", "groups", "expected"),
    [
        (None, False, [], [2, 4, 2, 4]),  # over replicas of the same partition
        (1, False, [], [6, 6, 6, 6]),  # over all devices
        (1, True, [[0, 3], [1, 2]], [3, 3, 3, 3]),  # over devices by their number
    ],
)
def test_group_modes_of_all_reduce(channel, use_global, groups, expected):
    def total(x):
        return xla.all_reduce(x, xla.add, groups, channel, use_global_device_ids=use_global)

    results = replicated(total, ints([0, 1, 2, 3]), partitions=2)
    assert [int(r) for r in results] == expected


def test_with_a_channel_other_collectives_meet_over_partitions():
    results = replicated(lambda x: xla.all_to_all_tuple([x, x + 10], channel_id=5), ints([0, 1, 2, 3]), partitions=2)
    assert [[int(v) for v in r] for r in results] == [[0, 1], [10, 11], [2, 3], [12, 13]]


def test_devices_know_their_numbers():
    results = replicated(
        lambda x: (xla.replica_id(x.builder), xla.partition_id(x.builder)), np.zeros(6, np.float32), partitions=3
    )
    assert [(int(r), int(p)) for r, p in results] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert results[0][0].dtype == np.uint32


def test_groups_must_be_valid():
    refused("twice", lambda x: xla.all_reduce(x, xla.add, [[0, 1], [1, 2]]), f32(2))
    refused("is empty", lambda x: xla.all_reduce(x, xla.add, [[0, 1], []]), f32(2))
    refused("do not list", lambda x: xla.all_reduce(x, xla.add, [[0, 2]]), f32(2))
    refused("different sizes", lambda x: xla.all_gather(x, 0, 2, [[0, 1], [2]]), f32(2))
    refused("shard_count 3 must be 2", lambda x: xla.all_gather(x, 0, 3, [[0, 1]]), f32(2))
    refused("needs a channel_id", lambda x: xla.all_reduce(x, xla.add, [[0]], use_global_device_ids=True), f32(2))


OF_A_CHANNEL = {
    "all-gather": lambda x, channel: xla.all_gather(x, 0, 2, [[0, 1]], channel),
    "all-reduce": lambda x, channel: xla.all_reduce(x, xla.add, [[0, 1]], channel),
    "all-to-all": lambda x, channel: xla.all_to_all(x, 0, 0, 2, [[0, 1]], channel_id=channel),
    "collective-broadcast": lambda x, channel: xla.collective_broadcast(x, [[0, 1]], channel),
    "collective-permute": lambda x, channel: xla.collective_permute(x, [(0, 1)], channel),
    "reduce-scatter": lambda x, channel: xla.reduce_scatter(x, xla.add, 0, 2, [[0, 1]], channel_id=channel),
}


@pytest.mark.parametrize("opcode", OF_A_CHANNEL)
def test_channels_are_not_negative(opcode):
    function = OF_A_CHANNEL[opcode]
    refused(f"{opcode}: channel_id must be at least [01], is -2", lambda x: function(x, -2), f32(2))
    text = build(lambda x: function(x, 2), f32(2)).to_module().to_text()
    with pytest.raises(xla.ShapeError, match=f"{opcode} .*: channel_id must be"):
        xla.HloModule.from_text(text.replace("channel_id=2", "channel_id=-2")).verify()


def test_channels_of_all_reduces_begin_at_one():
    refused("channel_id must be at least 1, is 0", lambda x: xla.all_reduce(x, xla.add, [[0]], 0), f32(2))


def test_groups_for_other_numbers_of_replicas_are_errors():
    built = build(lambda x: xla.all_reduce(x, xla.add, [[0, 1], [2, 3]]), f32())
    with pytest.raises(xla.ExecutionError, match=r"name 2, the program runs with ids 0 \.\. 1"):
        evaluating.compiled(built, num_replicas=2)(1.0)
    with pytest.raises(xla.ExecutionError, match="in no replica group"):
        evaluating.compiled(built, num_replicas=5)(1.0)
    gathered = build(lambda x: xla.all_gather(x, 0, 4), f32(1))
    with pytest.raises(xla.ExecutionError, match="2 devices gathered"):
        evaluating.compiled(gathered, num_replicas=2)(floats([1]))


# -- one by one ------------------------------------------------------------------------------------


def test_all_reduce_of_a_tuple_gives_a_tuple():
    def total(x):
        return xla.all_reduce(xla.tuple_(x, xla.broadcast(x, [2])), xla.add)

    first, second = replicated(total, floats([1, 2]))[0]
    same(first, floats(3))
    same(second, floats([3, 3]))
    (only,) = replicated(lambda x: xla.all_reduce(xla.tuple_(x), xla.add), floats([1, 2]))[1]
    same(only, floats(3))


def test_all_reduce_combines_in_the_order_of_the_group_with_the_same_bits_everywhere():
    values = floats([1e8, 1.0, -1e8, 1.0])
    results = replicated(lambda x: xla.all_reduce(x, xla.add), values)
    expected = np.float32(np.float32(np.float32(1e8 + 1.0) - 1e8) + 1.0)
    assert {r.tobytes() for r in results} == {np.float32(expected).tobytes()}
    backwards = replicated(lambda x: xla.all_reduce(x, xla.sub, [[3, 2, 1, 0]]), floats([1, 2, 3, 10]))
    assert float(backwards[0]) == 10 - 3 - 2 - 1


def test_cross_replica_sum_is_or_for_pred():
    assert [bool(r) for r in replicated(xla.cross_replica_sum, np.array([False, True]))] == [True, True]
    assert [int(r) for r in replicated(xla.cross_replica_sum, ints([4, 5]))] == [9, 9]


def test_all_reduce_checks_its_computation():
    refused("takes 1 parameters", lambda x: xla.all_reduce(x, build(lambda a: a, f32())), f32(2))
    refused("same element type", lambda x, y: xla.all_reduce([x, y], xla.add), f32(2), s32(2))


def test_all_gather_of_two_arrays_along_an_inner_dimension():
    def gather(x, y):
        return xla.all_gather([x, y], 1, 2)

    xs, ys = ints([[[1], [2]], [[3], [4]]]), ints([[[5, 6]], [[7, 8]]])
    for first, second in replicated(gather, xs, ys):
        same(first, ints([[1, 3], [2, 4]]))
        same(second, ints([[5, 6, 7, 8]]))


def test_all_to_all_in_tuple_form_needs_one_operand_for_each_device():
    refused("groups have 2 devices", lambda x: xla.all_to_all_tuple([x], [[0, 1]]), f32(2))
    refused("one operand", lambda x: x.builder.append(AllToAll(split_dimension=0), [x, x]), f32(2))


def test_ragged_all_to_all_checks_what_is_sent():
    def move(data, output, starts, sizes, targets, received):
        return xla.ragged_all_to_all(data, starts, sizes, output, targets, received)

    arrays = [ints([[1, 2]]), ints([[0, 0]]), ints([[1]]), ints([[2]]), ints([[0]]), ints([[2]])]
    with pytest.raises(xla.ExecutionError, match=r"sends rows 1\.\.3 of 2"):
        replicated(move, *arrays)
    arrays[2], arrays[5] = ints([[0]]), ints([[1]])
    with pytest.raises(xla.ExecutionError, match="sends 2 rows, 1 are expected"):
        replicated(move, *arrays)


def test_collective_permute_of_two_arrays_over_partitions():
    def turn(x):
        return xla.collective_permute([x, x * 2], [(0, 1), (1, 0)], channel_id=1)

    results = replicated(turn, ints([1, 2, 3, 4]), partitions=2)
    assert [(int(a), int(b)) for a, b in results] == [(2, 4), (1, 2), (4, 8), (3, 6)]


def test_collective_permute_checks_its_pairs():
    refused("source 0 is in 2", lambda x: xla.collective_permute(x, [(0, 1), (0, 2)]), f32())
    refused("target 1 is in 2", lambda x: xla.collective_permute(x, [(0, 1), (2, 1)]), f32())
    refused("negative", lambda x: xla.collective_permute(x, [(-1, 1)]), f32())
    built = build(lambda x: xla.collective_permute(x, [(0, 5)]), f32())
    with pytest.raises(xla.ExecutionError, match="name 5"):
        evaluating.compiled(built, num_replicas=2)(1.0)


def test_collective_permute_in_place_writes_slices():
    def move(x, out):
        at = [xla.constant(x.builder, i) for i in range(4)]
        return xla.collective_permute_in_place(
            x, out, xla.tuple_(at[1]), xla.tuple_(at[2]), [(0, 1), (1, 0)], slice_sizes=[[2]]
        )

    results = replicated(move, ints([[1, 2, 3], [4, 5, 6]]), ints([[0, 0, 0, 0], [9, 9, 9, 9]]))
    same(results[0], ints([0, 0, 5, 6]))
    same(results[1], ints([9, 9, 2, 3]))


def test_collective_permute_in_place_can_send_twice():
    def move(x, out):
        zero, one = (xla.tuple_(xla.constant(x.builder, i)) for i in range(2))
        both = xla.tuple_(zero, one)
        pairs = [(0, 1), (1, 0), (0, 0), (1, 1)]
        return xla.collective_permute_in_place(x, out, both, both, pairs, slice_sizes=[[1], [1]])

    results = replicated(move, ints([[1, 2], [3, 4]]), np.zeros((2, 2), np.int32))
    same(results[0], ints([3, 2]))
    same(results[1], ints([1, 4]))


def test_collective_permute_in_place_wants_a_slice_size_for_each_dimension():
    def move(x, out):
        at = xla.tuple_(xla.constant(x.builder, 0), xla.constant(x.builder, 0))
        return xla.collective_permute_in_place(x, out, at, at, [(0, 1), (1, 0)], slice_sizes=[[1]])

    with pytest.raises(xla.ExecutionError, match="rank 2"):
        replicated(move, np.zeros((2, 2, 2), np.int32), np.zeros((2, 2, 2), np.int32))


def test_collective_broadcast_sends_from_the_first_of_each_group():
    results = replicated(lambda x: xla.collective_broadcast(x, [[2, 0]]), ints([[1], [2], [3]]))
    assert [int(r[0]) for r in results] == [3, 0, 3]


def test_collective_broadcast_with_a_root_that_is_computed():
    def send(x, root):
        return x.builder.append(CollectiveBroadcast(has_dynamic_root=True), [x, root])

    results = replicated(send, ints([[1], [2]]), ints([[1], [1]]))
    assert [int(r[0]) for r in results] == [2, 2]
    with pytest.raises(xla.ExecutionError, match="root 7 is out of range"):
        replicated(send, ints([[1], [2]]), ints([[7], [7]]))


def test_collective_reduce_gives_the_total_to_the_first_only():
    results = replicated(lambda x: xla.collective_reduce(x, xla.add), ints([[1], [2], [3]]))
    assert [int(r[0]) for r in results] == [6, 0, 0]


# -- start and done --------------------------------------------------------------------------------


def test_async_collectives():
    total = build(xla.add, s32(), s32()).computation
    number = xla.make_shape(xla.U32)

    def run(x):
        append = x.builder.append
        shape = xla.make_tuple_shape([s32(1), s32(2)])
        gathered = append(AllGatherDone(), [append(AllGatherStart(all_gather_dimension=0), [x], shape)])
        reduced = append(AllReduceDone(), [append(AllReduceStart(to_apply=total), [x])])
        sent = xla.make_tuple_shape([s32(1), s32(1), number, number])
        start = append(CollectivePermuteStart(source_target_pairs=((0, 1), (1, 0))), [x], sent)
        return gathered, reduced, append(CollectivePermuteDone(), [start])

    results = replicated(run, ints([[1], [2]]))
    for result, own in zip(results, ([2], [1]), strict=True):
        same(result[0], ints([1, 2]))
        same(result[1], ints([3]))
        same(result[2], ints(own))


# -- rendezvous ------------------------------------------------------------------------------------


def test_a_collective_in_a_loop_meets_itself_in_the_same_iteration():
    results = replicated(lambda x: xla.while_(lambda v: v < 100, lambda v: xla.all_reduce(v, xla.add), x), ints([1, 1]))
    assert [int(r) for r in results] == [128, 128]


def test_collectives_with_one_channel_meet_across_branches():
    def either(x):
        return xla.conditional(
            xla.eq(xla.partition_id(x.builder), 0),
            x,
            lambda v: xla.all_reduce(v, xla.add, channel_id=1),
            x,
            lambda v: xla.all_reduce(v * 2, xla.add, channel_id=1),
        )

    assert [int(r) for r in replicated(either, ints([1, 10]), partitions=2)] == [21, 21]


def test_collectives_that_nobody_uses_still_meet():
    def idle(x):
        xla.all_reduce(x, xla.add)
        return x

    assert [int(r) for r in replicated(idle, ints([1, 2]))] == [1, 2]
