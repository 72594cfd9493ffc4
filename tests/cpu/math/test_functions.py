import ctypes
import platform
import sys

import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla
from fuzz.math import BINARY, Compiled, edges, exact_error, loop_over, measure, rough_errors
from xlakit import target
from xlakit.cpu.llvm import F32, F64, I32, VOID, Module
from xlakit.cpu.llvm.engine import optimized_module
from xlakit.cpu.math import FUNCTION_NAMES, ULP_BOUNDS, math_function
from xlakit.errors import InternalError
from xlakit.options import compiling

ALL = [(name, kind) for name in FUNCTION_NAMES for kind in (F32, F64)]


@pytest.fixture(scope="module")
def compiled():
    made = {}

    def get(name, kind):
        if (name, kind) not in made:
            made[name, kind] = Compiled(name, kind)
        return made[name, kind]

    return get


def test_there_is_a_bound_for_each_function_and_none_is_above_three():
    assert set(ULP_BOUNDS) == set(ALL)
    assert max(ULP_BOUNDS.values()) <= 3


@pytest.mark.parametrize("name, kind", ALL)
def test_errors_are_within_the_bounds(compiled, name, kind):
    worst = measure(name, kind, compiled(name, kind), points=40_000, checked=8, seed=1)
    assert worst.error <= ULP_BOUNDS[name, kind], worst


@pytest.mark.parametrize("name, kind", ALL)
def test_the_ends_of_the_ranges(compiled, name, kind):
    arguments = [edges(kind)]
    if name in BINARY:
        arguments = [a.ravel() for a in np.meshgrid(edges(kind), edges(kind))]
    errors = rough_errors(name, kind, compiled(name, kind)(*arguments), *arguments)
    # NumPy's own error may add to ours.
    bad = np.flatnonzero(errors > ULP_BOUNDS[name, kind] + 1.5)
    assert not bad.size, [tuple(a[i] for a in arguments) for i in bad]


# Without instructions for it, each fma of F64 is a call, and F32's are many instructions.
@pytest.mark.skipif(not target.fuses(), reason="code is made for a processor without FMA")
# Far angles of F64 are reduced by a call.
@pytest.mark.parametrize("name, kind", [(n, k) for n, k in ALL if k is F32 or n not in ("sin", "cos", "tan")])
def test_loops_become_vector_code(name, kind):
    with optimized_module(loop_over(name, kind, 1).text()) as optimized:
        assert (" x float>" if kind is F32 else " x double>") in str(optimized)


@pytest.mark.parametrize("name, kind", ALL)
def test_the_last_elements_of_a_loop_agree_with_the_others(compiled, name, kind):
    x = (np.linspace(0.1, 0.9, 37) + (name == "acosh")).astype(compiled(name, kind).dtype)
    arguments = [x, x][: 2 if name in BINARY else 1]
    whole = compiled(name, kind)(*arguments)
    for i in range(37):
        assert compiled(name, kind)(*(a[i : i + 1] for a in arguments)) == whole[i]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("kind", [F32, F64])
def test_angles_closest_to_multiples_of_a_quarter_turn(compiled, name, kind):
    # The floats of each format that come closest to a multiple of pi/2, and others known to be close.
    worst = {
        F32: [16367173 * 2.0**72, 5419351 * 2.0**72, 10741887 * 2.0**-3, 3.1415927, 1.5707964],
        F64: [6381956970095103 * 2.0**797, 5319372648326541 * 2.0**-49, 3.141592653589793, 1.5707963267948966, 1e22],
    }[kind]
    x = np.array(worst, compiled(name, kind).dtype)
    for value, result in zip(x, compiled(name, kind)(x), strict=True):
        assert exact_error(name, kind, float(result), float(value)) <= ULP_BOUNDS[name, kind]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_far_angles_do_not_change_their_neighbors(compiled, name):
    random = np.random.default_rng(5)
    x = np.concatenate([random.uniform(-9, 9, 100), 2.0 ** random.uniform(25, 35, 100), [np.inf, np.nan, 2.0**30]])
    run = compiled(name, F64)
    alone = np.concatenate([run(x[i : i + 1]) for i in range(x.size)])
    for order in (np.arange(x.size), random.permutation(x.size)):
        np.testing.assert_array_equal(run(x[order]), alone[order])


def test_a_function_is_added_to_a_module_once():
    module = Module("m")
    fn = module.function("f", F32, [F32], external=True)
    fn.ret(math_function(fn, "exp", math_function(fn, "exp", fn.parameters[0])))
    assert sorted(module.functions) == ["f", "math.exp.float"]


@pytest.mark.parametrize("name", ["sine", "exp"])
def test_what_is_no_function_is_refused(name):
    fn = Module("m").function("f", VOID, [I32])
    with pytest.raises(InternalError):
        math_function(fn, name, fn.parameters[0])


# FE_UNDERFLOW, by the processor; other ones have other numbers.
UNDERFLOW = {"x86_64": 0x10, "aarch64": 0x08}.get(platform.machine())


