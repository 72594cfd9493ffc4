"""Whatever a person gives a function of the builder, it works or is an error of ours that says what and where."""

import inspect
import re

import numpy as np
import pytest

import xlakit as xla

F32_2 = xla.make_shape(xla.F32, (2,))


# Every public function that a person calls to build.
FUNCTIONS = [
    name
    for name in dir(xla)
    if inspect.isfunction(getattr(xla, name))
    and getattr(xla, name).__module__.startswith("xlakit.ops.")
    and name != "make_padding"
]


def odd_values():
    builder, other = xla.XlaBuilder("odd"), xla.XlaBuilder("other")
    yield from (None, "abc", "\ud800", b"ab", 1.5, True, -1, 2**70, 1j, float("nan"), object(), int, np.float64, xla)
    yield from ([], (), {}, {0}, range(2), [None], [1.5], ["a"], [-1, -1], [2**70], [(0,)], [(0, 1, 2)], [[1], [2, 3]])
    yield from (np.int64(1), np.float32(1.5), np.arange(2), np.array(["a"]), np.array([None]), np.datetime64("2020"))
    yield from (lambda *values: None, lambda: 1, lambda *values: "text", xla.add, xla.F32, xla.TOKEN, F32_2)
    yield from (xla.make_tuple_shape([]), xla.TOKEN_SHAPE, builder, xla.Literal.from_value(1))
    yield (i for i in range(2))
    yield xla.parameter(other, 0, F32_2)


def attempts(function, odd):
    """Calls with an odd value everywhere, and with one valid first argument."""
    signature = inspect.signature(function)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [p.name for p in signature.parameters.values() if p.kind in kinds]
    builder = xla.XlaBuilder("valid")
    firsts = (
        builder,
        xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 2))),
        xla.parameter(builder, 1, xla.make_tuple_shape([F32_2])),
        xla.create_token(builder),
    )
    yield (), dict.fromkeys(names, odd)
    yield (), {}
    yield (odd,) * (len(names) + 1), {}
    for first in firsts:
        yield (first,), dict.fromkeys(names[1:], odd)
        yield (first, first), dict.fromkeys(names[2:], odd)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_argument_breaks_a_function(name):
    function = getattr(xla, name)
    for odd in odd_values():
        for args, named in attempts(function, odd):
            try:
                function(*args, **named)
            except xla.XlakitError as error:
                assert error.rule
                assert error.operation
                assert error.location is not None
                assert error.location.file == __file__


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: xla.reduce(x, 0.0, xla.add, 0), r"dimensions must be a sequence of integers, got 0.*\[0\]"),
        (lambda x: xla.broadcast(x, [2.0]), r"broadcast_sizes\[0\] must be an integer, got 2.0 of type float"),
        (lambda x: xla.transpose(x, None), "permutation must be a sequence of integers, got None"),
        (lambda x: xla.add(x, None), "rhs must be an XlaOp, a number, an array, a NumPy scalar or a Literal, got None"),
        (lambda x: xla.neg(1.0), "operand must be an XlaOp, got 1.0.*xlakit.constant"),
        (xla.add, "missing a required argument: 'rhs'.*the parameters are"),
        (lambda x: xla.all_gather(x, all_gather_dimension=0, shard_count=2), "did you mean all_gather_dim.*parameters"),
        (lambda x: xla.all_reduce(x, xla.add, replica_group_ids=[]), r"argument 'replica_group_ids'.*replica_groups\?"),
        (lambda x: xla.call(x.builder, xla.neg, x), r"args must be a sequence.*write \[x\]"),
        (lambda x: xla.call(xla.neg, x), "XlaBuilder; it is the first argument"),
        (lambda x: xla.collapse(x, {0, 1}), "write a list: a set has no order"),
        (lambda x: xla.triangular_solve(x, x, True, True, False, False), "known: .*NO_TRANSPOSE, TRANSPOSE, ADJOINT"),
        (lambda x: xla.dot_general(x, x, xla.DotDimensionNumbers(["a"], (0,))), r"lhs_contracting_dimensions\[0\]"),
        (lambda x: xla.convert_element_type(x, None), "None is neither a PrimitiveType nor a dtype"),
        (lambda x: xla.convert_element_type(x, "float99"), "neither a PrimitiveType nor a dtype"),
        (lambda x: xla.reduce(x, 0.0, int, [0]), "is not a computation"),
        (lambda x: xla.reduce(x, 0.0, lambda a: a, [0]), r"called with 2 values, \(f32\[\], f32\[\]\)"),
        (lambda x: xla.reduce(x, 0.0, lambda a, b: None, [0]), "no primitive type holds a value of type NoneType"),
        (xla.conditional, "takes 3 or 5 arguments.*branch_index"),
        (lambda x: xla.conditional(x, x, None, x, None), "true_computation must be"),
        (lambda x: xla.cross_replica_sum([]), "no operand is an XlaOp"),
        (lambda x: xla.add_dependency(x, x), "must be a token"),
        (lambda x: xla.reduce_precision(x, 2**40, 1), "int32"),
        (lambda x: xla.scan([x], [0.0], lambda a, c: (a, c), 0, scan_dimension_size=5), "inputs have another size"),
        (lambda x: xla.exp(x, xla.ResultAccuracy("BEST")), "unknown result accuracy mode 'BEST'"),
    ],
)
def test_the_error_says_what_was_wrong(call, said):
    builder = xla.XlaBuilder("named")
    with pytest.raises((xla.ArgumentError, xla.ShapeError, xla.LiteralError)) as caught:
        call(xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 2))))
    text = " ".join(str(caught.value).split())
    assert re.search(said, text), text


