"""C functions behind custom calls in compiled programs: called by machine code, without Python in between."""

import ctypes
import shutil
import subprocess

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest
from evaluating import build, f32, floats, ints, s32, same

import xlakit as xla
from xlakit import compile_cache as cache
from xlakit.data.layout import Layout

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))

# void twice(float (*out)[4], float (**in)[4]): each element twice.
TWICE = """
define void @twice(ptr %out, ptr %in) {
entry:
  %x = load ptr, ptr %in
  %value = load <4 x float>, ptr %x, align 4
  %sum = fadd <4 x float> %value, %value
  store <4 x float> %sum, ptr %out, align 4
  ret void
}
"""


@pytest.fixture(scope="module")
def engine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    made = llvm.create_mcjit_compiler(llvm.parse_assembly(TWICE), machine)
    made.finalize_object()
    return made


def call(target, operands, result, functions=None, **options):
    program = build(lambda *xs: xla.custom_call(xs[0].builder, target, xs, result, **options), *operands)
    return xla.compile(program, backend="cpu", custom_calls=functions)


def capsule(address):
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(("PyCapsule_New", ctypes.pythonapi))(address, b"name", None)


@pytest.mark.parametrize("form", [int, SIGNATURE, ctypes.c_void_p, capsule])
def test_llvmlite_s_code_in_every_form_of_a_pointer(engine, no_python, form):
    pointer = form(engine.get_function_address("twice"))
    same(call("twice", [f32(4)], f32(4), {"twice": pointer})(floats([1, 2, 3, 4])), floats([2, 4, 6, 8]))
    xla.register_c_custom_call("c_calls.twice", pointer)
    same(call("c_calls.twice", [f32(4)], f32(4))(floats([1, 2, 3, 4])), floats([2, 4, 6, 8]))


def test_between_other_operations_and_in_loops(engine, no_python):
    def loop(x):
        def body(state):
            count, value = (xla.get_tuple_element(state, i) for i in range(2))
            return count + 1, xla.custom_call(value.builder, "twice", [value + 1.0], f32(4))

        start = (xla.constant(x.builder, 0), x)
        return xla.get_tuple_element(xla.while_(lambda s: xla.get_tuple_element(s, 0) < 3, body, start), 1) * 10.0

    executable = xla.compile(
        build(loop, f32(4)), backend="cpu", custom_calls={"twice": engine.get_function_address("twice")}
    )
    assert executable.host_instructions == ()
    same(executable(floats([0, 1, 2, 3])), floats([140, 220, 300, 380]))


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_shared_library(tmp_path, no_python):
    source = tmp_path / "sum.c"
    source.write_text(
        "void sum(void* out, void** in) { *(float*)out = 0; for (int i = 0; i < 3; ++i) "
        "*(float*)out += ((float*)in[0])[i] * ((float**)in[1])[0][i] + (in[2] == 0); }"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "sum.so", source], check=True)
    library = ctypes.CDLL(str(tmp_path / "sum.so"))

    def program(x, y):
        b = x.builder
        return xla.custom_call(b, "sum", [x, xla.tuple_(y, x), xla.create_token(b)], f32())

    executable = xla.compile(build(program, f32(3), f32(3)), backend="cpu", custom_calls={"sum": library.sum})
    same(executable(floats([1, 2, 3]), floats([4, 5, 6])), floats(35))


def test_layouts_are_those_of_the_shapes(no_python):
    seen = []

    @SIGNATURE
    def look(out, inputs):
        seen.append(list((ctypes.c_float * 6).from_address(inputs[0])))
        first, second = (ctypes.c_void_p * 2).from_address(out)
        ctypes.memmove(first, inputs[0], 24)
        ctypes.memmove(second, inputs[0], 24)

    columns = xla.make_shape(xla.F32, (2, 3), layout=Layout((0, 1)))
    result = xla.make_tuple_shape([columns, f32(6).with_default_layout()])
    executable = call("look", [f32(2, 3)], result, {"look": look}, operand_shapes_with_layout=[columns])
    x = floats([[1, 2, 3], [4, 5, 6]])
    first, second = executable(x)
    assert seen == [[1, 4, 2, 5, 3, 6]]
    same(first, x)
    same(second, floats(seen[0]))


