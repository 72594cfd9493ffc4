"""Dots: which kernel computes one, and the kernels that are not the blocked product of ``gemm/``.

``dot.py`` reads the HLO operation as a matrix product and chooses; ``ragged_dot.py`` does so for ragged dots.

- ``matrix_vector.py``: sums along contiguous rows, with a few vectors
- ``few_rows.py``: a few rows times a large matrix, which is streamed
- ``gemm/``: everything else
"""
