"""Layouts of arrays: copies from one order of dimensions to another, and the interface's extension for layouts."""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I8, I64, PTR, VOID, Function, Module, Value
from xlakit.jax.api.arguments import NativeStruct, slot_function
from xlakit.jax.api.numbers import TYPE_NUMBERS, Code
from xlakit.jax.native.errors import fail_if
from xlakit.jax.native.records import BUFFER

MAX_TYPES = 64


def emit_layouts(module: Module) -> None:
    """Emit the functions."""
    widths = bytearray(MAX_TYPES)
    for kind, number in TYPE_NUMBERS.items():
        widths[number] = kind.dtype.itemsize if kind.is_array else 0
    module.constant_data("element_bytes", bytes(widths))
    _emit_count(module)
    _emit_has_order(module)
    _emit_is_plain_order(module)
    _emit_gather(module)
    _emit_gather_in_order(module)
    _emit_reorder(module)


def element_bytes(fn: Function, type: Value) -> Value:
    """The bytes of an element of a type; 0 for types that no array has."""
    is_known = type.compare("ult", MAX_TYPES)
    width = fn.load(I8, fn.at(fn.address("element_bytes"), I8, fn.select(is_known, type, fn.i64(0))))
    return width.cast("zext", I64)


def dimensions(fn: Function, buffer: Value) -> Value:
    """The address of the dimensions of a buffer; their order in memory follows them."""
    return fn.at(buffer, I8, BUFFER.size)


def order_of(fn: Function, buffer: Value, rank: Value) -> Value:
    """The address of the order of a buffer's dimensions in memory, from the minor one on."""
    return fn.at(dimensions(fn, buffer), I64, rank)


def order_in(fn: Function, layout: Value, rank: Value) -> Value:
    """The address of the minor to major order in a layout of the interface; null if there is no layout.

    Emits the return of an error for layouts that are tiled, given by strides, or of another number of dimensions.
    """

    def checked() -> tuple[Value]:
        good = fn.call("has_order", I1, layout, rank)
        fail_if(fn, ~good, Code.UNIMPLEMENTED, "xlakit's buffers are dense: layouts are orders of their dimensions")
        return (NativeStruct(fn, "MemoryLayout", layout).pointer("minor_to_major"),)

    return fn.if_else(layout.ne(fn.null()), checked, lambda: (fn.null(),))[0]


def dimension_at(fn: Function, order: Value, rank: Value, index: Value) -> Value:
    """The dimension at a position of an order, which begins with the minor one; an order of null is major to minor."""
    in_plain_order = rank - 1 - index
    return fn.if_else(
        order.eq(fn.null()), lambda: (in_plain_order,), lambda: (fn.load(I64, fn.at(order, I64, index)),)
    )[0]


def _emit_count(module: Module) -> None:
    """``count_of(ptr dims, i64 rank) -> i64``."""
    fn, dims, rank = module.begin("count_of", I64, [PTR, I64])
    with fn.loop(0, rank, carried=[fn.i64(1)]) as iteration:
        iteration.next(iteration.carried[0] * fn.load(I64, fn.at(dims, I64, iteration.index)))
    fn.ret(iteration.results[0])


def _emit_has_order(module: Module) -> None:
    """``has_order(ptr layout, i64 rank) -> i1``: whether a layout is an order of ``rank`` dimensions, without tiles."""
    # A layout begins with its size and extensions; then follows the structure of a tiled layout.
    fn, layout, rank = module.begin("has_order", I1, [PTR, I64])
    given = NativeStruct(fn, "MemoryLayout", layout)
    order = given.pointer("minor_to_major")
    is_other = given.load("type").ne(0) | given.load("num_tiles").ne(0)
    fn.return_if(is_other | given.load("minor_to_major_size").ne(rank), fn.constant(I1, 0))
    with fn.loop(0, rank, carried=[fn.constant(I1, 1)]) as iteration:
        is_dimension = fn.load(I64, fn.at(order, I64, iteration.index)).compare("ult", rank)
        iteration.next(iteration.carried[0] & is_dimension)
    fn.ret(iteration.results[0])


