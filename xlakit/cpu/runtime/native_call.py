"""The native part of a call from Python: gathers the arguments, runs the program, and assembles the result.

The parameters and results of a program are described by a signature, an array of words that call.py packs:

    SIGNATURE, then for each argument and each result an array record (ARRAY and its dimensions), then the result tree

The tree is in postfix order: LEAF is the next result, NOTHING is None, and n makes a tuple of the n items before.
"""

from __future__ import annotations

from xlakit.cpu.llvm import I1, I8, I32, I64, PTR, VOID, Function, Module, Value
from xlakit.cpu.llvm.promises import COLD, NO_INLINE
from xlakit.cpu.runtime import numpy_api
from xlakit.cpu.runtime.context import Status
from xlakit.cpu.runtime.record import Record

# context: the origin. table_bytes: the size of the tables of one call: pointers to arguments, pointers to results,
# result objects, and the stack for the tree.
SIGNATURE = Record(context=1, arguments=1, results=1, tree_length=1, table_bytes=1)
ARRAY = Record(dtype=1, rank=1, bytes=1)
LEAF, NOTHING = -1, -2

# The items of the tuple that a caller holds as ``self`` of its function; further items are only kept alive.
HELD_SIGNATURE, HELD_FALLBACK, HELD_ON_ERROR = 0, 1, 2

# Python objects that are looked up once.
_OBJECTS = Record(none=1, ndarray=1, handler=1)

# The functions of the C API that are called here: the result type, and the parameter types.
_C_API = {
    "Py_IncRef": (VOID, [PTR]),
    "Py_DecRef": (VOID, [PTR]),
    "PyTuple_New": (PTR, [I64]),
    "PyTuple_SetItem": (I32, [PTR, I64, PTR]),
    "PyTuple_GetItem": (PTR, [PTR, I64]),
    "PyBytes_AsString": (PTR, [PTR]),
    "PyErr_Occurred": (PTR, []),
    "PyErr_NoMemory": (PTR, []),
    "PyObject_Vectorcall": (PTR, [PTR, PTR, I64, PTR]),
    "PyObject_CallOneArg": (PTR, [PTR, PTR]),
    "PyLong_FromLongLong": (PTR, [I64]),
    "numpy_new_array": (PTR, [PTR, PTR, I32, PTR, PTR, PTR, I32, PTR]),
}


def emit_native_call(module: Module) -> None:
    """Write the functions into a module that has the functions of emit_memory and emit_host."""
    module.global_data("objects", _OBJECTS.size)
    for name, (result, parameters) in _C_API.items():
        module.declare(name, result, parameters)
    _emit_start(module)
    _emit_data_handler(module)
    _emit_new_array(module)
    _emit_accepts(module)
    _emit_gather(module)
    _emit_make_tuple(module)
    _emit_release_objects(module)
    _emit_assemble(module)
    _emit_run(module)
    _emit_call(module)


def _object(fn: Function, name: str) -> Value:
    return _OBJECTS.pointer(fn, fn.address("objects"), name)


def _c(fn: Function, name: str, *arguments: Value) -> Value:
    return fn.call(name, _C_API[name][0], *arguments)


def _record_size(fn: Function, record: Value) -> Value:
    return ARRAY.load(fn, record, "rank") * 8 + ARRAY.size


def _emit_start(module: Module) -> None:
    """``xlakit_python_start(none, ndarray, handler)``: store the objects, and the handler of the memory of results."""
    fn = module.function("xlakit_python_start", VOID, [I64, I64, I64], external=True)
    for name, value in zip(_OBJECTS.names, fn.parameters, strict=True):
        _OBJECTS.store(fn, fn.address("objects"), name, value)


