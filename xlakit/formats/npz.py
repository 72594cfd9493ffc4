"""Arrays in files of NumPy, of all types: those that NumPy does not know (bf16, f8, s4) are raw bytes there."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final
from zipfile import BadZipFile

import numpy as np

from xlakit.data.literal import Array
from xlakit.errors import FormatError, naming_file
from xlakit.formats.files import whole_file

# What NumPy says of a type that a package has added to it.
_ADDED: Final = 2


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays into an ``.npz`` file, by name. Raises OSError where it cannot be written."""
    # Opened here, since savez puts .npz behind a path that does not end so.
    with whole_file(path) as file:
        write_npz(file, arrays)


def write_npz(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write arrays in the format of an ``.npz`` file; NumPy itself writes f8e5m2 under a name that it cannot read."""
    np.savez(file, **{name: _as_known(array) for name, array in arrays.items()})  # pyright: ignore[reportArgumentType]


def _as_known(array: Array) -> Array:
    return array.view(f"V{array.itemsize}") if array.dtype.isbuiltin == _ADDED else array


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an ``.npz`` file by name, or of an ``.npy`` file as "0".

    Raises FormatError where the file is not NumPy's, OSError where it cannot be read.
    """
    with naming_file(str(path)), path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            return {"0": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        # Exceptions of NumPy, zipfile and zlib for files that are damaged, hold Python objects or have other formats.
        except (ValueError, EOFError, BadZipFile, zlib.error, RuntimeError, MemoryError):
            raise FormatError(
                f"{path} is neither a file of NumPy arrays nor a snapshot with arguments, or is damaged",
                hint="save one with numpy.savez, no object arrays, and float8_e5m2 as array.view('V1')",
            ) from None
