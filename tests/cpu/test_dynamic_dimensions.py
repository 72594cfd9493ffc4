"""Bounded dynamic dimensions in compiled code: arrays of any size up to the bound, as the interpreter has them."""

import itertools

import numpy as np
import pytest
from evaluating import build, f32, floats, ints, same, shape

import xlakit as xla
from fuzz.dynamic import judge
from fuzz.programs.dynamic import dynamic_program
from xlakit.cpu import compiler
from xlakit.cpu.cache import cache_key
from xlakit.cpu.execution import dynamic_arrays


@pytest.fixture(autouse=True)
def rubbish(monkeypatch):
    """Whatever lies around an argument must not matter."""

    def padded(array, bounds):
        number = np.nan if bounds.element_type.is_floating else bounds.element_type is not xla.PRED and 77
        full = np.full(bounds.dimensions, number).astype(array.dtype)
        full[tuple(slice(0, n) for n in array.shape)] = array
        return full

    monkeypatch.setattr(dynamic_arrays, "_at_bounds", padded)


def agreeing(function, *bounds):
    """A function that runs one of handles, of parameters of these shapes, on both backends and compares."""
    computation = build(function, *bounds)
    compiled = xla.compile(computation, backend="cpu", cache=False)
    reference = xla.compile(computation, backend="interpreter")

    def run(*arguments, compare=same):
        actual, expected = compiled(*arguments), reference(*arguments)
        for a, e in zip(*(r if isinstance(r, tuple) else (r,) for r in (actual, expected)), strict=True):
            assert a.shape == e.shape
            compare(a, e)

    return run


def close(actual, expected):
    """But for rounding."""
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def numbers(*sizes, seed=0):
    """Small whole numbers."""
    return np.random.default_rng(seed).integers(-9, 10, sizes).astype(np.float32)


def rows(*sizes):
    """A shape of which the first dimension is dynamic."""
    return f32(*sizes, dynamic=[True] + [False] * (len(sizes) - 1))


def scanned(x):
    sums = xla.scan(
        x, xla.constant(x.builder, floats([0, 0, 0])), lambda a, c: xla.tuple_(xla.add(a, c), xla.add(a, c)), 0
    )
    return xla.tuple_(xla.get_tuple_element(sums, 0), xla.get_tuple_element(sums, 1))


def most(x):
    places = xla.set_dimension_size(xla.iota(x.builder, shape(xla.S32, 5, 3), 0), xla.get_dimension_size(x, 0), 0)
    low, far = xla.constant(x.builder, np.float32(-np.inf)), xla.constant(x.builder, np.int32(9))

    def first(a, i, b, j):
        wins = xla.or_(xla.gt(a, b), xla.and_(xla.eq(a, b), xla.lt(i, j)))
        return xla.tuple_(xla.select(wins, a, b), xla.select(wins, i, j))

    return xla.reduce([x, places], [low, far], first, [0])


def normalized(x):
    one, two = (xla.constant(x.builder, floats(v)) for v in ([1, 2, 3], [0, 1, 2]))
    return xla.batch_norm_training(x, one, two, 0.5, 1)


def gram(x):
    return xla.dot(xla.transpose(x, [1, 0]), x)


def windows(x):
    return xla.reduce_window(x, np.float32(0), xla.add, [2, 2], [2, 1], "SAME")


def scattered(x):
    places = xla.iota(x.builder, shape(xla.S32, 5), 0)
    return xla.scatter(
        x, xla.rev(places, [0]), x, xla.add, update_window_dims=[1], inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0], index_vector_dim=1,
    )  # fmt: skip


def selected(x):
    source = xla.reduce_window(x, np.float32(-99), xla.max, [2, 1], [2, 1], "VALID")
    return xla.select_and_scatter(x, xla.ge, [2, 1], [2, 1], "VALID", source, np.float32(0), xla.add)


def convolved(x):
    lines = xla.reshape(x, [1, 5, 3])
    kernel = xla.constant(x.builder, numbers(2, 3, 2))
    numbers_of = xla.ConvolutionDimensionNumbers(0, 2, (1,), 1, 0, (2,), 0, 2, (1,))
    return xla.conv_with_general_dimensions(lines, kernel, [1], [(1, 1)], numbers_of)


def joined(a, b):
    return xla.add(xla.add(a, b), xla.mul(a, b))


