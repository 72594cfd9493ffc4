"""The compile cache: machine code on disk, so that a program is compiled once for all processes of a user.

An entry is a file of its own, named by the key of what it was made from. All numbers are little-endian:

    bytes  0 ..  7   the magic bytes ``XLAKIT1`` and a zero
    bytes  8 .. 39   SHA-256 of all that follows
    bytes 40 .. 43   the length of the header
    bytes 44 ..      the header: JSON, ``{"key": ..., "fields": {...}, "sections": [[name, offset, length], ...]}``
    then             from the next multiple of 64 on, the sections' bytes, each at its offset from there

Machine code is executed as it is read, so only files that no other user could have written are read: directory and
files belong to the user, and other users may not write to them. A file is written under another name and renamed when
it is complete, so any number of processes may use one directory. A failure of the disk is a warning, never an error.

Environment: ``XLAKIT_CACHE=off`` switches it off, ``XLAKIT_CACHE_DIR`` says where it is, ``XLAKIT_CACHE_LIMIT`` how
large it may become (bytes, or with K, M or G; ``1G`` by default). The least recently used entries are removed first.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
import struct
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xlakit.dataclass import dataclass
from xlakit.errors import ArgumentError, FormatError
from xlakit.settings import bytes_in

_MAGIC = b"XLAKIT1\0"
_DIGEST = 32
_FIXED = struct.Struct(f"<8s{_DIGEST}sI")
_ALIGNMENT = 64
_SUFFIX = ".xlakit"
# A temporary file that was not renamed after this time is abandoned.
_ABANDONED_SECONDS = 3600.0
# Listing all entries is slow: a process does it when it first stores an entry, and then after this many more or, where
# it has found so many entries that it takes longer than storing those, after a share of their number.
_SAVES_PER_EVICTION = 16
_FOUND_PER_SAVE = 16
# The time of last use of an entry is written at most this often.
_TOUCH_SECONDS = 60.0
_DEFAULT_LIMIT = 1 << 30
_saves = itertools.count()
# The number of saves at which entries are listed next.
_next_eviction = 0


class CacheWarning(UserWarning):
    """The compile cache cannot be used, or has lost something; programs are compiled instead."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the cache: fields that JSON can represent, and named bytes."""

    fields: Mapping[str, Any]
    sections: Mapping[str, bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Usage:
    """The size of the cache."""

    directory: Path
    entries: int
    bytes: int
    limit: int


# -- settings --------------------------------------------------------------------------------------


def is_enabled() -> bool:
    """Whether the environment lets programs be cached. Raises ArgumentError unless it says on or off."""
    text = os.environ.get("XLAKIT_CACHE", "").lower()
    if text in ("off", "0", "no", "false"):
        return False
    if text in ("", "on", "1", "yes", "true"):
        return True
    raise ArgumentError(f"XLAKIT_CACHE is {text!r}", hint="set it to on or off")


def directory() -> Path | None:
    """The directory of the entries; None if the system has none for them."""
    chosen = os.environ.get("XLAKIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "xlakit"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "xlakit"
    return None


def size_limit() -> int:
    """The most bytes of all entries. Raises ArgumentError if XLAKIT_CACHE_LIMIT is no number of bytes."""
    given = bytes_in("XLAKIT_CACHE_LIMIT")
    return _DEFAULT_LIMIT if given is None else given


# -- reading and writing ---------------------------------------------------------------------------


def load(key: str) -> Entry | None:
    """The entry of a key; None if there is none, or if it cannot be trusted."""
    folder = directory() if is_enabled() else None
    if folder is None or not folder.is_dir() or not _is_private(folder):
        return None
    path = folder / (key + _SUFFIX)
    try:
        data = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(f"{path} cannot be read: {error.strerror}")
        return None
    try:
        return unpacked(data, key)
    except FormatError as error:
        _remove_damaged(path, error.rule)
        return None


def save(key: str, entry: Entry) -> None:
    """Store an entry under a key, replacing any earlier one; then evict entries if the cache is too large."""
    global _next_eviction  # noqa: PLW0603
    folder, limit = directory() if is_enabled() else None, size_limit()
    if folder is None:
        return
    data = packed(entry, key)
    if len(data) > limit:
        return
    try:
        if not os.path.isdir(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return
        _write(folder, key + _SUFFIX, data)
        if (number := next(_saves)) >= _next_eviction:
            found = _evict(folder, limit, keep=key + _SUFFIX)
            _next_eviction = number + max(_SAVES_PER_EVICTION, found // _FOUND_PER_SAVE)
    except OSError as error:
        _warn(
            f"nothing can be stored in {folder}: {error.strerror}; "
            "XLAKIT_CACHE_DIR names another folder, XLAKIT_CACHE=off does without"
        )


def discard(key: str, reason: str) -> None:
    """Remove an invalid entry, with a warning."""
    folder = directory()
    if folder is not None:
        _remove_damaged(folder / (key + _SUFFIX), reason)


def clear() -> int:
    """Remove all entries; gives their number."""
    folder = directory()
    removed = 0
    for file in [] if folder is None else _files(folder):
        removed += _remove(Path(file.path)) and file.name.endswith(_SUFFIX)
    return removed


def usage() -> Usage | None:
    """The number and the size of all entries; None if the system has no directory for them."""
    folder = directory()
    if folder is None:
        return None
    sizes: list[int] = []
    for file in _files(folder):
        if file.name.endswith(_SUFFIX):
            with suppress(FileNotFoundError):  # another process evicts
                sizes.append(file.stat().st_size)
    return Usage(folder, len(sizes), sum(sizes), size_limit())


# -- files -----------------------------------------------------------------------------------------


def _is_private(folder: Path) -> bool:
    found = folder.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return True
    _warn(f"{folder} is not used: others than you can write to it (make it yours with mode 700)")
    return False


def _read(path: Path) -> bytes:
    """The bytes of a file that only this user can write; marks it as used."""
    # Reading must not wait for a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no file", str(path))
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(0, "others than you can write to it", str(path))
        if time.time() - found.st_mtime > _TOUCH_SECONDS:
            with suppress(OSError):  # a disk that cannot be written to can still be read
                os.utime(descriptor)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _write(folder: Path, name: str, data: bytes) -> None:
    # As tempfile makes such files, in a third of the time: a small program is compiled in some milliseconds.
    temporary = os.path.join(folder, f"new-{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb", buffering=0, opener=_open_private) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        _remove(Path(temporary))
        raise


def _open_private(path: str, flags: int) -> int:
    """Open a file which only the user can read and write, if it is made here."""
    return os.open(path, flags, 0o600)


def _evict(folder: Path, limit: int, keep: str) -> int:
    """Remove the least recently used entries until nine tenths of the limit are used, and abandoned files.

    Gives how many entries there were.
    """
    found: list[tuple[float, int, str]] = []
    now = time.time()
    for file in _files(folder):
        with suppress(FileNotFoundError):  # another process evicts too
            status = file.stat()
            if file.name.endswith(_SUFFIX):
                found.append((status.st_mtime, status.st_size, file.name))
            elif now - status.st_mtime > _ABANDONED_SECONDS:
                _remove(folder / file.name)
    total = sum(size for _, size, _ in found)
    if total > limit:
        for _, size, name in sorted(found):
            if total <= limit * 9 // 10:
                break
            if name != keep and _remove(folder / name):
                total -= size
    return len(found)


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Our files in a directory: entries, and files that are being written."""
    if folder.is_dir():
        with os.scandir(folder) as found:
            for file in found:
                if file.name.endswith(_SUFFIX) or file.name.startswith("new-"):
                    yield file


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        # Another process was faster, or the directory cannot be written to.
        return False
    return True


def _remove_damaged(path: Path, reason: str) -> None:
    # Removed first: where warnings are errors, the next process must not meet the entry again.
    _remove(path)
    _warn(f"{path} is damaged ({reason}); what it held is compiled again")


def _warn(message: str) -> None:
    warnings.warn(f"the compile cache: {message}", CacheWarning, stacklevel=3)


# -- the format ------------------------------------------------------------------------------------


def packed(entry: Entry, key: str) -> bytes:
    """The bytes of the file of an entry."""
    sections: list[list[Any]] = []
    offset = 0
    for name, data in entry.sections.items():
        sections.append([name, offset, len(data)])
        offset += _aligned(len(data))
    header = json.dumps({"key": key, "fields": entry.fields, "sections": sections}).encode()
    start = _aligned(_FIXED.size + len(header))
    parts = [struct.pack("<I", len(header)), header.ljust(start - _FIXED.size, b" ")]
    parts += [bytes(data).ljust(_aligned(len(data)), b"\0") for data in entry.sections.values()]
    body = b"".join(parts)
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpacked(data: bytes, key: str) -> Entry:
    """The entry in the bytes of a file. Raises FormatError if they hold none, or that of another key."""
    if len(data) < _FIXED.size:
        raise FormatError("it is cut short")
    magic, digest, length = _FIXED.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError("it does not begin as an entry does")
    if hashlib.sha256(memoryview(data)[len(_MAGIC) + _DIGEST :]).digest() != digest:
        raise FormatError("its checksum is wrong")
    try:
        header = json.loads(data[_FIXED.size : _FIXED.size + length])
    except ValueError:
        raise FormatError("its header is no JSON") from None
    if header["key"] != key:
        raise FormatError("it is the entry of another key")
    start = _aligned(_FIXED.size + length)
    view = memoryview(data)
    sections = {name: view[start + at : start + at + size] for name, at, size in header["sections"]}
    return Entry(header["fields"], sections)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
