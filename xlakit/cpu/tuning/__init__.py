"""Tuning: alternatives of kernels are timed on the machine, and what was clearly faster is kept."""
