"""Steps that work along dimensions: parts, margins, rolls, moving windows, convolutions; and what comes between them.

Numbers stay whole and small, so that sums are exact in any order, and a program that is split must agree to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fuzz.programs.composed.body import Body, appending
from fuzz.programs.draft import Draft, Named, join
from fuzz.programs.operations.reductions import identity
from fuzz.programs.operations.window import WindowDimension, window_text

# Values of a chain have at most so many elements.
_MOST = 700
_REDUCERS = {
    "f": ("add", "add", "maximum", "minimum"),
    "s": ("add", "add", "multiply", "maximum", "minimum", "and", "or", "xor"),
    "p": ("and", "or", "xor"),
    "c": ("add",),
}
# Kinds with infinities, NaN and signed zeros among their numbers are only moved and compared.
_OF_SPECIALS = ("maximum", "minimum")


class Chain(Body):
    """A body whose values are all of one kind; ``special``: with numbers that are not to be added."""

    special = False
    # Whether there may be NaN that is computed, whose sign depends on the order of a sum.
    computes_nan = False
    # The steps of loops.
    inner: Sequence[Callable[..., None]] = ()

    def opcodes(self, kind: str) -> tuple[str, ...]:
        """The operations on two numbers that are exact in any order."""
        return _OF_SPECIALS if self.special else _REDUCERS["s" if kind[0] == "u" else kind[0]]

    def along(self) -> tuple[Named, int] | None:
        """A value and one of its dimensions, long ones more often."""
        value = self.pick(lambda v: len(v.dims) > 0 and 0 not in v.dims)
        if value is None:
            return None
        order = sorted(range(len(value.dims)), key=lambda d: value.dims[d])
        return value, order[-1] if self.draft.chance(0.7) else self.draft.pick(order)

    def number(self, kind: str) -> str:
        """A scalar that is no identity in most cases."""
        if kind == "pred":
            return self.add(kind, (), f"constant({self.draft.pick(['true', 'false'])})").name
        choices = ["3", "1", "0", *(() if kind[0] == "u" else ("-1",)), *(("-0",) if self._is_real(kind) else ())]
        choices = ["-inf", "inf", "nan", "-0", "2"] if self.special else choices
        if kind[0] == "c":
            return self.add(kind, (), f"constant(({self.draft.pick(['3', '0', '-1'])}, 2))").name
        return self.add(kind, (), f"constant({self.draft.pick(choices)})").name

    def tamed(self, value: Named, *, always: bool = False) -> Named:
        """A float in a small range again, still a whole number; ``always``: among special ones, too."""
        if (self.special and not always) or not self._is_real(value.kind):
            return value
        self.computes_nan = self.special
        seven = self.add(value.kind, (), "constant(7)")
        spread = self.emit(value.shape, f"broadcast({seven.name}), dimensions={{}}")
        return self.add(value.kind, value.dims, f"remainder({value.name}, {spread})")

    def made(self, kind: str, dims: Sequence[int], call: str) -> Named | None:
        """An instruction, unless its result were too large or of no element."""
        return self.add(kind, dims, call) if 0 < math.prod(dims) <= _MOST else None

    @staticmethod
    def _is_real(kind: str) -> bool:
        return kind in ("f32", "f64")


def _ranges(dims: Sequence[int], axis: int, start: int, limit: int, stride: int = 1) -> str:
    own = (f"[{start}:{limit}:{stride}]" if d == axis else f"[0:{size}]" for d, size in enumerate(dims))
    return f"slice={{{', '.join(own)}}}"


def _with(dims: Sequence[int], axis: int, size: int) -> list[int]:
    return [size if d == axis else own for d, own in enumerate(dims)]


def _sliced(body: Chain, value: Named, axis: int, start: int, limit: int, stride: int = 1) -> Named:
    dims = _with(value.dims, axis, -(-(limit - start) // stride))
    return body.add(value.kind, dims, f"slice({value.name}), {_ranges(value.dims, axis, start, limit, stride)}")


def slices(body: Chain) -> None:
    """A part of a dimension, in most cases all but its edges; with strides."""
    found = body.along()
    if found is None:
        return
    value, axis = found
    size, draft = value.dims[axis], body.draft
    start, limit = draft.integer(0, min(2, size - 1)), size - draft.integer(0, 2)
    if draft.chance(0.3):
        start, limit = draft.integer(0, size - 1), draft.integer(1, size)
    if start < limit:
        _sliced(body, value, axis, start, limit, draft.pick([1, 1, 1, 2, 3]))


def pads(body: Chain) -> None:
    """Margins of a dimension, negative ones included, and elements in between."""
    found = body.along()
    if found is None:
        return
    value, axis = found
    draft, size = body.draft, value.dims[axis]
    low, high, interior = draft.integer(-2, 3), draft.integer(-2, 3), draft.pick([0, 0, 0, 1, 2])
    total = low + high + size + (size - 1) * interior
    if total <= 0 or low + (size - 1) * (interior + 1) < 0:
        return
    padding = "x".join(f"{low}_{high}_{interior}" if d == axis else "0_0" for d in range(len(value.dims)))
    body.made(
        value.kind, _with(value.dims, axis, total), f"pad({value.name}, {body.number(value.kind)}), padding={padding}"
    )


def rolls(body: Chain) -> None:
    """A dimension whose end comes first, often combined with what it was made from."""
    found = body.along()
    if found is None or found[0].dims[found[1]] < 2:
        return
    value, axis = found
    size, draft = value.dims[axis], body.draft
    by = draft.pick([1, 1, size - 1, draft.integer(1, size - 1)])
    end, begin = _sliced(body, value, axis, size - by, size), _sliced(body, value, axis, 0, size - by)
    made = body.add(value.kind, value.dims, f"concatenate({end.name}, {begin.name}), dimensions={{{axis}}}")
    if draft.chance():
        body.add(value.kind, value.dims, f"{draft.pick(body.opcodes(value.kind))}({value.name}, {made.name})")


def neighbors(body: Chain) -> None:
    """What two neighbors along a dimension give, perhaps with a margin that makes it as long as before."""
    found = body.along()
    if found is None or found[0].dims[found[1]] < 2:
        return
    value, axis = found
    size, draft = value.dims[axis], body.draft
    by = draft.integer(1, min(3, size - 1))
    left, right = _sliced(body, value, axis, 0, size - by), _sliced(body, value, axis, by, size)
    made = body.add(value.kind, left.dims, f"{draft.pick(body.opcodes(value.kind))}({left.name}, {right.name})")
    if draft.chance():
        low = draft.integer(0, by)
        padding = "x".join(f"{low}_{by - low}" if d == axis else "0_0" for d in range(len(value.dims)))
        body.add(value.kind, value.dims, f"pad({made.name}, {body.number(value.kind)}), padding={padding}")


def concatenations(body: Chain) -> None:
    """Values one behind the other along a dimension, or slices of one."""
    found = body.along()
    if found is None:
        return
    value, axis = found
    rest = _with(value.dims, axis, 0)
    fits: Callable[[Named], bool] = lambda v: v.kind == value.kind and _with(v.dims, axis, 0) == rest  # noqa: E731
    others = [
        body.pick(lambda v: len(v.dims) == len(rest) and fits(v)) or value for _ in range(body.draft.integer(1, 3))
    ]
    parts = [value, *others]
    total = sum(v.dims[axis] for v in parts)
    call = f"concatenate({', '.join(v.name for v in parts)}), dimensions={{{axis}}}"
    body.made(value.kind, _with(value.dims, axis, total), call)


def reversals(body: Chain) -> None:
    """Some dimensions backwards."""
    value = body.pick(lambda v: len(v.dims) > 0)
    if value is not None:
        turned = body.draft.subset(len(value.dims))
        body.add(value.kind, value.dims, f"reverse({value.name}), dimensions={{{join(turned)}}}")


def _window(draft: Draft, size: int, *, dilated: bool, padded: bool = True) -> WindowDimension | None:
    """A window that moves along a dimension; None where it has no place."""
    length = size if draft.chance(0.03) else draft.pick([1, 2, 2, 3, 3, 4, 5])
    hole = draft.pick([1, 1, 1, 2, 3]) if dilated else 1
    spacing = draft.pick([1, 1, 1, 2, 3]) if dilated else 1
    extent = (length - 1) * hole + 1
    low, high = (draft.integer(-2, extent) if padded and draft.chance(0.6) else 0 for _ in range(2))
    if padded and draft.chance(0.3):
        low, high = (extent - 1) // 2, extent // 2
    made = WindowDimension(size, length, draft.pick([1, 1, 1, 2, 3]), low, high, spacing, hole)
    return made if made.output > 0 and low + (size - 1) * spacing >= 0 else None


_PLAIN = WindowDimension(1, 1)


def reduce_windows(body: Chain) -> None:
    """Windows along one or two dimensions, with initial values of all kinds; of two arrays now and then."""
    found = body.along()
    if found is None:
        return
    value, axis = found
    draft = body.draft
    axes = {axis, *draft.subset(len(value.dims), 1)} if draft.chance(0.3) else {axis}
    windows = [
        _window(draft, size, dilated=True) if d in axes else WindowDimension(size, 1)
        for d, size in enumerate(value.dims)
    ]
    known = [w for w in windows if w is not None]
    if len(known) < len(windows):
        return
    opcode = draft.pick(body.opcodes(value.kind))
    nothing = identity(opcode, value.kind) if value.kind != "pred" and value.kind[0] != "c" else None
    init = body.number(value.kind)
    if nothing is not None and draft.chance(0.4):
        init = body.add(value.kind, (), f"constant({nothing.item()})").name
    dims, text = [w.output for w in known], f"window={{{window_text(known)}}}"
    if draft.chance(0.1) and math.prod(dims) <= _MOST:
        _of_pairs(body, value, opcode, init, dims, text)
        return
    called = draft.reducer(opcode, value.kind)
    made = body.made(value.kind, dims, f"reduce-window({value.name}, {init}), {text}, to_apply={called}")
    if made is not None:
        body.tamed(made)


def _of_pairs(body: Chain, value: Named, opcode: str, init: str, dims: list[int], text: str) -> None:
    kind, draft = value.kind, body.draft
    lines = [f"{name} = {kind}[] parameter({n})" for n, name in enumerate("abcd")]
    lines += [f"x = {kind}[] {opcode}(a, c)", f"y = {kind}[] {opcode}(b, d)", f"r = ({kind}[], {kind}[]) tuple(x, y)"]
    other = body.pick(lambda v: v.kind == kind and v.dims == value.dims) or value
    shape = f"{kind}[{join(dims)}]"
    call = f"reduce-window({value.name}, {other.name}, {init}, {init}), {text}, to_apply={draft.computation(lines)}"
    both = body.emit(f"({shape}, {shape})", call)
    body.tamed(body.add(kind, dims, f"get-tuple-element({both}), index={draft.integer(0, 1)}"))


def selections(body: Chain) -> None:
    """A number for each window goes to the element that the window selects."""
    found = body.along()
    if found is None or found[0].kind in ("pred", "c64"):
        return
    value, axis = found
    draft = body.draft
    axes = {axis, *draft.subset(len(value.dims), 1)} if draft.chance(0.3) else {axis}
    windows = [
        _window(draft, size, dilated=False, padded=draft.chance(0.6)) if d in axes else WindowDimension(size, 1)
        for d, size in enumerate(value.dims)
    ]
    known = [w for w in windows if w is not None and w.low >= 0 and w.high >= 0]
    if len(known) < len(windows) or math.prod(w.output for w in known) > _MOST:
        return
    dims = tuple(w.output for w in known)
    source = body.pick(lambda v: v.kind == value.kind and v.dims == dims)
    if source is None:
        source = body.add(value.kind, dims, f"broadcast({body.number(value.kind)}), dimensions={{}}")
    order = draft.pick(["GE", "GE", "LE", "GT", "LT"])
    lines = [f"x = {value.kind}[] parameter(0)", f"y = {value.kind}[] parameter(1)"]
    select = draft.computation([*lines, f"r = pred[] compare(x, y), direction={order}"])
    scatter = draft.reducer("add", value.kind)
    call = f"select-and-scatter({value.name}, {source.name}, {body.number(value.kind)})"
    made = body.add(
        value.kind, value.dims, f"{call}, window={{{window_text(known)}}}, select={select}, scatter={scatter}"
    )
    body.tamed(made, always=True)


def _as_images(body: Chain, value: Named) -> Named:
    """A value with a dimension for images, one for features, and two of space."""
    dims = value.dims
    while len(dims) < 4:
        dims = (1, *dims) if body.draft.chance() else (*dims, 1)
    return value if dims == value.dims else body.add(value.kind, dims, f"reshape({value.name})")


def convolutions(body: Chain) -> None:
    """A kernel of small numbers over a value, whose dimensions play their roles in any order."""
    draft = body.draft
    value = body.pick(lambda v: 0 < len(v.dims) < 5 and 0 not in v.dims)
    if value is None or value.kind in ("pred", "s4"):
        return
    image = _as_images(body, value)
    b, f, *space = draft.permutation(4) if draft.chance() else sorted(range(4), key=lambda d: image.dims[d])
    groups = draft.pick([1, 1, 1, image.dims[f], 1])
    outputs = draft.integer(1, 2) * groups
    known = [w for d in space if (w := _window(draft, image.dims[d], dilated=True)) is not None]
    if len(known) < 2:
        return
    turned = [draft.chance(0.2) for _ in known]
    known = [
        WindowDimension(w.base, w.size, w.stride, w.low, w.high, w.base_dilation, w.window_dilation, t)
        for w, t in zip(known, turned, strict=True)
    ]
    sizes = [image.dims[f] // groups, outputs, *(w.size for w in known)]
    if math.prod(sizes) > _MOST:
        return
    kernel = _kernel(body, value.kind, sizes)
    labels = "".join({b: "b", f: "f", space[0]: "0", space[1]: "1"}[d] for d in range(4))
    out = draft.permutation(4)
    dims = [(image.dims[b], outputs, known[0].output, known[1].output)[i] for i in out]
    call = f"convolution({image.name}, {kernel.name}), window={{{window_text(known)}}}, dim_labels={labels}_io01->"
    call += "".join("bf01"[i] for i in out) + (f", feature_group_count={groups}" if groups > 1 else "")
    made = body.made(value.kind, dims, call)
    if made is not None:
        body.tamed(made, always=True)


def _kernel(body: Chain, kind: str, sizes: list[int]) -> Named:
    """A value of the chain, or numbers along one dimension."""
    found = body.pick(lambda v: v.kind == kind and v.dims == tuple(sizes))
    if found is not None:
        return found
    longest = sizes.index(max(sizes))
    counted = body.add("s32", sizes, f"iota(), iota_dimension={longest}")
    body.values.remove(counted)
    numbers = body.add(kind, sizes, f"convert({counted.name})")
    if not body.special or body.draft.chance(0.3):
        return numbers
    # A number of the kernel is infinite, or none: zeros around an image become NaN under it.
    special = body.add(kind, sizes, f"broadcast({body.number(kind)}), dimensions={{}}")
    one = body.add(kind, sizes, f"broadcast({body.add(kind, (), 'constant(1)').name}), dimensions={{}}")
    chosen = body.emit(f"pred[{join(sizes)}]", f"compare({numbers.name}, {one.name}), direction=EQ")
    return body.add(kind, sizes, f"select({chosen}, {special.name}, {numbers.name})")


def kernel_gradients(body: Chain) -> None:
    """The gradient of a kernel: a value of space is the window that moves over another one."""
    draft = body.draft
    found = body.along()
    if found is None or found[0].kind in ("pred", "s4") or len(found[0].dims) > 3:
        return
    value, axis = found
    size, margin = value.dims[axis], draft.integer(0, 2)
    other = body.pick(lambda v: v.kind == value.kind and v.dims == value.dims) or value
    stride = draft.pick([1, 1, 2])
    order = [d for d in range(len(value.dims)) if d != axis]
    rest = math.prod(value.dims[d] for d in order)
    flat: list[Named] = []
    for one in (value, other):
        turned = body.add(
            one.kind,
            [value.dims[d] for d in (*order, axis)],
            f"transpose({one.name}), dimensions={{{join([*order, axis])}}}",
        )
        flat.append(body.add(one.kind, [rest, size], f"reshape({turned.name})"))
    if stride == 2:
        flat[1] = _sliced(body, flat[1], 1, 0, size, 2)
    window = WindowDimension(size, flat[1].dims[1], 1, margin, margin, 1, stride)
    if window.output < 1:
        return
    images = [body.add(v.kind, [*v.dims, 1], f"reshape({v.name})") for v in flat]
    # Features of the image are batches of the gradient.
    call = f"convolution({images[0].name}, {images[1].name}), window={{{window_text([window])}}}, dim_labels="
    contracted = draft.chance()
    dims = [1, window.output, 1] if contracted else [rest, window.output, rest]
    labels = "f0b_i0o->b0f" if contracted else "b0f_o0i->b0f"
    made = body.made(value.kind, dims, call + labels)
    if made is not None:
        body.tamed(made, always=True)


def pointwise(body: Chain) -> None:
    """Two values of the same dimensions combined element by element, or a choice between them."""
    value = body.pick()
    if value is None:
        return
    other = body.pick(lambda v: v.dims == value.dims and v is not value) or value
    if body.draft.chance(0.3):
        order = body.draft.pick(["LT", "GE", "EQ"])
        if value.kind[0] == "c":
            order = "EQ"
        mask = body.emit(f"pred[{join(value.dims)}]", f"compare({value.name}, {other.name}), direction={order}")
        body.add(value.kind, value.dims, f"select({mask}, {other.name}, {value.name})")
        return
    body.tamed(
        body.add(value.kind, value.dims, f"{body.draft.pick(body.opcodes(value.kind))}({value.name}, {other.name})")
    )


def between(body: Chain) -> None:
    """Transposes, reshapes, broadcasts, reductions, indices and products: what knows nothing of neighbors."""
    draft, value = body.draft, body.pick(lambda v: len(v.dims) > 0 and 0 not in v.dims)
    if value is None:
        return
    rank, kind = len(value.dims), value.kind
    axis = draft.integer(0, rank - 1)
    which = draft.pick(["transpose", "reshape", "broadcast", "reduce", "reduce", "dynamic", "gather", "dot", "iota"])
    rest = [size for d, size in enumerate(value.dims) if d != axis]
    if which == "transpose":
        order = draft.permutation(rank)
        body.add(kind, [value.dims[d] for d in order], f"transpose({value.name}), dimensions={{{join(order)}}}")
    elif which == "reshape" and rank > 1:
        body.add(kind, [value.dims[0], math.prod(value.dims[1:])], f"reshape({value.name})")
    elif which == "broadcast" and rank < 3:
        size = draft.integer(1, 4)
        places = [d + (d >= axis) for d in range(rank)]
        dims = [*value.dims[:axis], size, *value.dims[axis:]]
        body.made(kind, dims, f"broadcast({value.name}), dimensions={{{join(places)}}}")
    elif which == "reduce":
        called = draft.reducer(opcode := draft.pick(body.opcodes(kind)), kind)
        init = body.number(kind)
        body.tamed(body.add(kind, rest, f"reduce({value.name}, {init}), dimensions={{{axis}}}, to_apply={called}"))
        if opcode and draft.chance():
            kept = [d for d in range(rank) if d != axis]
            body.add(kind, value.dims, f"broadcast({body.values[-1].name}), dimensions={{{join(kept)}}}")
    elif which == "dynamic":
        _dynamic(body, value, axis)
    elif which == "gather" and rank == 2:
        taken = body.emit("s32[5]", "iota(), iota_dimension=0")
        call = f"gather({value.name}, {taken}), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}"
        body.add(kind, [5, value.dims[1]], f"{call}, index_vector_dim=1, slice_sizes={{1,{value.dims[1]}}}")
    elif which == "dot" and kind not in ("pred", "s4") and not body.special:
        dims, number = [*rest, *rest], f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{{axis}}}"
        if len(dims) < 4 and (made := body.made(kind, dims, f"dot({value.name}, {value.name}), {number}")):
            body.tamed(made)
    elif which == "iota" and kind in ("s32", "f32", "s8", "f64") and not body.special:
        made = body.add(kind, value.dims, f"iota(), iota_dimension={axis}")
        body.tamed(body.add(kind, value.dims, f"add({value.name}, {made.name})"))


def _dynamic(body: Chain, value: Named, axis: int) -> None:
    """A part at a place that is computed, changed or not, back in the value."""
    start = body.emit("s32[]", f"constant({body.draft.integer(-1, value.dims[axis])})")
    sizes = _with(value.dims, axis, body.draft.pick([1, body.draft.integer(1, value.dims[axis])]))
    starts = ", ".join([start] * len(sizes))
    part = body.add(value.kind, sizes, f"dynamic-slice({value.name}, {starts}), dynamic_slice_sizes={{{join(sizes)}}}")
    if body.draft.chance():
        body.add(value.kind, value.dims, f"dynamic-update-slice({value.name}, {part.name}, {starts})")


def loops(body: Chain) -> None:
    """A value through some of these steps, a few times."""
    draft, value = body.draft, body.pick(lambda v: len(v.dims) > 0)
    if value is None or body.prefix:
        return
    state = f"(s32[], {value.shape})"
    lines = [f"p = {state} parameter(0)", "i = s32[] get-tuple-element(p), index=0"]
    lines.append(f"x = {value.shape} get-tuple-element(p), index=1")
    inner = Chain(draft, appending(lines), [Named("x", value.kind, value.dims)], "w", body.inner)
    inner.special = body.special
    for _ in range(draft.integer(1, 4)):
        inner.step()
    last = [v for v in inner.values if v.kind == value.kind and v.dims == value.dims][-1]
    lines += ["one = s32[] constant(1)", "n = s32[] add(i, one)", f"r = {state} tuple(n, {last.name})"]
    called = draft.computation(lines)
    test = [f"p = {state} parameter(0)", "i = s32[] get-tuple-element(p), index=0", "n = s32[] constant(3)"]
    condition = draft.computation([*test, "r = pred[] compare(i, n), direction=LT"])
    zero = body.emit("s32[]", "constant(0)")
    start = body.emit(state, f"tuple({zero}, {value.name})")
    end = body.emit(state, f"while({start}), condition={condition}, body={called}")
    body.add(value.kind, value.dims, f"get-tuple-element({end}), index=1")


INNER: tuple[Callable[..., None], ...] = (rolls, rolls, neighbors, neighbors, pointwise, reduce_windows, slices, pads)
STEPS: tuple[Callable[..., None], ...] = (
    slices, slices, pads, pads, rolls, rolls, neighbors, neighbors, concatenations, concatenations, reversals,
    reduce_windows, reduce_windows, reduce_windows, selections, convolutions, convolutions, kernel_gradients,
    pointwise, pointwise, between, between, between, loops,
)  # fmt: skip
