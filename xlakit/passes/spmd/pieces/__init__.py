"""Operations on the parts that a partition has: their instructions, sums in parts, and changes of the tiling."""
