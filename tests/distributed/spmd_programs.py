"""Programs for four devices over all collectives, small ones and some too large for a slot; with their arguments."""

import ctypes

import ml_dtypes
import numpy as np

import xlakit as xla
from xlakit.cpu.runtime.call import allocate_array, pointers

DEVICES = 4
PAIRS = [[0, 2], [1, 3]]
PROGRAMS = {}


def program(*arguments, replicas=DEVICES):
    """Register a function of handles; ``arguments`` have a row for each device."""

    def register(function):
        def make():
            builder = xla.XlaBuilder(function.__name__)
            shapes = [xla.make_shape(a.dtype, a.shape[1:]) for a in arguments]
            result = function(*(xla.parameter(builder, i, s, f"p{i}") for i, s in enumerate(shapes)))
            return builder.build(xla.tuple_(builder, *result) if isinstance(result, tuple) else result)

        PROGRAMS[function.__name__] = make, arguments, replicas
        return function

    return register


def _normal(*sizes, kind=np.float32):
    return np.random.default_rng(sum(sizes)).normal(size=(DEVICES, *sizes)).astype(kind)


def _whole(*sizes, kind=np.int32):
    info = np.iinfo(kind)
    return np.random.default_rng(sum(sizes)).integers(info.min, info.max, (DEVICES, *sizes), kind, endpoint=True)


SMALL, LARGE = _normal(7), _normal(150, 101) * 1e3
INTS, NARROW = _whole(9001), _whole(70000, kind=np.int8)
HALVES = _normal(33, 400, kind=ml_dtypes.bfloat16)


@program(SMALL, LARGE)
def all_reduce_of_a_tuple(x, y):
    return xla.get_tuple_element(xla.all_reduce([x, y], xla.add), 0), xla.all_reduce([x, y], xla.max)


@program(LARGE)
def all_reduce_in_groups(x):
    return xla.all_reduce(x, xla.add, PAIRS), xla.all_reduce(x, xla.mul, [[3, 0], [2, 1]])


@program(INTS, NARROW)
def integer_reductions(x, y):
    return tuple(xla.all_reduce(v, f) for v in (x, y) for f in (xla.add, xla.mul, xla.min, xla.max, xla.xor))


@program(INTS)
def predicates(x):
    bits = xla.gt(x, 1 << 30)
    return xla.all_reduce(bits, xla.or_), xla.all_reduce(bits, xla.and_), xla.cross_replica_sum(bits, PAIRS)


@program(HALVES)
def a_computation_of_its_own(x):
    return xla.all_reduce(x, lambda a, b: xla.max(a * b, a + b)), xla.all_reduce(x, xla.add)


@program(LARGE, SMALL)
def gathers(x, y):
    return xla.all_gather(x, 0, 4), xla.all_gather(y, 0, 2, [[1, 2], [3, 0]]), xla.all_gather(x, 1, 2, PAIRS)


@program(_normal(8, 1000), _whole(4))
def scatters(x, y):
    return (
        xla.reduce_scatter(x, xla.add, 0, 4),
        xla.reduce_scatter(x, xla.add, 1, 2, PAIRS),
        xla.reduce_scatter(y, xla.add, 0, 4),
    )


@program(_normal(8, 700), SMALL)
def all_to_alls(x, y):
    whole = xla.all_to_all(x, 0, 0, 4), xla.all_to_all(x, 1, 0, 2, PAIRS)
    return *whole, xla.all_to_all_tuple([y, y + 1.0, y + 2.0, y + 3.0]), xla.all_to_all_tuple([x, -x], PAIRS)


@program(SMALL, LARGE)
def permutes(x, y):
    ring = [(i, (i + 1) % 4) for i in range(4)]
    return xla.collective_permute(x, ring), xla.collective_permute([y, x], [(3, 0), (0, 2)])


@program(SMALL, LARGE)
def broadcasts(x, y):
    return xla.collective_broadcast(x, [[2, 0, 1, 3]]), xla.collective_broadcast([y, x], [[1, 3]])


@program(LARGE)
def one_root(x):
    return xla.collective_reduce(x, xla.add, [[3, 1], [0, 2]])


