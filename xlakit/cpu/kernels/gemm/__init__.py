"""Matrix products: blocking, packing, micro-kernels, and fusions around products."""
