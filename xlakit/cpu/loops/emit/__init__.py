"""From nodes to LLVM: scalar and vector emission, guards, non-temporal stores, cancellation checks."""
