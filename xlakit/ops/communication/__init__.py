"""Operations by which devices, programs and hosts talk to each other, and those that are split into start and done."""
