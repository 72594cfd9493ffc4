"""Images of machine code: what is laid out runs as LLVM's linker would have it, and what is not known is left to it."""

import ctypes
import gc
import platform
import sys

import pytest

from xlakit.cpu.llvm import engine, linking
from xlakit.cpu.llvm.effort import Effort
from xlakit.cpu.llvm.library import Library, laid_out
from xlakit.errors import FormatError, InternalError
from xlakit.machine_code import elf
from xlakit.machine_code.image import PAGE, Image, MappedImage

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() != "x86_64", reason="images are laid out here for Linux"
)

# Constants, variables that begin as a number and as zero, a jump table, functions of both files, of the process, and
# of the caller that loads them, called and by their addresses.
_FIRST = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@counted = internal global i64 100
@wide = internal global [64 x i64] zeroinitializer, align 64

declare i64 @second(i64) nounwind
declare i64 @labs(i64) nounwind
declare i64 @given(i64) nounwind
declare i64 @through(ptr, i64) nounwind

define i64 @first(i64 %x) nounwind {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %x
  %t = load i64, ptr %at
  %c = load i64, ptr @counted
  %n = add i64 %c, 1
  store i64 %n, ptr @counted
  %last = getelementptr [64 x i64], ptr @wide, i64 0, i64 63
  %w = load i64, ptr %last
  store i64 %n, ptr %last
  %s = call i64 @second(i64 %x)
  %neg = sub i64 0, %s
  %l = call i64 @labs(i64 %neg)
  %p = call i64 @through(ptr @given, i64 %l)
  %q = call i64 @through(ptr @second, i64 %p)
  %a = add i64 %t, %n
  %b = add i64 %a, %w
  %r = add i64 %b, %q
  ret i64 %r
}

define i64 @switched(i64 %x) nounwind {
  switch i64 %x, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e ]
a:
  %u = call i64 @given(i64 5)
  ret i64 %u
b:
  ret i64 77
c:
  %v = call i64 @second(i64 9)
  ret i64 %v
d:
  ret i64 1
e:
  %w = call i64 @labs(i64 -3)
  ret i64 %w
other:
  ret i64 -1
}
"""
_SECOND = """
define i64 @second(i64 %x) nounwind {
  %r = mul i64 %x, 3
  ret i64 %r
}

define i64 @through(ptr %f, i64 %x) nounwind {
  %r = call i64 %f(i64 %x)
  ret i64 %r
}
"""
_RETURN = "define i64 @f(i64 %x) nounwind {\n  ret i64 %x\n}\n"
# What no image can be made of, and what runs all the same.
_LEFT_TO_LLVM = {
    "unwinding": _RETURN.replace("nounwind", "uwtable"),
    "weak": _RETURN.replace("define", "define weak"),
    "common": "@shared = common global i64 0\n" + _RETURN.replace("ret", "store i64 %x, ptr @shared\n  ret"),
    "addresses": "@there = constant ptr @f\n" + _RETURN,
}
_taken = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_given = _taken(lambda x: x + 1000)
_SYMBOLS = {"given": ctypes.cast(_given, ctypes.c_void_p).value}


def _objects(*texts, effort=Effort.CODE):
    return [engine.compiled(text, effort) for text in texts]


def _function(library, name):
    return _taken(library.address(name))


@pytest.mark.parametrize("effort", [Effort.LITTLE, Effort.CODE])
def test_objects_that_call_each_other_and_what_they_import(effort):
    (image,) = laid_out(_objects(_FIRST, _SECOND, effort=effort))
    library = Library("images", image, ["first", "switched"], _SYMBOLS)
    first, switched = _function(library, "first"), _function(library, "switched")
    # Each call: table + counted + what the last call left + (3 x + 1000) * 3.
    assert first(2) == 30 + 101 + 0 + (6 + 1000) * 3
    assert first(3) == 40 + 102 + 101 + (9 + 1000) * 3
    assert [switched(x) for x in range(6)] == [1005, 77, 27, 1, 3, -1]
    # Each has variables of its own.
    other = Library("images", image, ["first"], _SYMBOLS)
    assert _function(other, "first")(0) == 10 + 101 + 0 + 1000 * 3


def test_an_image_is_read_from_its_bytes_alone():
    image = elf.image_of(_objects(_FIRST, _SECOND))
    assert Image.from_bytes(image.to_bytes()) == image
    for damaged in (b"", image.to_bytes()[:-1], image.to_bytes() + b"x", image.to_bytes()[:20]):
        with pytest.raises(FormatError, match="no image"):
            Image.from_bytes(damaged)


def test_no_memory_is_written_and_executed():
    library = Library("images", _objects(_FIRST, _SECOND), ["first"], _SYMBOLS)
    start = library.address("first") // PAGE * PAGE
    with open("/proc/self/maps") as lines:
        found = {}
        for line in lines:
            span, access, *_ = line.split()
            low, high = (int(x, 16) for x in span.split("-"))
            found.update(dict.fromkeys(range(max(low, start), min(high, start + 3 * PAGE), PAGE), access[:3]))
    assert [found[start + n * PAGE] for n in range(3)] == ["r-x", "r--", "rw-"]


def _is_mapped(address):
    with open("/proc/self/maps") as lines:
        spans = [[int(x, 16) for x in line.split()[0].split("-")] for line in lines]
    return any(low <= address < high for low, high in spans)


def test_memory_goes_with_its_last_owner():
    # So much that nothing else is given the same addresses at once.
    text = "@large = internal global [100000000 x i8] zeroinitializer\n" + _RETURN.replace(
        "ret", "%p = getelementptr i8, ptr @large, i64 %x\n  store i8 1, ptr %p\n  ret"
    )
    library = Library("images", _objects(text), ["f"], {})
    assert isinstance(library._code, MappedImage)
    at = library.address("f")
    assert _function(library, "f")(99_999_999) == 99_999_999
    middle = at + 50_000_000
    assert _is_mapped(middle)
    del library
    gc.collect()
    assert not _is_mapped(middle)


@pytest.mark.parametrize("kind", _LEFT_TO_LLVM)
def test_what_is_not_known_is_linked_by_llvm(kind):
    objects = _objects(_LEFT_TO_LLVM[kind])
    assert elf.image_of(objects) is None
    library = Library(f"images_{kind}", objects, ["f"], {})
    assert isinstance(library._code, linking.LinkedObjects)
    assert _function(library, "f")(7) == 7


def test_no_image_is_made_of_what_is_no_object():
    for data in (b"", b"\x7fELF", b"MZ" + bytes(100)):
        assert elf.image_of([data]) is None
    # Two functions of one name.
    assert elf.image_of(_objects(_RETURN, _RETURN)) is None


def test_what_is_missing_is_named():
    calls = _RETURN.replace("ret", "%y = call i64 @nowhere_to_be_found(i64 %x)\n  ret")
    text = f"declare i64 @nowhere_to_be_found(i64)\n{calls}"
    with pytest.raises(InternalError, match="nowhere_to_be_found"):
        Library("images", _objects(text), ["f"], {})
    with pytest.raises(InternalError, match=r"has no g"):
        Library("images", _objects(_RETURN), ["f", "g"], {})
    with pytest.raises(InternalError, match="no image"):
        Library("images", laid_out(_objects(_RETURN))[0][:-1], ["f"], {})


def test_a_library_may_have_no_functions():
    with pytest.raises(KeyError):
        Library("images", [], [], {}).address("f")
