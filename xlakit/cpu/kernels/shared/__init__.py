"""What kernels of several kinds need: common functions, BLAS, fingerprints, preconditions."""
