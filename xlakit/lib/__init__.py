"""XLA's math library on XlaBuilder: factorizations of matrices and special functions, made of other operations."""
