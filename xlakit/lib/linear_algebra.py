"""Factorizations of matrices. All dimensions but the last two of an operand count matrices.

Each is a custom call of LAPACK, by the names under which compiled programs call it without Python.
"""

from __future__ import annotations
