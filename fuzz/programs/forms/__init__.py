"""Forms of loops: what moves, computes or folds elements, of every type."""
