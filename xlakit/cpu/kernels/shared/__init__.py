"""Parts of several kinds of kernels: common functions, BLAS, fingerprints, parallelism, preconditions and scratch."""
