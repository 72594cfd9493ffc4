"""The structured values that instructions carry as attributes.

Source: the messages of the same names in ``xla_data.proto`` and ``hlo.proto``. They are plain values; the codecs
of ``xlakit.formats`` print and parse them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np

from xlakit.arguments import all_of, constructing, convert_fields, converting
from xlakit.dataclass import dataclass
from xlakit.errors import ShapeError


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a moving window; sizes and paddings count elements."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    @property
    def dilated_size(self) -> int:
        """The extent of the window with its holes."""
        return (self.size - 1) * self.window_dilation + 1 if self.size > 0 else 0

    def padded_base(self, base: int) -> int:
        """The extent of a base of ``base`` elements with its holes and its padding."""
        dilated = (base - 1) * self.base_dilation + 1 if base > 0 else 0
        return dilated + self.padding_low + self.padding_high

    def output_size(self, base: int) -> int:
        """The number of outputs of the window over ``base`` elements."""
        room = self.padded_base(base) - self.dilated_size
        return 0 if room < 0 or self.padded_base(base) <= 0 else room // self.stride + 1


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution, a reduce-window or a select-and-scatter."""

    dimensions: tuple[WindowDimension, ...] = ()


@constructing
@dataclass(frozen=True, slots=True)
class PaddingDimension:
    """Padding of one dimension: at both edges (may be negative) and between elements."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass(frozen=True, slots=True)
class SliceDimension:
    """``[start:limit:stride]`` of one dimension."""

    start: int
    limit: int
    stride: int = 1


@constructing
@dataclass(frozen=True, slots=True)
class ConvolutionDimensionNumbers:
    """The roles of the dimensions of input, kernel and output (``dim_labels=b01f_01io->b01f``)."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]

    @staticmethod
    @converting
    def default(spatial: int) -> ConvolutionDimensionNumbers:
        """Batch, feature, spatial for input and output; output feature, input feature, spatial for the kernel."""
        dims = tuple(range(2, spatial + 2))
        return ConvolutionDimensionNumbers(0, 1, dims, 1, 0, dims, 0, 1, dims)


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """The groups of a collective, as a list of lists, an iota form, or mesh axes.

    ``groups`` is always the expanded list; the other fields remember the compact form that it was written in.
    An empty list means one group of all.
    """

    groups: tuple[tuple[int, ...], ...] = ()
    iota: IotaTileAssignment | None = None
    mesh: Mesh | None = None
    mesh_axes: tuple[AxisRef, ...] = ()

    @staticmethod
    @converting
    def from_lists(groups: Sequence[Sequence[int]]) -> ReplicaGroups:
        """Groups given as lists of ids."""
        return ReplicaGroups(tuple(tuple(int(i) for i in group) for group in groups))

    @staticmethod
    @converting
    def from_iota(iota: IotaTileAssignment) -> ReplicaGroups:
        """Groups given as ``[groups,size]<=[dims]T(perm)``."""
        rows = iota.devices().reshape(iota.dimensions)
        return ReplicaGroups(tuple(tuple(int(i) for i in row) for row in rows), iota)

    @staticmethod
    @converting
    def from_mesh(mesh: Mesh, axes: Sequence[AxisRef]) -> ReplicaGroups:
        """Groups of the devices that differ in these axes of a mesh only, in the order of ``axes``."""
        return ReplicaGroups(mesh.groups(axes), None, mesh, tuple(axes))


@dataclass(frozen=True, slots=True)
class CollectiveGroups:
    """The attributes of a collective that say which devices take part together.

    use_global_device_ids: None where the operation has no such attribute.
    """

    replica_groups: ReplicaGroups
    channel_id: int | None
    use_global_device_ids: bool | None


@dataclass(frozen=True, slots=True)
class IotaTileAssignment:
    """``[dimensions]<=[reshape_dims]T(transpose_perm)``: device ids as a transposed iota."""

    dimensions: tuple[int, ...]
    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("dimensions", "reshape_dims", "transpose_perm"):
            if not all_of(int, getattr(self, name)):
                convert_fields(self, **{name: tuple[int, ...]})
        if sorted(self.transpose_perm) != list(range(len(self.reshape_dims))):
            raise ShapeError(
                f"T({','.join(map(str, self.transpose_perm))}) does not permute {list(self.reshape_dims)}",
                hint=f"give each number from 0 to {len(self.reshape_dims) - 1} once",
            )
        if min((*self.dimensions, *self.reshape_dims), default=1) <= 0:
            raise ShapeError("an iota assignment has sizes of at least 1", hint="leave sizes of 0 out")
        if math.prod(self.dimensions) != math.prod(self.reshape_dims):
            raise ShapeError(
                f"{list(self.dimensions)} and {list(self.reshape_dims)} do not have the same product",
                hint=f"both must name all {math.prod(self.dimensions)} devices",
            )
        if math.prod(self.dimensions) > 1 << 24:
            raise ShapeError(
                "an iota assignment names more than 2^24 devices", hint="list the devices of one group, not of all"
            )

    def devices(self) -> np.ndarray:
        """The device ids, flat, in order."""
        ids = np.arange(math.prod(self.reshape_dims), dtype=np.int64)
        return ids.reshape(self.reshape_dims).transpose(self.transpose_perm).reshape(-1)


