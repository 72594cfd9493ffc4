"""Programs of many operations: generated modules, loops and branches, well-known algorithms, several collectives."""
