"""Custom calls: Python's, C's and the built-in targets."""

import ctypes
import re
import traceback

import evaluating
import numpy as np
import pytest
from evaluating import build, f32, floats, ints, s32, same

import xlakit as xla
from xlakit.data.layout import Layout
from xlakit.ir.enums import CustomCallApiVersion


def compiled(target, shapes, result, custom_calls=None, **options):
    """An executable that calls ``target`` on its parameters."""
    return evaluating.compiled(
        build(lambda *xs: xla.custom_call(xs[0].builder, target, xs, result, **options), *shapes),
        custom_calls=custom_calls,
    )


def test_a_python_function():
    executable = compiled("outer", [f32(2), f32(3)], f32(2, 3), {"outer": np.outer})
    same(executable(floats([1, 2]), floats([1, 10, 100])), floats([[1, 10, 100], [2, 20, 200]]))


def test_names_that_begin_with_a_dollar_are_reserved():
    with pytest.raises(xla.ArgumentError, match=r"custom_call: the name '\$name' .* calls of its own"):
        build(lambda x: xla.custom_call(x.builder, "$name", [x], f32(2)), f32(2))


def test_tuples_and_tokens_go_in_and_out():
    def swap(pair, token):
        assert token is None
        return pair[1], pair[0]

    def run(x, y):
        pair = xla.tuple_(x, y)
        shape = xla.make_tuple_shape([s32(), f32(2)])
        return xla.custom_call(x.builder, "swap", [pair, xla.create_token(x.builder)], shape)

    second, first = evaluating.compiled(build(run, f32(2), s32()), custom_calls={"swap": swap})(floats([1, 2]), 3)
    same(first, floats([1, 2]))
    same(second, ints(3))


def test_the_target_that_may_be_meant_is_named():
    with pytest.raises(xla.UnsupportedError, match="did you mean ApproxTopK"):
        compiled("AproxTopK", [f32()], f32())


def test_an_unknown_target_is_refused_when_compiled():
    with pytest.raises(xla.UnsupportedError, match="no custom call is registered as 'nothing'") as caught:
        compiled("nothing", [f32()], f32())
    assert "docs/workbench.md" in str(caught.value)
    assert caught.value.location.file.endswith("test_custom_call.py")


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("__gpu$xla.gpu.triton", "a kernel of Triton's"),
        ("tpu_custom_call", "a kernel of Mosaic's"),
        ("xla_ffi_python_cpu_callback", "a callback"),
        ("xlakit_python_callback", "a callback"),
    ],
)
def test_what_a_dump_has_no_meaning_of_is_said_in_words(target, what):
    with pytest.raises(xla.UnsupportedError, match=f"no custom call is registered as '{re.escape(target)}'") as caught:
        compiled(target, [f32()], f32())
    assert f"it is {what}" in caught.value.hint
    assert "--custom-calls" in caught.value.hint


def test_registered_for_all_programs():
    xla.register_custom_call("test.twice", lambda x: x * np.float32(2))
    same(compiled("test.twice", [f32()], f32())(floats(3)), floats(6))
    # An executable's own function goes first.
    same(compiled("test.twice", [f32()], f32(), {"test.twice": lambda x: x})(floats(3)), floats(3))


def test_with_the_context_the_function_sees_its_instruction():
    def tell(context, x):
        config = context.instruction.annotations.backend_config
        return np.full(context.shape.dimensions, float(config), np.float32) + x

    xla.register_custom_call("test.tell", tell, with_context=True)
    program = build(lambda x: xla.custom_call(x.builder, "test.tell", [x], f32(2), "1.5"), f32())
    executable = evaluating.compiled(program)
    same(executable(floats(1)), floats([2.5, 2.5]))


def test_an_exception_reaches_the_caller_with_its_traceback():
    def fails(x):
        raise KeyError("from inside")

    with pytest.raises(xla.ExecutionError, match="'fails' raised KeyError: 'from inside'") as caught:
        compiled("fails", [f32()], f32(), {"fails": fails})(1.0)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in fails" in "".join(traceback.format_exception(caught.value))


def test_the_result_must_fit_the_declared_shape():
    executable = compiled("wrong", [f32(2)], f32(2), {"wrong": lambda x: x.astype(np.float64)})
    with pytest.raises(xla.ExecutionError, match=r"result of custom call 'wrong' takes f32\[2\], got f64\[2\]"):
        executable(floats([1, 2]))


def test_operands_cannot_be_changed():
    def writes(x):
        x[0] = 0
        return x

    with pytest.raises(xla.ExecutionError, match="read-only"):
        compiled("writes", [f32(2)], f32(2), {"writes": writes})(floats([1, 2]))


def test_calls_with_effects_run_even_if_unused():
    seen = []

    def run(x):
        for name, effect in (("kept", True), ("dropped", False)):
            xla.custom_call(x.builder, name, [x], f32(), has_side_effect=effect)
        return x

    functions = {name: lambda x, name=name: (seen.append(name), x)[1] for name in ("kept", "dropped")}
    evaluating.compiled(build(run, f32()), custom_calls=functions)(1.0)
    assert seen == ["kept"]


# -- C ---------------------------------------------------------------------------------------------

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def floats_at(address, count):
    return (ctypes.c_float * count).from_address(address)


@SIGNATURE
def my_function(out, inputs):
    x, y, z = floats_at(inputs[0], 2), floats_at(inputs[1], 6), floats_at(out, 9)
    z[0] = x[1] + y[3]


