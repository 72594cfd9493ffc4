"""The HLO convolution: as matrix products over strided arrays, or feature by feature if it is depthwise.

There is no im2col: micro-kernels read the input itself at the window positions (placements). With padding, they read a
copy of the input that has the zeros written out; either each thread makes the lines that its next rows read, or the
whole copy is made before the product. The rows of the product are placements or features, whichever makes its columns
contiguous in the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from xlakit import machine
from xlakit.cpu.declined import DeclinedError
from xlakit.cpu.kernels.conv.depthwise import depthwise_tasks, emit_depthwise, is_depthwise
from xlakit.cpu.kernels.conv.geometry import Axis, Geometry, Step, convolution_geometry
from xlakit.cpu.kernels.conv.grouped import GroupLines, groups_of_register
from xlakit.cpu.kernels.conv.pad import ImageLines, Padded, emit_pad, padded_dimensions, scratch_bytes
from xlakit.cpu.kernels.gemm.blocking import Blocking, plan_gemm, task_count, time_of_columns
from xlakit.cpu.kernels.gemm.driver import emit_gemm
from xlakit.cpu.kernels.gemm.engine import Engine, choose_engine, stored_as_packed
from xlakit.cpu.kernels.gemm.operands import Direction
from xlakit.cpu.kernels.gemm.product import Dims, Lines, Product, make_product, merged
from xlakit.cpu.llvm import Function, Module
from xlakit.cpu.scalars.memory import is_narrow
from xlakit.data.primitive import PrimitiveType
from xlakit.data.shape import Shape
from xlakit.dataclass import dataclass
from xlakit.ops.convolution import Convolution
from xlakit.ops.shared.nibbles import is_packed
from xlakit.options import knob, times

_INPUT, _KERNEL, _RESULT, _SCRATCH = range(4)
_LINE_BYTES = knob("convolution.line_bytes", 64, 0, 1000, tries=(0, 1000))
# The copied lines of the input for a chunk of rows stay in the second-level cache until they are read.
_LINES_BYTES = knob("convolution.lines_bytes", lambda: machine.current().l2 // 2, 0, 1 << 12, tries=(0, times(0.5)))
# Lines that two chunks read are copied twice. With more copies than this, in percent of all lines, the whole input is
# copied once.
_MOST_COPIES = knob("convolution.most_copies", 150, 0, 1000)
_STRIDED_STORE = knob("convolution.strided_store", 16, 0, 1000, tries=(0, 1000))


@dataclass(frozen=True, slots=True)
class Stage:
    """A task function, the number of its tasks, and the number of their multiplications (or copied elements).

    A stage ends before the next one begins.
    """

    function: Function
    tasks: int
    cost: int


@dataclass(frozen=True, slots=True)
class ConvolutionPlan:
    """The kernel of a convolution, and its blocking.

    kind: "depthwise" (feature by feature), or "positions" or "features" (products that have these as rows). padded,
    converted: copies of the input and of the kernel that are made first. products: for each phase the product and its
    blocking.
    """

    kind: str
    geometry: Geometry
    padded: Padded | None
    products: tuple[tuple[Product, Blocking], ...]
    cost: int
    converted: Padded | None = None

    @property
    def copies(self) -> tuple[Padded, ...]:
        """The operands that are first copied to the scratch, which is entry 3 of the table."""
        padded = None if any(product.lines for product, _ in self.products) else self.padded
        return tuple(copy for copy in (padded, self.converted) if copy is not None)

    @property
    def scratch_bytes(self) -> int:
        """The bytes of the scratch; 0 if there is none."""
        return scratch_bytes(self.copies)


def plan_convolution(op: Convolution, lhs: Shape, rhs: Shape, result: Shape) -> ConvolutionPlan:
    """The plan of a convolution of these shapes (row-major, of static sizes); raises DeclinedError."""
    _check(op, lhs, rhs, result)
    geometry = convolution_geometry(op, lhs, rhs, result)
    cost = geometry.products
    if is_depthwise(geometry):
        return ConvolutionPlan("depthwise", geometry, None, (), cost)
    engine = choose_engine(*geometry.kinds)
    together = _full_groups(op, lhs, geometry, engine)
    if together is not None:
        return together
    padded = _padded(op, lhs, geometry, engine)
    image = _with_copied_input(op, geometry, padded)
    kind, products = "positions", []
    for axes in image.phases:
        kind, product = _product(image, axes, padded)
        blocking = plan_gemm(product)
        if kind == "positions" and len(image.phases) == 1 and padded is not None:
            lines = _lines(op, image, axes, padded, blocking) if padded.line >= 2 and image.groups.size == 1 else None
            product = replace(product, lines=lines, arrays=(_INPUT if lines else _SCRATCH, _KERNEL, _RESULT))
        products.append((product, blocking))
    converted = _converted(rhs, geometry, products, padded)
    if converted is not None:
        # With the sizes of other phases, positions may be the rows.
        replaced = [_with_kernel(p, converted) if p.arrays[0] == _KERNEL else p for p, _ in products]
        products = [(product, plan_gemm(product)) for product in replaced]
    return ConvolutionPlan(kind, geometry, padded, tuple(products), cost, converted)


def _check(op: Convolution, lhs: Shape, rhs: Shape, result: Shape) -> None:
    for shape in (lhs, rhs, result):
        if shape.is_dynamic:
            raise DeclinedError(f"a convolution of the dynamic shape {shape}")
    if op.sparsity_config is not None:
        raise DeclinedError("a convolution of sparse operands")
    if is_packed(op):
        raise DeclinedError("a convolution of packed nibbles that no pass has expanded")
    if (lhs.element_type.is_complex or rhs.element_type.is_complex) and not result.element_type.is_complex:
        raise DeclinedError("a convolution of complex operands with a real result")


# -- the input -----------------------------------------------------------------------------------


def _padded(op: Convolution, lhs: Shape, geometry: Geometry, engine: Engine) -> Padded | None:
    """The padded copy of the input, converted too if that would be repeated; None if neither is needed."""
    around = _around(op, geometry)
    source = geometry.kinds[0]
    kind = source
    converts = engine.parts == 1 and is_narrow(source) and not stored_as_packed(engine, source)
    if converts and any(math.prod(a.taps for a in axes) > 1 for axes in geometry.phases):
        kind = _packed_kind(engine)
    if (not around and kind is source) or not geometry.products:
        return None
    low, high, holes = padded_dimensions(lhs.dimensions, around)
    padded = Padded(source, kind, lhs.dimensions, low, high, holes, engine, geometry.kinds[2])
    groups, inputs = op.feature_group_count, geometry.inputs
    if (
        groups > 1
        and _features_are_last(op, lhs)
        and inputs.size * kind.byte_width < _LINE_BYTES.value
        and padded.may_have_groups
    ):
        # Each group becomes contiguous, and is read in whole cache lines.
        padded = replace(padded, groups=groups)
    return padded


def _features_are_last(op: Convolution, lhs: Shape) -> bool:
    # Their stride is 1 in an image of a single element, too, whose dimensions may come after theirs.
    return op.dim_labels.input_feature_dimension == lhs.rank - 1


def _around(op: Convolution, geometry: Geometry) -> dict[int, tuple[int, int, int]]:
    """The zeros before, after and between the elements of the dimensions of the input that have any."""
    around: dict[int, tuple[int, int, int]] = {}
    for k, dimension in enumerate(op.dim_labels.input_spatial_dimensions):
        low = max((axes[k].low for axes in geometry.phases), default=0)
        high = max((axes[k].high for axes in geometry.phases), default=0)
        if low or high or geometry.holes[k]:
            around[dimension] = low, high, geometry.holes[k]
    return around


def _packed_kind(engine: Engine) -> PrimitiveType:
    """The element type that a floating-point engine packs."""
    return PrimitiveType.F32 if engine.packed.bytes == 4 else PrimitiveType.F64


def _with_copied_input(op: Convolution, geometry: Geometry, padded: Padded | None) -> Geometry:
    """The geometry with the strides of the input's copy, if there is one."""
    if padded is None:
        return geometry
    numbers = op.dim_labels
    strides = padded.strides
    spatial = numbers.input_spatial_dimensions
    feature, batch = strides[numbers.input_feature_dimension], strides[numbers.input_batch_dimension]
    group = geometry.batch.size * batch if op.batch_group_count > 1 else geometry.inputs.size * feature
    if padded.groups > 1:
        group = padded.group_stride
    phases = tuple(
        tuple(
            replace(axis, input=strides[d], shift=axis.shift + padded.low[d], size=padded.padded[d])
            for axis, d in zip(axes, spatial, strict=True)
        )
        for axes in geometry.phases
    )
    return replace(
        geometry,
        kinds=(padded.kind, *geometry.kinds[1:]),
        groups=replace(geometry.groups, input=group),
        batch=replace(geometry.batch, input=batch),
        inputs=replace(geometry.inputs, input=feature),
        phases=phases,
    )


