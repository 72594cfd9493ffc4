"""Compiling for the interpreter: arguments, results, limits."""

import evaluating
import ml_dtypes
import numpy as np
import pytest

import xlakit as xla


def compiled(function, *shapes, **options):
    builder = xla.XlaBuilder("program")
    operands = [xla.parameter(builder, i, shape, f"arg{i}") for i, shape in enumerate(shapes)]
    result = function(*operands)
    result = xla.tuple_(builder, *result) if isinstance(result, tuple) else result
    return evaluating.compiled(builder.build(result), **options)


F2 = xla.make_shape(xla.F32, (2,))


def test_arguments_are_checked():
    executable = compiled(lambda x, y: x + y, F2, F2)
    good = np.ones(2, np.float32)
    with pytest.raises(xla.ArgumentError, match="takes 2 arguments, got 1"):
        executable(good)
    with pytest.raises(xla.ArgumentError, match=r"parameter 1 'arg1' takes f32\[2\], got f64\[2\]") as caught:
        executable(good, np.ones(2))
    assert "astype" in caught.value.hint
    with pytest.raises(xla.ArgumentError, match=r"parameter 0 'arg0' takes f32\[2\], got f32\[3\]"):
        executable(np.ones(3, np.float32), good)
    with pytest.raises(xla.ArgumentError, match=r"takes f32\[2\], got f32\[\]"):
        executable(1.0, good)
    with pytest.raises(xla.ArgumentError, match="got a str"):
        executable("text", good)


def test_python_values_are_accepted_where_they_fit():
    executable = compiled(lambda x, n: (x, n), F2, xla.make_shape(xla.U8))
    x, n = executable([1, 2.5], 255)
    assert x.dtype == np.float32
    assert x.tolist() == [1, 2.5]
    assert (n.dtype, int(n)) == (np.uint8, 255)
    with pytest.raises(xla.ArgumentError, match="outside u8"):
        executable([1, 2], 256)
    with pytest.raises(xla.ArgumentError, match="parameter 1"):
        executable([1, 2], 1.5)
    with pytest.raises(xla.ArgumentError, match="parameter 0"):
        executable([[1], [2, 3]], 1)


def test_literals_and_narrow_types():
    executable = compiled(lambda x: x, xla.make_shape(xla.BF16, (2,)))
    array = np.array([1, 2], ml_dtypes.bfloat16)
    assert executable(xla.Literal.from_numpy(array)).tobytes() == array.tobytes()


def test_tuples_and_tokens():
    shape = xla.make_tuple_shape([F2, xla.make_tuple_shape([xla.make_shape(xla.S32)])])
    executable = compiled(lambda p: p, shape)
    first, (second,) = executable(([1, 2], (3,)))
    assert first.tolist() == [1, 2]
    assert int(second) == 3
    with pytest.raises(xla.ArgumentError, match=r"takes \(f32\[2\], \(s32\[\]\)\), got a tuple of 1"):
        executable(([1, 2],))
    with pytest.raises(xla.ArgumentError, match="element 0 of element 1 of parameter 0"):
        executable(([1, 2], ("x",)))
    token = compiled(lambda x: xla.after_all([xla.create_token(x.builder)]), F2)
    assert token([1, 2]) is None


def test_results_are_fresh_and_writable():
    executable = compiled(lambda x: (x, x, xla.constant(x.builder, np.zeros(2, np.float32))), F2)
    argument = np.ones(2, np.float32)
    results = executable(argument)
    for number, result in enumerate(results):
        assert not np.shares_memory(result, argument)
        assert not any(np.shares_memory(result, other) for other in results[:number])
        result[0] = 5
    assert executable(argument)[2].tolist() == [0, 0]
    assert isinstance(compiled(lambda x: xla.reduce(x, 0.0, xla.add, [0]), F2)(argument), np.ndarray)


def test_arguments_are_not_written():
    argument = np.ones(2, np.float32)
    argument.flags.writeable = False
    assert compiled(lambda x: x + x, F2)(argument).tolist() == [2, 2]


def test_dynamic_parameters_take_any_size_up_to_the_bound():
    executable = compiled(lambda x: x * x, xla.make_shape(xla.F32, (4,), dynamic_dimensions=(True,)))
    for size in (0, 3, 4):
        assert executable(np.full(size, 2, np.float32)).tolist() == [4] * size
    with pytest.raises(xla.ArgumentError, match=r"takes f32\[<=4\], got f32\[5\]"):
        executable(np.ones(5, np.float32))


