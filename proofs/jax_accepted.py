"""Which of JAX's own tests may fail on xlakit alone, and why."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Final

# A file, a pattern of its tests, and the reason.
ACCEPTED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "api",
        "JitTest::test_jit_lower_compile_with_compiler_options_invalid",
        "options of XLA's own compiler are accepted and say nothing, so their values are not looked at",
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
)


def reason(file: str, test: str) -> str:
    """Why a test may fail; empty where it may not."""
    return next((why for name, pattern, why in ACCEPTED if name == file and fnmatch(test, pattern)), "")
