"""Programs as people write them with libraries on JAX, for ``python -m fuzz.libraries``: a file for each library."""
