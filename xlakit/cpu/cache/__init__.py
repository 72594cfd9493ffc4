"""Keys of the compile cache."""
