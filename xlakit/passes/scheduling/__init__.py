"""Collectives that are combined, and values that are computed again to lower the memory peak."""
