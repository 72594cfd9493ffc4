"""Handlers of XLA's typed FFI: what they get, what they give, their errors and states, on both backends."""

import ctypes
import gc

import numpy as np
import pytest
from evaluating import build, shape
from ffi_frames import HANDLER, doubled, handler, words

import xlakit as xla
from xlakit.errors import ArgumentError, HandlerError, ParseError, UnsupportedError
from xlakit.execution.calls.custom_calls import _registered
from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.attributes import parse_attributes
from xlakit.execution.calls.ffi.interface import new_error, register_type
from xlakit.execution.calls.ffi.structures import Stage

TYPED = "API_VERSION_TYPED_FFI"


@pytest.fixture(autouse=True)
def own_registry():
    before = dict(_registered)
    yield
    _registered.clear()
    _registered.update(before)


@pytest.fixture(params=["interpreter", "cpu"])
def where(request):
    return request.param


def call(operands, result, where, opaque="", **options):
    def program(*xs):
        return xla.custom_call(xs[0].builder, "handled", xs, result, opaque, api_version=TYPED, **options)

    return xla.compile(build(program, *map(shape_of, operands)), backend=where)


def f32(numbers):
    return np.array(numbers, np.float32)


def s32(numbers):
    return np.array(numbers, np.int32)


def shape_of(array):
    return shape(xla.PrimitiveType.from_dtype(array.dtype), *array.shape)


def given_memory(array):
    """A copy at an address that programs may write results to."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    made = memory[-memory.ctypes.data % 64 :][: array.nbytes].view(array.dtype)
    made[...] = array
    return made


@pytest.mark.parametrize(
    ("operands", "in_place", "is_kept"),
    [("x, y", "", False), ("x, y", ", output_to_operand_aliasing={{}: (0, {})}", True),
     ("x, x", ", output_to_operand_aliasing={{}: (0, {})}", False), ("y, x", "", False)],
)  # fmt: skip
def test_a_donated_argument_is_written_by_those_that_work_in_place_alone(operands, in_place, is_kept, where):
    """A handler may read an operand again when it has written a part of its result."""

    def backwards(frame, given, made, found):
        for n in range(len(made[0])):
            made[0][n] = (found["both"] and given[0][-1 - n]) + given[1][-1 - n]

    kept = handler(backwards)
    xla.register_ffi_handler("handled", kept)
    both = "false" if in_place else "true"
    module = xla.HloModule.from_text(f"""HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}
