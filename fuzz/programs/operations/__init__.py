"""Programs of one operation each, a file for each family of operations."""
