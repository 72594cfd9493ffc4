"""Descriptors: C structs in the backend_config of older versions of JAX's calls for GPUs, before the typed FFI.

Their fields are little-endian integers of 32 bits, in the order of the names below, followed by letters. This module
reads only the fields that do not follow from the shapes.
"""

from __future__ import annotations

import struct
from typing import Final

from xlakit.errors import ShapeError
from xlakit.execution.calls.foreign.config import Config

_GESVD: Final = "type batch m n lwork"
_FIELDS: Final = {
    "syevd": "type uplo batch n lwork",
    "syevj": "type uplo batch n lwork",
    "sytrd": "type uplo batch n lda lwork",
    "gesvd": _GESVD,
    "gesvdj": f"{_GESVD} jobz econ",
}
# The numbers that cuBLAS and hipSOLVER have for the lower triangle, the upper one, and vectors that are computed.
_LOWER, _UPPER, _VECTORS = (0, 122), (1, 121), (1, 202)


def config_of(text: str, routine: str) -> Config:
    """The fields of a descriptor under the typed FFI's names; empty for a routine that needs none.

    Raises ShapeError for a descriptor that is too short, or has a number that there is not.
    """
    if routine == "rnn":
        return Config({"opaque": text})
    names = _FIELDS.get(routine, "").split()
    data = text.encode("utf-8", "surrogateescape")
    letters = data[4 * len(names) :].decode("latin-1")
    if len(data) < 4 * len(names) or (routine == "gesvd" and letters[:1] not in ("A", "S", "N")):
        raise ShapeError(
            f"backend_config has {len(data)} bytes, and is no descriptor of {routine}",
            hint=f"it has the integers {', '.join(names)}" + (" and two letters" if routine == "gesvd" else ""),
        )
    fields = dict(zip(names, struct.unpack_from(f"<{len(names)}i", data), strict=True))
    if "uplo" in fields:
        if fields["uplo"] not in _LOWER + _UPPER:
            raise ShapeError(f"backend_config has uplo {fields['uplo']}", hint="it is 0 or 122 (lower), 1 or 121")
        return Config({"lower": fields["uplo"] in _LOWER})
    if routine == "gesvd":
        is_whole = letters[0] == "A"
        return Config({"compute_uv": letters[0] != "N", "full_matrices": is_whole, "rows": fields["m"]})
    if routine == "gesvdj":
        return Config({"compute_uv": fields["jobz"] in _VECTORS, "full_matrices": not fields["econ"]})
    return Config({})