def test_a_result_in_the_memory_of_an_operand(no_python):
    @SIGNATURE
    def set_first(out, inputs):
        assert out == inputs[0]
        ctypes.c_int32.from_address(out).value = 9

    alias = [xla.OutputOperandAliasing((), 0, ())]
    x = ints([1, 2])
    program = build(lambda v: xla.custom_call(v.builder, "set", [v], s32(2), output_operand_aliasing=alias), s32(2))
    for backend in ("cpu", "interpreter"):
        same(xla.compile(program, backend=backend, custom_calls={"set": set_first})(x), ints([9, 2]))
        same(x, ints([1, 2]))


def test_elements_below_a_byte_have_a_byte_each(no_python):
    @SIGNATURE
    def copy(out, inputs):
        ctypes.memmove(out, inputs[0], 3)

    shape = xla.make_shape(xla.S4, (3,))
    values = np.array([1, -2, 7], np.int8).astype(ml_dtypes.int4)
    assert call("copy", [shape], shape, {"copy": copy})(values).tolist() == [1, -2, 7]


def test_what_holds_the_gil_is_called_by_python():
    hold = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))

    @hold
    def seven(out, inputs):
        ctypes.c_int32.from_address(out).value = 7

    executable = call("seven", [s32()], s32(), {"seven": seven})
    assert len(executable.host_instructions) == 1
    same(executable(1), ints(7))


def test_what_is_kept_on_disk_says_the_name_and_not_the_address(tmp_path, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("XLAKIT_CACHE", raising=False)
    monkeypatch.setattr("xlakit.cpu.compiler.compiler_has_changed", lambda: False)
    monkeypatch.setattr("xlakit.cpu.cache.cache_key.compiler_has_changed", lambda: False)
    assert cache.is_enabled()

    def storing(number):
        @SIGNATURE
        def store(out, inputs):
            ctypes.c_int32.from_address(out).value = number

        return store

    functions = [storing(1), storing(2), lambda x: ints(3)]
    results = [int(call("store", [s32()], s32(), {"store": f})(0)) for f in (*functions, *functions)]
    assert results == [1, 2, 3, 1, 2, 3]
    assert len(list(tmp_path.rglob("program-*"))) == 2


def test_calls_without_effects_are_shared_and_left_out():
    calls = []

    @SIGNATURE
    def count(out, inputs):
        calls.append(1)
        ctypes.c_int32.from_address(out).value = ctypes.c_int32.from_address(inputs[0]).value + 1

    def program(x, effect):
        b = x.builder
        a, c, _ = (xla.custom_call(b, "count", [x], s32(), has_side_effect=effect) for _ in range(3))
        return a + c

    for effect, expected in ((False, 1), (True, 3)):
        calls.clear()
        executable = xla.compile(
            build(lambda x, effect=effect: program(x, effect), s32()), backend="cpu", custom_calls={"count": count}
        )
        same(executable(4), ints(10))
        assert len(calls) == expected


def test_on_several_devices_at_once(engine, no_python):
    executable = xla.compile(
        build(lambda x: xla.custom_call(x.builder, "twice", [x], f32(4)), f32(4)),
        backend="cpu",
        num_replicas=3,
        custom_calls={"twice": engine.get_function_address("twice")},
    )
    rows = [[np.full(4, i, np.float32)] for i in range(3)]
    for i, result in enumerate(executable.execute_replicated(rows)):
        same(result, np.full(4, 2 * i, np.float32))


def test_small_numbers_are_no_addresses():
    with pytest.raises(xla.ArgumentError, match="no address"):
        call("f", [f32()], f32(), {"f": 12})


def test_a_call_of_lapack_without_matrices_compiles_and_fails_when_it_is_made():
    text = """HloModule m
    ENTRY e { ROOT c = () custom-call(), custom_call_target="lapack_sgetrf_ffi", custom_call_has_side_effect=true }"""
    program = xla.compile(xla.HloModule.from_text(text), backend="cpu")
    with pytest.raises(xla.ExecutionError, match="lapack_sgetrf_ffi"):
        program()