ENTRY e {{
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  ROOT r = f32[64] custom-call({operands}), custom_call_target="handled", api_version={TYPED}{in_place},
    backend_config="{{both = {both}}}"
}}""")
    x, y = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32) ** 2
    by_name = {"x": x, "y": y}
    first, second = (by_name[name] for name in operands.split(", "))
    donated = given_memory(x)
    result = xla.compile(module, backend=where, cache=False)(donated, y, donate=[0])
    np.testing.assert_array_equal(result, ((0 if in_place else first) + second)[::-1])
    assert where == "interpreter" or (result is donated) is is_kept


def test_operands_results_and_attributes(where):
    seen = {}

    def scaled(frame, given, made, found):
        seen.update(found)
        made[0][...] = found["scale"] * given[0] + given[1]
        made[1][...] = given[0].shape

    xla.register_ffi_handler("handled", keep := handler(scaled))
    result = xla.make_tuple_shape([shape(xla.F32, 2, 3), shape(xla.S64, 2)])
    text = '{scale = 2.5 : f32, name = "a\\22\\C3\\BC", deep = {on = true, n = -3 : i8}, dims = array<i64: 4, 5>}'
    x, y = f32([[0, 1, 2], [3, 4, 5]]), f32(np.ones((2, 3)))
    first, second = call([x, y], result, where, text)(x, y)
    np.testing.assert_array_equal(first, 2.5 * np.asarray(x) + 1)
    assert second.tolist() == [2, 3]
    assert seen == {"deep": {"n": -3, "on": True}, "dims": [4, 5], "name": 'a"ü', "scale": 2.5}
    assert list(seen) == sorted(seen)
    assert keep


def test_machine_code_makes_the_call(no_python):
    xla.register_ffi_handler("handled", keep := handler(lambda frame, given, made, found: doubled(given, made)))
    x = s32([1, 2, 3])
    program = call([x], shape(xla.S32, 3), "cpu")
    assert program(x).tolist() == [2, 4, 6]
    assert program.fallbacks == ()
    assert keep


def test_another_layout_goes_through_python(where):
    """The handler is told dimensions in their order; their elements lie as the layout says."""
    shapes = []

    def told(frame, given, made, found):
        shapes.append((given[0].shape, given[0].reshape(-1).tolist()))
        made[0][...] = given[0]

    xla.register_ffi_handler("handled", keep := handler(told))
    x = s32([[0, 1, 2], [3, 4, 5]])
    columns = shape(xla.S32, 2, 3).with_layout(xla.Layout((0, 1)))
    program = call([x], columns, where, operand_shapes_with_layout=[columns])
    np.testing.assert_array_equal(program(x), x)
    assert shapes == [((2, 3), [0, 3, 1, 4, 2, 5])]
    assert keep


def test_a_result_in_the_memory_of_an_operand(where):
    def add_to(frame, given, made, found):
        assert given[0].ctypes.data == made[0].ctypes.data
        made[0][...] += 1

    xla.register_ffi_handler("handled", keep := handler(add_to))
    x = s32([1, 2, 3])
    pair = xla.OutputOperandAliasing((), 0, ())

    def program(x):
        made = xla.custom_call(
            x.builder, "handled", [x], shape(xla.S32, 3), api_version=TYPED, output_operand_aliasing=[pair]
        )
        return made * 10 + x

    assert xla.compile(build(program, shape_of(x)), backend=where)(x).tolist() == [21, 32, 43]
    assert keep


def test_errors_have_their_code_and_place(where):
    xla.register_ffi_handler("handled", keep := handler(lambda *_: new_error(11, "too far")))
    x = s32([1])
    program = call([x], shape(xla.S32, 1), where)
    for _ in range(2):
        with pytest.raises(HandlerError, match=r"custom-call .*: custom call 'handled' failed: too far") as caught:
            program(x)
        assert caught.value.code == "OUT_OF_RANGE"
    assert keep


def test_in_a_loop_it_runs_as_often_as_the_loop(where):
    calls = []

    def once(frame, given, made, found):
        calls.append(int(given[0]))
        made[0][...] = given[0] + 2
        return new_error(3, "enough") if given[0] > 6 else None

    xla.register_ffi_handler("handled", keep := handler(once))

    def program(x):
        def step(x):
            return xla.custom_call(
                x.builder,
                "handled",
                [x],
                shape(
                    xla.S32,
                ),
                api_version=TYPED,
            )

        return xla.while_(lambda x: x < 100, step, x)

    compiled = xla.compile(build(program, shape_of(s32(1))), backend=where)
    with pytest.raises(HandlerError, match="enough"):
        compiled(s32(1))
    assert calls == [1, 3, 5, 7]
    assert keep


def test_states_belong_to_a_call_and_end_with_the_program(where):
    freed = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(freed.append)
    info = structures.TypeInfo(ctypes.sizeof(structures.TypeInfo), None, ctypes.cast(deleter, ctypes.c_void_p))
    type_id = ctypes.c_int64(0)
    register_type("test_states", ctypes.addressof(type_id), ctypes.addressof(info))
    table = {}

    def function(frame, number):
        # After the head of the table: its size, extensions, version and internal interface.
        address = words(frame.api, 24)[6 + number]
        return ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(address)

    def state_arguments(frame, stage, state):
        return (ctypes.c_int64 * 6)(48, 0, frame.ctx, stage, ctypes.addressof(type_id), state)

    def begin(frame, given, made, found):
        assert (given, made) == ([], [])
        table[len(table) + 1000] = int(found["start"])
        return function(frame, 7)(state_arguments(frame, Stage.INSTANTIATE, len(table) + 999))

    def use(frame, given, made, found):
        arguments = state_arguments(frame, Stage.INSTANTIATE, 0)
        error = function(frame, 8)(arguments)
        if not error:
            table[arguments[5]] += 1
            made[0][...] = table[arguments[5]]
        return error

    handlers = {"instantiate": handler(begin), "execute": handler(use)}
    xla.register_ffi_handler("handled", handlers)
    x = s32([1])
    programs = [
        call(
            [x],
            shape(
                xla.S32,
            ),
            where,
            f"{{start = {n} : i32}}",
        )
        for n in (10, 20)
    ]
    assert [int(p(x)) for p in (*programs, *programs)] == [11, 21, 12, 22]
    assert sum(len(p.fallbacks) for p in programs) == (2 if where == "cpu" else 0)
    del programs
    gc.collect()
    assert sorted(freed) == [1000, 1001]


@pytest.mark.parametrize(
    ("handlers", "error", "text"),
    [
        (lambda: handler(doubled, (0, 99)), UnsupportedError, r"has version 0\.99"),
        (lambda: {"initialize": handler(doubled)}, ArgumentError, "stages initialize"),
        (lambda: {"execute": handler(doubled), "run": handler(doubled)}, ArgumentError, "stages execute, run"),
        (lambda: "execute", ArgumentError, "no C function"),
    ],
)
def test_what_cannot_be_registered(handlers, error, text):
    with pytest.raises(error, match=text):
        xla.register_ffi_handler("handled", handlers())


def _plain(out, operands):
    """What a C function does that is registered for the wrong interface."""
    count = 1000 + (ctypes.c_int32 * 1).from_address(operands[1])[0]
    given = (ctypes.c_float * count).from_address(operands[0])
    made = (ctypes.c_float * count).from_address(out)
    for n in range(count):
        made[n] = given[n] + 1


@pytest.mark.parametrize("result", [None, ctypes.c_size_t])
def test_a_plain_c_function_is_no_handler(result):
    kind = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    function = kind(lambda out, operands: _plain(out, operands) if result is None else 12345)
    with pytest.raises(ArgumentError, match=r"(?s)'handled' is no handler of XLA's typed FFI.*register_c_custom_call"):
        xla.register_ffi_handler("handled", function)


def test_a_handler_that_refuses_the_version_says_so():
    refused = HANDLER(lambda frame: new_error(structures.CODES.index("UNIMPLEMENTED"), "too old"))
    with pytest.raises(HandlerError, match="too old"):
        xla.register_ffi_handler("handled", refused)


def test_calls_of_another_version_are_refused(where):
    xla.register_ffi_handler("handled", keep := handler(doubled))
    program = build(lambda x: xla.custom_call(x.builder, "handled", [x], shape(xla.S32, 1)), shape_of(s32([1])))
    with pytest.raises(UnsupportedError, match="API_VERSION_ORIGINAL of a handler"):
        xla.compile(program, backend=where)
    assert keep


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ("", {}),
        ("{a = 5 : i64, b = 7 : ui8, c = -1 : si16, d = 200 : i8}", None),
        ("{a = 5, b = 1.5}", {"a": 5, "b": 1.5}),
        ("{a = 0x7F800000 : f32, b = 0x7FC0 : bf16}", {"a": np.inf, "b": np.nan}),
        ("{a = dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>}", {"a": [1, 2, 3, 4]}),
        ("{a = dense<1.5> : tensor<3xf64>, b = dense<> : tensor<0xi64>}", {"a": [1.5] * 3, "b": []}),
        ('{a = dense<"0x01000200"> : tensor<2xi16>}', {"a": [1, 2]}),
        ("{a = dense<[true, false]> : tensor<2xi1>, u}", {"a": [True, False], "u": True}),
        ("{a = array<f32>, b = array<i1: true, false>}", {"a": [], "b": [True, False]}),
        ('{"a b" = "x\\0Ay\\\\"}', {"a b": "x\ny\\"}),
    ],
)
def test_texts_of_attributes(text, value):
    if value is None:
        with pytest.raises(ParseError, match="200, which is no s8"):
            parse_attributes(text)
        return
    found = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in parse_attributes(text).items()}
    np.testing.assert_equal(found, value)


@pytest.mark.parametrize(
    "text",
    [
        "{a = 5 : i64",
        "{a = [1, 2]}",
        "{a = 5 : tuple}",
        "{= 5}",
        "{a = dense<[1, 2]> : tensor<3xi8>}",
        '{a = dense<"0x01"> : tensor<2xi16>}',
        "{a = 5} b",
        "axis=5",
        "{a = 'x'}",
        "{a = array<i64: 1, x>}",
    ],
)
def test_texts_that_are_no_attributes(text):
    with pytest.raises(ParseError, match="backend_config"):
        parse_attributes(text)
