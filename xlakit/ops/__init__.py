"""The definitions of all operations: one page (a file) for each family of operations, listed in ``registry``."""
