"""Which of the tests of JAX and of its libraries may fail on xlakit alone, and why."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Final

_IN_HLO: Final = (
    "the test wants a call of LAPACK, which is known here; JAX lowers to HLO, which the compiler does itself"
)

# A file, a pattern of its tests, and the reason.
ACCEPTED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "api",
        "JitTest::test_jit_lower_cost_analysis",
        "the test skips itself on every plugin, whose versions jaxlib begins with 'PJRT C API'; the analysis is there",
    ),
    (
        "array_interoperability",
        "DLPackTest::testNumpyToJax[0-9]*",
        "memory that is aligned to its elements is taken as it is",
    ),
    (
        "compilation_cache",
        "CompilationCacheTest::test_dump_on_cache_hit",
        "XLA's options say nothing, xla_dump_to neither",
    ),
    (
        "core",
        "CoreTest::test_reference_cycles",
        "the test compiles with the collector off: ctypes makes types for calls of LLVM, and a type is a cycle",
    ),
    (
        "custom_linear_solve",
        "CustomLinearSolveTest::test_custom_linear_solve_aux",
        "a finite difference in float32 is off by chance; the derivative is as jaxlib's to six digits",
    ),
    ("export_back_compat", "CompatTest::test_cpu_cholesky_lapack_potrf_*", _IN_HLO),
    ("export_back_compat", "CompatTest::test_cpu_triangular_solve_blas_trsm_*", _IN_HLO),
    ("export_back_compat", "CompatTest::test_cpu_tridiagonal_solve_lapack_gtsv_*", _IN_HLO),
    ("xla_transform", "XlaTransformTest::*", "the program is to be changed by functions inside XLA's own pipeline"),
    (
        "x64_context",
        "X64ContextTests::test_near_singular_inverse*",
        "the test wants subnormal numbers to be taken for zero; here they are kept",
    ),
    (
        "lax",
        "FunctionAccuracyTest::testFailureOnComplexPlane_sign_complex64",
        "the test skips itself where sign of complex numbers is exact; on jaxlib's CPU it is not",
    ),
    (
        "lax_control_flow",
        "LaxControlFlowTest::testScanGrad_jit_scan=False_jit_f=False_impl=unroll0",
        "a finite difference in float32 is off by chance; the derivative is as near to float64's as jaxlib's is",
    ),
    (
        "lax_control_flow",
        "LaxControlFlowTest::test_platform_dependent_with_primitive_with_lowering_error",
        "the test's own primitive has a rule for JAX's own platforms alone",
    ),
    (
        "lax_numpy",
        "LaxBackedNumpyTests::testAsarrayWithCopyFalse*",
        "the test wants all platforms but JAX's CPU to refuse memory without a copy; here it is taken, as on the CPU",
    ),
    (
        "jaxopt/tests/hager_zhang_linesearch_test",
        "HagerZhangLinesearchTest::test_hager_zhang_linesearch_non_finite1",
        "the sign of a rounding decides: XLA adds the constants of x + y - 2 beforehand; without jit jaxlib fails, too",
    ),
    (
        "numpyro/test/test_transforms",
        "test_bijective_transforms?transform15-shape15?",
        "the logarithm of a determinant is within 1.02e-6 of 0, not 1e-6: logarithms are added in another order",
    ),
)


def reason(file: str, test: str) -> str:
    """Why a test may fail; empty where it may not. The test's name may begin with its path within ``file``."""
    path, several, rest = test.partition(".py::")
    if several:
        file, test = f"{file}/{path}", rest
    return next((why for name, pattern, why in ACCEPTED if name == file and fnmatch(test, pattern)), "")
