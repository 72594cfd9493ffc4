"""Layout: how an array lies in linear memory.

Source: XLA's document "Shapes and layout", sections on layout, the default order and padding; the fields that HLO
text carries today (tiles, element size, memory space, ...) are kept through round trips.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xlakit.arguments import all_of, constructing, convert_fields, converting, explaining
from xlakit.data.primitive import PrimitiveType
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError

if TYPE_CHECKING:
    from xlakit.data.shape import Shape

# A tile dimension that is merged into its neighbor; it prints as "*".
COMBINED_DIMENSION = -(2**63)


def row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The distances, in elements, between neighbors along each dimension."""
    return tuple(math.prod(sizes[d + 1 :]) for d in range(len(sizes)))


@constructing
@dataclass(frozen=True, slots=True)
class Tile:
    """One level of tiling, most major dimension first; COMBINED_DIMENSION stands for ``*``."""

    dimensions: tuple[int, ...]

    def __post_init__(self) -> None:
        convert_fields(self, dimensions=tuple[int, ...])

    def __str__(self) -> str:
        return "(" + ",".join("*" if d == COMBINED_DIMENSION else str(d) for d in self.dimensions) + ")"


@constructing
@dataclass(frozen=True, slots=True)
class SplitConfig:
    """How one dimension is split between memories."""

    dimension: int
    split_indices: tuple[int, ...]

    def __post_init__(self) -> None:
        convert_fields(self, dimension=int, split_indices=tuple[int, ...])

    def __str__(self) -> str:
        return f"({self.dimension}:{','.join(map(str, self.split_indices))})"


class LevelKind(enum.IntEnum):
    """How a dimension is stored: each index, or only those of stored elements."""

    DENSE = 0
    COMPRESSED = 1
    SINGLETON = 2
    LOOSE_COMPRESSED = 3


LEVEL_LETTERS = "DCSH"


@constructing
@dataclass(frozen=True, slots=True)
class LevelType:
    """How one dimension of a sparse array is stored; its indices may repeat (``+``), and need not be sorted (``~``)."""

    kind: LevelKind
    unique: bool = True
    ordered: bool = True

    def __post_init__(self) -> None:
        convert_fields(self, kind=LevelKind, unique=bool, ordered=bool)
        if self.kind is LevelKind.DENSE and not (self.unique and self.ordered):
            raise ShapeError(f"a dense dimension has no marks: {self}", hint="write D, or another kind")

    def __str__(self) -> str:
        return LEVEL_LETTERS[self.kind] + ("" if self.unique else "+") + ("" if self.ordered else "~")


