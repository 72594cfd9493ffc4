"""rng in machine code: the interpreter's numbers, and numbers of the distribution that was asked for.

Seeds are fixed, so that each test statistic is the same number every time.
"""

import ml_dtypes
import numpy as np
import pytest
from evaluating import build, shape_of

import xlakit as xla

# No test statistic may be so unlikely.
LEAST = 1e-4


@pytest.fixture(scope="module")
def stats():
    """SciPy's statistics, which take a second to load: not where tests are only collected."""
    return pytest.importorskip("scipy.stats")


def executable(distribution, kind, sizes, first, second, backend="cpu", **options):
    """An executable that draws an array, and its two arguments."""
    arguments = [np.asarray(x).astype(kind.dtype) for x in (first, second)]
    function = xla.rng_normal if distribution == "normal" else xla.rng_uniform
    computation = build(lambda a, b: function(a, b, xla.Shape(kind, sizes)), *map(shape_of, arguments))
    return xla.compile(computation, backend=backend, **options), arguments


def drawn(distribution, kind, count, first, second, seed=0, calls=1):
    """What calls of a compiled program give, as float64, one row for each."""
    program, arguments = executable(distribution, kind, (count,), first, second, seed=seed)
    assert not program.host_instructions
    return np.array([program(*arguments).astype(np.float64) for _ in range(calls)])


INTEGERS = [xla.S2, xla.U4, xla.S8, xla.U16, xla.S32, xla.U32, xla.S64, xla.U64]
FLOATS = [xla.F16, xla.BF16, xla.F32, xla.F64, xla.F8E4M3FN, xla.F8E5M2FNUZ, xla.F4E2M1FN]


@pytest.mark.parametrize("kind", [xla.PRED, *INTEGERS, *FLOATS], ids=lambda kind: kind.hlo_name)
def test_uniform_numbers_are_the_interpreters(kind):
    def program(a, b):
        return tuple(xla.rng_uniform(a, b, xla.Shape(kind, sizes)) for sizes in ((), (7,), (3, 2731), (0,)))

    arguments = [np.asarray(x).astype(kind.dtype) for x in (0, 1)]
    computation = build(program, *map(shape_of, arguments))
    compiled, reference = (xla.compile(computation, backend=name, seed=9) for name in ("cpu", "interpreter"))
    assert not compiled.host_instructions
    for _ in range(2):
        for found, expected in zip(compiled(*arguments), reference(*arguments), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (xla.S64, -(2**63), 2**63 - 1),
        (xla.U64, 5, 2**64 - 1),
        (xla.S32, -(2**31), 2**31 - 1),
        (xla.U32, 3, 3),
        (xla.S8, 5, -5),
        (xla.F64, -1.7e308, 1.7e308),
        (xla.F32, -3e38, 3e38),
        (xla.BF16, -2, 0),
        (xla.F16, -3, -2),
        (xla.F32, 2, 1),
    ],
)
def test_far_bounds(kind, low, high):
    compiled, arguments = executable("uniform", kind, (500,), low, high)
    reference, _ = executable("uniform", kind, (500,), low, high, backend="interpreter")
    found = compiled(*arguments)
    np.testing.assert_array_equal(found, reference(*arguments))
    first, last = (a.astype(np.float64) for a in arguments)
    if last > first:
        wide = found.astype(np.float64)
        assert (wide >= first).all()
        assert (wide < last).all() or kind.bit_width == 64


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.hlo_name)
def test_normal_numbers_are_the_interpreters(kind):
    compiled, arguments = executable("normal", kind, (4999,), 0.5, 1.5, seed=4)
    reference, _ = executable("normal", kind, (4999,), 0.5, 1.5, backend="interpreter", seed=4)
    found, expected = (program(*arguments).astype(np.float64) for program in (compiled, reference))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 if kind is xla.F64 else 0)


@pytest.mark.parametrize("kind", [xla.F32, xla.F64], ids=lambda kind: kind.hlo_name)
def test_uniform_floats(kind, stats):
    values = drawn("uniform", kind, 200_000, -1, 3)[0]
    assert stats.kstest(values, stats.uniform(-1, 4).cdf).pvalue > LEAST
    # The last places are as even as the first ones.
    parts = np.floor((values + 1) / 4 * 2**20).astype(np.int64) % 1024
    assert stats.chisquare(np.bincount(parts, minlength=1024)).pvalue > LEAST


@pytest.mark.parametrize("kind", [xla.S8, xla.U32, xla.S64], ids=lambda kind: kind.hlo_name)
def test_uniform_integers(kind, stats):
    values = drawn("uniform", kind, 200_000, 3, 100)[0].astype(np.int64)
    assert (values.min(), values.max()) == (3, 99)
    assert stats.chisquare(np.bincount(values - 3, minlength=97)).pvalue > LEAST


def test_integers_of_three_quarters_of_the_range(stats):
    # A remainder of a random word would take the first third twice as often.
    values = drawn("uniform", xla.U32, 100_000, 0, 3 << 30)[0]
    assert stats.chisquare(np.bincount((values / 2**30).astype(int), minlength=3)).pvalue > LEAST


def test_coins(stats):
    values = drawn("uniform", xla.PRED, 100_000, 0, 1)[0]
    assert stats.binomtest(int(values.sum()), 100_000).pvalue > LEAST
    pairs = (values[::2] * 2 + values[1::2]).astype(int)
    assert stats.chisquare(np.bincount(pairs, minlength=4)).pvalue > LEAST


