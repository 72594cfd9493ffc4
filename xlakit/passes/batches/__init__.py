"""Batches of small arrays: transposes programs over them so that the batch dimension is minor and fills vectors."""
