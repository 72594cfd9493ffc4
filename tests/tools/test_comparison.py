import re
import sys

import ml_dtypes
import numpy as np
import pytest

import xlakit as xla
from xlakit.child_process import Limits, Unanswered
from xlakit.data.primitive import PrimitiveType as P
from xlakit.data.shape import OPAQUE_SHAPE, ProgramShape, make_shape, make_tuple_shape
from xlakit.errors import UnsupportedError
from xlakit.execution.inputs import make_inputs
from xlakit.tools import cli
from xlakit.tools.compare import compare, format_table
from xlakit.tools.inputs import flatten
from xlakit.tools.jaxlib_backend import _refusals
from xlakit.tools.jaxlib_child import Jaxlib, NothingToCompareError


def test_nan_and_infinities_must_be_the_same():
    same = np.float32([np.nan, np.inf, 1])
    assert compare(same, same.copy())[0].agrees
    assert not compare(np.float32([np.inf]), np.float32([-np.inf]))[0].agrees
    assert not compare(np.float32([np.nan]), np.float32([1]))[0].agrees


def test_integers_must_be_equal_and_floats_near():
    assert not compare(np.int32([1, 2]), np.int32([1, 3]))[0].agrees
    assert compare(np.float32([1, 2]), np.float32([1, 2 + 1e-6]))[0].agrees
    assert not compare(np.float64([1, 2]), np.float64([1, 2 + 1e-6]))[0].agrees


def test_shapes_and_leaves_must_match():
    leaves = compare((np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(4)))
    assert [leaf.agrees for leaf in leaves] == [True, False]
    assert "DIFFERS" in format_table(leaves)
    assert not compare((np.zeros(2),), (np.zeros(2), np.zeros(2)))[1].agrees


def test_made_up_inputs_suit_their_types():
    shapes = [make_shape(kind, (4, 5)) for kind in P if kind.is_array]
    program = ProgramShape((*shapes, make_tuple_shape([make_shape(P.S32, (100,))])), make_shape(P.F32))
    values = make_inputs(program, 0)
    for shape, value in zip(shapes, values, strict=False):
        assert value.dtype == shape.element_type.dtype
        assert value.shape == (4, 5)
    labels = values[-1][0]
    assert labels.min() >= 0
    assert labels.max() < 8
    with pytest.raises(UnsupportedError):
        make_inputs(ProgramShape((OPAQUE_SHAPE,), make_shape(P.F32)), 0)


def test_leaves_are_named_by_their_index():
    names = list(flatten((np.zeros(1), (np.zeros(1), None), ml_dtypes.bfloat16(1))))
    assert names == ["0", "1.0", "2"]


