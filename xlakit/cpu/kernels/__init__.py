"""Kernels: the code of operations that are not loop nests, and the library that asks for each."""
