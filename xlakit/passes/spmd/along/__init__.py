"""Operations along the dimensions that are split: rows by number, and windows that reach into neighboring parts."""
