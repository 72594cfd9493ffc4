"""Passes on while loops: carried state, invariants, sums of products, ranges of counters, unrolling."""
