"""Batches: programs over many small arrays, laid out so that the loop over the batch is innermost."""
