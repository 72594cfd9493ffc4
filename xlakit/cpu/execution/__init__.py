"""Calls of a compiled program: its machine code in memory, its devices, and the boundary to callers' arrays."""
