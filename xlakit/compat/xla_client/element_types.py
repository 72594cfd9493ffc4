"""Tables between element types and NumPy's dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from xlakit.compat.xla_client.enums import PrimitiveType


def _dtype(kind: PrimitiveType) -> np.dtype[Any]:
    return kind.wrapped.dtype if kind.wrapped.is_array else np.dtype(object)


_WITHOUT = (PrimitiveType.PRIMITIVE_TYPE_INVALID, PrimitiveType.OPAQUE_TYPE)

XLA_ELEMENT_TYPE_TO_DTYPE = {kind: _dtype(kind) for kind in PrimitiveType if kind not in _WITHOUT}

# By the names of the dtypes.
DTYPE_TO_XLA_ELEMENT_TYPE = {str(dtype): kind for kind, dtype in XLA_ELEMENT_TYPE_TO_DTYPE.items()}


def dtype_to_etype(dtype: Any) -> PrimitiveType:
    """The element type of a dtype, or of what NumPy takes for one. Raises KeyError for one that there is not."""
    return DTYPE_TO_XLA_ELEMENT_TYPE[str(np.dtype(dtype))]