@dataclass(frozen=True, slots=True)
class Mesh:
    """A named device mesh; ``device_ids`` is empty for the iota order, or ``iota`` gives a transposed one."""

    axes: tuple[tuple[str, int], ...] = ()
    device_ids: tuple[int, ...] = ()
    iota: IotaTileAssignment | None = None

    def devices(self) -> np.ndarray:
        """The device ids, flat, in the order of the axes."""
        if self.iota is not None:
            return self.iota.devices()
        count = math.prod(size for _, size in self.axes)
        if count > 1 << 24 or any(size < 1 for _, size in self.axes):
            raise ShapeError(
                "a mesh has axes of at least 1 and no more than 2^24 devices",
                hint="give each axis the number of devices along it",
            )
        return np.asarray(self.device_ids, dtype=np.int64) if self.device_ids else np.arange(count, dtype=np.int64)

    def groups(self, axes: Sequence[AxisRef]) -> tuple[tuple[int, ...], ...]:
        """The devices that differ in ``axes`` only, group by group; an axis may be cut into sub-axes."""
        sizes: list[int] = []
        dimension_of: dict[AxisRef, int] = {}
        for number, (name, size) in enumerate(self.axes):
            done = 1
            cuts = [a for a in axes if a.mesh_axis_index == number]
            for axis in sorted(cuts, key=lambda a: a.sub_axis or (1, size)):
                before, width = axis.sub_axis or (1, size)
                if before < done or before % done or width < 1 or size % (before * width):
                    raise ShapeError(
                        f"sub-axis ({before}){width} does not cut mesh axis '{name}' of size {size}",
                        hint=f"give (before, size) of which before * size divides {size}",
                    )
                sizes.append(before // done)
                dimension_of[axis] = len(sizes)
                sizes.append(width)
                done = before * width
            sizes.append(size // done)
        if len(dimension_of) != len(axes):
            raise ShapeError(
                f"the mesh has axes 0 to {len(self.axes) - 1}, each may be named once",
                hint="name each axis once, or different parts of it",
            )
        devices = self.devices()
        if math.prod(sizes) != devices.size:
            raise ShapeError(
                f"a mesh of {math.prod(sizes)} devices has {devices.size} devices",
                hint=f"give {math.prod(sizes)} device_ids, or none for 0, 1, 2, ...",
            )
        grouped = [dimension_of[a] for a in axes]
        order = [i for i in range(len(sizes)) if i not in grouped] + grouped
        rows = devices.reshape(sizes).transpose(order).reshape(-1, math.prod(sizes[i] for i in grouped))
        return tuple(tuple(int(i) for i in row) for row in rows)


@dataclass(frozen=True, slots=True)
class AxisRef:
    """A mesh axis by its position, or ``(pre_size, size)`` of a part of one."""

    mesh_axis_index: int
    sub_axis: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NamedSharding:
    """A sharding in terms of a mesh's axes; each dimension has its axes and whether it is closed."""

    mesh: Mesh
    dim_shardings: tuple[tuple[tuple[AxisRef, ...], bool], ...] = ()
    replicated_axes: tuple[AxisRef, ...] = ()
    unreduced_axes: tuple[AxisRef, ...] = ()
    manual_axes: tuple[AxisRef, ...] = ()
    reduction_op: str = "SUM"


_SHARDING_KINDS = ("REPLICATED", "MAXIMAL", "TUPLE", "OTHER", "MANUAL", "UNKNOWN", "UNREDUCED")


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a value is split over devices. ``kind`` is a name of OpSharding.Type.

    TUPLE has ``elements``; OTHER has ``tile_dimensions`` and ``devices`` (or ``iota``), ``last_tile_dims`` kinds
    for its subgroups; MAXIMAL has one device.
    """

    kind: str
    tile_dimensions: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    iota: IotaTileAssignment | None = None
    replicate_on_last_tile_dim: bool = False
    last_tile_dims: tuple[str, ...] = ()
    elements: tuple[Sharding, ...] = ()
    metadata: tuple[OpMetadata, ...] = ()
    shard_group: tuple[str, int] | None = None
    named: NamedSharding | None = None

    def __post_init__(self) -> None:
        if self.kind not in _SHARDING_KINDS:
            raise ShapeError(f"there is no sharding of kind '{self.kind}'", hint=f"known: {', '.join(_SHARDING_KINDS)}")


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """Where an instruction came from. Lines and columns count from 1, 0 is unknown."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    profile_type: tuple[int, ...] = ()
    deduplicated_name: str = ""
    stack_frame_id: int = 0
    scheduling_name: str = ""
    payload: str = ""
    size_of_generated_code_in_bytes: int = 0
    size_of_memory_working_set_in_bytes: int = 0


@dataclass(frozen=True, slots=True)
class OutputOperandAliasing:
    """An output (by its ShapeIndex) that shares the buffer of an operand (by number and ShapeIndex)."""

    output_index: tuple[int, ...]
    operand_number: int
    operand_index: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """The accuracy asked of a unary function: a mode (DEFAULT, HIGHEST) or tolerances."""

    mode: str = "DEFAULT"
    tolerance: tuple[float, float, int] | None = None  # atol, rtol, ulps

    def __post_init__(self) -> None:
        convert_fields(self, mode=str, tolerance=tuple[float, float, int] | None)
        if self.mode not in ("DEFAULT", "HIGHEST"):
            raise ShapeError(f"unknown result accuracy mode '{self.mode}'", hint='give "DEFAULT" or "HIGHEST"')


@dataclass(frozen=True, slots=True)
class SparsitySide:
    """Structured sparsity of one operand of a convolution."""

    num_non_zero: int = 0
    block_size: int = 0
    dimension: int = 0
    stride: int = 0
    idx: int = 0


@dataclass(frozen=True, slots=True)
class SparsityConfig:
    """Structured sparsity of a convolution's operands."""

    lhs: SparsitySide | None = None
    rhs: SparsitySide | None = None


# What text and protos may say before a reader would take memory for a value that no program has.
_MOST_LEVELS = 100
_MOST_PARTS = 1 << 20

# A value of the original program: the name of its instruction, and the ShapeIndex of the part that is meant.
OriginalArray = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class OriginalValue:
    """Which values of the original program an instruction holds: (ShapeIndex, OriginalArray or None).

    The indices are those of arrays of one tuple, in their order; empty tuples have none. Raises ShapeError.
    """

    elements: tuple[tuple[tuple[int, ...], OriginalArray | None], ...] = ()
    is_synthetic_call: bool = False

    def __post_init__(self) -> None:
        indices = [index for index, _ in self.elements]
        for index in indices:
            if len(index) > _MOST_LEVELS or any(not 0 <= i < _MOST_PARTS for i in index):
                raise ShapeError(
                    f"an original value has the index {list(index)[:8]}",
                    hint=f"no value has more than {_MOST_LEVELS} levels of tuples of {_MOST_PARTS} parts",
                )
        for before, index in pairwise(indices):
            if index <= before or index[: len(before)] == before:
                raise ShapeError(
                    f"an original value has the index {list(index)} after {list(before)}",
                    hint="give each array of the tuple once, in the order of the indices",
                )


@dataclass(frozen=True, slots=True)
class Annotations:
    """The fields that any instruction may have in addition to its operation; none of them changes the result."""

    metadata: OpMetadata | None = None
    sharding: Sharding | None = None
    frontend_attributes: tuple[tuple[str, str], ...] = ()
    backend_config: str = ""
    statistics: tuple[tuple[str, float], ...] = ()
    statistics_visualized: int = 0
    origin: OriginalValue | None = None
    parameter_replication: tuple[bool, ...] = ()


NO_ANNOTATIONS = Annotations()


@dataclass(frozen=True, slots=True)
class StackFrames:
    """The tables at the top of a module that stack_frame_id of the metadata points into (ids count from 1).

    A file location is (file_name_id, function_name_id, line, end_line, column, end_column);
    a stack frame is (file_location_id, parent_frame_id), 0 meaning no parent.
    """

    file_names: tuple[str, ...] = ()
    function_names: tuple[str, ...] = ()
    file_locations: tuple[tuple[int, int, int, int, int, int], ...] = ()
    stack_frames: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class AliasEntry:
    """An output that shares its buffer with a parameter; ``must`` is false for may-alias."""

    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    must: bool = False


@dataclass(frozen=True, slots=True)
class BufferDonor:
    """A parameter's buffer that the program may reuse."""

    parameter_number: int
    parameter_index: tuple[int, ...] = field(default=())
