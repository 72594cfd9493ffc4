"""Programs of xlakit.compile and of a client take the same values, give the same results and raise the same errors."""

import numpy as np
import pytest
from evaluating import build, f32, shape

import xlakit as xla

S32 = shape(xla.S32)
ROW = f32(3)


def host(x):
    if x[0] < 0:
        raise ValueError("below zero")
    return 2 * x


def partly(x):
    """Only the first replica reaches the collective where it begins with 5."""
    first = xla.and_(
        xla.eq(xla.reshape(xla.slice(x, [0], [1], [1]), []), 5.0), xla.ne(xla.replica_id(x.builder), np.uint32(0))
    )
    return xla.conditional(first, x, lambda v: v, x, lambda v: xla.all_reduce(v, xla.add))


PROGRAMS = {
    "element-wise": (build(lambda x: x + 1, ROW), 1),
    "tuples": (build(lambda t: xla.tuple_(xla.get_tuple_element(t, 1) * 2, t), xla.make_tuple_shape([S32, ROW])), 1),
    "dynamic": (build(lambda x: xla.reduce_all(x, np.float32(0), xla.add), f32(5, dynamic=[True])), 1),
    "custom call": (build(lambda x: xla.custom_call(x.builder, "host", [x], ROW), ROW), 1),
    "replicas": (build(partly, ROW), 2),
}
ARGUMENTS = {
    "element-wise": [
        [np.float32([1, 2, 3])], [[1, 2, 3]], [xla.Literal.from_numpy(np.ones(3, np.float32))], [np.ones(3)],
        [np.ones(4, np.float32)], [7], [None], ["x"], [], [1, 2],
    ],
    "tuples": [[(1, [1, 2, 3])], [(np.int32(1), np.ones(3, np.float32))], [(1,)], [(2**40, [1, 2, 3])], [5]],
    "dynamic": [[np.ones(2, np.float32)], [np.ones(0, np.float32)], [np.ones(6, np.float32)]],
    "custom call": [[[1, 2, 3]], [[-1, 2, 3]]],
    "replicas": [[[1, 2, 3]], [[5, 2, 3]]],
}  # fmt: skip


def outcome(run):
    """The result as lists, or the class of the error and what it says but for the place."""
    try:
        results = run()
    except xla.XlakitError as error:
        cut = " takes " if isinstance(error, xla.ArgumentError) else ""
        return type(error).__name__, error.rule.rpartition(cut)[2] if cut else error.rule

    def plain(value):
        return tuple(map(plain, value)) if isinstance(value, (tuple, list)) else (str(value.dtype), value.tolist())

    return plain(results)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_ways_give_the_same(name, backend):
    program, replicas = PROGRAMS[name]
    options = {"backend": backend, "num_replicas": replicas, "custom_calls": {"host": host}}
    with xla.Client(devices=replicas, timeout=1) as client:
        # Of an execution context that programs share, as a client's is, errors name the program.
        called = xla.compile(program, execution_context=xla.ExecutionContext(timeout=1), **options)
        loaded = client.compile(program, **options)
        for arguments in ARGUMENTS[name]:
            given = [arguments] * replicas
            first = outcome(lambda given=given: called.execute_replicated(given))
            second = outcome(lambda given=given: loaded.execute_replicated(given))
            if len(arguments) == len(program.to_module().entry.parameters):
                assert first == second
            else:
                assert first[0] == second[0] == "ArgumentError"