def _emit_is_plain_order(module: Module) -> None:
    """``is_plain_order(ptr order, i64 rank) -> i1``: whether it is major to minor, which null stands for."""
    fn, order, rank = module.begin("is_plain_order", I1, [PTR, I64])
    fn.return_if(order.eq(fn.null()), fn.constant(I1, 1))
    with fn.loop(0, rank, carried=[fn.constant(I1, 1)]) as iteration:
        is_next = fn.load(I64, fn.at(order, I64, iteration.index)).eq(rank - 1 - iteration.index)
        iteration.next(iteration.carried[0] & is_next)
    fn.ret(iteration.results[0])


def _emit_gather(module: Module) -> None:
    """``gather(target, source, dims, strides, i64 rank, i64 element, i64 count)``: copy, element by element."""
    fn = module.function("gather", VOID, [PTR, PTR, PTR, PTR, I64, I64, I64])
    target, source, dims, strides, rank, element, count = fn.parameters
    with fn.loop(0, count) as each:
        with fn.loop(0, rank, carried=[each.index, fn.i64(0)]) as iteration:
            rest, offset = iteration.carried
            dimension = rank - 1 - iteration.index
            size = fn.load(I64, fn.at(dims, I64, dimension))
            step = fn.load(I64, fn.at(strides, I64, dimension))
            iteration.next(rest // size, offset + (rest % size) * step)
        fn.copy(fn.at(target, I8, each.index * element), fn.at(source, I8, iteration.results[1]), element)


def _emit_gather_in_order(module: Module) -> None:
    """``gather_in_order(target, source, dims, strides, order, i64 rank, i64 element) -> i1``: false without memory.

    Copies an array of any strides to a dense one whose dimensions lie in an order.
    """
    fn = module.function("gather_in_order", I1, [PTR, PTR, PTR, PTR, PTR, I64, I64])
    target, source, dims, strides, order, rank, element = fn.parameters
    # The dimensions from the major one of the target on, then their strides.
    sizes = fn.call("xlakit_allocate", PTR, rank * 16 + 8)
    fn.return_if(sizes.eq(fn.null()), fn.constant(I1, 0))
    steps = fn.at(sizes, I64, rank)
    with fn.loop(0, rank) as iteration:
        dimension = fn.load(I64, fn.at(order, I64, rank - 1 - iteration.index))
        fn.store(fn.load(I64, fn.at(dims, I64, dimension)), fn.at(sizes, I64, iteration.index))
        fn.store(fn.load(I64, fn.at(strides, I64, dimension)), fn.at(steps, I64, iteration.index))
    count = fn.call("count_of", I64, dims, rank)
    fn.call("gather", VOID, target, source, sizes, steps, rank, element, count)
    fn.call("xlakit_release", VOID, sizes)
    fn.ret(fn.constant(I1, 1))


def _emit_reorder(module: Module) -> None:
    """``reorder(target, source, dims, from, to, i64 rank, i64 element) -> i1``: false without memory.

    Copies a dense array whose dimensions lie in one order to one in which they lie in another.
    """
    fn, target, source, dims, old, new, rank, element = module.begin("reorder", I1, [PTR, PTR, PTR, PTR, PTR, I64, I64])
    with fn.loop(0, rank, carried=[fn.constant(I1, 1)]) as iteration:
        is_same = fn.load(I64, fn.at(old, I64, iteration.index)).eq(fn.load(I64, fn.at(new, I64, iteration.index)))
        iteration.next(iteration.carried[0] & is_same)
    with fn.if_(iteration.results[0]):
        fn.copy(target, source, fn.call("count_of", I64, dims, rank) * element)
        fn.ret(fn.constant(I1, 1))
    strides = fn.call("xlakit_allocate", PTR, rank * 8 + 8)
    fn.return_if(strides.eq(fn.null()), fn.constant(I1, 0))
    with fn.loop(0, rank, carried=[element]) as iteration:
        dimension = fn.load(I64, fn.at(old, I64, iteration.index))
        fn.store(iteration.carried[0], fn.at(strides, I64, dimension))
        iteration.next(iteration.carried[0] * fn.load(I64, fn.at(dims, I64, dimension)))
    done = fn.call("gather_in_order", I1, target, source, dims, strides, new, rank, element)
    fn.call("xlakit_release", VOID, strides)
    fn.ret(done)


def emit_extension(module: Module) -> None:
    """Emit the functions of the interface's extension for layouts, whose layouts are texts, as HLO has them.

    A layout is its number of bytes, then the text: ``{1,0}``.
    """
    _emit_make_layout(module)
    fn, given = slot_function(module, "Layouts_MemoryLayout_Destroy")
    layout = given.pointer("layout")
    with fn.if_(layout.ne(fn.null())):
        fn.call("xlakit_release", VOID, layout)

    # The deleter of the text does nothing, as the layout owns the text.
    fn = module.function("keep_text", VOID, [PTR], external=True)
    fn, given = slot_function(module, "Layouts_MemoryLayout_Serialize")
    layout = given.pointer("layout")
    fn.store(fn.at(layout, I64, 1), given.at("bytes"))
    given.store("bytes_size", fn.load(I64, layout))
    fn.store(layout, given.at("holder"))
    fn.store(fn.address("keep_text"), given.at("deleter"))

    fn, given = slot_function(module, "Layouts_Buffer_MemoryLayout")
    buffer = given.pointer("buffer")
    rank = BUFFER.load(fn, buffer, "num_dims")
    _give_layout(fn, given, order_of(fn, buffer, rank), rank)

    for slot in ("Layouts_Client_GetDefaultLayout", "Layouts_Topology_GetDefaultLayout"):
        fn, given = slot_function(module, slot)
        _give_layout(fn, given, fn.null(), given.load("num_dims"))


def _give_layout(fn: Function, given: NativeStruct, order: Value, rank: Value) -> None:
    layout = fn.call("make_layout", PTR, order, rank)
    fail_if(fn, layout.eq(fn.null()), Code.RESOURCE_EXHAUSTED, "there is not enough memory for a layout")
    fn.store(layout, given.at("layout"))


def _emit_make_layout(module: Module) -> None:
    """``make_layout(ptr order, i64 rank) -> ptr``: null without memory; an order of null is major to minor."""
    fn, order, rank = module.begin("make_layout", PTR, [PTR, I64])
    # Numbers of dimensions have at most three digits, and a comma or brace each.
    layout = fn.call("xlakit_allocate", PTR, rank * 4 + 16)
    fn.return_if(layout.eq(fn.null()), fn.null())
    text = fn.at(layout, I64, 1)

    def put(at: Value, character: Value) -> Value:
        fn.store(character.cast("trunc", I8), fn.at(text, I8, at))
        return at + 1

    begin = put(fn.i64(0), fn.i64(ord("{")))
    with fn.loop(0, rank, carried=[begin]) as iteration:
        (at,) = iteration.carried
        (at,) = fn.if_else(iteration.index > 0, lambda: (put(at, fn.i64(ord(","))),), lambda: (at,))
        dimension = dimension_at(fn, order, rank, iteration.index)
        for power in (100, 10):
            digit = (dimension // power) % 10 + ord("0")
            (at,) = fn.if_else(dimension >= power, lambda d=digit, a=at: (put(a, d),), lambda a=at: (a,))
        iteration.next(put(at, dimension % 10 + ord("0")))
    end = put(iteration.results[0], fn.i64(ord("}")))
    fn.store(end, layout)
    fn.ret(layout)
