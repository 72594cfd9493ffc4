"""A product, and its blocking."""

from __future__ import annotations

from xlakit.cpu.kernels.gemm.operands import Direction, Matrix
from xlakit.cpu.kernels.shared.engine import Engine
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """result[b, i, j] = sum over k of lhs[b, i, k] * rhs[b, k, j].

    The operands' directions along k have the same sizes. ``batches`` are the directions through the batches of lhs,
    rhs and result.
    """

    lhs: Matrix
    rhs: Matrix
    result: PrimitiveType
    rows: Direction
    columns: Direction
    batches: tuple[Direction, Direction, Direction] = (Direction(()), Direction(()), Direction(()))
    # The offset of the first element in the result, and the indices of lhs, rhs and result in the table.
    first: int = 0
    arrays: tuple[int, int, int] = (0, 1, 2)

    @property
    def batch(self) -> int:
        """The number of products."""
        return self.batches[2].size

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows and columns of the result, and steps of k."""
        return self.rows.size, self.columns.size, self.lhs.along.size


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocking of a product.

    A block of k has ``runs`` runs of ``kc`` steps each; if it has several, each is whole. k_blocks: how many blocks
    there are. task_rows, task_columns: the rectangle of a task; row_tasks, column_tasks: how many there are. mc: rows
    that are packed at a time; nc is task_columns. packs: which operands are packed; ahead: the right one all at once,
    before the first block of rows. batches_inner: the same rows of all batches come before the next rows.
    """

    engine: Engine
    runs: int
    kc: int
    k_blocks: int
    task_rows: int
    row_tasks: int
    task_columns: int
    column_tasks: int
    mc: int
    packs: tuple[bool, bool]
    ahead: bool
    batches_inner: bool = False

    @property
    def packed_kc(self) -> int:
        """Steps of k in the largest block, padded to a multiple of the engine's group."""
        return -(-self.runs * self.kc // self.engine.group) * self.engine.group

    @property
    def is_mixed(self) -> bool:
        """Whether one operand is packed and the other is not."""
        return self.packs[0] != self.packs[1]

    @property
    def sliver_elements(self) -> int:
        """Elements of a packed sliver of the right operand, for the largest block of k."""
        return self.packed_kc * self.engine.nr * self.engine.parts

    def slivers(self, product: Product) -> int:
        """The number of slivers, of the engine's nr columns each, in a task."""
        return -(-min(self.task_columns, product.sizes[1]) // self.engine.nr)

    def local_width(self, product: Product) -> int:
        """The distance of rows of a rectangle in temporary memory of the task."""
        return min(self.task_columns, max(1, product.sizes[1]))
