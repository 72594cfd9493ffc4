"""Copies and pickles of values, programs and executables, in this process and in others."""

import copy
import ctypes
import multiprocessing
import os
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import pickled
import pytest

import xlakit as xla
from xlakit import options
from xlakit.errors import Location
from xlakit.ops.registry import OPERATIONS

GOLDEN = sorted((Path(__file__).parent / "passes" / "golden").glob("*/*.hlo"))
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
DOUBLED = "HloModule doubled\nENTRY e {\n  p = f32[2,3]{0,1} parameter(0)\n  ROOT s = f32[2,3]{0,1} add(p, p)\n}\n"
DRAWS = (
    "HloModule draws\nENTRY e {\n  a = f32[] constant(0)\n  b = f32[] constant(1)\n"
    "  ROOT r = f32[4] rng(a, b), distribution=rng_uniform\n}\n"
)
CALLS = (
    "HloModule calls\nENTRY e {\n  p = f32[3] parameter(0)\n"
    '  ROOT c = f32[3] custom-call(p), custom_call_target="half"\n}\n'
)
INPUT = np.arange(6, dtype=np.float32).reshape(2, 3)


def half(array):
    return array / 2


def again(value, protocol=None):
    return pickle.loads(pickle.dumps(value, protocol))


def copies(value):
    return [copy.copy(value), copy.deepcopy(value), *(again(value, protocol) for protocol in PROTOCOLS)]


def parse(text):
    return xla.HloModule.from_text(text)


def golden(path):
    return parse(path.read_text(encoding="utf-8").partition("\n// after\n")[0])


def unnumbered(module):
    return re.sub(r"\.\d+", "", module.to_text())


