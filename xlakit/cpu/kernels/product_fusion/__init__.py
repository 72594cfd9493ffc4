"""Product fusions: matrix products and convolutions with the operations that follow them."""
