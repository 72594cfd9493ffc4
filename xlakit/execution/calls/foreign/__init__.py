"""Implementations of custom calls in programs that were optimized for other backends: XLA's for GPUs, CPUs and TPUs."""
