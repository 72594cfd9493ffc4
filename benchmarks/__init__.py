"""Times xlakit against XLA, PyTorch and NumPy: ``python -m benchmarks``. docs/benchmarks.md says how to read it."""
