"""The entry: lowers a module to steps on planned memory, and writes the native function that executes them in order."""
