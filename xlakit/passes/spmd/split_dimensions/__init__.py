"""Operations that work along split dimensions: rows by index, windows that reach into neighboring parts, scans."""