def halved(a):
    """Sums a number's halves until they are small; on NaN and infinities it does not end, and padding may be such."""
    far = xla.while_(
        lambda state: xla.gt(xla.abs(xla.get_tuple_element(state, 0)), np.float32(0.1)),
        lambda state: xla.tuple_(
            xla.get_tuple_element(state, 0) * np.float32(0.5),
            xla.get_tuple_element(state, 1) + xla.get_tuple_element(state, 0),
        ),
        xla.tuple_(a, xla.constant(a.builder, np.float32(0))),
    )
    return xla.get_tuple_element(far, 1)


def static_form(x):
    results = [f32(5, 3), shape(xla.S32), shape(xla.S32)]
    return xla.custom_call(x.builder, "PadToStatic", [x], xla.make_tuple_shape(results))


PROGRAMS = {
    "element-wise": lambda x: xla.add(xla.tanh(x), x),
    "sum of columns": lambda x: xla.reduce(x, np.float32(3), xla.add, [0]),
    "sum of all": lambda x: xla.reduce_all(x, np.float32(0), xla.add),
    "product": lambda x: xla.reduce(x, np.float32(1), xla.mul, [0]),
    "where most": most,
    "windows": windows,
    "sort": lambda x: xla.sort(x, None, 0),
    "sort downwards": lambda x: xla.sort(x, xla.gt, 0),
    "top-k": lambda x: xla.top_k(xla.transpose(x, [1, 0]), 2),
    "product of matrices": gram,
    "convolution": convolved,
    "batch norm": normalized,
    "scan": scanned,
    "concatenate": lambda x: xla.concatenate([x, xla.neg(x), x], 0),
    "reverse": lambda x: xla.rev(x, [0, 1]),
    "pad": lambda x: xla.pad(x, np.float32(7), [(1, 2, 1), (0, -1, 0)]),
    "slice": lambda x: xla.slice(x, [1, 0], [5, 3], [2, 1]),
    "merged": lambda x: xla.reshape(xla.transpose(x, [1, 0]), [15]),
    "gather": lambda x: xla.gather(
        x, ints([4, 0, 2]), offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1,
        slice_sizes=[1, 3],
    ),
    "scatter": scattered,
    "select and scatter": selected,
    "reduced generically": lambda x: xla.reduce(x, np.float32(1), joined, [0]),
    "reduced in loops": lambda x: xla.reduce(x, np.float32(1), lambda a, b: xla.add(a, halved(b)), [0]),
    "mapped in loops": lambda x: xla.map([x], halved, [0, 1]),
    "windows generically": lambda x: xla.reduce_window(x, np.float32(1), joined, [2, 2], [2, 1], "SAME"),
    "side by side": lambda x: xla.concatenate([x, x], 1),
    "batches of products": lambda x: xla.dot_general(
        x, xla.neg(x), xla.DotDimensionNumbers([1], [1], [0], [0])
    ),
    "behind a barrier": lambda x: xla.neg(xla.get_tuple_element(xla.optimization_barrier(xla.tuple_(x)), 0)),
    "other bits": lambda x: xla.bitcast_convert_type(x, xla.S16),
    "static": static_form,
    "size": lambda x: xla.get_dimension_size(x, 0),
    "full": lambda x: xla.remove_dynamic_dimension(x, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_every_size(name):
    run = agreeing(PROGRAMS[name], rows(5, 3))
    for size in (0, 1, 3, 5):
        run(numbers(size, 3, seed=size), compare=close)


def test_operands_of_different_sizes_are_cut_to_what_they_share():
    run = agreeing(xla.add, rows(4, 2), rows(4, 2))
    for left, right in itertools.product((0, 1, 2, 4), repeat=2):
        run(numbers(left, 2), numbers(right, 2))


def test_a_mapped_array_without_columns_has_its_rows():
    run = agreeing(lambda x: xla.map([x], halved, [0, 1]), rows(5, 0))
    for size in (0, 2, 5):
        run(numbers(size, 0))


@pytest.mark.parametrize(("bound", "columns"), [(4, 2), (3, 1)])
def test_an_update_that_may_cover_all_says_the_size(bound, columns):
    def put(x, u, i):
        return xla.dynamic_update_slice(x, u, [i, xla.constant(x.builder, np.int32(0))])

    run = agreeing(put, rows(4, 2), rows(bound, columns), shape(xla.S32))
    for have, new, start in itertools.product((0, 2, 4), (0, 1, 3), (-1, 0, 1, 9)):
        run(numbers(have, 2), numbers(new, columns), ints(start))


def test_matrices_that_are_not_full():
    square = f32(4, 4, dynamic=[True, True])
    factor = agreeing(xla.cholesky, square)
    solve = agreeing(lambda a: xla.triangular_solve(a, a, True, True, False, "NO_TRANSPOSE"), square)
    for size in (0, 1, 3, 4):
        half = numbers(size, size)
        positive = half @ half.T + 20 * np.eye(size, dtype=np.float32)
        solve(positive, compare=close)
        factor(positive, compare=lambda a, e: close(np.tril(a), np.tril(e)))


LOOP = """HloModule loop
body {
  s = (s32[], f32[<=6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[<=6] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] subtract(i, one)
  cut = f32[<=6] set-dimension-size(x, i), dimensions={0}
  twice = f32[<=6] add(cut, cut)
  ROOT t = (s32[], f32[<=6]) tuple(next, twice)
}
more {
  s = (s32[], f32[<=6]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  ROOT c = pred[] compare(i, one), direction=GT
}
ENTRY e {
  p = (s32[], f32[6]) parameter(0)
  ROOT w = (s32[], f32[<=6]) while(p), condition=more, body=body
}"""


def test_a_loop_whose_state_becomes_dynamic():
    module = xla.HloModule.from_text(LOOP)
    for turns in (0, 3, 6):
        state = ints(turns), numbers(6)
        expected = xla.compile(module, backend="interpreter")(state)
        actual = xla.compile(module, backend="cpu", cache=False)(state)
        same(actual[1], expected[1])


ONCE_WRONG = [(1, 1), (4, 46), (7, 577)]


@pytest.mark.parametrize(("seed", "number"), [*ONCE_WRONG, *((0, n) for n in range(24))])
def test_generated_programs(seed, number):
    status, detail = judge(dynamic_program(seed, number))
    assert status in ("agreed", "refused"), detail


# -- the boundary --------------------------------------------------------------------------------


def halves(x):
    return xla.tuple_(xla.slice(x, [0, 0], [5, 1]), xla.reduce(x, np.float32(0), xla.add, [1]))


def test_arguments_and_results_are_as_large_as_they_are():
    compiled = xla.compile(build(halves, rows(5, 3)))
    assert type(compiled).__name__ == "CpuExecutable"
    column, sums = compiled(numbers(2, 3))
    assert (column.shape, sums.shape) == ((2, 1), (2,))
    assert column.flags.owndata or column.base is None or column.base.nbytes <= 64
    with pytest.raises(xla.ArgumentError, match=r"takes f32\[<=5,3\], got f32\[6,3\]"):
        compiled(numbers(6, 3))
    assert "f32[5,3]" in compiled.as_text()
    assert "s32[]" in compiled.as_text()
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 5 * 3 * 4 + 4
    assert memory.output_size_in_bytes == 5 * 4 + 5 * 4 + 2 * 4


# -- what Python does, on the arrays that are there ------------------------------------------------


def called(name, x, *results):
    return xla.custom_call(x.builder, name, [x], *results)


BY_PYTHON = {
    "Fourier transform": lambda x: xla.fft(x, "RFFT", [8]),
    "dynamic result": lambda x: called("odd", x, f32(8, dynamic=[True])),
    "static result": lambda x: called("total", x, f32()),
    "tuple": lambda x: called("both", x, xla.make_tuple_shape([f32(8, dynamic=[True]), shape(xla.S32)])),
    "between others": lambda x: xla.sort(xla.neg(called("odd", xla.add(x, x), f32(8, dynamic=[True])))),
    "in a branch": lambda x: xla.conditional(
        xla.gt(xla.get_dimension_size(x, 0), 2), x, lambda y: called("odd", y, f32(8, dynamic=[True])), x, xla.neg
    ),
}
FUNCTIONS = {"odd": lambda x: x[1::2], "total": np.sum, "both": lambda x: (x[1:], np.int32(len(x)))}


@pytest.mark.parametrize("name", BY_PYTHON)
def test_what_has_no_machine_code_is_done_on_what_is_there(name):
    computation = build(BY_PYTHON[name], f32(8, dynamic=[True]))
    compiled = xla.compile(computation, backend="cpu", custom_calls=FUNCTIONS, cache=False)
    reference = xla.compile(computation, backend="interpreter", custom_calls=FUNCTIONS)
    assert [i.opcode for i in compiled.host_instructions] == ["custom-call"]
    for size in (1, 3, 8):
        actual, expected = compiled(numbers(size)), reference(numbers(size))
        for a, e in zip(*(r if isinstance(r, tuple) else (r,) for r in (actual, expected)), strict=True):
            assert a.shape == e.shape
            close(a, e)


def test_an_error_of_python_names_the_operation_itself():
    compiled = xla.compile(
        build(lambda x: called("odd", x, f32(1, dynamic=[True])), f32(8, dynamic=[True])), custom_calls=FUNCTIONS
    )
    with pytest.raises(xla.ExecutionError, match=r"custom-call.*'odd' takes f32\[<=1\], got f32\[4\]"):
        compiled(numbers(8))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_feeds_and_channels_have_the_sizes_that_are_there(backend):
    some = f32(8, dynamic=[True])
    execution_context = xla.ExecutionContext(timeout=10)

    def program(function, *shapes):
        return xla.compile(build(function, *shapes), backend=backend, execution_context=execution_context, cache=False)

    fed = program(lambda x: (xla.outfeed(y := xla.add(x, xla.infeed(x.builder, some))), y)[1], some)
    execution_context.infeed(0, floats([1, 2, 3]))
    same(fed(floats([5, 6, 7])), floats([6, 8, 10]))
    same(execution_context.outfeed(0), floats([6, 8, 10]))
    sends = program(lambda x: (xla.send(xla.neg(x), 1), x)[1], some)
    receives = program(lambda x: xla.add(x, xla.recv(x.builder, some, 1)), some)
    _, got = xla.run_together((sends, [floats([1, 2])]), (receives, [floats([5, 5])]))
    same(got, floats([4, 3]))


def test_sizes_out_of_bounds_stop_compiled_code_too():
    compiled = xla.compile(build(lambda x, n: xla.set_dimension_size(x, n, 0), f32(4), shape(xla.S32)))
    for size in (-1, 5):
        with pytest.raises(xla.ExecutionError, match=f"size {size} of dimension 0 is outside 0 .. 4") as caught:
            compiled(numbers(4), ints(size))
        assert caught.value.operation.startswith("set-dimension-size '")
        assert caught.value.shapes == ("f32[4]", "s32[]")
    assert compiled(numbers(4), ints(3)).shape == (3,)
    pairs = xla.HloModule.from_text(
        "HloModule m\nENTRY e {\n  x = f32[<=6] parameter(0)\n  ROOT r = f32[<=3,2] reshape(x)\n}"
    )
    assert xla.compile(pairs)(numbers(4)).shape == (2, 2)
    with pytest.raises(xla.ExecutionError, match=r"current sizes \[3\] cannot become"):
        xla.compile(pairs)(numbers(3))
    static = xla.HloModule.from_text(
        "HloModule m\nENTRY e {\n  x = f32[5,0] parameter(0)\n  n = s32[] parameter(1)\n"
        "  ROOT r = f32[5,0] set-dimension-size(x, n), dimensions={0}\n}"
    )
    with pytest.raises(xla.ExecutionError, match=r"size 6 of dimension 0 is outside 0 \.\. 5"):
        xla.compile(static)(floats([]).reshape(5, 0), ints(6))


ALIASED = """HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}, \
entry_computation_layout={{(f32[<=5,3]{layout})->f32[<=5,3]{layout}}}
ENTRY e {{
  x = f32[<=5,3]{layout} parameter(0)
  ROOT y = f32[<=5,3]{layout} add(x, x)
}}"""


@pytest.mark.parametrize("layout", ["{1,0}", "{0,1}"])
def test_layouts_and_donation(layout):
    compiled = xla.compile(xla.HloModule.from_text(ALIASED.format(layout=layout)), backend="cpu", cache=False)
    for size in (0, 2, 5):
        x = numbers(size, 3)
        before = x.copy()
        same(compiled(x), before + before)
        same(x, before)
        same(compiled(x, donate=(0,)), before + before)


def test_a_kept_program_has_the_same_boundary(tmp_path, monkeypatch):
    monkeypatch.setenv("XLAKIT_CACHE", "on")
    monkeypatch.setenv("XLAKIT_CACHE_DIR", str(tmp_path / "cache"))
    # The compiler's sources may be edited while its tests run.
    for module in (compiler, cache_key):
        monkeypatch.setattr(module, "compiler_has_changed", lambda: False)
    cache_key._of_compiler.cache_clear()
    computation = build(halves, rows(5, 3))
    first = xla.compile(computation)(numbers(3, 3))
    second = xla.compile(computation)
    assert "_generated_code" not in vars(second)
    for a, b in zip(first, second(numbers(3, 3)), strict=True):
        same(a, b)


GATHERED = """HloModule m, replica_count=2
ENTRY e {
  x = s32[<=3] parameter(0)
  g = s32[<=6] all-gather(x), dimensions={0}, replica_groups={{0,1}}
  p = s32[<=3] collective-permute(x), source_target_pairs={{0,1}}
  ROOT t = (s32[<=6], s32[<=3]) tuple(g, p)
}"""


def on_devices(text, *arguments):
    """What devices give, compiled, or the class and rule of their error; the interpreter gives the same."""
    found = []
    for backend in ("interpreter", "cpu"):
        try:
            executable = xla.compile(xla.HloModule.from_text(text), backend=backend, cache=False)
            results = executable.execute_replicated([[a] for a in arguments])
            found.append([[np.asarray(leaf).tolist() for leaf in result] for result in results])
        except xla.ExecutionError as error:
            found.append(error.rule.split(",")[0])
    assert found[0] == found[1]
    return found[0]


MEETING = """HloModule m, replica_count=2
add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}
ENTRY e {
  x = s32[<=4] parameter(0)
  y = s32[<=4] negate(x)
  ROOT r = (s32[<=4], s32[<=4]) OPERATION
}"""


@pytest.mark.parametrize(
    ("operation", "goes_with_other_sizes"),
    [
        ("all-reduce(x, y), to_apply=add", False),
        ("all-to-all(x, y)", True),
        ("collective-permute(x, y), source_target_pairs={{0,1}}", True),
        ("collective-permute(x, y), source_target_pairs={{0,1},{1,0}}", True),
        ("collective-broadcast(x, y), replica_groups={{1,0}}", True),
    ],
)
def test_several_arrays_between_devices(operation, goes_with_other_sizes):
    text = MEETING.replace("OPERATION", operation)
    on_devices(text, ints(range(3)), ints(range(10, 13)))
    found = on_devices(text, ints(range(2)), ints(range(10, 14)))
    assert goes_with_other_sizes or found == "devices bring different sizes"


@pytest.mark.parametrize(
    ("operation", "ok", "refused"),
    [
        ("all-to-all(x), dimensions={0}", (2, 4), (3, 3)),
        ("reduce-scatter(x), dimensions={0}, to_apply=add", (4, 4), (2, 4)),
    ],
)
def test_a_dynamic_dimension_is_cut_where_it_divides(operation, ok, refused):
    result = "s32[<=2]" if operation.startswith("reduce") else "s32[<=4]"
    text = MEETING.replace("(s32[<=4], s32[<=4]) OPERATION", f"({result}) tuple(z)")
    text = text.replace("  ROOT r", f"  z = {result} {operation}\n  ROOT r")
    assert isinstance(on_devices(text, *(ints(range(n)) for n in ok)), list)
    assert isinstance(on_devices(text, *(ints(range(n)) for n in refused)), str)


def test_what_comes_from_other_devices_comes_with_its_size():
    module = xla.HloModule.from_text(GATHERED)
    for sizes in ((2, 2), (1, 3), (0, 2)):
        arguments = [(ints(range(10 * i, 10 * i + n)),) for i, n in enumerate(sizes)]
        actual = xla.compile(module, backend="cpu", cache=False).execute_replicated(arguments)
        expected = xla.compile(module, backend="interpreter").execute_replicated(arguments)
        for a, e in zip(actual, expected, strict=True):
            same(a[0], e[0])
            same(a[1], e[1])


def test_a_dimension_without_a_bound_is_refused_before_any_pass():
    """Not a fault of a pass, such as of those that inline calls of programs that JAX exports."""
    text = """HloModule m
    g { n = s32[] parameter(0) x = f32[?,4] parameter(1) w = f32[4,4] constant({...})
        d = f32[?,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} ROOT t = f32[?,4] tanh(d) }
    ENTRY e { x = f32[?,4] parameter(0) n = s32[] get-dimension-size(x), dimensions={0}
        ROOT r = f32[?,4] call(n, x), to_apply=g }"""
    module = xla.fill_elided(xla.HloModule.from_text(text))
    with pytest.raises(xla.UnsupportedError, match="has a dimension without a bound"):
        compiler.generate_module(module)
