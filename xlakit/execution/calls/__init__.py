"""The functions behind custom calls: registered ones, C functions, LAPACK, and those that the compiler itself calls."""