@pytest.mark.parametrize("kind", [xla.F32, xla.F64], ids=lambda kind: kind.hlo_name)
def test_normal_numbers(kind, stats):
    count = 400_000
    values = (drawn("normal", kind, count, 2, 0.5)[0] - 2) / 0.5
    assert stats.kstest(values, stats.norm.cdf).pvalue > LEAST
    # Mean, variance, skewness and kurtosis, in standard deviations of their own.
    moments = [values.mean(), (values**2).mean() - 1, (values**3).mean(), (values**4).mean() - 3]
    scores = np.array(moments) * np.sqrt(count / np.array([1.0, 2.0, 15.0, 96.0]))
    assert np.abs(scores).max() < 4
    for bound in (2.0, 3.0, 4.0):
        for tail in (values > bound, values < -bound):
            assert stats.binomtest(int(tail.sum()), count, stats.norm.sf(bound)).pvalue > LEAST
    # The two numbers of a point are independent, in size as well.
    assert abs(np.corrcoef(values[::2], values[1::2])[0, 1]) * np.sqrt(count / 2) < 4
    assert abs(np.corrcoef(values[::2] ** 2, values[1::2] ** 2)[0, 1]) * np.sqrt(count / 2) < 4


def test_narrow_normal_numbers_are_rounded_once():
    wide = drawn("normal", xla.F32, 1000, 0, 1)[0]
    for kind in (xla.F16, xla.BF16):
        narrow = drawn("normal", kind, 1000, 0, 1)[0]
        np.testing.assert_array_equal(narrow, wide.astype(np.float32).astype(kind.dtype).astype(np.float64))


def test_calls_and_seeds_are_independent():
    first, second = drawn("normal", xla.F32, 100_000, 0, 1, seed=1, calls=2)
    (other,) = drawn("normal", xla.F32, 100_000, 0, 1, seed=2)
    for a, b in ((first, second), (first, other), (first[1:], first[:-1]), (first[2:], first[:-2])):
        assert abs(np.corrcoef(a, b)[0, 1]) * np.sqrt(a.size) < 4
    np.testing.assert_array_equal(drawn("normal", xla.F32, 100_000, 0, 1, seed=1, calls=2), [first, second])


def test_devices_are_independent_and_go_on_from_call_to_call():
    compiled, arguments = executable("uniform", xla.F32, (50_000,), 0, 1, num_replicas=3, seed=7)
    reference, _ = executable("uniform", xla.F32, (50_000,), 0, 1, backend="interpreter", num_replicas=3, seed=7)
    results = [compiled(*arguments) for _ in range(2)]
    for found in results:
        np.testing.assert_array_equal(found, reference(*arguments))
    every = np.array(results).reshape(6, -1)
    together = np.corrcoef(every)[np.triu_indices(6, 1)]
    assert np.abs(together).max() * np.sqrt(50_000) < 4


def test_threads_change_nothing():
    program, arguments = executable("normal", xla.F32, (300_001,), 0, 1, seed=3)
    with xla.threads(1):
        alone = program(*arguments)
    again, _ = executable("normal", xla.F32, (300_001,), 0, 1, seed=3)
    with xla.threads(4):
        np.testing.assert_array_equal(again(*arguments), alone)


LOOP = """
HloModule loop

condition {
  state = (s32[], f32[8,3]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  end = s32[] constant(8)
  ROOT less = pred[] compare(count, end), direction=LT
}

body {
  state = (s32[], f32[8,3]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  rows = f32[8,3] get-tuple-element(state), index=1
  zero = f32[] constant(0)
  one = f32[] constant(1)
  row = f32[1,3] rng(zero, one), distribution=rng_normal
  start = s32[] constant(0)
  written = f32[8,3] dynamic-update-slice(rows, row, count, start)
  step = s32[] constant(1)
  next = s32[] add(count, step)
  ROOT following = (s32[], f32[8,3]) tuple(next, written)
}

ENTRY main {
  zero = f32[] constant(0)
  one = f32[] constant(1)
  before = f32[2] rng(zero, one), distribution=rng_uniform
  start = s32[] constant(0)
  rows = f32[8,3] broadcast(zero), dimensions={}
  state = (s32[], f32[8,3]) tuple(start, rows)
  loop = (s32[], f32[8,3]) while(state), condition=condition, body=body
  result = f32[8,3] get-tuple-element(loop), index=1
  after = f32[2] rng(zero, one), distribution=rng_uniform
  ROOT all = (f32[2], f32[8,3], f32[2]) tuple(before, result, after)
}
"""


def test_each_round_of_a_loop_draws_anew():
    module = xla.HloModule.from_text(LOOP)
    compiled, reference = (xla.compile(module, backend=name, seed=5) for name in ("cpu", "interpreter"))
    assert not compiled.host_instructions
    for _ in range(2):
        found, expected = compiled(), reference()
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        assert np.unique(np.concatenate([part.reshape(-1) for part in found])).size == 28


def test_the_state_of_the_device():
    def program(builder):
        return xla.tuple_(*(xla.rng_get_and_update_state(builder, delta) for delta in (2**63 - 1, 2**63 - 1, 5, -9, 0)))

    compiled, reference = (xla.compile(build(program), backend=name) for name in ("cpu", "interpreter"))
    assert not compiled.host_instructions
    for _ in range(3):
        for found, expected in zip(compiled(), reference(), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_bounds_of_another_precision():
    computation = build(
        lambda a, b: xla.rng_uniform(a, b, xla.Shape(xla.BF16, (2000,))), xla.Shape(xla.F32), xla.Shape(xla.F32)
    )
    # No number of BF16 lies between them but 1.
    bounds = np.float32(1), np.float32(1.001)
    for backend in ("cpu", "interpreter"):
        values = xla.compile(computation, backend=backend)(*bounds)
        np.testing.assert_array_equal(values, np.ones(2000, ml_dtypes.bfloat16))