# -- the product ---------------------------------------------------------------------------------


def _product(image: Geometry, axes: Sequence[Axis], padded: Padded | None) -> tuple[str, Product]:
    """The product of one phase: output positions times features, or the reverse."""
    across = _contiguous_placements(axes)
    along = _along(image, axes)
    strided_store = _STRIDED_STORE.value / max(1, math.prod(size for size, _ in along))
    by_features = False
    if across is not None:
        time = _relative_time(across[0], image) + (across[1] != 1) * strided_store
        by_features = time < _relative_time(image.features.size, image) + (image.features.output != 1) * strided_store
    array = _SCRATCH if padded is not None else _INPUT
    # Windows overlap, so packing would duplicate elements.
    overlap = math.prod(a.taps for a in axes) > 1
    if by_features and across is not None:
        product = _features_as_rows(image, axes, across[2], along)
        lhs, rhs = product.lhs, product.rhs
        product = replace(
            product,
            lhs=replace(lhs, first=sum(a.first_kernel for a in axes)),
            rhs=replace(rhs, first=sum(a.shift * a.input for a in axes), in_place=overlap),
            first=sum(a.first_output for a in axes),
            arrays=(_KERNEL, array, _RESULT),
        )
        return "features", product
    return "positions", _with_firsts(_positions_as_rows(image, axes, along), axes, overlap=overlap, array=array)