@program(
    _normal(600, 3),
    np.zeros((4, 2400, 3), np.float32),
    np.tile(np.int32([0, 10, 30, 60]), (4, 1)),
    np.int32([[i + j + 1 + 200 * (i == 2 and j == 3) for j in range(4)] for i in range(4)]),
    np.int32([[600 * i] * 4 for i in range(4)]),
    np.int32([[i + j + 1 + 200 * (i == 2 and j == 3) for i in range(4)] for j in range(4)]),
)
def ragged(rows, room, starts, sizes, targets, received):
    return xla.ragged_all_to_all(rows, starts, sizes, room, targets, received)


@program(SMALL)
def in_a_loop(x):
    def turn(state):
        number, value = (xla.get_tuple_element(state, i) for i in range(2))
        value = xla.collective_permute(xla.all_reduce(value, xla.add) * 0.3, [(i, (i + 1) % 4) for i in range(4)])
        return xla.tuple_(state.builder, number + 1, value)

    start = xla.tuple_(x.builder, xla.constant(x.builder, np.int32(0)), x)
    state = xla.while_(lambda state: xla.get_tuple_element(state, 0) < 20, turn, start)
    return xla.get_tuple_element(state, 1)


@program(SMALL, replicas=2)
def partitions(x):
    total = xla.all_reduce(x, xla.add, [[0, 3], [1, 2]], 1, use_global_device_ids=True)
    products = xla.all_reduce(x, xla.mul, [[1, 0]], 2)
    moved = xla.collective_permute(x, [(0, 1), (1, 0)], channel_id=3)
    return total, products, moved, xla.all_gather(x, 0, 2), xla.replica_id(x.builder), xla.partition_id(x.builder)


@program(SMALL)
def special_numbers(x):
    odd = xla.log(x) / 0.0
    return xla.all_reduce(odd, xla.max), xla.all_reduce(odd, xla.add), xla.all_gather(odd, 0, 4)


CHANNELS = """HloModule channels, replica_count=4
ENTRY e {
  x = f32[5000] parameter(0)
  t = token[] after-all()
  s = (f32[5000], u32[], token[]) send(x, t), channel_id=7,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,3},{3,1},{1,0}}"}
  r = (f32[5000], u32[], token[]) recv(t), channel_id=7,
    frontend_attributes={_xla_send_recv_source_target_pairs="{{0,3},{3,1},{1,0}}"}, control-predecessors={s}
  d = (f32[5000], token[]) recv-done(r), channel_id=7
  e = token[] send-done(s), channel_id=7, control-predecessors={r}
  ROOT v = f32[5000] get-tuple-element(d), index=0
}
"""
PROGRAMS["channels"] = lambda: xla.HloModule.from_text(CHANNELS), (_normal(5000),), DEVICES


# What machine code asks of Python is the same for all of them; some are enough to see that it does. On the only device
# of a process, collectives read and write the memory of the program, each in its own way.
COMPILED = ("all_reduce_of_a_tuple", "all_to_alls", "permutes", "in_a_loop", "channels")
IN_PLACE = ("all_reduce_of_a_tuple", "gathers", "all_to_alls", "in_a_loop")


def names(backend):
    """The programs that a backend runs: "addresses" is machine code that is given the addresses of its arrays."""
    return {"cpu": COMPILED, "addresses": IN_PLACE}.get(backend, tuple(PROGRAMS))


def run(name, backend, execution_context=None, devices=range(DEVICES)):
    """The leaves of what some devices get."""
    make, arguments, replicas = PROGRAMS[name]
    options = {"num_replicas": replicas, "num_partitions": DEVICES // replicas, "execution_context": execution_context}
    executable = xla.compile(make(), backend="cpu" if backend == "addresses" else backend, **options)
    rows = [[a[i] for a in arguments] for i in devices]
    if backend == "addresses" and len(rows) == 1:
        return [_run_at(executable, rows[0])]
    return [list(_leaves(result)) for result in executable.execute_replicated(rows)]


def _run_at(executable, row):
    """Results in memory of the caller, twice; arguments stay as they are."""
    assert executable.takes_addresses
    given = []
    for value in row:
        given.append(allocate_array(value.shape, value.dtype))
        given[-1][...] = value
    shapes = [leaf for _, leaf in executable.module.entry.root.shape.leaves()]
    made = [allocate_array(s.dimensions, s.element_type.dtype) for s in shapes]
    for _ in range(2):
        tables = pointers(given), pointers(made)
        executable.run_at(*(ctypes.addressof(table) for table in tables))
        for array, value in zip(given, row, strict=True):
            np.testing.assert_array_equal(array, value)
    return made


def _leaves(value):
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield np.asarray(value)
