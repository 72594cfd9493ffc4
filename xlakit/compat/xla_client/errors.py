"""XlaRuntimeError, and the conversion of xlakit's errors to it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from xlakit.errors import (
    ArgumentError,
    DeletedBufferError,
    ExecutionError,
    FormatError,
    LiteralError,
    ResourceError,
    ShapeError,
    UnregisteredError,
    UnsupportedError,
    VerificationError,
    XlakitError,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")

# The absl status code for each class of errors; the first class that matches counts.
_CODES: tuple[tuple[type[XlakitError], str], ...] = (
    (UnregisteredError, "NOT_FOUND"),
    (UnsupportedError, "UNIMPLEMENTED"),
    (ResourceError, "RESOURCE_EXHAUSTED"),
    (ShapeError, "INVALID_ARGUMENT"),
    (VerificationError, "INVALID_ARGUMENT"),
    (LiteralError, "INVALID_ARGUMENT"),
    (FormatError, "INVALID_ARGUMENT"),
    (ArgumentError, "INVALID_ARGUMENT"),
    (DeletedBufferError, "INVALID_ARGUMENT"),
    (ExecutionError, "INTERNAL"),
)


_LAYOUT = re.compile(r"(\b[a-z]\w*\[[<=\d,?]*\])\{(\d+(?:,\d+)*)\}")


class XlaRuntimeError(RuntimeError):
    """The only error class of this interface. Its text is a status code, a colon, and xlakit's message."""


def as_status(error: XlakitError, text: str = "", code: str = "") -> XlaRuntimeError:
    """An error of xlakit as an XlaRuntimeError with the status code that XLA would give.

    text: jaxlib's words for it, without a full stop, which programs may look for; xlakit's follow.
    code: jaxlib's status code, where it is not that of the kind of error.
    """
    code = code or next((code for kind, code in _CODES if isinstance(error, kind)), "INTERNAL")
    message = _LAYOUT.sub(_unless_default, str(error))
    return XlaRuntimeError(f"{code}: {text}. {message}" if text else f"{code}: {message}")


def _unless_default(match: re.Match[str]) -> str:
    """A shape without its layout, which XLA's messages do not show, unless that is not major to minor."""
    order = match[2].split(",")
    return match[1] if order == sorted(order, key=int, reverse=True) else match[0]


@contextmanager
def status_errors(code: str = "") -> Generator[None]:
    """Raise errors of xlakit inside the block as XlaRuntimeError, with this status code if one is given."""
    try:
        yield
    except XlakitError as error:
        raise as_status(error, code=code) from error


def with_status(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose errors of xlakit are raised as XlaRuntimeError."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except XlakitError as error:
            raise as_status(error) from error

    return call
