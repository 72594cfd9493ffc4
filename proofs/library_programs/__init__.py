"""Programs as people write them with libraries on JAX, for ``python -m proofs.libraries``: a file for each library."""