@constructing
@dataclass(frozen=True, slots=True)
class Layout:
    """The order of the dimensions in memory, from the fastest varying to the slowest, and the padding.

    ``minor_to_major`` is a permutation of ``0 .. rank-1``. ``padded_dimensions``, when given, has one width
    (in elements, at least the size) for each dimension, and ``padding_value`` says what fills the gap.
    The other fields are today's LayoutProto, carried along unchanged. ``level_types`` are those of a sparse array,
    which cannot be compiled; a dense array has none, also where it is given one for each dimension.
    """

    minor_to_major: tuple[int, ...]
    padded_dimensions: tuple[int, ...] = ()
    padding_value: float | int | None = None
    tiles: tuple[Tile, ...] = ()
    element_size_in_bits: int = 0
    memory_space: int = 0
    tail_padding_alignment_in_elements: int = 1
    index_primitive_type: PrimitiveType | None = None
    pointer_primitive_type: PrimitiveType | None = None
    split_configs: tuple[SplitConfig, ...] = ()
    physical_shape: Shape | None = None
    dynamic_shape_metadata_prefix_bytes: int = 0
    level_types: tuple[LevelType, ...] = ()

    def __post_init__(self) -> None:
        self._settle()
        rank = len(self.minor_to_major)
        if sorted(self.minor_to_major) != list(range(rank)):
            raise ShapeError(
                f"minor_to_major {list(self.minor_to_major)} is not a permutation of 0..{rank - 1}",
                hint="give each dimension number once, the fastest varying first",
            )
        if self.padded_dimensions and len(self.padded_dimensions) != rank:
            raise ShapeError(
                f"padded_dimensions has {len(self.padded_dimensions)} entries for rank {rank}",
                hint="give one padded width for each dimension, or none",
            )
        if self.padding_value is not None and not self.padded_dimensions:
            raise ShapeError(
                "padding_value is given without padded_dimensions",
                hint="give padded_dimensions, one width for each dimension",
            )
        for kind in (self.index_primitive_type, self.pointer_primitive_type):
            if kind is not None and not kind.is_unsigned:
                raise ShapeError(
                    f"a layout's indices and pointers are unsigned integers, not {kind.hlo_name}",
                    hint="give u8, u16, u32 or u64",
                )

        if self.level_types:
            self._settle_levels(rank)

    def _settle_levels(self, rank: int) -> None:
        convert_fields(self, level_types=tuple[LevelType, ...])
        if len(self.level_types) != rank:
            raise ShapeError(
                f"level_types has {len(self.level_types)} entries for rank {rank}",
                hint="give one for each dimension, or none",
            )
        if all(level.kind is LevelKind.DENSE for level in self.level_types):
            object.__setattr__(self, "level_types", ())
        elif self.tiles:
            raise ShapeError("the layout of a sparse array has no tiles", hint="leave out the tiles")

    def _settle(self) -> None:
        if not all_of(int, self.minor_to_major) or not all_of(int, self.padded_dimensions):
            convert_fields(self, minor_to_major=tuple[int, ...], padded_dimensions=tuple[int, ...])
        if self.padding_value is not None and type(self.padding_value) not in (int, float):
            convert_fields(self, padding_value=float)
        # Skipped for most layouts, which consist of minor_to_major alone.
        if not all_of(Tile, self.tiles) or not all_of(SplitConfig, self.split_configs):
            convert_fields(self, tiles=tuple[Tile, ...], split_configs=tuple[SplitConfig, ...])
        if self.index_primitive_type is not None or self.pointer_primitive_type is not None:
            convert_fields(self, index_primitive_type=PrimitiveType | None, pointer_primitive_type=PrimitiveType | None)
        numbers = (self.element_size_in_bits, self.memory_space, self.tail_padding_alignment_in_elements)
        if not all_of(int, (*numbers, self.dynamic_shape_metadata_prefix_bytes)):
            convert_fields(self, element_size_in_bits=int, memory_space=int, tail_padding_alignment_in_elements=int)
            convert_fields(self, dynamic_shape_metadata_prefix_bytes=int)

    @staticmethod
    @explaining
    def default(rank: int) -> Layout:
        """Major to minor: the layout of every new shape (row-major for rank 2)."""
        known = _DEFAULTS.get(rank) if type(rank) is int else None
        return known if known is not None else _default(rank)

    @staticmethod
    @converting
    def major_to_minor(order: Sequence[int]) -> Layout:
        """The layout whose dimensions, slowest varying first, are ``order``."""
        return Layout(tuple(reversed(order)))

    @property
    def is_default(self) -> bool:
        """Whether this is major to minor without padding, tiles or any other field."""
        return self == Layout.default(len(self.minor_to_major))

    @property
    def is_monotonic_with_dim0_major(self) -> bool:
        """Whether the order is ``N-1 .. 0``: "dim 0 is major", row-major."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major) - 1, -1, -1))

    @property
    def is_monotonic_with_dim0_minor(self) -> bool:
        """Whether the order is ``0 .. N-1``: "dim 0 is minor", column-major."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major)))

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        parts: list[str] = []
        if self.level_types:
            parts.append(f"D({','.join(map(str, self.level_types))})")
        if self.tiles:
            parts.append("T" + "".join(map(str, self.tiles)))
        if self.tail_padding_alignment_in_elements != 1:
            parts.append(f"L({self.tail_padding_alignment_in_elements})")
        if self.index_primitive_type is not None:
            parts.append(f"#({self.index_primitive_type.hlo_name})")
        if self.pointer_primitive_type is not None:
            parts.append(f"*({self.pointer_primitive_type.hlo_name})")
        if self.element_size_in_bits:
            parts.append(f"E({self.element_size_in_bits})")
        if self.memory_space:
            parts.append(f"S({self.memory_space})")
        if self.split_configs:
            parts.append("SC" + "".join(map(str, self.split_configs)))
        if self.physical_shape is not None:
            parts.append(f"P({self.physical_shape})")
        if self.dynamic_shape_metadata_prefix_bytes:
            parts.append(f"M({self.dynamic_shape_metadata_prefix_bytes})")
        return "{" + order + (":" + "".join(parts) if parts else "") + "}"


@converting
def _default(rank: int) -> Layout:
    if not 0 <= rank <= _MAX_RANK:
        raise ShapeError(f"rank {rank} is not in 0 .. {_MAX_RANK}", hint="give the number of dimensions")
    return Layout(tuple(range(rank - 1, -1, -1)))


# A larger rank is taken for a mistake, before a tuple of that length is allocated.
_MAX_RANK = 1 << 20
_DEFAULTS = {rank: _default(rank) for rank in range(9)}