VALUES = [
    xla.BF16,
    xla.Layout((0, 1), tiles=(xla.Tile((8, 128)),)),
    xla.make_shape(xla.F32, (2, 3), layout=xla.Layout((0, 1))),
    xla.make_shape(xla.S4, (2, 3), dynamic_dimensions=(True, False)),
    xla.make_tuple_shape([xla.make_shape(xla.PRED, ()), xla.make_tuple_shape([])]),
    xla.Literal.from_value((np.float32(1.5), (np.array([1, 2]), np.array([0.5], ml_dtypes.float8_e5m2)))),
    xla.Literal.token(),
    parse(DOUBLED).program_shape,
    Location("file.py", 3, 4),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_are_equal(value):
    assert all(other == value for other in copies(value))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_modules_are_what_they_were(path):
    module = golden(path)
    assert copy.copy(module) is module
    assert copy.deepcopy([module])[0] is module
    other = again(module)
    other.verify()
    # A proto names instructions apart in the whole module.
    assert unnumbered(other) == unnumbered(module)


def test_modules_of_every_protocol():
    assert {again(parse(DOUBLED), protocol).to_text() for protocol in PROTOCOLS} == {parse(DOUBLED).to_text()}


def test_a_long_chain_is_no_deep_one():
    lines = ["  i0 = f32[] parameter(0)", *(f"  i{n} = f32[] negate(i{n - 1})" for n in range(1, 20_000))]
    module = parse("HloModule chain\nENTRY e {\n" + "\n".join(lines) + "\n  ROOT r = f32[] negate(i19999)\n}\n")
    for value in (module, module.entry, module.entry.root):
        assert copy.deepcopy(value) is value
    assert again(module).instruction_count() == 20_001
    assert again(module.entry.root).operands[0].opcode == "negate"


def test_computations_and_instructions_keep_what_they_call():
    entry = golden(next(p for p in GOLDEN if p.stem == "empty")).entry
    other = again(entry)
    assert [i.opcode for i in other.instructions] == [i.opcode for i in entry.instructions]
    assert other.program_shape == entry.program_shape
    (reduce,) = (i for i in entry.instructions if i.opcode == "reduce")
    found = again(reduce)
    assert str(found) == str(reduce)
    assert found.op.to_apply.root.opcode == "add"


@pytest.mark.parametrize("opcode", ["add", "convert", "iota", "compare"])
def test_operations(opcode):
    modules = [golden(path) for path in GOLDEN]
    op = next(i.op for m in modules for i in m.entry.instructions if i.opcode == opcode)
    assert all(other == op and type(other) is OPERATIONS[opcode] for other in copies(op))


def test_a_built_computation():
    builder = xla.XlaBuilder("built")
    x = xla.parameter(builder, 0, xla.make_shape(xla.F32, (2, 3)), "x")
    computation = builder.build(xla.reduce(x, xla.constant(builder, np.float32(0)), xla.add, [0]))
    assert all(other.to_text() == computation.to_text() for other in copies(computation))
    (result,) = {tuple(xla.compile(other)(INPUT)) for other in copies(computation)}
    assert result == (3, 5, 7)


# -- errors ----------------------------------------------------------------------------------------

ERRORS = [
    xla.ShapeError("rule", operation="add", shapes=[1, "f32[]"], hint="do it", location=Location("f.py", 1, 2)),
    xla.ParseError("expected x", source="one\ntwo three", offset=8, name="file.hlo", hint="write x"),
    *(kind("rule", hint="hint") for kind in xla.XlakitError.__subclasses__() if kind is not xla.ParseError),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_errors_say_the_same(error):
    error.add_note("and a note")
    for other in copies(error):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.__dict__ == error.__dict__
        assert other.args == error.args


# -- executables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_executables_run_again(backend):
    executable = xla.compile(parse(DOUBLED), backend=backend)
    for other in copies(executable):
        assert type(other) is type(executable)
        assert other is not executable
        np.testing.assert_array_equal(other(INPUT), 2 * INPUT)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_random_numbers_go_on_from_where_they_were(backend):
    executable = xla.compile(parse(DRAWS), backend=backend, seed=3)
    executable()
    others = copies(executable)
    following = executable()
    for other in others:
        np.testing.assert_array_equal(other(), following)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_functions_of_custom_calls_go_along(backend):
    executable = xla.compile(parse(CALLS), backend=backend, custom_calls={"half": half})
    for other in copies(executable):
        np.testing.assert_array_equal(other(np.float32([2, 4, 6])), [1, 2, 3])


def test_options_of_the_compilation_go_along():
    with options.compiling(plain="fusion"):
        executable = xla.compile(parse(DOUBLED), cache=False)
    assert again(executable).recipe.options.plain == {"fusion"}


def test_devices_go_along():
    text = DOUBLED.replace("HloModule doubled", "HloModule doubled, replica_count=2")
    for backend in ("cpu", "interpreter"):
        other = again(xla.compile(parse(text), backend=backend))
        assert other.num_devices == 2
        assert len(other(INPUT)) == 2


def test_copies_share_the_feeds_that_they_were_given():
    execution_context = xla.ExecutionContext()
    shared, own = xla.compile(parse(DOUBLED), execution_context=execution_context), xla.compile(parse(DOUBLED))
    assert copy.copy(shared).execution_context is execution_context
    assert again(shared).execution_context is not execution_context
    assert copy.copy(own).execution_context is not own.execution_context


def test_what_cannot_travel_is_refused():
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda out, given: None)
    executable = xla.compile(parse(CALLS), custom_calls={"half": function}, cache=False)
    with pytest.raises(ValueError, match="pickle"):
        again(executable)


def test_loaded_executables_stay_with_their_client():
    with xla.Client(devices=2) as client:
        loaded = client.compile(parse(DOUBLED), device_assignment=[client.devices()[1]])
        for other in copies(loaded):
            assert other.client is client
            assert [d.id for d in other.local_devices()] == [1]
            np.testing.assert_array_equal(pickled.called(other, INPUT)[1], 2 * INPUT)
        buffer = client.buffer_from_host(INPUT, client.devices()[1])
        for other in copies(buffer):
            assert other.device is client.devices()[1]
            np.testing.assert_array_equal(other, INPUT)
        assert copy.deepcopy(client) is again(client) is client


def test_a_pool_of_spawned_processes():
    module = parse(DOUBLED)
    with (
        xla.Client(devices=2) as client,
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        loaded = client.compile(module, device_assignment=[client.devices()[1]])
        executables = [xla.compile(module, backend=b) for b in ("cpu", "interpreter")]
        for executable in (*executables, loaded):
            process, result = pool.submit(pickled.called, executable, INPUT).result(timeout=120)
            assert process != os.getpid()
            np.testing.assert_array_equal(result, 2 * INPUT)
        process, text = pool.submit(pickled.text_of, module).result(timeout=120)
        assert process != os.getpid()
        assert text == module.to_text()
        assert pool.submit(pickled.client_of, loaded, loaded).result(timeout=120) == (True, 2, [1])
        with pytest.raises(xla.ShapeError, match="it is a test") as caught:
            pool.submit(pickled.fail, module.entry.root.shape).result(timeout=120)
        assert caught.value.shapes == ("f32[2,3]{0,1}",)
        with pytest.raises(xla.ParseError) as broken:
            pool.submit(pickled.parse, "HloModule m\nENTRY e {\n  p = q[3] parameter(0)\n}\n").result(timeout=120)
        assert broken.value.line == 3
