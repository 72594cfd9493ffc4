"""Operations on elements: each element of the result is computed from those at the same index."""
