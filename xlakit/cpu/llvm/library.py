"""Machine code in memory, with what it imports. LLVM is needed only for object files that cannot be laid out before."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from xlakit.cpu.llvm import libcalls
from xlakit.errors import FormatError, InternalError
from xlakit.machine_code.image import Image, MappedImage, address_in_process, is_image


def laid_out(objects: Sequence[bytes]) -> tuple[bytes, ...]:
    """Object files that are linked together, as they are loaded: one image, or themselves where none can be made."""
    # Images that are there already need no reader of object files.
    from xlakit.machine_code.elf import image_of

    image = image_of(objects)
    return tuple(objects) if image is None else (image.to_bytes(),)


class Library:
    """Machine code in memory. It stays as long as this object does: a caller holds the object."""

    def __init__(
        self,
        name: str,
        objects: bytes | Sequence[bytes],
        functions: Sequence[str],
        symbols: Mapping[str, int],
        *,
        stays: bool = False,
    ) -> None:
        """Object files linked together, or an image; ``functions`` are those that are asked for, ``symbols`` what they
        import.

        stays: whether it is needed as long as the process runs, whatever programs come and go.
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
        """Where a function starts."""
        return self._code.address(function)


def _mapped(name: str, data: bytes, functions: Sequence[str], symbols: Mapping[str, int]) -> MappedImage:
    def address_of(symbol: str) -> int:
        found = symbols.get(symbol)
        if found is None:
            found = _libcall(symbol) if symbol in libcalls.LIBCALLS else address_in_process(symbol)
        if found is None:
            raise InternalError(f"machine code of {name} cannot be linked: nothing is named {symbol}")
        return found

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
    """Where a function starts that LLVM's code generation calls by itself; made when it is first needed."""
    from xlakit.cpu.llvm import engine

    with _libcalls_lock:
        if name not in _libcall_libraries:
            made = engine.make_object(libcalls.LIBCALLS[name])
            _libcall_libraries[name] = Library(name, made, [name], {}, stays=True)
        return _libcall_libraries[name].address(name)