def _emit_data_handler(module: Module) -> None:
    """The four functions of a NumPy data handler, which call the allocator; their first parameter is not used."""
    fn = module.function("xlakit_data_malloc", PTR, [PTR, I64], external=True)
    fn.ret(fn.call("xlakit_allocate", PTR, fn.parameters[1]))

    fn = module.function("xlakit_data_calloc", PTR, [PTR, I64, I64], external=True)
    bytes = fn.parameters[1] * fn.parameters[2]
    data = fn.call("xlakit_allocate", PTR, bytes)
    with fn.if_(data.ne(fn.null())):
        fn.fill(data, 0, bytes)
    fn.ret(data)

    fn, _, before, bytes = module.begin("xlakit_data_realloc", PTR, [PTR, PTR, I64], external=True)
    data = fn.call("xlakit_allocate", PTR, bytes)
    fn.return_if(data.eq(fn.null()) | before.eq(fn.null()), data)
    old_bytes = fn.call("block_bytes", I64, before)
    fn.copy(data, before, fn.select(old_bytes < bytes, old_bytes, bytes))
    fn.call("xlakit_release", VOID, before)
    fn.ret(data)

    fn = module.function("xlakit_data_free", VOID, [PTR, PTR, I64], external=True)
    fn.call("xlakit_release", VOID, fn.parameters[1])


def _emit_new_array(module: Module) -> None:
    """``xlakit_new_array(ptr record) -> ptr``: an array that owns allocator memory, or null with an exception set."""
    fn, record = module.begin("xlakit_new_array", PTR, [PTR], external=True)
    data = fn.call("xlakit_allocate", PTR, ARRAY.load(fn, record, "bytes"))
    with fn.if_(data.eq(fn.null()), likely=False):
        _c(fn, "PyErr_NoMemory")
    fn.return_if(data.eq(fn.null()), fn.null())
    dtype = ARRAY.pointer(fn, record, "dtype")
    rank = ARRAY.load(fn, record, "rank").cast("trunc", I32)
    flags = fn.i32(numpy_api.CONTIGUOUS | numpy_api.ALIGNED | numpy_api.WRITEABLE)
    # The new array steals the reference to the dtype.
    _c(fn, "Py_IncRef", dtype)
    dimensions = fn.at(record, I8, ARRAY.size)
    ndarray, none = _object(fn, "ndarray"), fn.null()
    array = _c(fn, "numpy_new_array", ndarray, dtype, rank, dimensions, none, data, flags, none)
    with fn.if_(array.eq(fn.null()), likely=False):
        fn.call("xlakit_release", VOID, data)
    fn.return_if(array.eq(fn.null()), array)
    # From here on NumPy frees the data through the handler.
    handler = _object(fn, "handler")
    _c(fn, "Py_IncRef", handler)
    fn.store(handler, fn.at(array, I8, numpy_api.HANDLER))
    flags_address = fn.at(array, I8, numpy_api.FLAGS)
    fn.store(fn.load(I32, flags_address) | numpy_api.OWNS_DATA, flags_address)
    fn.ret(array)


def _emit_accepts(module: Module) -> None:
    """``accepts(ptr object, ptr record) -> i1``: whether an argument is exactly the expected array."""
    fn, argument, record = module.begin("accepts", I1, [PTR, PTR])
    no = fn.constant(I1, 0)
    fn.return_if(fn.load(PTR, fn.at(argument, I8, numpy_api.TYPE)).ne(_object(fn, "ndarray")), no)
    dtype, expected = fn.load(PTR, fn.at(argument, I8, numpy_api.DTYPE)), ARRAY.pointer(fn, record, "dtype")
    rank = ARRAY.load(fn, record, "rank")
    flags = fn.load(I32, fn.at(argument, I8, numpy_api.FLAGS))
    good = numpy_api.CONTIGUOUS | numpy_api.ALIGNED
    same_rank = fn.load(I32, fn.at(argument, I8, numpy_api.RANK)).cast("sext", I64).eq(rank)
    fn.return_if(~(dtype.eq(expected) & same_rank & (flags & good).eq(good)), no)
    dimensions = fn.load(PTR, fn.at(argument, I8, numpy_api.DIMENSIONS))
    expected_sizes = fn.at(record, I8, ARRAY.size)
    with fn.loop(0, rank, carried=[fn.constant(I1, 1)]) as iteration:
        size = fn.load(I64, fn.at(dimensions, I64, iteration.index))
        iteration.next(iteration.carried[0] & size.eq(fn.load(I64, fn.at(expected_sizes, I64, iteration.index))))
    fn.ret(iteration.results[0])


