"""Files that are written as a whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

_PREFIX: Final = ".xlakit-"
# Seconds after which a file that no process has locked is not one that is about to be locked.
_OLD: Final = 60
_cleaned: set[Path] = set()


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Write text (UTF-8) or bytes as :func:`whole_file` does it."""
    with whole_file(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def whole_file(path: str | Path) -> Generator[IO[bytes]]:
    """A file that takes the place of the one at ``path`` when all is written; before, or on an error, that stays.

    What is no regular file, such as a pipe, and what cannot be replaced is written itself. An OSError of the file has
    its path. A process that is killed leaves ``.xlakit-*`` beside it, which the next one that writes there removes.
    """
    try:
        with _replacing(Path(path).resolve()) if _is_replaced(Path(path)) else open(path, "wb") as file:
            yield file
    except OSError as error:
        if error.filename is None or Path(str(error.filename)).name.startswith(_PREFIX):
            error.filename = str(path)
            # An error of a rename names two files; None would be printed as one.
            del error.filename2
        raise


def _is_replaced(path: Path) -> bool:
    if not path.exists():
        # What is behind a link that leads nowhere, or to itself, is the system's to say.
        return not path.is_symlink()
    # /dev/stdout may be a regular file, to which a shell appends.
    if not path.is_file() or any(path.absolute().is_relative_to(folder) for folder in ("/dev", "/proc")):
        return False
    # A new file would be of another owner, or only one of the names of the old one.
    status = path.stat()
    is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
    return is_ours and os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)


@contextmanager
def _replacing(target: Path) -> Generator[IO[bytes]]:
    _clean(target.parent)
    beside = target.with_name(f"{_PREFIX}{os.urandom(8).hex()}")
    try:
        with beside.open("xb") as file:
            # Until the process ends; some file systems have no locks.
            with suppress(OSError):
                _lock(file)
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
        beside.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise


def _clean(folder: Path) -> None:
    """Remove what killed processes have left in a folder, once for each."""
    if folder in _cleaned:
        return
    _cleaned.add(folder)
    for left in folder.glob(_PREFIX + "[0-9a-f]" * 16):
        # Another process may remove it, or still write it: then it is locked.
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _OLD:
                with left.open("rb") as file:
                    _lock(file)
                    left.unlink()


def _lock(file: IO[bytes]) -> None:
    """Lock a file for this process. Raises OSError if another one has it, or where there are no such locks."""
    if os.name != "posix":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
