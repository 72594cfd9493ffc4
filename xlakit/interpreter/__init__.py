"""Runs a program by ``Op.evaluate`` of its operations, in NumPy: the reference for other backends."""
