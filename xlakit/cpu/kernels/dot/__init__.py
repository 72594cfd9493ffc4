"""Dots: the choice of a kernel for each, and the kernels other than the blocked product of ``gemm/``.

``dot.py`` reads the HLO operation as a matrix product and chooses its kernel; ``ragged_dot.py`` does so for ragged
dots.

- ``matrix_vector.py``: sums along contiguous rows, for products with a few vectors
- ``few_rows.py``: a few rows times a large matrix, which is streamed
- ``gemm/``: all other products
"""