@pytest.mark.skipif(UNDERFLOW is None or sys.platform != "linux", reason="the C library's number is not known")
@pytest.mark.parametrize("kind, largest, least", [(F32, -87.0, -180.0), (F64, -708.0, -1420.0)])
def test_no_step_of_an_exponential_is_subnormal(compiled, kind, largest, least):
    library, exp = ctypes.CDLL(None), compiled("exp", kind)
    x = np.linspace(least, largest, 4000).astype(exp.dtype)
    library.feclearexcept(UNDERFLOW)
    result = exp(x)
    # Processors compute such a product in a hundred times the time, and note it.
    assert not library.fetestexcept(UNDERFLOW)
    assert 0 < np.count_nonzero(result) < x.size


@pytest.mark.parametrize("kind, dtype, word", [(F32, np.float32, np.uint32), (F64, np.float64, np.uint64)])
@pytest.mark.parametrize("name", ["exp", "expm1", "logistic", "sinh", "cosh"])
def test_a_nan_with_any_payload_stays_nan(compiled, name, kind, dtype, word):
    quiet = np.array(np.nan, dtype).view(word)
    payloads = np.concatenate([np.arange(1, 1 << 12), 1 << np.arange(12, np.finfo(dtype).nmant - 1)]).astype(word)
    numbers = (quiet | payloads).view(dtype)
    assert np.isnan(compiled(name, kind)(np.concatenate([numbers, -numbers]))).all()


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("kind, dtype", [(F32, np.float32), (F64, np.float64)])
def test_exponentials_of_programs_that_flush_differ_in_subnormal_results_alone(compiled, kind, dtype, vector_bytes):
    info = np.finfo(dtype)
    least = np.log(info.smallest_normal.astype(np.longdouble)).astype(dtype)
    most = np.log(info.max.astype(np.longdouble)).astype(dtype)
    near = [end + np.arange(-4000, 4000) * info.eps * 64 for end in (least, most)]
    more = [np.linspace(1.3 * least, 800, 50_001), edges(kind), [np.nan, -np.nan, np.inf, -np.inf]]
    x = np.concatenate([*near, *more]).astype(dtype)
    exact = compiled("exp", kind)(x)
    program = build(xla.exp, shape_of(x))
    with compiling(flush_subnormals=True, vector_bytes=vector_bytes):
        flushed = np.asarray(xla.compile(program, backend="cpu")(x))
    assert np.count_nonzero(np.abs(exact) < info.smallest_normal) > 0
    expected = np.where(exact < info.smallest_normal, 0, exact)
    bits = f"u{x.itemsize}"
    np.testing.assert_array_equal(flushed.view(bits), expected.view(bits))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("function", [xla.sin, xla.cos, xla.tan])
def test_a_number_alone_has_the_bits_that_it_has_in_a_vector(function, kind):
    """Its function has branches; the windows of the reduction begin at powers of two from 2^45 on."""
    tiny, huge = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    sizes = [0, tiny, 0.5, 1.57, 3, 100.25, 2**20 + 1, *(2.0**n * 1.3 for n in (44, 45, 66, 87, 108, 127)), huge]
    numbers = np.array([*sizes, *(-s for s in sizes), np.inf, -np.inf, np.nan], kind)
    bits = f"u{numbers.itemsize}"
    together = np.asarray(xla.compile(build(function, shape_of(numbers)), backend="cpu")(numbers))
    alone = xla.compile(build(function, shape_of(numbers[0])), backend="cpu")
    assert ".called" in alone.llvm_ir()
    for number, expected in zip(numbers, together, strict=True):
        assert np.asarray(alone(number)).view(bits) == expected.view(bits), number


@pytest.mark.parametrize("kind, dtype", [(F32, np.float32), (F64, np.float64)])
@pytest.mark.parametrize("name", ["exp", "log", "log1p", "pow"])
def test_numbers_at_the_ends_of_a_range_leave_the_other_lanes_of_a_vector(compiled, name, kind, dtype):
    """Vectors without such numbers take another way than those with one."""
    info = np.finfo(dtype)
    least = np.log(info.smallest_normal.astype(np.longdouble)).astype(dtype)
    near = [end * (1 + step * info.eps) for end in (least, -least, info.smallest_normal) for step in range(-2, 3)]
    ends = np.concatenate([edges(kind), near, [least * 1.05, least * 2, -least * 1.01, info.tiny / 2]]).astype(dtype)
    x = np.tile(np.linspace(0.25, 40, 67).astype(dtype), ends.size)
    x[::67] = ends
    arguments = [x, np.roll(x, 33 * 67 + 1)] if name == "pow" else [x]
    function = {"exp": xla.exp, "log": xla.log, "log1p": xla.log1p, "pow": xla.pow}[name]
    program = xla.compile(build(function, *map(shape_of, arguments)), backend="cpu")
    expected = compiled(name, kind)(*arguments)
    np.testing.assert_array_equal(np.asarray(program(*arguments)), expected)
    assert "= phi <" in program.llvm_ir()