def _emit_gather(module: Module) -> None:
    """``gather(ptr signature, ptr objects, i64 count, ptr table) -> ptr``: write the data pointers to the table.

    Gives the address of the first result's record, or null if an argument is not the expected array.
    """
    fn, signature, objects, count, table = module.begin("gather", PTR, [PTR, PTR, I64, PTR])
    fn.return_if(SIGNATURE.load(fn, signature, "arguments").ne(count), fn.null())
    start = (fn.i64(0), fn.at(signature, I8, SIGNATURE.size), fn.constant(I1, 1))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & iteration.carried[2]) as iteration:
        number, record, _ = iteration.carried
        argument = fn.pointer(objects, number)
        accepted = fn.call("accepts", I1, argument, record)
        with fn.if_(accepted):
            fn.store(fn.load(PTR, fn.at(argument, I8, numpy_api.DATA)), fn.at(table, PTR, number))
        iteration.next(number + 1, fn.at(record, I8, _record_size(fn, record)), accepted)
    _, record, accepted = iteration.results
    fn.ret(fn.select(accepted, record, fn.null()))


def _emit_make_tuple(module: Module) -> None:
    """``make_tuple(ptr items, i64 count) -> ptr``: steals the references, unless it gives null."""
    fn, items, count = module.begin("make_tuple", PTR, [PTR, I64])
    new_tuple = _c(fn, "PyTuple_New", count)
    fn.return_if(new_tuple.eq(fn.null()), new_tuple)
    with fn.loop(0, count) as iteration:
        _c(fn, "PyTuple_SetItem", new_tuple, iteration.index, fn.pointer(items, iteration.index))
    fn.ret(new_tuple)


def _emit_release_objects(module: Module) -> None:
    """``release_objects(ptr objects, i64 begin, i64 end)``: drop the references to a range of objects."""
    fn, objects, begin, end = module.begin("release_objects", VOID, [PTR, I64, I64])
    with fn.loop(begin, end) as iteration:
        _c(fn, "Py_DecRef", fn.pointer(objects, iteration.index))


def _emit_assemble(module: Module) -> None:
    """``assemble(ptr tree, i64 length, ptr objects, i64 count, ptr stack) -> ptr``: the Python object of the result."""
    fn, tree, length, objects, count, stack = module.begin("assemble", PTR, [PTR, I64, PTR, I64, PTR])
    zero = fn.i64(0)
    start = (zero, zero, zero, fn.constant(I1, 0))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < length) & ~iteration.carried[3]) as iteration:
        position, following, depth, _ = iteration.carried
        word = fn.load(I64, fn.at(tree, I64, position))

        def leaf() -> tuple[Value, Value, Value]:
            return fn.pointer(objects, following), following + 1, depth

        def nothing() -> tuple[Value, Value, Value]:
            none = _object(fn, "none")
            _c(fn, "Py_IncRef", none)
            return none, following, depth

        def several() -> tuple[Value, Value, Value]:
            bottom = depth - word
            new_tuple = fn.call("make_tuple", PTR, fn.at(stack, PTR, bottom), word)
            return new_tuple, following, fn.select(new_tuple.eq(fn.null()), depth, bottom)

        item, following, depth = fn.if_else(word.eq(LEAF), leaf, lambda: fn.if_else(word.eq(NOTHING), nothing, several))
        failed = item.eq(fn.null())
        fn.store(item, fn.at(stack, PTR, depth))
        iteration.next(position + 1, following, fn.select(failed, depth, depth + 1), failed)
    _, following, depth, failed = iteration.results
    with fn.if_(failed, likely=False):
        fn.call("release_objects", VOID, stack, zero, depth)
        fn.call("release_objects", VOID, objects, following, count)
    fn.ret(fn.select(failed, fn.null(), fn.load(PTR, stack)))


