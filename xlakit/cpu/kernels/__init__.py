"""Kernels: the code of operations that are not loop nests, and the library that makes each instruction's kernel."""
