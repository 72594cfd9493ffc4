"""Numerics: the values that a program computes, their rounding errors, and the first difference of two programs."""
