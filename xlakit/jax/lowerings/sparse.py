"""Systems of sparse matrices in rows, solved by SciPy's SuperLU, as JAX does it for processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from xlakit.ir.operation import Array

TARGET: Final = "xlakit_sparse_solve"


def solve_rule(_: Any) -> Any:
    """The rule of ``spsolve``: a call of :func:`sparse_solve`. Tolerance and order of columns are SuperLU's own."""
    from jax._src.interpreters import mlir

    def lower(ctx: Any, *operands: Any, **_: Any) -> Any:
        types = [mlir.aval_to_ir_type(ctx.module_context, aval) for aval in ctx.avals_out]
        return mlir.custom_call(TARGET, result_types=types, operands=operands, api_version=2).results

    return lower


def sparse_solve(values: Array, columns: Array, starts: Array, right: Array) -> Array:
    """The solution for a square matrix of compressed rows; NaN where it is singular."""
    from scipy.sparse import csr_array  # takes a while to load, and few programs need it
    from scipy.sparse.linalg import spsolve

    # SuperLU sorts the rows in its input array, so it gets a copy.
    matrix = csr_array((values, columns, starts), shape=(right.size, right.size), copy=True)
    solution: Any = spsolve(matrix, right)
    return solution.astype(right.dtype)
