"""Runs a program by the meaning on the op pages, with NumPy: the reference for everything else."""
