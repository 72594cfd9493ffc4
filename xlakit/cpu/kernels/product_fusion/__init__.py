"""Fusions around products: matrix products and convolutions with what follows them."""
