"""Numerics: what values a program computes, how exact they are, and where two programs part."""
