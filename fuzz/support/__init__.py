"""What the commands of fuzz share: workers, tolerances, generators of damage, tables of accepted differences."""
