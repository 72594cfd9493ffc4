"""Matrix products: blocking, packing and micro-kernels."""