def _full_groups(op: Convolution, lhs: Shape, geometry: Geometry, engine: Engine) -> ConvolutionPlan | None:
    """The plan for groups that fill registers; None if they do not, or if threads cannot copy lines of them."""
    # Groups of a batch may have the strides of groups of features, where images are single elements.
    divided = op.batch_group_count == 1 and _features_are_last(op, lhs)
    count = groups_of_register(geometry, engine) if divided else 0
    if not count or not geometry.products or lhs.rank < 4 or (count == 1 and not _around(op, geometry)):
        return None
    kind, _, result = geometry.kinds
    groups, inputs, features = geometry.groups, geometry.inputs, geometry.features
    parts, of_part = groups.size // count, inputs.size * count
    low, high, holes = padded_dimensions(lhs.dimensions, _around(op, geometry))
    padded = Padded(kind, kind, lhs.dimensions, low, high, holes, engine, result, groups=parts)
    image = _with_copied_input(op, geometry, padded)
    image = replace(
        image,
        # Lines are copied for each part; all are at the same place.
        groups=Step(parts, 0, groups.kernel * count, groups.output * count),
        inputs=replace(inputs, input=count),
        features=replace(features, size=features.size * count),
    )
    (axes,) = image.phases
    product = replace(_positions_as_rows(image, axes, _along(image, axes)), interleaved=count)
    product = _with_firsts(product, axes, overlap=True)
    blocking = plan_gemm(product)
    lines = _lines(op, image, axes, padded, blocking)
    if lines is None:
        return None
    writer, batches = GroupLines(padded, count), Direction(((parts, of_part),) if parts > 1 else ())
    product = replace(product, lines=replace(lines, writer=writer, batches=batches))
    return ConvolutionPlan("positions", geometry, padded, ((product, blocking),), geometry.products)


