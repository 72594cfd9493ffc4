"""Emission of nodes as LLVM IR: scalars and vectors, guards, non-temporal stores, cancellation checks."""
