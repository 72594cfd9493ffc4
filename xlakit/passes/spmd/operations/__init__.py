"""Operations that are split in ways of their own: loops, branches, effects, custom calls and manual computations."""
