"""Results that LAPACK leaves undefined are no divergence; its other results are compared."""

import numpy as np

import xlakit as xla
from xlakit.tools.numerics import sides

SVD = """HloModule m
ENTRY main {
  x = f32[5,4]{0,1} parameter(0)
  s = (f32[5,4]{0,1}, f32[4], f32[5,5]{0,1}, f32[4,4]{0,1}, s32[]) custom-call(x),
    custom_call_target="lapack_sgesdd_ffi", api_version=API_VERSION_TYPED_FFI,
    operand_layout_constraints={f32[5,4]{0,1}},
    backend_config={mode = 65 : ui8}
  ROOT values = f32[4] get-tuple-element(s), index=1
}"""
EIGH = """HloModule m
ENTRY main {
  x = f32[4,4]{0,1} parameter(0)
  e = (f32[4,4]{0,1}, f32[4], s32[]) custom-call(x),
    custom_call_target="lapack_ssyevd_ffi", api_version=API_VERSION_TYPED_FFI,
    operand_layout_constraints={f32[4,4]{0,1}},
    backend_config={mode = 78 : ui8, uplo = 76 : ui8}
  ROOT values = f32[4] get-tuple-element(e), index=1
}"""


def test_what_lapack_leaves_undefined_is_not_compared(monkeypatch):
    module = xla.HloModule.from_text(SVD)
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    assert xla.find_divergence(module, x, against="interpreter") is None
    # Both backends leave something else in the matrix, or this would test nothing.
    monkeypatch.setattr(sides, "undefined_results", lambda _: frozenset())
    found = xla.find_divergence(module, x, against="interpreter")
    assert found is not None
    assert found.index == (0,)


def test_other_results_of_such_a_call_are_compared():
    call = xla.HloModule.from_text(SVD).entry.instructions[1]
    assert sides.only_defined(call, [(1, 2, 3, 4, 5)], [(6, 7, 8, 9, 10)]) == [(6, 2, 3, 4, 5)]
    without_vectors = xla.HloModule.from_text(EIGH).entry.instructions[1]
    assert sides.only_defined(without_vectors, [(1, 2, 3)], [(4, 5, 6)]) == [(4, 2, 3)]
    with_vectors = xla.HloModule.from_text(EIGH.replace("mode = 78", "mode = 86")).entry.instructions[1]
    assert sides.only_defined(with_vectors, [(1, 2, 3)], [(4, 5, 6)]) == [(1, 2, 3)]
