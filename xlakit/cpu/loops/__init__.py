"""Loop nests: fused computations as nodes over indices, and the code that computes them."""
