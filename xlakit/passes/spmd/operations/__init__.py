"""Operations with special rules: loops, branches, effects, custom calls and manual computations."""