def _with_firsts(product: Product, axes: Sequence[Axis], *, overlap: bool, array: int = _INPUT) -> Product:
    """A product with positions as rows, from its first elements on."""
    return replace(
        product,
        lhs=replace(product.lhs, first=sum(a.shift * a.input for a in axes), in_place=overlap),
        rhs=replace(product.rhs, first=sum(a.first_kernel for a in axes)),
        first=sum(a.first_output for a in axes),
        arrays=(array, _KERNEL, _RESULT),
    )


def _lines(op: Convolution, image: Geometry, axes: Sequence[Axis], padded: Padded, blocking: Blocking) -> Lines | None:
    """How threads copy the input line by line; None if it is copied as a whole, before the product."""
    numbers = op.dim_labels
    order = (numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension)
    outputs = [image.batch.output, *(a.output for a in axes)]
    if (
        # Rows are images, their lines, and so on; a line consists of whole parts that are written at a time.
        list(order) != sorted(order)
        or outputs != sorted(outputs, reverse=True)
        or any(padded.holes)
        or not all(a.taps and a.outputs for a in axes)
    ):
        return None
    axis = axes[0]
    span = (axis.taps - 1) * axis.dilation
    lines = Lines(
        writer=ImageLines(padded),
        rows=math.prod(a.outputs for a in axes[1:]),
        steps=axis.outputs,
        stride=axis.stride,
        low=axis.shift + min(0, span),
        reach=abs(span) + 1,
        image=padded.padded[1],
        elements=math.prod(padded.padded[2:]) // padded.groups,
        chunk=blocking.mc,
    )
    room = _LINES_BYTES.value // (lines.elements * padded.kind.byte_width)
    rows = image.batch.size * lines.steps * lines.rows
    # As many rows as fit, in whole blocks, and no more than a task has.
    most = min(rows, blocking.task_rows) + blocking.mc - 1
    chunk = min((room - lines.reach) // lines.stride * lines.rows, most) // blocking.mc * blocking.mc
    while chunk > 0 and replace(lines, chunk=chunk).most > room:
        chunk -= blocking.mc
    lines = replace(lines, chunk=chunk)
    if chunk <= 0 or 100 * rows * lines.most > _MOST_COPIES.value * chunk * padded.padded[0] * lines.image:
        return None
    return lines


def _relative_time(columns: int, image: Geometry) -> float:
    """The time of one of ``columns`` columns, relative to a column of full micro-tiles."""
    engine = choose_engine(*image.kinds)
    return time_of_columns(engine, columns) / time_of_columns(engine, engine.nr)


def _along(image: Geometry, axes: Sequence[Axis]) -> Dims:
    """The contracted dimensions, taps and inputs, with strides in input and kernel; small strides are innermost."""
    dims = [(a.taps, (a.dilation * a.input, a.kernel)) for a in axes]
    dims.append((image.inputs.size, (image.inputs.input, image.inputs.kernel)))
    if any(size == 0 for size, _ in dims):
        return [(0, (1, 1))]
    dims.sort(key=lambda dim: (-min(abs(s) for s in dim[1]), [abs(s) for s in dim[1]]))
    return merged(dims)


def _contiguous_placements(axes: Sequence[Axis]) -> tuple[int, int, int] | None:
    """The number of contiguous placements in the input, their stride in the result, and the first axis that they cover.

    None if the placements along the last axis are not contiguous.
    """
    dims = [(a.outputs, (a.stride * a.input, a.output)) for a in axes]
    for first in range(len(dims)):
        joined = merged(dims[first:])
        if len(joined) == 1 and joined[0][1][0] == 1:
            return joined[0][0], joined[0][1][1], first
    return None


def _positions_as_rows(image: Geometry, axes: Sequence[Axis], along: Dims) -> Product:
    batch = [_batch_dimension(image.groups)]
    rows = [(image.batch.size, (image.batch.input, image.batch.output))]
    rows += [(a.outputs, (a.stride * a.input, a.output)) for a in axes]
    # Rows in the order of the result, so that it is written sequentially.
    rows.sort(key=lambda dim: -dim[1][1])
    columns = [(image.features.size, (image.features.kernel, image.features.output))]
    return make_product(image.kinds, merged(batch), merged(rows), merged(columns), along)


def _features_as_rows(image: Geometry, axes: Sequence[Axis], first: int, along: Dims) -> Product:
    batch = [_with_swapped_operands(_batch_dimension(step)) for step in (image.groups, image.batch)]
    batch += [(a.outputs, (0, a.stride * a.input, a.output)) for a in axes[:first]]
    rows = [(image.features.size, (image.features.kernel, image.features.output))]
    columns = [(a.outputs, (a.stride * a.input, a.output)) for a in axes[first:]]
    kinds = (image.kinds[1], image.kinds[0], image.kinds[2])
    swapped = [(size, (kernel, input)) for size, (input, kernel) in along]
    return make_product(kinds, merged(batch), merged(rows), merged(columns), swapped)


def _batch_dimension(step: Step) -> tuple[int, tuple[int, int, int]]:
    return step.size, (step.input, step.kernel, step.output)


def _with_swapped_operands(dim: tuple[int, tuple[int, int, int]]) -> tuple[int, tuple[int, int, int]]:
    size, (input, kernel, output) = dim
    return size, (kernel, input, output)


# -- the kernel ----------------------------------------------------------------------------------


def _converted(
    rhs: Shape, geometry: Geometry, products: Sequence[tuple[Product, Blocking]], padded: Padded | None
) -> Padded | None:
    """The copy of a narrow kernel in the packed type, if products would convert it repeatedly; or None."""
    kind = geometry.kinds[1]
    if not is_narrow(kind) or not any(_repeats_kernel(product, blocking) for product, blocking in products):
        return None
    engine = choose_engine(*geometry.kinds)
    if engine.parts != 1 or stored_as_packed(engine, kind):
        return None
    none = (0,) * rhs.rank
    first = padded.bytes if padded is not None else 0
    return Padded(
        kind,
        _packed_kind(engine),
        rhs.dimensions,
        none,
        none,
        none,
        engine,
        geometry.kinds[2],
        array=_KERNEL,
        first=first,
    )


def _repeats_kernel(product: Product, blocking: Blocking) -> bool:
    """Whether the convolution's kernel is the left operand and packed more than once."""
    return product.arrays[0] == _KERNEL and blocking.packs[0] and product.batch * blocking.column_tasks > 1


def _with_kernel(product: Product, converted: Padded) -> Product:
    """The product with its kernel, on the left, in the scratch."""
    start = converted.first // converted.kind.byte_width
    lhs = replace(product.lhs, kind=converted.kind, first=product.lhs.first + start)
    return replace(product, lhs=lhs, arrays=(_SCRATCH, *product.arrays[1:]))


# -- code ----------------------------------------------------------------------------------------


def emit_convolution(module: Module, plan: ConvolutionPlan) -> tuple[Stage, ...]:
    """The stages of a plan, to be run one after another; the table is input, kernel, result, scratch."""
    name = "convolution"
    stages: list[Stage] = []
    for copy in plan.copies:
        fn = emit_pad(module, copy, _SCRATCH, f"{name}_pad")
        stages.append(Stage(fn, copy.tasks, math.prod(copy.padded)))
    if plan.kind == "depthwise":
        for axes in plan.geometry.phases:
            fn = emit_depthwise(module, plan.geometry, axes, name)
            stages.append(Stage(fn, depthwise_tasks(plan.geometry, axes), plan.cost // len(plan.geometry.phases)))
        return tuple(stages)
    for product, blocking in plan.products:
        rows, columns, depth = product.sizes
        fn = emit_gemm(module, product, blocking, name=name)
        stages.append(Stage(fn, task_count(product, blocking), product.batch * rows * columns * depth))
    return tuple(stages)