def test_the_document_s_c_function():
    for target in (my_function, ctypes.cast(my_function, ctypes.c_void_p).value):
        xla.register_c_custom_call("test.myfunc", target)
        result = compiled("test.myfunc", [f32(2), f32(2, 3)], f32(3, 3))(
            floats([1, 2]), floats([[10, 20, 30], [40, 50, 60]])
        )
        assert result[0, 0] == 42


def test_c_buffers_lie_in_the_layouts_of_the_shapes():
    columns = xla.make_shape(xla.F32, (2, 3), layout=Layout((0, 1)))

    @SIGNATURE
    def copy(out, inputs):
        ctypes.memmove(out, inputs[0], 24)

    executable = compiled("copy", [f32(2, 3)], f32(6), {"copy": copy}, operand_shapes_with_layout=[columns])
    same(executable(floats([[1, 2, 3], [4, 5, 6]])), floats([1, 4, 2, 5, 3, 6]))


def test_a_tuple_is_a_table_of_pointers():
    @SIGNATURE
    def split(out, inputs):
        source = floats_at(inputs[0], 2)
        for i in range(2):
            floats_at((ctypes.c_void_p * 2).from_address(out)[i], 1)[0] = source[i]

    first, second = compiled("split", [f32(2)], xla.make_tuple_shape([f32(), f32()]), {"split": split})(floats([3, 4]))
    assert (float(first), float(second)) == (3, 4)


def test_other_signatures_are_refused():
    with pytest.raises(xla.UnsupportedError, match="API_VERSION_TYPED_FFI") as caught:
        compiled("f", [f32()], f32(), {"f": my_function}, api_version=CustomCallApiVersion.API_VERSION_TYPED_FFI)
    assert caught.value.operation == "custom-call 'custom-call.1'"
    with pytest.raises(xla.ArgumentError, match="no C function"):
        xla.register_c_custom_call("test.none", "address")


# -- built-in --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    ["Sharding", "LayoutConstraint", "annotate_device_placement", "MoveToHost", "AwsNeuronTransferWithStaticRing"],
)
def test_hints_do_not_change_values(target):
    same(compiled(target, [f32(2)], f32(2))(floats([1, 2])), floats([1, 2]))


def test_the_operands_of_a_marked_call_are_a_tuple():
    before = "__xla_internal_call_marker_before"
    (one,) = compiled(before, [f32(2)], xla.make_tuple_shape([f32(2)]))(floats([1, 2]))
    same(one, floats([1, 2]))
    first, second = compiled(before, [f32(2), f32()], xla.make_tuple_shape([f32(2), f32()]))(floats([1, 2]), floats(3))
    same(first, floats([1, 2]))
    same(second, floats(3))


def test_shards_of_one_partition_are_the_whole():
    executable = compiled("SPMDFullToShardShape", [f32(2)], f32(2))
    same(executable(floats([1, 2])), floats([1, 2]))
    with pytest.raises(xla.UnsupportedError, match="partition the program"):
        evaluating.compiled(
            build(lambda x: xla.custom_call(x.builder, "SPMDFullToShardShape", [x], f32(1)), f32(2)), num_partitions=2
        )(floats([1, 2]))


def test_top_k():
    result = xla.make_tuple_shape([f32(2, 2), s32(2, 2)])
    rows = floats([[1, 5, 3, 5], [np.nan, -1, 7, 0]])
    values, places = compiled("TopK", [f32(2, 4)], result)(rows)
    same(values, floats([[5, 5], [np.nan, 7]]))
    same(places, ints([[1, 3], [0, 2]]))
    # As XLA's GPU backend calls it.
    again, _ = compiled("__gpu$TopK", [f32(2, 4)], result)(rows)
    same(again, values)
    smallest = build(lambda a, b: a < b, f32(), f32())
    values, places = compiled("TopK", [f32(2, 4)], result, computation=smallest)(floats([[1, 5, 3, 5], [4, 3, 2, 1]]))
    same(values, floats([[1, 3], [1, 2]]))
    same(places, ints([[0, 2], [3, 2]]))


def test_padding_to_bounds_and_back():
    dynamic = f32(4, dynamic=(True,))
    padded = xla.make_tuple_shape([f32(4), s32()])
    values, size = compiled("PadToStatic", [dynamic], padded)(floats([1, 2]))
    same(values, floats([1, 2, 0, 0]))
    same(size, ints(2))
    same(compiled("SliceToDynamic", [f32(4), s32()], dynamic)(floats([1, 2, 0, 0]), 2), floats([1, 2]))


def test_custom_call_checks_layouts_and_aliases():
    with pytest.raises(xla.ShapeError, match="for operand 0"):
        compiled("Sharding", [f32(2)], f32(2), operand_shapes_with_layout=[f32(3)])
    with pytest.raises(xla.ShapeError, match="needs the name"):
        compiled("", [f32(2)], f32(2))
    with pytest.raises(xla.ArgumentError, match="not a built computation"):
        compiled("Sharding", [f32(2)], f32(2), computation=lambda x: x)


def test_pin_and_unpin_share_the_memory_of_an_array_and_its_buffer():
    text = """HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  b = b(f32[2]) custom-call(x), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}
  ROOT y = f32[2] custom-call(b), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}
}
"""
    xla.HloModule.from_text(text).verify()
    with pytest.raises(xla.ShapeError, match="joins"):
        xla.HloModule.from_text(text.replace("Pin", "Other")).verify()
