"""Bounded dynamic dimensions: rewrites programs to padded arrays of static shapes and scalars for the sizes."""