def _emit_run(module: Module) -> None:
    """``run(ptr held, ptr signature, ptr record, ptr table) -> ptr``: allocate results, execute, assemble them."""
    fn, held, signature, record, arguments = module.begin("run", PTR, [PTR, PTR, PTR, PTR])
    count = SIGNATURE.load(fn, signature, "results")
    results = fn.at(arguments, PTR, SIGNATURE.load(fn, signature, "arguments"))
    objects = fn.at(results, PTR, count)
    zero = fn.i64(0)
    start = (zero, record, fn.constant(I1, 0))
    with fn.while_(start, lambda iteration: (iteration.carried[0] < count) & ~iteration.carried[2]) as iteration:
        number, record, _ = iteration.carried
        array = fn.call("xlakit_new_array", PTR, record)
        failed = array.eq(fn.null())
        with fn.if_(~failed):
            fn.store(array, fn.at(objects, PTR, number))
            fn.store(fn.load(PTR, fn.at(array, I8, numpy_api.DATA)), fn.at(results, PTR, number))
        following = fn.at(record, I8, _record_size(fn, record))
        iteration.next(fn.select(failed, number, number + 1), following, failed)
    allocated, tree, failed = iteration.results

    def execute() -> tuple[Value]:
        context = SIGNATURE.pointer(fn, signature, "context")
        return (fn.call("xlakit_execute_for_python", I64, context, arguments, results),)

    (status,) = fn.if_else(failed, lambda: (fn.i64(Status.RAISED),), execute)

    def give() -> tuple[Value]:
        length = SIGNATURE.load(fn, signature, "tree_length")
        return (fn.call("assemble", PTR, tree, length, objects, count, fn.at(objects, PTR, count)),)

    def fail() -> tuple[Value, ...]:
        fn.call("release_objects", VOID, objects, zero, allocated)
        raised = _c(fn, "PyErr_Occurred").ne(fn.null())
        return fn.if_else(raised, lambda: (fn.null(),), lambda: (fn.call("report", PTR, held, status),))

    _emit_report(module)
    fn.ret(*fn.if_else(status.eq(Status.DONE), give, fail))


def _emit_report(module: Module) -> None:
    """``report(ptr held, i64 status) -> ptr``: call the function that raises the error of a status; gives null."""
    fn, held, status = module.begin("report", PTR, [PTR, I64], attributes=(NO_INLINE, COLD))
    number = _c(fn, "PyLong_FromLongLong", status)
    fn.return_if(number.eq(fn.null()), number)
    answer = _c(fn, "PyObject_CallOneArg", _c(fn, "PyTuple_GetItem", held, fn.i64(HELD_ON_ERROR)), number)
    _c(fn, "Py_DecRef", number)
    fn.ret(answer)


def _emit_call(module: Module) -> None:
    """``xlakit_call(ptr held, ptr objects, i64 count) -> ptr``: the function that Python calls, by METH_FASTCALL."""
    fn, held, objects, count = module.begin("xlakit_call", PTR, [PTR, PTR, I64], external=True)
    signature = _c(fn, "PyBytes_AsString", _c(fn, "PyTuple_GetItem", held, fn.i64(HELD_SIGNATURE)))
    table = fn.call("xlakit_allocate", PTR, SIGNATURE.load(fn, signature, "table_bytes"))
    with fn.if_(table.eq(fn.null()), likely=False):
        _c(fn, "PyErr_NoMemory")
    fn.return_if(table.eq(fn.null()), table)
    record = fn.call("gather", PTR, signature, objects, count, table)

    def fall_back() -> tuple[Value]:
        fallback = _c(fn, "PyTuple_GetItem", held, fn.i64(HELD_FALLBACK))
        return (_c(fn, "PyObject_Vectorcall", fallback, objects, count, fn.null()),)

    def run() -> tuple[Value]:
        return (fn.call("run", PTR, held, signature, record, table),)

    answer = fn.if_else(record.eq(fn.null()), fall_back, run)
    fn.call("xlakit_release", VOID, table)
    fn.ret(*answer)
