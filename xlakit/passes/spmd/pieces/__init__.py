"""Operations on the parts of one partition: choice of splits, emission, partial sums and resharding."""
