"""The memory plan of a program: an immutable description of its values, their live ranges and their buffer slices."""
