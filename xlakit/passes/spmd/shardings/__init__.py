"""Which part of an array a partition has: tilings, teams, what programs say of them, and what operations allow."""