@pytest.mark.usefixtures("one_jaxlib")
@pytest.mark.parametrize("reference", ["interpreter", "jaxlib"])
def test_compare_prints_a_table(add_file, capsys, reference):
    assert cli.main(["run", add_file, "--compare", reference]) == 0
    out = capsys.readouterr().out
    assert "max abs error" in out
    assert "f32[3]" in out
    assert "ok" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--compare-timeout", "0.01"], "jaxlib gave no result in 0.01 s"),
        (["--compare-memory", "1M"], "more than the 1,048,576 that it may have"),
    ],
)
def test_a_comparison_has_limits(add_file, capsys, options, message):
    assert cli.main(["run", add_file, "--compare", "jaxlib", *options]) == 3
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dies", "message"),
    [
        (
            "os.write(2, b'F0101 1 a.cc:1] Check failed: x\\nmore\\n'); os.abort()",
            "died of SIGABRT .*: F0101 .* failed: x",
        ),
        ("os._exit(7)", "ended with status 7 on this program: it said nothing"),
        ("raise ImportError('no such library')", r"jaxlib cannot be imported: no such library\n +hint: pip install"),
    ],
)
def test_jaxlib_may_die_of_a_program(add_file, tmp_path, monkeypatch, capsys, dies, message):
    (tmp_path / "jaxlib.py").write_text(f"import os\n{dies}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert cli.main(["run", add_file, "--compare", "jaxlib"]) == 3
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert "Traceback" not in error


_LOOP = """HloModule m

body {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  c = f32[3] cosine(x)
  ROOT t = (s32[], f32[3]) tuple(j, c)
}

condition {
  s = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(12)
  ROOT p = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[3] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[3]) tuple(zero, x)
  loop = (s32[], f32[3]) while(start), condition=condition, body=body
  ROOT r = f32[3] get-tuple-element(loop), index=1
}
"""


def _wrong_jaxlib(self, module):
    """In place of jaxlib a backend that takes one operation for another."""
    return xla.compile(xla.HloModule.from_text(module.to_text().replace(" cosine(", " sine("))).execute_replicated


def test_a_search_shows_where_it_is_on_a_terminal(tmp_path, capsys, monkeypatch):
    path = tmp_path / "loop.hlo"
    path.write_text(_LOOP)
    monkeypatch.setattr(Jaxlib, "prepare", _wrong_jaxlib)
    monkeypatch.setattr("xlakit.tools.commands.run._PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert cli.main(["run", str(path), "--against", "jaxlib"]) == 1
    out, err = capsys.readouterr()
    assert "first difference: %c, iteration 0 of %loop" in out
    assert "\r\x1b[Kthe entry computation, " in err
    assert "\r\x1b[Kiteration 0 of %loop, " in err
    assert err.endswith("\r\x1b[K")


def test_a_loop_against_jaxlib_starts_it_once(tmp_path, capsys, monkeypatch):
    path = tmp_path / "loop.hlo"
    path.write_text(_LOOP)
    started = []
    start = Jaxlib._start
    monkeypatch.setattr(Jaxlib, "_start", lambda self: started.append(start(self)) or started[-1])
    assert cli.main(["run", str(path), "--against", "jaxlib"]) == 0
    assert "no instruction differs" in capsys.readouterr().out
    assert len(started) == 1
    assert not started[0].is_alive
    # Of all runs together: the first takes longer than this already.
    assert cli.main(["run", str(path), "--against", "jaxlib", "--compare-timeout", "0.01"]) == 3
    assert "jaxlib gave no result in 0.01 s" in capsys.readouterr().err


class LateChild:
    """In place of jaxlib's process one whose first answer comes too late."""

    def __init__(self):
        self.asked = 0

    def ask(self, request, limits):
        self.asked += 1
        if self.asked == 1:
            raise Unanswered("timed out")
        return [np.zeros(3)]

    def end(self):
        pass


def test_a_late_answer_is_not_taken_for_the_next_one(monkeypatch):
    monkeypatch.setattr(Jaxlib, "_start", lambda self: LateChild())
    with Jaxlib(Limits(seconds=5.0)) as jaxlib:
        run = jaxlib.prepare(xla.HloModule.from_text(_LOOP))
        for _ in range(2):
            with pytest.raises(NothingToCompareError, match="no result in 5 s"):
                run([[np.zeros(3, np.float32)]])


def test_tokens_are_not_compared_with_jaxlib(tmp_path, capsys):
    path = tmp_path / "token.hlo"
    path.write_text("HloModule m\n\nENTRY e {\n  ROOT t = token[] parameter(0)\n}\n")
    assert cli.main(["run", str(path), "--compare", "jaxlib"]) == 3
    assert "tokens" in capsys.readouterr().err


@pytest.mark.usefixtures("one_jaxlib")
def test_a_program_that_feeds_the_host_is_not_given_to_jaxlib(tmp_path, capsys):
    path = tmp_path / "outfeed.hlo"
    path.write_text(
        "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  t = token[] after-all()\n"
        "  o = token[] outfeed(x, t), outfeed_shape=f32[4]\n  ROOT y = f32[4] add(x, x)\n}\n"
    )
    for option in ("--compare", "--against"):
        assert cli.main(["run", str(path), option, "jaxlib", "--compare-timeout", "20"]) == 3
        assert "nothing at the other end of an infeed or outfeed" in capsys.readouterr().err


_CHOLESKY = """HloModule m

called {
  y = f64[2,2]{1,0} parameter(0)
  factor = (f64[2,2]{0,1}, s32[]) custom-call(y), custom_call_target="lapack_dpotrf_ffi",
    operand_layout_constraints={f64[2,2]{0,1}}, api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
  ROOT lower = f64[2,2]{0,1} get-tuple-element(factor), index=0
}

ENTRY e {
  x = f64[2,2]{1,0} parameter(0)
  ROOT lower = f64[2,2]{1,0} call(x), to_apply=called
}
"""


@pytest.mark.usefixtures("one_jaxlib")
def test_calls_of_lapack_in_jax_programs_are_answered(tmp_path, capsys):
    path = tmp_path / "cholesky.hlo"
    path.write_text(_CHOLESKY)
    np.savez(tmp_path / "x.npz", x=np.array([[4.0, 2.0], [2.0, 5.0]]))
    arguments = ["run", str(path), "--input", str(tmp_path / "x.npz")]
    assert cli.main([*arguments, "--output", str(tmp_path / "y.npz")]) == 0
    np.testing.assert_array_equal(np.tril(np.load(tmp_path / "y.npz")["result"]), [[2, 0], [1, 2]])
    assert cli.main([*arguments, "--compare", "jaxlib"]) == 0, capsys.readouterr()


@pytest.mark.usefixtures("one_jaxlib")
def test_an_optimized_program_is_compared_with_jaxlib(tmp_path, capsys):
    path = tmp_path / "fused.hlo"
    path.write_text(
        "HloModule m\nfused { x = s8[2,3]{0,1} parameter(0) c = f32[2,3]{1,0} convert(x) y = f32[3,2] parameter(1) "
        "ROOT d = f32[2,2]{1,0} dot(c, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }\nENTRY e { "
        "x = s8[2,3]{1,0} parameter(0) y = f32[3,2] parameter(1) "
        "ROOT f = f32[2,2] fusion(x, y), kind=kCustom, calls=fused }"
    )
    assert cli.main(["run", str(path), "--compare", "jaxlib"]) == 0
    assert "ok" in capsys.readouterr().out
    path.write_text(
        "HloModule m, is_scheduled=true\nfused { x = f32[2,3]{1,0} parameter(0) b = f32[3,2]{0,1} bitcast(x) "
        "ROOT n = f32[3,2]{0,1} negate(b) }\n"
        'host { x = f32[2,3]{1,0} parameter(0) ROOT t = f32[2,3]{1,0} tanh(x) }, execution_thread="host"\n'
        "ENTRY e { x = f32[2,3]{1,0} parameter(0) c = (f32[2,3], f32[2,3], u32[]) copy-start(x) "
        'd = f32[2,3] copy-done(c) s = ((f32[2,3]), f32[2,3], s32[]) async-start(d), async_execution_thread="host", '
        "calls=host a = f32[2,3] async-done(s) f = f32[3,2]{0,1} fusion(a), "
        'kind=kCustom, calls=fused, backend_config={"a":"b"} ROOT b = f32[2,1,3]{2,1,0} bitcast(f) }'
    )
    assert cli.main(["run", str(path), "--compare", "jaxlib"]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (IndexError("Span::at failed bounds check"), "Span::at failed bounds check"),
        (RuntimeError("\nINTERNAL: no\nmore"), "INTERNAL: no"),
        (ValueError("INVALID: E0102:\nparameter 0 does not fit\nmore"), "INVALID: E0102: parameter 0 does not fit"),
    ],
)
def test_what_jaxlib_raises_is_one_sentence(error, told):
    with pytest.raises(UnsupportedError, match=f"jaxlib does not run this program: {told}\n"), _refusals():
        raise error
