"""Handlers of XLA's typed FFI that are written in Python: what is in a call frame, as NumPy's arrays."""

import ctypes

import numpy as np

from xlakit.execution.calls.ffi import structures
from xlakit.execution.calls.ffi.structures import AttributeKind

HANDLER = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(structures.CallFrame))
_KINDS = {number: kind for kind, number in structures.DATA_TYPES.items()}


def words(address, count, type=ctypes.c_size_t):
    return list((type * count).from_address(address)) if count else []


def array(buffer):
    found = structures.Buffer.from_address(buffer)
    assert found.struct_size == ctypes.sizeof(structures.Buffer)
    shape, dtype = words(found.dims, found.rank), _KINDS[found.dtype].dtype
    count = int(np.prod(shape, dtype=int))
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(found.data), dtype).reshape(shape)


def span(address):
    found = structures.ByteSpan.from_address(address)
    return ctypes.string_at(found.ptr, found.len).decode()


def attributes(found):
    def value(kind, address):
        if kind == AttributeKind.STRING:
            return span(address)
        if kind == AttributeKind.DICTIONARY:
            return attributes(structures.Attributes.from_address(address))
        form = structures.Array if kind == AttributeKind.ARRAY else structures.Scalar
        given = form.from_address(address)
        dtype = _KINDS[given.dtype].dtype
        count = given.size if kind == AttributeKind.ARRAY else 1
        data = given.data if kind == AttributeKind.ARRAY else given.value
        numbers = np.frombuffer(ctypes.string_at(data, count * dtype.itemsize), dtype)
        return numbers.tolist() if kind == AttributeKind.ARRAY else numbers[0]

    assert found.struct_size == ctypes.sizeof(structures.Attributes)
    kinds = words(found.types, found.size, ctypes.c_int32)
    places = zip(words(found.names, found.size), kinds, words(found.attrs, found.size), strict=True)
    return {span(name): value(kind, address) for name, kind, address in places}


def handler(function, version=(structures.MAJOR, structures.MINOR)):
    """A C function that gives ``function(frame, operands, results, attributes)``, an error or None."""

    def called(pointer):
        frame = pointer.contents
        if frame.extension_start:
            extension = structures.MetadataExtension.from_address(frame.extension_start)
            found = structures.Metadata.from_address(extension.metadata).api_version
            found.major, found.minor = version
            return 0
        assert frame.struct_size == structures.CALL_FRAME_BYTES
        given, made = (list(map(array, words(part.buffers, part.size))) for part in (frame.args, frame.rets))
        return function(frame, given, made, attributes(frame.attrs)) or 0

    return HANDLER(called)


def doubled(given, made):
    """What a handler does that gives its operand twice over."""
    made[0][...] = 2 * given[0]
