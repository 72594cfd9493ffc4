"""What each operation means: one page for each family of operations, listed in ``registry``."""
