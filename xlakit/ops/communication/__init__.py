"""Operations by which devices, programs and hosts communicate, and operations that are split into start and done."""