def test_several_devices_give_a_list():
    executable = compiled(lambda x: x + 1.0, F2, num_replicas=2, num_partitions=2)
    assert executable.num_devices == 4
    assert [r.tolist() for r in executable([1, 2])] == [[2, 3]] * 4
    results = executable.execute_replicated([[np.full(2, i, np.float32)] for i in range(4)])
    assert [r.tolist() for r in results] == [[i + 1, i + 1] for i in range(4)]
    with pytest.raises(xla.ArgumentError, match="4 devices run the program, got arguments for 2"):
        executable.execute_replicated([[[1, 2]]] * 2)
    with pytest.raises(xla.ArgumentError, match="of device 1"):
        executable.execute_replicated([[[1, 2]], [[1]], [[1, 2]], [[1, 2]]])
    with pytest.raises(xla.ArgumentError, match="at least 1"):
        compiled(lambda x: x, F2, num_replicas=0)


def test_values_beyond_the_memory_limit_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "1000")
    assert compiled(lambda x: xla.broadcast(x, [100]), F2)([1, 2]).shape == (100, 2)
    with pytest.raises(xla.ResourceError, match=r"broadcast.*needs 1,008 bytes, the limit is 1,000") as caught:
        compiled(lambda x: xla.broadcast(x, [126]), F2)
    assert caught.value.location.file.endswith("test_executable.py")
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "1K")
    with pytest.raises(xla.ResourceError, match=r"needs 1,032 bytes, the limit is 1,024"):
        compiled(lambda x: xla.broadcast(x, [129]), F2)
    monkeypatch.setenv("XLAKIT_MEMORY_LIMIT", "much")
    with pytest.raises(xla.ArgumentError, match="XLAKIT_MEMORY_LIMIT"):
        compiled(lambda x: x, F2)


def test_the_default_limit_is_the_machine_s_memory():
    with pytest.raises(xla.ResourceError, match="limit"):
        compiled(lambda x: xla.broadcast(x, [1 << 50]), F2)


def test_random_numbers_depend_on_seed_device_and_call():
    def draw(b, **options):
        builder = xla.XlaBuilder("draw")
        zero, one = (xla.constant(builder, float(v)) for v in (0, 1))
        result = xla.rng_uniform(zero, one, xla.make_shape(xla.F32, (4,)))
        return evaluating.compiled(builder.build(result), seed=b, **options)

    first = draw(1)
    values = first()
    assert values.tolist() == draw(1)().tolist()
    assert values.tolist() != first().tolist()
    assert values.tolist() != draw(2)().tolist()
    own, other = draw(1, num_replicas=2)()
    assert own.tolist() == values.tolist()
    assert other.tolist() != values.tolist()


def test_an_executable_can_be_called_by_many_threads():
    from concurrent.futures import ThreadPoolExecutor

    executable = compiled(lambda x: xla.all_reduce(x, xla.add), F2, num_replicas=3)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: executable(np.full(2, i, np.float32))[2].tolist(), range(20)))
    assert results == [[3 * i, 3 * i] for i in range(20)]


def test_errors_say_which_instruction_and_where():
    executable = compiled(lambda x: xla.custom_call(x.builder, "bad", [x], F2), F2, custom_calls={"bad": lambda x: 1})
    with pytest.raises(xla.ExecutionError) as caught:
        executable([1, 2])
    assert caught.value.operation == "custom-call 'custom-call.1'"
    assert caught.value.location.file.endswith("test_executable.py")
    assert caught.value.shapes[0].startswith("f32[2]")


def test_comparators_with_bits_of_scalars_compare_many_at_once(monkeypatch):
    module = xla.HloModule.from_text("""HloModule sorts
before {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  zero = s32[] constant(0)
  most = s32[] constant(2147483647)
  x = s32[] bitcast(a)
  y = s32[] bitcast(b)
  below = pred[] compare(x, zero), direction=LT
  under = pred[] compare(y, zero), direction=LT
  left = s32[] xor(most, x)
  right = s32[] xor(most, y)
  first = s32[] select(below, left, x)
  second = s32[] select(under, right, y)
  ROOT less = pred[] compare(first, second), direction=LT
}
ENTRY main {
  x = f32[3,500] parameter(0)
  ROOT r = f32[3,500] sort(x), dimensions={1}, is_stable=true, to_apply=before
}""")
    monkeypatch.setattr("xlakit.interpreter.evaluate.Context._apply_one_by_one", pytest.fail)
    x = np.random.default_rng(0).standard_normal((3, 500)).astype(np.float32)
    x[1, :4] = -0.0, 0.0, -np.inf, np.nan
    result = xla.compile(module, backend="interpreter")(x)
    expected = np.sort(x, axis=1)
    np.testing.assert_array_equal(result, expected)
    assert np.signbit(result[1][result[1] == 0]).tolist() == [True, False]
