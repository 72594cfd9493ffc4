"""XLA's typed FFI: C functions that take a call frame with typed buffers and attributes, and may fail."""
