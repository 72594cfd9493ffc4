"""Machine code in memory, linked with its imports; LLVM links only object files that no image can be made of."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from xlakit.cpu.llvm import libcalls
from xlakit.errors import FormatError, InternalError
from xlakit.machine_code.image import Image, MappedImage, address_in_process, is_image


def laid_out(objects: Sequence[bytes]) -> tuple[bytes, ...]:
    """Object files that are linked together, in loadable form: one image, or unchanged if none can be made."""
    # Imported here: an image from the cache needs no parser of object files.
    from xlakit.machine_code.elf import image_of

    image = image_of(objects)
    return tuple(objects) if image is None else (image.to_bytes(),)


class Library:
    """Machine code in memory. It stays loaded as long as this object lives, so a caller must hold the object."""

    def __init__(
        self,
        name: str,
        objects: bytes | Sequence[bytes],
        functions: Sequence[str],
        symbols: Mapping[str, int],
        *,
        stays: bool = False,
    ) -> None:
        """Link object files together, or load an image.

        functions: the names whose addresses are needed. symbols: the addresses of imported symbols. stays: whether the
        code is needed until the process ends.
        """
        parts = (objects,) if isinstance(objects, bytes) else tuple(objects)
        if not (len(parts) == 1 and is_image(parts[0])):
            parts = laid_out(parts)
        if len(parts) == 1 and is_image(parts[0]):
            self._code = _mapped(name, parts[0], functions, symbols)
            return
        from xlakit.cpu.llvm.linking import LinkedObjects

        called = {libcall: _libcall(libcall) for libcall in libcalls.called_by(parts) if libcall not in functions}
        self._code = LinkedObjects(name, parts, functions, {**symbols, **called}, stays=stays)

    def address(self, function: str) -> int:
        """The address of a function."""
        return self._code.address(function)


def _mapped(name: str, data: bytes, functions: Sequence[str], symbols: Mapping[str, int]) -> MappedImage:
    def address_of(symbol: str) -> int:
        address = symbols.get(symbol)
        if address is None:
            address = _libcall(symbol) if symbol in libcalls.LIBCALLS else address_in_process(symbol)
        if address is None:
            raise InternalError(f"machine code of {name} cannot be linked: nothing is named {symbol}")
        return address

    try:
        image = Image.from_bytes(data)
    except FormatError as error:
        raise InternalError(f"machine code of {name} cannot be linked: {error.rule}") from None
    missing = [function for function in functions if function not in image.functions]
    if missing:
        raise InternalError(f"machine code of {name} cannot be linked: it has no {', '.join(missing)}")
    return MappedImage(image, address_of)


_libcall_libraries: dict[str, Library] = {}
_libcalls_lock = threading.Lock()


def _libcall(name: str) -> int:
    """The address of a function that LLVM's code generation calls by itself; it is compiled on first use."""
    from xlakit.cpu.llvm import engine

    with _libcalls_lock:
        if name not in _libcall_libraries:
            object_code = engine.make_object(libcalls.LIBCALLS[name])
            _libcall_libraries[name] = Library(name, object_code, [name], {}, stays=True)
        return _libcall_libraries[name].address(name)