def test_numpy_integers_and_any_sequence_are_as_good_as_ints_and_tuples():
    builder = xla.XlaBuilder("numpy")
    x = xla.parameter(builder, np.int32(0), xla.make_shape(xla.F32, np.array([2, 3])))
    plain = xla.reduce(x, 0.0, xla.add, [0, 1]).instruction.op
    for dimensions in (np.arange(2), range(2), (d for d in (0, 1)), (np.int8(0), np.uint64(1))):
        dims = xla.reduce(x, 0.0, xla.add, dimensions).instruction.op.dimensions
        assert dims == plain.dimensions
        assert all(type(d) is int for d in dims)
    numbers = xla.DotDimensionNumbers([np.int64(1)], [0])
    assert xla.dot_general(x, np.ones((3, 4), np.float32), numbers).shape.dimensions == (2, 4)


def test_operators_work_with_the_handle_on_the_right():
    builder = xla.XlaBuilder("reflected")
    x = xla.parameter(builder, 0, xla.make_shape(xla.S32, (2,)))
    root = xla.tuple_(1 << x, 64 >> x, xla.broadcast(np.array([[1, 2]], np.int32) @ x, [1]))
    shifted, halved, product = xla.compile(builder.build(root))(np.int32([1, 3]))
    np.testing.assert_array_equal(shifted, [2, 8])
    np.testing.assert_array_equal(halved, [32, 8])
    np.testing.assert_array_equal(product, [[7]])


@pytest.mark.parametrize(
    "call",
    [
        lambda builder: builder.build("x"),
        lambda builder: builder.get_shape(1),
        lambda builder: builder.get_program_shape(1),
        lambda builder: builder.is_constant(None),
        lambda builder: builder.create_sub_builder(3),
        lambda builder: builder.set_op_metadata("x"),
        lambda builder: builder.set_sharding("replicated"),
        lambda builder: builder.set_frontend_attributes({1: "a"}),
        lambda builder: builder.frontend_attributes(["a"]),
        lambda builder: builder.setup_alias(0, 0, ()),
        lambda builder: builder.setup_alias((), "0", ()),
    ],
)
def test_methods_of_the_builder_check_their_arguments(call):
    with pytest.raises(xla.ArgumentError) as caught:
        call(xla.XlaBuilder("methods"))
    assert caught.value.location.file == __file__


def test_an_alias_of_what_is_not_there_is_an_error_of_build():
    for output_index, number, parameter_index in (((0,), 0, ()), ((), 1, ()), ((), 0, (0,))):
        builder = xla.XlaBuilder("alias")
        x = xla.parameter(builder, 0, F32_2)
        builder.setup_alias(output_index, number, parameter_index)
        with pytest.raises(xla.ShapeError) as caught:
            builder.build(x + x)
        assert caught.value.operation == "build"


def test_settings_hold_until_they_are_cleared():
    builder = xla.XlaBuilder("settings")
    x = xla.parameter(builder, 0, F32_2)
    builder.set_sharding(xla.Sharding("REPLICATED"))
    builder.set_frontend_attributes({"a": "b"})
    inside = (x + x).instruction.annotations
    builder.clear_sharding()
    builder.clear_frontend_attributes()
    outside = (x + x).instruction.annotations
    assert (inside.sharding, inside.frontend_attributes) == (xla.Sharding("REPLICATED"), (("a", "b"),))
    assert (outside.sharding, outside.frontend_attributes) == (None, ())


@pytest.mark.parametrize(
    "call",
    [
        lambda program: xla.compile(program, seed=-1),
        lambda program: xla.compile(program, seed="a"),
        lambda program: xla.compile(program, num_replicas=1.5),
        lambda program: xla.compile(program, num_replicas=2).execute_replicated(None),
        lambda program: program.to_module(replica_count=0),
        lambda program: xla.HloModule.from_text(b"HloModule m"),
        lambda program: xla.HloModule.from_proto("text"),
        lambda program: xla.run_together(None),
        lambda program: xla.register_custom_call("name", 3),
    ],
)
def test_running_checks_its_arguments(call):
    builder = xla.XlaBuilder("run")
    xla.parameter(builder, 0, F32_2)
    with pytest.raises(xla.ArgumentError):
        call(builder.build())
