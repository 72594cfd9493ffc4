"""Small programs of all families, generated and timed against XLA: ``python -m benchmarks.breadth``."""
